/* SPDX-License-Identifier: Apache-2.0
 *
 * small_set.h: a small idx data set in the test's folder: 8x8 images of 4 classes, each a bright quarter plus noise.
 */
#ifndef TENON_TESTS_SMALL_SET_H
#define TENON_TESTS_SMALL_SET_H

#include <tenon/sdk.h>

#include "tests/support.h"

/* `equal`: each image is the first. */
static inline void small_file_of(const char *name, int images, uint32_t n, int equal)
{
    FILE *file = fopen(in_test(name), "wb");
    ck_assert_ptr_nonnull(file);
    uint32_t header[] = {images ? 0x803u : 0x801u, n, 8, 8};
    for (int i = 0; i < (images ? 4 : 2); i++)
        for (int shift = 24; shift >= 0; shift -= 8)
            fputc((int)(header[i] >> shift & 255), file);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t pixel = 0; pixel < (images ? 64u : 1u); pixel++) {
            uint32_t sample = equal && images ? 0 : i, noise = tn_philox(5, sample, pixel).v[0] % 120,
                     quarter = pixel / 32 * 2 + pixel % 8 / 4;
            fputc(images ? (int)(noise + (quarter == sample % 4 ? 130 : 0)) : (int)(sample % 4), file);
        }
    ck_assert_int_eq(fclose(file), 0);
}

static inline void small_file(const char *name, int images, uint32_t n) { small_file_of(name, images, n, 0); }

/* n images for training that are all the same, of different classes: what batches show otherwise than in their
 * targets was drawn. */
static inline void small_set_of_equals(uint32_t n)
{
    small_file_of("train-images-idx3-ubyte", 1, n, 1);
    small_file_of("train-labels-idx1-ubyte", 0, n, 1);
}

/* Makes its four files. */
static inline void small_set(uint32_t train, uint32_t test)
{
    small_file("train-images-idx3-ubyte", 1, train);
    small_file("train-labels-idx1-ubyte", 0, train);
    small_file("t10k-images-idx3-ubyte", 1, test);
    small_file("t10k-labels-idx1-ubyte", 0, test);
}

#endif
