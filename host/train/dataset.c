/* SPDX-License-Identifier: Apache-2.0
 *
 * dataset.c: one split of a data set in memory, and the order of its samples.
 */
#include "host/train/dataset.h"

#include <string.h>

#include <xxhash.h>

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/base/philox.h"

#define PIECE_SAMPLES 32

#define BYTES_MAX ((int64_t)1 << 50) /* of a split or of one sample: beyond any memory, far from overflow */

/* -1 when the extents are none or their product is beyond any memory. */
static int64_t product(const int64_t *shape, int32_t ndim)
{
    int64_t elements = 1;
    for (int32_t i = 0; i < ndim; i++)
        if (shape[i] < 0 || (shape[i] > 0 && elements > BYTES_MAX / shape[i]))
            return -1;
        else
            elements *= shape[i];
    return elements;
}

static int32_t check_split(const tn_dataset *set, const char *split, tn_error *err)
{
    const tn_data_split *s = &set->split;
    int fits = s->ndim >= 0 && s->ndim < TN_MAX_DIMS && s->target_ndim >= 0 && s->target_ndim < TN_MAX_DIMS;
    if (!fits || s->bytes < 0 || s->bytes > BYTES_MAX || s->classes < 0 || s->classes > INT32_MAX ||
        product(s->shape, s->ndim) < 0 || product(s->target_shape, s->target_ndim) < 0)
        return tn_error_set(err, TN_E_PLUGIN,
                            "data %s: describes its %s split with shapes, classes or a size that can not be",
                            set->instance->info->name, split);
    if (s->samples < 1 || s->samples > UINT32_MAX)
        return tn_error_set(err, TN_E_DATA, "data %s: the %s split holds %lld samples; 1 to 4294967295 are needed",
                            set->instance->info->name, split, (long long)s->samples);
    return TN_OK;
}

static int32_t fill(tn_registry *registry, const char *split, const tn_dataset *train, tn_dataset *set, tn_error *err)
{
    const void *hyper = set->instance->hyper;
    int32_t status = tn_registry_load(registry, set->instance->entry, &set->table, sizeof set->table, err);
    if (status != TN_OK)
        return status;
    if (!set->table.describe || !set->table.load || !set->table.gather)
        return tn_error_set(err, TN_E_PLUGIN, "data %s: its table lacks describe, load or gather",
                            set->instance->info->name);
    set->split.struct_size = sizeof set->split;
    tn_error_clear(err);
    status = set->table.describe(hyper, split, &set->split, err);
    if (status != TN_OK)
        return tn_error_wrap(err, status, "the %s split", split);
    status = check_split(set, split, err);
    if (status != TN_OK)
        return status;
    set->memory = tn_alloc_aligned((size_t)set->split.bytes + 64);
    if (!set->memory)
        return tn_error_set(err, TN_E_MEMORY, "no memory for %lld bytes of the %s split", (long long)set->split.bytes,
                            split);
    tn_error_clear(err);
    status = set->table.load(hyper, split, &set->split, train ? train->memory : NULL, set->memory, err);
    return status == TN_OK ? TN_OK : tn_error_wrap(err, status, "the %s split", split);
}

int32_t tn_dataset_open(tn_registry *registry, const tn_instance *instance, const char *split, const tn_dataset *train,
                        uint64_t seed, tn_dataset *ret, tn_error *err)
{
    tn_dataset set = {.instance = instance, .key = tn_hash_key(seed, "data", split)};
    int32_t status = fill(registry, split, train, &set, err);
    if (status != TN_OK)
        tn_dataset_close(&set);
    *ret = set;
    return status;
}

void tn_dataset_close(tn_dataset *set)
{
    tn_free(set->memory);
    memset(set, 0, sizeof *set);
}

/* ---- batches ---- */

typedef struct {
    const tn_dataset *set;
    tn_context context;
    const int64_t *index;
    int64_t n;
    int32_t augment;
    char *x, *target;
    int64_t x_bytes, target_bytes; /* of one sample */
} gathering;

static int64_t real_bytes(const tn_dataset *set) { return set->instance->real == 64 ? 8 : 4; }

/* Of one sample. */
static int64_t x_bytes(const tn_dataset *set) { return product(set->split.shape, set->split.ndim) * real_bytes(set); }
static int64_t target_bytes(const tn_dataset *set)
{
    return product(set->split.target_shape, set->split.target_ndim) *
           (set->split.classes > 0 ? (int64_t)sizeof(int32_t) : real_bytes(set));
}

static void gather_piece(void *arg, int64_t piece, int32_t thread)
{
    const gathering *g = arg;
    int64_t lo = piece * PIECE_SAMPLES, n = g->n - lo < PIECE_SAMPLES ? g->n - lo : PIECE_SAMPLES;
    (void)thread;
    g->set->table.gather(g->set->instance->hyper, g->set->memory, &g->context, g->index + lo, n, g->augment,
                         g->x + lo * g->x_bytes, g->target + lo * g->target_bytes);
}

void tn_dataset_gather(const tn_dataset *set, tn_pool *pool, const tn_services *services, int64_t attempt,
                       int64_t update, const int64_t *index, int64_t n, int32_t augment, void *x, void *target)
{
    gathering g = {set,
                   {sizeof(tn_context), 0, attempt, update, set->key, services},
                   index,
                   n,
                   augment,
                   x,
                   target,
                   x_bytes(set),
                   target_bytes(set)};
    int64_t pieces = (n + PIECE_SAMPLES - 1) / PIECE_SAMPLES;
    tn_pool_run(pool, gather_piece, &g, pieces);
}

/* ---- is it the same data? ---- */

#define PRINT_SAMPLES 64
#define PRINT_BYTES   ((int64_t)1 << 20)

int32_t tn_dataset_fingerprint(const tn_dataset *set, tn_pool *pool, const tn_services *services, uint64_t *ret,
                               tn_error *err)
{
    int64_t index[PRINT_SAMPLES], x = x_bytes(set), target = target_bytes(set), samples = set->split.samples,
                                  n = samples < PRINT_SAMPLES ? samples : PRINT_SAMPLES;
    while (n > 1 && n * (x + target) > PRINT_BYTES)
        n /= 2;
    for (int64_t i = 0; i < n; i++)
        index[i] = n > 1 ? i * (samples - 1) / (n - 1) : 0;
    char *both = tn_alloc_aligned((size_t)(n * x + 64 + n * target + 64));
    if (!both)
        return tn_error_set(err, TN_E_MEMORY, "no memory for a look at the data");
    char *targets = both + (n * x + 63) / 64 * 64;
    tn_dataset_gather(set, pool, services, 0, 0, index, n, 0, both, targets);
    *ret = XXH3_64bits_withSeed(targets, (size_t)(n * target), XXH3_64bits(both, (size_t)(n * x)));
    tn_free(both);
    return TN_OK;
}
