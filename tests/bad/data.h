/* SPDX-License-Identifier: Apache-2.0
 *
 * data.h: a good data set, 100 samples of 4 numbers in two splits, in which parts may be replaced before this file is
 * included, to be wrong in one way.
 */
#ifndef TENON_TESTS_BAD_DATA_H
#define TENON_TESTS_BAD_DATA_H

#include <tenon/data.h>
#include <tenon/sdk.h>

#ifndef DATA_SPLIT /* (split): is it there? */
#define DATA_SPLIT(split) (!strcmp(split, "train") || !strcmp(split, "test"))
#endif
#ifndef DATA_DESCRIBE /* before all else */
#define DATA_DESCRIBE
#endif
#ifndef DATA_LOAD /* (memory): behind the work */
#define DATA_LOAD(memory)
#endif
#ifndef DATA_GATHER /* (index, n, x, target): behind the work */
#define DATA_GATHER(index, n, x, target)
#endif

enum { DATA_SAMPLES = 100, DATA_NUMBERS = 4, DATA_CLASSES = 3 };

static int32_t probe_describe(const void *hyper, const char *split, tn_data_split *ret, tn_error *err)
{
    (void)hyper;
    DATA_DESCRIBE
    if (!DATA_SPLIT(split))
        return tn_fail(err, TN_E_NOT_FOUND, "probe: no split %s", split);
    ret->ndim = 1;
    ret->shape[0] = DATA_NUMBERS;
    ret->samples = DATA_SAMPLES;
    ret->classes = DATA_CLASSES;
    ret->bytes = DATA_SAMPLES * DATA_NUMBERS * (int64_t)sizeof(tn_real);
    return TN_OK;
}

static int32_t probe_load(const void *hyper, const char *split, const tn_data_split *described, const void *train,
                          void *memory, tn_error *err)
{
    tn_real *numbers = (tn_real *)memory;
    (void)hyper, (void)described, (void)train, (void)err;
    for (int i = 0; i < DATA_SAMPLES * DATA_NUMBERS; i++)
        numbers[i] = (tn_real)i / 8 + (split[1] == 'e');
    DATA_LOAD(numbers)
    return TN_OK;
}

static void probe_gather(const void *hyper, const void *memory, const tn_context *context, const int64_t *index,
                         int64_t n, int32_t augment, void *x, void *target)
{
    (void)hyper, (void)context, (void)augment;
    for (int64_t i = 0; i < n; i++) {
        memcpy((tn_real *)x + i * DATA_NUMBERS, (const tn_real *)memory + index[i] * DATA_NUMBERS,
               DATA_NUMBERS * sizeof(tn_real));
        ((int32_t *)target)[i] = (int32_t)(index[i] % DATA_CLASSES);
    }
    DATA_GATHER(index, n, (tn_real *)x, (int32_t *)target)
}

static const tn_data probe_table = {sizeof(tn_data), 0, probe_describe, probe_load, probe_gather};

TN_COMPONENT(probe, "data", TN_DATA, TN_REAL, TN_NO_HYPER, "a test", "", probe_table);
TN_PLUGIN("org.tenon.test.probe", "0.1.0", "Apache-2.0", probe)

#endif
