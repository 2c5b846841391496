/* SPDX-License-Identifier: Apache-2.0
 *
 * A small idx data set in a temporary folder: 8x8 images of 4 classes, each a bright quarter plus noise.
 */
#ifndef TESTS_SMALL_SET_H
#define TESTS_SMALL_SET_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include <tenon/sdk.h>

static inline __attribute__((unused)) void small_file(const char *folder, const char *name, int images, uint32_t n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    uint32_t header[] = {images ? 0x803u : 0x801u, n, 8, 8};
    for (int i = 0; i < (images ? 4 : 2); i++)
        for (int shift = 24; shift >= 0; shift -= 8)
            fputc((int)(header[i] >> shift & 255), file);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t pixel = 0; pixel < (images ? 64u : 1u); pixel++) {
            uint32_t noise = tn_philox(5, i, pixel).v[0] % 120, quarter = pixel / 32 * 2 + pixel % 8 / 4;
            fputc(images ? (int)(noise + (quarter == i % 4 ? 130 : 0)) : (int)(i % 4), file);
        }
    ck_assert_int_eq(fclose(file), 0);
}

/* Makes the folder and its four files; `folder` has room for 64 bytes. */
static inline __attribute__((unused)) void small_set(char *folder, uint32_t train, uint32_t test)
{
    snprintf(folder, 64, "/tmp/tenon-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    small_file(folder, "train-images-idx3-ubyte", 1, train);
    small_file(folder, "train-labels-idx1-ubyte", 0, train);
    small_file(folder, "t10k-images-idx3-ubyte", 1, test);
    small_file(folder, "t10k-labels-idx1-ubyte", 0, test);
}

static inline __attribute__((unused)) void small_set_remove(const char *folder)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

#endif
