/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/data.h: sources of samples. Interface "tenon.data/0.1", kind data.
 *
 * The host owns the memory of a data set, the order of samples and the batches. A component opens files only in
 * `describe` and `load`; `gather` reads what was loaded and nothing else.
 */
#ifndef TENON_DATA_H
#define TENON_DATA_H

#include <tenon/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TN_DATA "tenon.data/0.1"

/* Filled by `describe`, allocated and zeroed by the host, which sets struct_size. Of one split. */
typedef struct tn_data_split {
    uint32_t struct_size;
    int32_t ndim; /* of one sample, without the batch */
    int64_t shape[TN_MAX_DIMS];
    int64_t samples;
    int64_t classes;     /* targets are int32 in [0, classes); 0: targets are real */
    int32_t target_ndim; /* of one sample's target, without the batch; 0: one number */
    int32_t reserved;
    int64_t target_shape[TN_MAX_DIMS];
    int64_t bytes; /* memory that `load` needs, 64-byte aligned */
} tn_data_split;
TN_AT(tn_data_split, shape, 8);
TN_AT(tn_data_split, samples, 72);
TN_AT(tn_data_split, target_ndim, 88);
TN_AT(tn_data_split, target_shape, 96);
TN_AT(tn_data_split, bytes, 160);
TN_SIZE(tn_data_split, 168);

typedef struct tn_data {
    uint32_t struct_size;
    uint32_t reserved;
    /* What the split ("train", "test", ...) holds, from the files' headers. TN_E_NOT_FOUND: no such split; TN_E_IO and
     * TN_E_DATA name the file, what was found and what was needed. [load] */
    int32_t (*describe)(const void *hyper, const char *split, tn_data_split *ret, tn_error *err);
    /* Reads the split into `memory`, of described->bytes, zeroed. Every record is checked here: labels in range, files
     * whole and still as described. `train` is the memory of the training split, for statistics that all splits share;
     * NULL while that one is loaded itself. [load] */
    int32_t (*load)(const void *hyper, const char *split, const tn_data_split *described, const void *train,
                    void *memory, tn_error *err);
    /* Samples index[0..n) into x ([n, shape], the real type) and target ([n], int32, or the real type). Both are
     * contiguous. `augment` is 1 in training. [piece] */
    void (*gather)(const void *hyper, const void *memory, const tn_context *context, const int64_t *index, int64_t n,
                   int32_t augment, void *x, void *target);
} tn_data;
TN_AT(tn_data, describe, 8);
TN_SIZE(tn_data, 32);

#ifdef __cplusplus
}
#endif
#endif
