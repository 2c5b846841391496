/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c: what the machine's memory gives: reads, copies, updates in place.
 */
#include "host/base/memory.h"
#include "host/bench/internal.h"

#define ARRAYS 4

/* The places of arrays in a page differ, as those of a chain's slots do: alike ones would share cache sets. */
#define STAGGER (17 * 64)

static const struct {
    const char *name;
    int32_t both, reads, writes;
} streams[] = {
    {"1 read", 0, 1, 0},
    {"4 reads", 0, 4, 0},
    {"1 write", 0, 0, 1},
    {"copy: 1 read, 1 write", 0, 1, 1},
    {"in place: 1 read, 1 write", 1, 0, 0},
    {"in place: 2 reads, 1 write", 1, 1, 0},
    {"in place: 4 reads, 3 writes", 3, 1, 0},
};
#define STREAM_COUNT (sizeof streams / sizeof *streams)

int32_t tn_bench_memory(tn_bench_run *run, tn_error *err)
{
    int64_t bytes = tn_bench_fit(run, (int64_t)64 << 20, ARRAYS) * 4 / 256 * 256;
    char *block[ARRAYS] = {NULL};
    tn_stream stream[STREAM_COUNT];
    tn_bench_side sides[STREAM_COUNT];
    int32_t status = TN_OK;
    bytes = bytes ? bytes : 256;
    for (int i = 0; i < ARRAYS && !status; i++)
        if (!(block[i] = tn_alloc_aligned((size_t)bytes + ARRAYS * STAGGER)))
            status = tn_bench_no_memory(err);
    for (size_t i = 0; i < STREAM_COUNT; i++) {
        stream[i] = (tn_stream){.both = streams[i].both,
                                .reads = streams[i].reads,
                                .writes = streams[i].writes,
                                .bytes = bytes,
                                .pool = run->pool};
        for (int j = 0; j < ARRAYS && !status; j++)
            stream[i].array[j] = block[j] + j * STAGGER;
        sides[i] = (tn_bench_side){streams[i].name, tn_stream_run, &stream[i], tn_stream_work(&stream[i]), -1};
    }
    if (!status)
        status = tn_bench_measure(run, "f32 arrays", sides, STREAM_COUNT, err);
    for (int i = 0; i < ARRAYS; i++)
        tn_free(block[i]);
    return status;
}
