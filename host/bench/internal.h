/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h: what the files of the bench share.
 *
 *   bench.c     the words, the options, the report
 *   measure.c   sides in turn, medians, quartiles
 *   stream.c    reads and writes of memory, and nothing else
 *   peak.c      multiply-adds in registers, and nothing else
 *   memory.c, update.c, costs.c, gemm.c, layer.c   what is measured
 */
#ifndef TENON_HOST_BENCH_INTERNAL_H
#define TENON_HOST_BENCH_INTERNAL_H

#include "host/base/pool.h"
#include "host/bench/bench.h"
#include "host/base/compute.h"

/* What the work of a run is counted in. */
typedef enum { TN_BENCH_BYTES, TN_BENCH_FLOPS, TN_BENCH_ELEMENTS } tn_bench_unit;

/* Quartiles. */
typedef struct tn_bench_spread {
    double low, median, high;
} tn_bench_spread;

/* A line of the report; texts are the bench's own. */
typedef struct tn_bench_row {
    char *group, *name;
    char *limit;  /* what it was held against; NULL: nothing, it is a limit itself */
    char *reason; /* why it was not measured; NULL: it was */
    double work, limit_work;
    tn_bench_spread seconds, limit_seconds;
    tn_bench_spread share; /* of the limit's rate; a cost: the limit's rate over its own */
} tn_bench_row;

typedef struct tn_bench_run {
    const tn_bench_options *options;
    tn_pool *pool;
    int32_t threads, rounds;
    int64_t elements; /* 0: not given */
    tn_bench_unit unit;
    int32_t cost; /* 1: rows say how many times the limit's time */
    int64_t used; /* elements of the largest array, as measured */
    tn_bench_row *rows;
    size_t row_count, row_capacity;
} tn_bench_run;

int32_t tn_bench_no_memory(tn_error *err);
/* Elements to use: those given, else `wanted`, halved until `arrays` arrays of f32 take at most half of the memory that
 * is available; a multiple of 64 Ki where there are as many. Sets run->used. */
int64_t tn_bench_fit(tn_bench_run *run, int64_t wanted, int arrays);

/* ---- measure.c ---- */

/* Something that can be run again and again. */
typedef struct tn_bench_side {
    const char *name;
    void (*run)(void *arg);
    void *arg;
    double work;   /* of one run, in the bench's unit */
    int32_t limit; /* index of the side that it is held against, which makes no row of its own; -1: none */
} tn_bench_side;

/* Runs the sides in turn and adds their rows. Short ones are run several times at a stretch. TN_E_MEMORY. [main] */
int32_t tn_bench_measure(tn_bench_run *run, const char *group, const tn_bench_side *sides, int32_t count,
                         tn_error *err);
/* A row for what was not measured. TN_E_MEMORY. */
int32_t tn_bench_skip(tn_bench_run *run, const char *group, const char *name, const char *reason, tn_error *err);

/* ---- stream.c ---- */

#define TN_STREAM_ARRAYS 24

/* Arrays that are read and written back as they were, then those that are read, then those that are written. All have
 * as many bytes, a multiple of 256, are aligned to 64 bytes and owned by the caller. The loops are plain: load, or,
 * store. */
typedef struct tn_stream {
    char *array[TN_STREAM_ARRAYS];
    int32_t both, reads, writes;
    int64_t bytes; /* of each array */
    tn_pool *pool;
    volatile uint64_t zero; /* 0, which the compiler does not know */
} tn_stream;

/* One pass; `arg` is a tn_stream. [main] */
void tn_stream_run(void *arg);
/* Bytes that a pass moves: an array that is written anew counts once. */
double tn_stream_work(const tn_stream *stream);

/* ---- peak.c ---- */

typedef struct tn_peak {
    tn_pool *pool; /* NULL: the calling thread alone */
    int32_t threads;
} tn_peak;

/* Independent multiply-adds in f32 on every thread, with the widest vectors that the processor has; `arg` is a tn_peak.
 */
void tn_peak_run(void *arg);
double tn_peak_work(const tn_peak *peak);

/* ---- what is measured ---- */

int32_t tn_bench_memory(tn_bench_run *run, tn_error *err);
int32_t tn_bench_update(tn_bench_run *run, tn_error *err);
int32_t tn_bench_costs(tn_bench_run *run, tn_error *err);
int32_t tn_bench_gemm(tn_bench_run *run, tn_error *err);
int32_t tn_bench_layer(tn_bench_run *run, tn_error *err);

/* gemm.c: the backend of the options, loaded and probed; `*ret` is what tn_compute_open takes. [main] */
int32_t tn_bench_backend(const tn_bench_run *run, tn_backend *backend, tn_compute_host *ret, tn_error *err);

/* ---- chain.c: a chain over tensors of its own ---- */

typedef struct tn_bench_tensors tn_bench_tensors;
typedef struct tn_bench_chain tn_bench_chain;

/* `count` tensors of `elements` each (matrices where they can be), with p and g full of noise. Freed by
 * tn_bench_tensors_free. `scattered`: arrays of a caller, without padding, instead of arenas. TN_E_MEMORY. */
int32_t tn_bench_tensors_create(int64_t count, int64_t elements, int scattered, tn_bench_tensors **ret, tn_error *err);
void tn_bench_tensors_free(tn_bench_tensors *tensors);
double tn_bench_tensors_elements(const tn_bench_tensors *tensors);

/* A chain in f32 over them, on the run's threads; `links` as in bench.h. Freed by tn_bench_chain_free; the tensors must
 * outlive it. As tn_links_parse and tn_chain_create. [main] */
int32_t tn_bench_chain_open(const tn_bench_run *run, const tn_bench_tensors *tensors, const char *links,
                            tn_bench_chain **ret, tn_error *err);
void tn_bench_chain_free(tn_bench_chain *chain);
/* One step; `arg` is a tn_bench_chain. The first failure, a skipped step included, is kept. */
void tn_bench_chain_step(void *arg);
int32_t tn_bench_chain_status(const tn_bench_chain *chain, tn_error *err);
/* Bytes that a step moves, and streams that move them: one that writes what it writes and reads besides, after some
 * that only read. The streams are the chain's, over its own pages. */
double tn_bench_chain_work(const tn_bench_chain *chain);
double tn_bench_chain_stream_work(const tn_bench_chain *chain);
void tn_bench_chain_stream(void *arg);
/* "5 reads, 4 writes". */
const char *tn_bench_chain_stream_name(const tn_bench_chain *chain);

#endif
