/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_csv.c: the plugin data csv on any bytes and settings. A libFuzzer target. An input is four bytes that choose
 * settings, then the training file's bytes, and behind a byte 0xF8 the test file's; without one, the test split is a
 * part of the training file.
 */
#define CSV_BUFFER 64 /* so that small inputs cross its end */
#include "plugins/data/csv.c"

#include "tests/fuzz/data.h"
#include "tests/fuzz/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static csv settings(const uint8_t choice[4])
{
    static const char *const labels[] = {"-1", "0", "a", "1,b"}, *const features[] = {"", "1", "-2,0", "x,y"};
    static const char *const ignored[] = {"", "0", "b", "-1"}, *const names[] = {"", "", "", "a,b,x,y"};
    static const char *const classes[] = {"", "", "cat,dog", "0,1,2"};
    static const int64_t shape[] = {1, 2};
    return (csv){.train = "",
                 .test = "",
                 .validation = "",
                 .separator = choice[0] % 5,
                 .header = choice[0] >> 3 & 1,
                 .targets = (choice[0] >> 4) % 3,
                 .normalize = choice[0] >> 6 & 1,
                 .label = labels[choice[1] & 3],
                 .features = features[choice[1] >> 2 & 3],
                 .ignore = ignored[choice[1] >> 4 & 3],
                 .names = names[choice[1] >> 6],
                 .classes = classes[choice[2] & 3],
                 .shape = {choice[2] & 4 ? shape : NULL, choice[2] & 4 ? 2 : 0},
                 .split_seed = choice[3]};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4)
        return 0;
    const uint8_t *text = data + 4, *end = data + size, *second = memchr(text, 0xF8, size - 4);
    csv h = settings(data);
    h.train = fuzz_file(0, text, (size_t)((second ? second : end) - text));
    if (second)
        h.test = fuzz_file(1, second + 1, (size_t)(end - second - 1));
    else
        h.test_fraction = 0.3;
    fuzz_data(&csv_table, &h);
    return 0;
}
