/* SPDX-License-Identifier: Apache-2.0
 *
 * data.h: for fuzz targets of data plugins: drives describe, load and gather as the host does. What is accepted must
 * hold what was described; what is refused must say why in one line of text.
 */
#ifndef TENON_TESTS_FUZZ_DATA_H
#define TENON_TESTS_FUZZ_DATA_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <tenon/data.h>

#define FUZZ_BYTES_MAX ((int64_t)1 << 28)

static inline void fuzz_require(int condition)
{
    if (!condition)
        abort();
}

/* Refused: status and message agree, and files that nobody touches have not "changed" ("data NAME: PATH changed"). */
static inline void fuzz_refused(int32_t status, const tn_error *err)
{
    fuzz_require(status > TN_OK && status <= TN_E_NOT_FOUND && err->code == status);
    fuzz_require(memchr(err->msg, 0, sizeof err->msg) && !strncmp(err->msg, "data ", 5));
    fuzz_require(!strpbrk(err->msg, "\n\r\t"));
    const char *path = err->msg + strcspn(err->msg, ":");
    fuzz_require(path[0] == ':' && path[1] == ' ');
    path += 2;
    fuzz_require(strncmp(path + strcspn(path, " :"), " changed", 8) != 0);
}

static inline int64_t fuzz_product(const int64_t *shape, int32_t ndim)
{
    int64_t product = 1;
    for (int32_t i = 0; i < ndim; i++)
        product *= shape[i];
    return product;
}

/* Up to 64 samples: finite numbers, targets that are classes. `classes` of training. */
static inline void fuzz_gather(const tn_data *table, const void *hyper, const tn_data_split *split, const void *memory)
{
    int64_t n = split->samples < 64 ? split->samples : 64, row = fuzz_product(split->shape, split->ndim);
    int64_t goal = split->classes ? 1 : fuzz_product(split->target_shape, split->target_ndim), index[64];
    float *x = malloc((size_t)(n * row) * sizeof *x), *target = malloc((size_t)(n * goal) * sizeof *target);
    for (int64_t i = 0; i < n; i++)
        index[i] = i % 2 ? split->samples - 1 - i : i;
    table->gather(hyper, memory, NULL, index, n, 1, x, target);
    for (int64_t i = 0; i < n * row; i++)
        fuzz_require(isfinite(x[i]));
    for (int64_t i = 0; i < n * goal; i++) {
        int32_t class;
        memcpy(&class, target + i, sizeof class);
        fuzz_require(split->classes ? class >= 0 && class < split->classes : isfinite(target[i]));
    }
    free(x);
    free(target);
}

/* Memory of the split, which the caller frees; NULL where it was refused. Exactly as large as described, so that the
 * address sanitizer sees what leaves it. */
static inline void *fuzz_load(const tn_data *table, const void *hyper, const char *name, const void *train,
                              tn_data_split *split)
{
    tn_error err = {0};
    *split = (tn_data_split){.struct_size = sizeof *split};
    int32_t status = table->describe(hyper, name, split, &err);
    if (status != TN_OK) {
        fuzz_refused(status, &err);
        return NULL;
    }
    fuzz_require(split->samples >= 1 && split->ndim >= 0 && split->ndim < TN_MAX_DIMS && split->classes >= 0);
    fuzz_require(split->target_ndim >= 0 && split->target_ndim < TN_MAX_DIMS && split->bytes >= 0);
    if (split->bytes > FUZZ_BYTES_MAX)
        return NULL;
    void *memory = aligned_alloc(64, ((size_t)split->bytes + 63) & ~(size_t)63);
    fuzz_require(memory != NULL);
    memset(memory, 0, (size_t)split->bytes);
    status = table->load(hyper, name, split, train, memory, &err);
    if (status == TN_OK) {
        fuzz_gather(table, hyper, split, memory);
        return memory;
    }
    fuzz_refused(status, &err);
    free(memory);
    return NULL;
}

/* Training, then the test split against it. */
static inline void fuzz_data(const tn_data *table, const void *hyper)
{
    tn_data_split train, test;
    void *train_memory = fuzz_load(table, hyper, "train", NULL, &train);
    void *test_memory = train_memory ? fuzz_load(table, hyper, "test", train_memory, &test) : NULL;
    fuzz_require(!test_memory || (test.classes <= train.classes && test.ndim == train.ndim &&
                                  !memcmp(test.shape, train.shape, sizeof test.shape)));
    free(train_memory);
    free(test_memory);
}

#endif
