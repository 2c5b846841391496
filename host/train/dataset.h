/* SPDX-License-Identifier: Apache-2.0
 *
 * dataset.h: one split of a data set in memory.
 */
#ifndef TENON_HOST_TRAIN_DATASET_H
#define TENON_HOST_TRAIN_DATASET_H

#include <tenon/data.h>

#include "host/base/pool.h"
#include "host/experiment/instance.h"

typedef struct tn_dataset {
    const tn_instance *instance;
    tn_data table;
    tn_data_split split;
    void *memory;
    uint64_t key; /* of the component's random numbers */
} tn_dataset;

/* Describes and loads `split`. `train` is the training split, or NULL while that one is opened. On failure `ret` is
 * left empty. Close it with tn_dataset_close. [main] */
int32_t tn_dataset_open(tn_registry *registry, const tn_instance *instance, const char *split, const tn_dataset *train,
                        uint64_t seed, tn_dataset *ret, tn_error *err);
void tn_dataset_close(tn_dataset *set);

/* Samples index[0..n) into x and target, cut over the pool. Allocates nothing. [main] */
void tn_dataset_gather(const tn_dataset *set, tn_pool *pool, const tn_services *services, int64_t attempt,
                       int64_t update, const int64_t *index, int64_t n, int32_t augment, void *x, void *target);

/* A hash of some samples, from the first to the last and at most 1 MiB of them or one, as they come without
 * augmentation: the same for the same data. TN_E_MEMORY. [main] */
int32_t tn_dataset_fingerprint(const tn_dataset *set, tn_pool *pool, const tn_services *services, uint64_t *ret,
                               tn_error *err);

#endif
