/* SPDX-License-Identifier: Apache-2.0
 *
 * bench.c: the words, the options, the report.
 */
#include "host/bench/bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/bench/internal.h"

#define ELEMENTS_MOST ((int64_t)1 << 34)
#define ROUNDS        21
#define ROUNDS_MOST   100000
#define GRANULE       65536 /* elements */

static const struct {
    const char *word, *title;
    tn_bench_unit unit;
    int32_t (*measure)(tn_bench_run *run, tn_error *err);
} benches[] = {
    {"memory", "memory", TN_BENCH_BYTES, tn_bench_memory},
    {"update", "chains against streams of their own reads and writes", TN_BENCH_BYTES, tn_bench_update},
    {"gemm", "matrix products against multiply-adds in registers", TN_BENCH_FLOPS, tn_bench_gemm},
    {"layer", "layers against streams of the bytes they have to move", TN_BENCH_BYTES, tn_bench_layer},
};
#define BENCH_COUNT (sizeof benches / sizeof *benches)

int32_t tn_bench_no_memory(tn_error *err)
{
    return tn_error_set(err, TN_E_MEMORY, "no memory for the bench; --elements asks for less");
}

/* ---- sizes ---- */

/* Bytes that can be had without swapping; 0: not known. */
static int64_t available(void)
{
    char text[256];
    long long kilobytes = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    if (!file)
        return 0;
    while (fgets(text, sizeof text, file) && sscanf(text, "MemAvailable: %lld", &kilobytes) != 1)
        continue;
    fclose(file);
    return kilobytes * 1024;
}

int64_t tn_bench_fit(tn_bench_run *run, int64_t wanted, int arrays)
{
    int64_t n = run->elements ? run->elements : wanted, memory = available();
    while (!run->elements && memory && n > GRANULE && n * 4 * arrays > memory / 2)
        n /= 2;
    n = n >= GRANULE ? n / GRANULE * GRANULE : n;
    run->used = run->used > n ? run->used : n;
    return n;
}

/* ---- the report ---- */

static const char *unit_name(tn_bench_unit unit)
{
    return unit == TN_BENCH_BYTES ? "GB/s" : unit == TN_BENCH_FLOPS ? "GFLOP/s" : "G elements/s";
}

static double rate_of(double work, const tn_bench_spread *seconds) { return work / seconds->median / 1e9; }

static void add_spread(tn_text *text, const char *key, const tn_bench_spread *s)
{
    tn_text_addf(text, "\"%s\": {\"low\": ", key);
    tn_text_real(text, s->low);
    tn_text_add(text, ", \"median\": ");
    tn_text_real(text, s->median);
    tn_text_add(text, ", \"high\": ");
    tn_text_real(text, s->high);
    tn_text_add(text, "}");
}

static void add_measured(tn_text *text, double work, const tn_bench_spread *seconds)
{
    tn_text_add(text, "\"work\": ");
    tn_text_real(text, work);
    tn_text_add(text, ", ");
    add_spread(text, "seconds", seconds);
    tn_text_add(text, ", \"rate\": ");
    tn_text_real(text, rate_of(work, seconds));
}

static void add_row_json(tn_text *text, const tn_bench_run *run, const tn_bench_row *row)
{
    tn_text_add(text, "{\"group\": ");
    tn_text_json(text, row->group);
    tn_text_add(text, ", \"name\": ");
    tn_text_json(text, row->name);
    if (row->reason) {
        tn_text_add(text, ", \"skipped\": ");
        tn_text_json(text, row->reason);
    } else {
        tn_text_add(text, ", ");
        add_measured(text, row->work, &row->seconds);
    }
    if (row->limit) {
        tn_text_add(text, ", \"limit\": {\"name\": ");
        tn_text_json(text, row->limit);
        tn_text_add(text, ", ");
        add_measured(text, row->limit_work, &row->limit_seconds);
        tn_text_add(text, "}, ");
        add_spread(text, run->cost ? "cost" : "share", &row->share);
    }
    tn_text_add(text, "}");
}

/* The machine's load when the bench began: others' work makes every figure doubtful, shares less so. */
static double load(void)
{
    double loads[1];
    return getloadavg(loads, 1) == 1 ? loads[0] : 0;
}

static void add_json(tn_text *text, const tn_bench_run *run, const char *what, double busy)
{
    tn_text_addf(text, "{\"bench\": \"%s\", \"real\": 32, \"elements\": %" PRId64 ", \"threads\": %d, \"rounds\": %d, ",
                 what, run->used, run->threads, run->rounds);
    tn_text_add(text, "\"load\": ");
    tn_text_real(text, busy);
    tn_text_addf(text, ", \"clock\": \"%s\", \"unit\": \"%s\", \"results\": [",
                 run->threads == 1 ? "processor" : "wall", unit_name(run->unit));
    for (size_t i = 0; i < run->row_count; i++) {
        tn_text_add(text, i ? ",\n  " : "\n  ");
        add_row_json(text, run, &run->rows[i]);
    }
    tn_text_add(text, "\n]}\n");
}

static void add_time(tn_text *text, const tn_bench_run *run, double work, const tn_bench_spread *seconds)
{
    if (run->unit == TN_BENCH_ELEMENTS)
        tn_text_addf(text, "%8.3f ns an element", seconds->median / work * 1e9);
    else
        tn_text_addf(text, "%8.3f ms %8.1f %s", seconds->median * 1e3, rate_of(work, seconds), unit_name(run->unit));
}

static void add_row_text(tn_text *text, const tn_bench_run *run, const tn_bench_row *row)
{
    tn_text_addf(text, "  %-28s ", row->name);
    if (row->reason) {
        tn_text_addf(text, "not measured: %s\n", row->reason);
        return;
    }
    add_time(text, run, row->work, &row->seconds);
    if (row->limit) {
        tn_text_addf(text, "   %.3f (%.3f to %.3f) %s %s:", row->share.median, row->share.low, row->share.high,
                     run->cost ? "times" : "of", row->limit);
        add_time(text, run, row->limit_work, &row->limit_seconds);
    }
    tn_text_char(text, '\n');
}

static void add_text(tn_text *text, const tn_bench_run *run, const char *title, double busy)
{
    const char *group = "";
    tn_text_addf(text, "%s: f32, %" PRId64 " elements, %d thread%s, medians of %d rounds (quartiles)\n", title,
                 run->used, run->threads, run->threads > 1 ? "s" : " by processor time", run->rounds);
    if (busy > 0.5)
        tn_text_addf(text, "the machine is busy (load %.1f): take these figures again in a quiet hour\n", busy);
    for (size_t i = 0; i < run->row_count; i++) {
        if (strcmp(group, run->rows[i].group) != 0)
            tn_text_addf(text, "%s\n", run->rows[i].group);
        group = run->rows[i].group;
        add_row_text(text, run, &run->rows[i]);
    }
}

/* ---- one bench ---- */

static void free_rows(tn_bench_run *run)
{
    for (size_t i = 0; i < run->row_count; i++) {
        tn_free(run->rows[i].group);
        tn_free(run->rows[i].name);
        tn_free(run->rows[i].limit);
        tn_free(run->rows[i].reason);
    }
    tn_free(run->rows);
}

static int32_t check(const tn_bench_options *o, const char *what, int is_update, tn_error *err)
{
    if (!is_update && (o->chain_count > 0 || o->all || o->costs))
        return tn_error_set(err, TN_E_INVALID, "bench %s takes no %s; they are for bench update", what,
                            o->chain_count > 0 ? "links" : "--all and no --costs");
    if (o->elements < 0 || o->elements > ELEMENTS_MOST)
        return tn_error_set(err, TN_E_INVALID,
                            "bench: %" PRId64 " elements, needed 1 to %" PRId64 ", or 0 for a default", o->elements,
                            ELEMENTS_MOST);
    if (o->threads < 0 || o->threads > TN_POOL_MAX)
        return tn_error_set(err, TN_E_INVALID, "bench: %d threads, needed 1 to %d, or 0 for one a CPU", o->threads,
                            TN_POOL_MAX);
    if (o->rounds < 0 || o->rounds > ROUNDS_MOST)
        return tn_error_set(err, TN_E_INVALID, "bench: %d rounds, needed 1 to %d, or 0 for %d", o->rounds, ROUNDS_MOST,
                            ROUNDS);
    return TN_OK;
}

static int32_t find(const char *what, size_t *ret, tn_error *err)
{
    const char *words[BENCH_COUNT];
    for (size_t i = 0; i < BENCH_COUNT; i++) {
        words[i] = benches[i].word;
        *ret = i;
        if (strcmp(what, words[i]) == 0)
            return TN_OK;
    }
    const char *nearest = tn_nearest(what, words, BENCH_COUNT);
    return tn_error_set(err, TN_E_NOT_FOUND, "no bench \"%s\"%s%s%s; there are memory, update, gemm and layer", what,
                        nearest ? ", did you mean \"" : "", nearest ? nearest : "", nearest ? "\"?" : "");
}

int32_t tn_bench(const tn_bench_options *options, const char *what, tn_text *text, tn_error *err)
{
    size_t at = 0;
    double busy = load();
    tn_bench_run run = {.options = options, .elements = options->elements};
    int32_t status = find(what, &at, err);
    if (!status)
        status = check(options, what, benches[at].measure == tn_bench_update, err);
    if (status)
        return status;
    run.rounds = options->rounds ? options->rounds : ROUNDS;
    run.threads = options->threads ? options->threads : tn_default_threads();
    run.unit = benches[at].unit;
    int costs = options->costs && benches[at].measure == tn_bench_update;
    status = tn_pool_create(run.threads, &run.pool, err);
    if (!status)
        status = costs ? tn_bench_costs(&run, err) : benches[at].measure(&run, err);
    if (!status && options->json)
        add_json(text, &run, what, busy);
    else if (!status)
        add_text(text, &run, costs ? "what the promises of the chain cost" : benches[at].title, busy);
    tn_pool_destroy(run.pool);
    free_rows(&run);
    return status ? status : tn_text_status(text, err);
}
