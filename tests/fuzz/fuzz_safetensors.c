/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_safetensors.c: the reader of checkpoints on any bytes. A libFuzzer target. What it accepts must cover the data
 * without holes and overlaps, be found by name, and read back as the bytes that were given.
 */
#include <string.h>

#include "host/store/safetensors.h"
#include "tests/fuzz/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition)
        abort();
}

static int64_t elements(const tn_safetensors_info *info)
{
    int64_t product = 1;
    for (int32_t i = 0; i < info->ndim; i++)
        product *= info->shape[i];
    return product;
}

/* `at`: where its data has to begin. Returns where it ends. */
static int64_t check_tensor(const tn_safetensors *file, const tn_safetensors_info *info, int64_t at,
                            const uint8_t *data, size_t size)
{
    tn_error err;
    require(info->begin == at && info->bytes >= 0 && info->bytes <= (int64_t)size - at);
    require(info->ndim >= 0 && info->ndim <= TN_MAX_DIMS && tn_safetensors_type(info->dtype) != NULL);
    require(elements(info) * (info->dtype.bits / 8) == info->bytes);
    require(tn_safetensors_find(file, info->name) == info);
    char *bytes = malloc((size_t)info->bytes + 1);
    require(tn_safetensors_read(file, info, 0, info->bytes, bytes, &err) == TN_OK);
    require(memcmp(bytes, data + at, (size_t)info->bytes) == 0);
    require(tn_safetensors_read(file, info, 1, info->bytes, bytes, &err) == TN_E_INVALID);
    require(tn_safetensors_read(file, info, info->bytes, 0, bytes, &err) == TN_OK);
    free(bytes);
    return at + info->bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tn_safetensors *file = NULL;
    tn_error err = {0};
    int32_t status = tn_safetensors_open(fuzz_file(0, data, size), &file, &err);
    if (status != TN_OK) {
        require(err.code == status && memchr(err.msg, 0, sizeof err.msg) && err.msg[0] && !strchr(err.msg, '\n'));
        return 0;
    }
    uint64_t header = 0;
    for (int i = 0; i < 8; i++)
        header |= (uint64_t)data[i] << 8 * i;
    int64_t at = 8 + (int64_t)header;
    for (size_t i = 0; i < tn_safetensors_count(file); i++)
        at = check_tensor(file, tn_safetensors_at(file, i), at, data, size);
    require(at == (int64_t)size);
    (void)tn_safetensors_note_of(file, "experiment");
    tn_safetensors_close(file);
    return 0;
}
