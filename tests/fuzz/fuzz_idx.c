/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_idx.c: the plugin data idx on any bytes. A libFuzzer target. An input is a byte that chooses settings, three
 * lengths of two bytes, little-endian, then the bytes of the four files: images and labels of training, which have
 * these lengths, and images of the test split; the rest is its labels.
 */
#include <zlib.h>
#define gzbuffer(stream, bytes) gzbuffer(stream, 1024) /* the sanitizer's allocator is slow at large blocks */
#include "plugins/data/idx.c"

#include "tests/fuzz/data.h"
#include "tests/fuzz/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[] = "/tmp/tenon-fuzz-idx-XXXXXX";
static const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                                    "t10k-labels-idx1-ubyte"};

static void remove_folder(void)
{
    char path[96];
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

/* Links to files in memory. */
static void make_folder(void)
{
    char path[96];
    fuzz_require(mkdtemp(folder) != NULL);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        fuzz_require(symlink(fuzz_file(i, "", 0), path) == 0);
    }
    atexit(remove_folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int made;
    if (!made++)
        make_folder();
    if (size < 7)
        return 0;
    const uint8_t *at = data + 7;
    size_t left = size - 7;
    for (int i = 0; i < 4; i++) {
        size_t n = i < 3 ? (size_t)(data[1 + 2 * i] | data[2 + 2 * i] << 8) : left;
        n = n < left ? n : left;
        fuzz_file(i, at, n);
        at += n;
        left -= n;
    }
    idx h = {.set = "", .folder = folder, .normalize = data[0] % 3, .flatten = data[0] >> 2 & 1};
    fuzz_data(&idx_table, &h);
    return 0;
}
