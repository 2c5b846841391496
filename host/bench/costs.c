/* SPDX-License-Identifier: Apache-2.0
 *
 * costs.c: what the chain's promises cost, each against the same work without the promise.
 *
 *   exact sums   a norm whose chunks are added exactly, against a plain sum of the chunks
 *   vote         clip-norm, adamw against adamw: the gradient is read once more before the first write
 *   dry run      adamw, cautious against adamw: the rule runs twice, the first time on copies
 *   tails        tensors of 1,000 elements against tensors of 1,008, a multiple of 16
 *   own arrays   arrays of a caller, without alignment and padding, against tensors in arenas
 */
#include <string.h>

#include "host/base/exact.h"
#include "host/base/memory.h"
#include "host/bench/internal.h"

#define CHUNK 4096 /* elements that are added plainly, as in a chain */
#define LANES 16

/* ---- sums ---- */

typedef struct norm {
    const float *g;
    int64_t n;
    tn_exact exact;
    volatile double value;
} norm;

__attribute__((noinline)) static double squares(const float *g, int64_t n)
{
    double lane[LANES] = {0}, sum = 0;
    for (int64_t i = 0; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += (double)g[i + j] * (double)g[i + j];
    for (int j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}

static int64_t chunk_at(const norm *n, int64_t at) { return n->n - at < CHUNK ? n->n - at : CHUNK; }

static void norm_exact(void *arg)
{
    norm *n = arg;
    tn_exact_clear(&n->exact);
    for (int64_t i = 0; i < n->n; i += CHUNK)
        tn_exact_add(&n->exact, squares(n->g + i, chunk_at(n, i)));
    n->value = tn_exact_value(&n->exact);
}

static void norm_plain(void *arg)
{
    norm *n = arg;
    double sum = 0;
    for (int64_t i = 0; i < n->n; i += CHUNK)
        sum += squares(n->g + i, chunk_at(n, i));
    n->value = sum;
}

static int32_t cost_of_sums(tn_bench_run *run, int64_t elements, tn_error *err)
{
    float *g = tn_alloc_aligned((size_t)elements * sizeof *g);
    norm n = {.g = g, .n = elements};
    const tn_bench_side sides[] = {{"exact sums", norm_exact, &n, (double)elements, 1},
                                   {"plain sums", norm_plain, &n, (double)elements, -1}};
    if (!g)
        return tn_bench_no_memory(err);
    for (int64_t i = 0; i < elements; i++)
        g[i] = (float)(i % 1009) / 1009;
    int32_t status = tn_bench_measure(run, "one thread", sides, 2, err);
    tn_free(g);
    return status;
}

/* ---- chains ---- */

/* One side of a comparison. */
typedef struct fleet {
    const char *name, *links;
    int64_t count, elements;
    int scattered;
} fleet;

static int32_t compare(tn_bench_run *run, const char *group, const char *name, const fleet *two, tn_error *err)
{
    tn_bench_tensors *tensors[2] = {NULL};
    tn_bench_chain *chain[2] = {NULL};
    tn_bench_side sides[2];
    int32_t status = TN_OK;
    for (int i = 0; i < 2 && !status; i++) {
        status = tn_bench_tensors_create(two[i].count, two[i].elements, two[i].scattered, &tensors[i], err);
        if (!status)
            status = tn_bench_chain_open(run, tensors[i], two[i].links, &chain[i], err);
        if (!status)
            sides[i] = (tn_bench_side){i ? two[i].name : name, tn_bench_chain_step, chain[i],
                                       tn_bench_tensors_elements(tensors[i]), i ? -1 : 1};
    }
    if (!status)
        status = tn_bench_measure(run, group, sides, 2, err);
    for (int i = 0; i < 2; i++) {
        if (!status)
            status = tn_bench_chain_status(chain[i], err);
        tn_bench_chain_free(chain[i]);
        tn_bench_tensors_free(tensors[i]);
    }
    return status;
}

int32_t tn_bench_costs(tn_bench_run *run, tn_error *err)
{
    int64_t large = tn_bench_fit(run, (int64_t)16 << 20, 10), small = large / 1000 < 1000 ? large / 1000 + 1 : 1000;
    const fleet vote[] = {{"", "clip-norm,adamw", 1, large, 0}, {"adamw", "adamw", 1, large, 0}};
    const fleet dry[] = {{"", "adamw,cautious", 1, large, 0}, {"adamw", "adamw", 1, large, 0}};
    const fleet tails[] = {{"", "adamw", small, 1000, 0}, {"tensors of 1,008", "adamw", small, 1008, 0}};
    const fleet caller[] = {{"", "adamw", small, 1000, 1}, {"tensors in arenas", "adamw", small, 1000, 0}};
    run->unit = TN_BENCH_ELEMENTS;
    run->cost = 1;
    int32_t status = cost_of_sums(run, large, err);
    if (!status)
        status = compare(run, "one tensor", "vote: clip-norm, adamw", vote, err);
    if (!status)
        status = compare(run, "one tensor", "dry run: adamw, cautious", dry, err);
    if (!status)
        status = compare(run, "adamw on tensors of 1,000", "tails: tensors of 1,000", tails, err);
    if (!status)
        status = compare(run, "adamw on tensors of 1,000", "own arrays of 1,000", caller, err);
    return status;
}
