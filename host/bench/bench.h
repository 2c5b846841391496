/* SPDX-License-Identifier: Apache-2.0
 *
 * bench.h: how fast this machine is, and how near to that the host comes. Limits and what is held against them are
 * measured in the same run, in turn, in one process; a figure is the median over rounds with its quartiles, and a share
 * the median of the rounds' own ratios, so what slows both down leaves it alone. Times are those of the wall's clock;
 * on one thread its own processor time, which others on the machine can lengthen only through what all share: memory,
 * caches.
 */
#ifndef TENON_HOST_BENCH_BENCH_H
#define TENON_HOST_BENCH_BENCH_H

#include "host/base/log.h"
#include "host/base/text.h"
#include "host/plugin/registry.h"

typedef struct tn_bench_options {
    tn_registry *registry;
    const tn_log *log;
    const char *const *chains; /* update: links as in an experiment, or names with commas between them; none: two */
    size_t chain_count;
    const char *backend; /* of matrix products; NULL: openblas */
    int64_t elements;    /* of the largest array; 0: 64 Mi, fewer where memory is short, and 16 Mi for layers */
    int32_t threads;     /* 0: one for each CPU of the process */
    int32_t rounds;      /* 0: 21 */
    int32_t all;         /* 1: update: every link of the registry */
    int32_t costs;       /* 1: update: what the promises of the chain cost, instead */
    int32_t json;        /* 1: one object, else a table */
} tn_bench_options;

/* Measures `what`, one of the words below, and adds the result to `text`.
 *
 *   memory   reads, copies and updates in place: what the machine gives
 *   update   chains against streams of their own reads and writes over the same pages
 *   gemm     the backend against the multiply-adds that the processor can do, on one thread and in tiles on all
 *   layer    every layer, forward and backward, against streams of the bytes that it has to move
 *
 * A component that can not be measured by itself is listed with the reason. TN_E_NOT_FOUND with the nearest word,
 * TN_E_INVALID for numbers out of range or links that do not parse, TN_E_MEMORY. [main] */
int32_t tn_bench(const tn_bench_options *options, const char *what, tn_text *text, tn_error *err);

#endif
