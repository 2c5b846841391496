/* SPDX-License-Identifier: Apache-2.0
 *
 * The bench, with tiny sizes: the report is JSON and holds what was asked for; streams move what chains move and change
 * nothing. No time is checked.
 */
#include "host/base/memory.h"
#include "host/bench/internal.h"
#include "host/tenon.h"
#include "tests/support.h"

static tenon *open_tenon(void)
{
    tenon *handle = NULL;
    tn_error err = {0};
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    setenv("TENON_PLUGIN_PATH", test_env("TENON_TEST_GOOD"), 1);
    ck_ok(tenon_open(NULL, &handle, &err), err);
    return handle;
}

static tenon_bench_options tiny(void)
{
    return (tenon_bench_options){
        .struct_size = sizeof(tenon_bench_options), .flags = TENON_JSON, .elements = 4096, .threads = 2, .rounds = 2};
}

static json_t *bench(const char *what, const tenon_bench_options *options)
{
    tenon *handle = open_tenon();
    char *text = NULL;
    tn_error err = {0};
    json_error_t error;
    ck_ok(tenon_bench(handle, what, options, &text, &err), err);
    json_t *report = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(report != NULL, "%s in line %d of %s", error.text, error.line, text);
    ck_assert_str_eq(json_string_value(json_object_get(report, "bench")), what);
    tenon_free(text);
    tenon_close(handle);
    return report;
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_number(value), "no number %s", key);
    return json_number_value(value);
}

static void check_spread(const json_t *row, const char *key)
{
    const json_t *spread = json_object_get(row, key);
    ck_assert_double_gt(number(spread, "low"), 0);
    ck_assert_double_le(number(spread, "low"), number(spread, "median"));
    ck_assert_double_le(number(spread, "median"), number(spread, "high"));
}

/* Rows whose name begins so; with a limit unless `ratio` is NULL. */
static int rows_of(const json_t *report, const char *name, const char *ratio)
{
    int found = 0;
    size_t i;
    const json_t *row;
    json_array_foreach(json_object_get(report, "results"), i, row) {
        if (strncmp(json_string_value(json_object_get(row, "name")), name, strlen(name)) != 0)
            continue;
        found++;
        ck_assert_ptr_null(json_object_get(row, "skipped"));
        check_spread(row, "seconds");
        ck_assert_double_gt(number(row, "rate"), 0);
        ck_assert_int_eq(json_object_get(row, "limit") != NULL, ratio != NULL);
        if (ratio)
            check_spread(row, ratio);
    }
    return found;
}

static const json_t *skipped(const json_t *report, const char *name)
{
    size_t i;
    const json_t *row;
    json_array_foreach(json_object_get(report, "results"), i, row)
        if (strcmp(json_string_value(json_object_get(row, "name")), name) == 0)
            return json_object_get(row, "skipped");
    ck_abort_msg("no row %s", name);
}

START_TEST(memory)
{
    const tenon_bench_options options = tiny();
    json_t *report = bench("memory", &options);
    ck_assert_int_eq(rows_of(report, "", NULL), 7);
    ck_assert_int_eq(rows_of(report, "in place: 4 reads, 3 writes", NULL), 1);
    ck_assert_double_eq(number(report, "elements"), 4096);
    ck_assert_double_eq(number(report, "threads"), 2);
    ck_assert_str_eq(json_string_value(json_object_get(report, "clock")), "wall");
    json_decref(report);
    tenon_bench_options alone = tiny();
    alone.threads = 1;
    report = bench("memory", &alone);
    ck_assert_str_eq(json_string_value(json_object_get(report, "clock")), "processor");
    json_decref(report);
}
END_TEST

START_TEST(update)
{
    const char *const chains[] = {"lion", "[{use: clip-norm, max_norm: 2}, sgd]"};
    tenon_bench_options options = tiny();
    json_t *report = bench("update", &options);
    ck_assert_int_eq(rows_of(report, "adamw", "share"), 2); /* one tensor, and small ones */
    ck_assert_int_eq(rows_of(report, "clip-norm,adamw,ema", "share"), 2);
    json_decref(report);
    options.chains = chains;
    options.chain_count = 2;
    report = bench("update", &options);
    ck_assert_int_eq(rows_of(report, "lion", "share"), 2);
    ck_assert_int_eq(rows_of(report, "[{use: clip-norm", "share"), 2);
    ck_assert_int_eq(rows_of(report, "adamw", "share"), 0);
    json_decref(report);
}
END_TEST

START_TEST(every_link)
{
    tenon_bench_options options = tiny();
    options.flags |= TENON_ALL;
    json_t *report = bench("update", &options);
    ck_assert_int_eq(rows_of(report, "adafactor", "share"), 2);
    ck_assert_int_eq(rows_of(report, "adamw,cautious", "share"), 2);
    ck_assert_ptr_nonnull(strstr(json_string_value(skipped(report, "sam,adamw")), "gradient2"));
    json_decref(report);
}
END_TEST

START_TEST(costs)
{
    tenon_bench_options options = tiny();
    options.flags |= TENON_COSTS;
    json_t *report = bench("update", &options);
    ck_assert_int_eq(rows_of(report, "", "cost"), 5);
    json_decref(report);
}
END_TEST

START_TEST(gemm)
{
    tenon_bench_options options = tiny();
    json_t *report = bench("gemm", &options);
    ck_assert_int_eq(rows_of(report, "one call", "share"), rows_of(report, "tiled", "share"));
    ck_assert_int_ge(rows_of(report, "tiled", "share"), 5);
    json_decref(report);
    options.backend = "reference";
    report = bench("gemm", &options);
    ck_assert_int_ge(rows_of(report, "tiled", "share"), 5);
    json_decref(report);
}
END_TEST

START_TEST(layer)
{
    tenon_bench_options options = tiny();
    options.elements = 200000; /* layers on rows have several pieces */
    json_t *report = bench("layer", &options);
    const char *const layers[] = {"linear", "relu", "gelu", "tanh", "dropout", "layernorm", "batchnorm"};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s forward", layers[i]);
        ck_assert_msg(rows_of(report, name, "share") == 1, "%s", name);
        snprintf(name, sizeof name, "%s backward", layers[i]);
        ck_assert_msg(rows_of(report, name, "share") == 1, "%s", name);
    }
    json_decref(report);
}
END_TEST

START_TEST(for_people)
{
    tenon *handle = open_tenon();
    tenon_bench_options options = tiny();
    char *text;
    tn_error err = {0};
    options.flags = 0;
    ck_ok(tenon_bench(handle, "update", &options, &text, &err), err);
    ck_assert_ptr_nonnull(strstr(text, "f32, 4096 elements, 2 threads, medians of 2 rounds"));
    ck_assert_ptr_nonnull(strstr(text, "\n  adamw "));
    ck_assert_ptr_nonnull(strstr(text, "of 4 reads, 3 writes:"));
    ck_assert_ptr_nonnull(strstr(text, "of 6 reads, 4 writes:"));
    tenon_free(text);
    tenon_close(handle);
}
END_TEST

START_TEST(refused)
{
    tenon *handle = open_tenon();
    char *text = NULL;
    tn_error err = {0};
    const char *const wrong[] = {"adamx"};
    tenon_bench_options options = tiny();
    ck_assert_refused(tenon_bench(handle, "updat", &options, &text, &err), TN_E_NOT_FOUND, err, "no bench \"updat\"",
                      "did you mean \"update\"");
    options.elements = -1;
    ck_assert_refused(tenon_bench(handle, "memory", &options, &text, &err), TN_E_INVALID, err, "bench", "elements");
    options = tiny();
    options.threads = 5000;
    ck_assert_refused(tenon_bench(handle, "memory", &options, &text, &err), TN_E_INVALID, err, "bench", "5000 threads");
    options = tiny();
    options.rounds = -3;
    ck_assert_refused(tenon_bench(handle, "memory", &options, &text, &err), TN_E_INVALID, err, "bench", "-3 rounds");
    options = tiny();
    options.chains = wrong;
    options.chain_count = 1;
    ck_assert_refused(tenon_bench(handle, "update", &options, &text, &err), TN_E_NOT_FOUND, err, "update", "adamx");
    options = tiny();
    options.backend = "openblast";
    ck_assert_refused(tenon_bench(handle, "gemm", &options, &text, &err), TN_E_NOT_FOUND, err, "no ", "openblas");
    ck_assert_ptr_null(text);
    tenon_close(handle);
}
END_TEST

/* ---- streams ---- */

START_TEST(streams_keep_every_bit)
{
    enum { ARRAYS = 6, BYTES = 300 * 1024 };
    unsigned char *array[ARRAYS], *copy = malloc(BYTES);
    tn_error err = {0};
    tn_pool *pool;
    ck_ok(tn_pool_create(2, &pool, &err), err);
    tn_stream stream = {.both = 3, .reads = 2, .writes = 1, .bytes = BYTES, .pool = pool};
    for (int j = 0; j < ARRAYS; j++) {
        array[j] = tn_alloc_aligned(BYTES);
        ck_assert_ptr_nonnull(array[j]);
        for (int i = 0; i < BYTES; i++)
            array[j][i] = (unsigned char)(i * 7 + i / 251 + j * 31 + 1);
        stream.array[j] = (char *)array[j];
    }
    for (int j = 0; j < ARRAYS; j++) {
        memcpy(copy, array[j], BYTES);
        tn_stream_run(&stream);
        for (int i = 0; i < BYTES && j < 5; i++)
            expect(array[j][i] == copy[i], "array %d, byte %d: %d, was %d", j, i, array[j][i], copy[i]);
    }
    for (int i = 0; i < BYTES; i++)
        expect(array[5][i] == 0, "byte %d was not written", i);
    ck_assert_double_eq(tn_stream_work(&stream), (double)BYTES * 9);
    for (int j = 0; j < ARRAYS; j++)
        tn_free(array[j]);
    free(copy);
    tn_pool_destroy(pool);
}
END_TEST

/* That a stream reads and writes all that it says shows in what it would do to the arrays if its zero were none. */
START_TEST(streams_reach_every_byte)
{
    enum { ARRAYS = 4, BYTES = 257 * 1024 };
    for (int32_t both = 0; both <= ARRAYS; both++)
        for (int32_t reads = 0; both + reads <= ARRAYS; reads++) {
            tn_stream stream = {.both = both, .reads = reads, .bytes = BYTES, .zero = 1};
            stream.writes = ARRAYS - both - reads;
            for (int j = 0; j < ARRAYS; j++) {
                stream.array[j] = tn_alloc_aligned(BYTES);
                ck_assert_ptr_nonnull(stream.array[j]);
                for (int i = 0; i < BYTES && j >= both && j < both + reads; i += 8)
                    stream.array[j][i] = (char)(j == both + i / 8 % reads); /* one array has each word's 1 */
            }
            tn_stream_run(&stream);
            for (int j = 0; j < ARRAYS; j++)
                for (int i = 0; i < BYTES; i += 8)
                    expect(stream.array[j][i] == (j < both + reads && j >= both ? j == both + i / 8 % reads : 1),
                           "%d both, %d read: array %d, byte %d is %d", both, reads, j, i, stream.array[j][i]);
            for (int j = 0; j < ARRAYS; j++)
                tn_free(stream.array[j]);
        }
}
END_TEST

/* A chain's stream moves what the chain moves. */
START_TEST(streams_of_chains)
{
    static const struct {
        const char *links, *name;
    } cases[] = {{"adamw", "4 reads, 3 writes"},
                 {"sgd", "2 reads, 1 write"},
                 {"lion", "3 reads, 2 writes"},
                 {"clip-norm,adamw", "5 reads, 3 writes"},
                 {"clip-norm,adamw,ema", "6 reads, 4 writes"},
                 {"adamw,cautious", "8 reads, 3 writes"},
                 {"lamb", "8 reads, 3 writes"},
                 {"clip-norm,lamb", "9 reads, 3 writes"}, /* two passes that only read */
                 {"clip-norm,lamb,ema", "10 reads, 4 writes"}};
    const tn_bench_options options = {.registry = test_plugins()};
    const tn_bench_run run = {.options = &options, .threads = 1, .rounds = 1};
    tn_error err = {0};
    tn_bench_tensors *tensors;
    ck_ok(tn_bench_tensors_create(3, 8192, 0, &tensors, &err), err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tn_bench_chain *chain;
        ck_ok(tn_bench_chain_open(&run, tensors, cases[i].links, &chain, &err), err);
        ck_assert_str_eq(tn_bench_chain_stream_name(chain), cases[i].name);
        ck_assert_double_eq(tn_bench_chain_stream_work(chain), tn_bench_chain_work(chain));
        tn_bench_chain_step(chain);
        ck_ok(tn_bench_chain_status(chain, &err), err);
        tn_bench_chain_stream(chain);
        tn_bench_chain_free(chain);
    }
    tn_bench_tensors_free(tensors);
}
END_TEST

/* ---- figures ---- */

typedef struct worker {
    int64_t runs;
} worker;

static void work(void *arg) { ((worker *)arg)->runs++; }

/* Work counts: of two sides that take as long, the one with twice the work has twice the share. */
START_TEST(shares)
{
    worker a = {0}, b = {0};
    const tn_bench_options options = {.registry = NULL};
    tn_bench_run run = {.options = &options, .threads = 1, .rounds = 9};
    const tn_bench_side sides[] = {{"thing", work, &a, 3e6, 1}, {"limit", work, &b, 1e6, -1}};
    tn_error err = {0};
    ck_ok(tn_bench_measure(&run, "group", sides, 2, &err), err);
    ck_ok(tn_bench_skip(&run, "group", "other", "reason", &err), err);
    ck_assert_uint_eq(run.row_count, 2);
    const tn_bench_row *row = &run.rows[0];
    ck_assert_int_gt(a.runs, 1000); /* short ones are repeated */
    ck_assert_str_eq(row->name, "thing");
    ck_assert_str_eq(row->limit, "limit");
    ck_assert_double_gt(row->share.median, 1.5);
    ck_assert_double_lt(row->share.median, 6);
    ck_assert_str_eq(run.rows[1].reason, "reason");
    for (size_t i = 0; i < run.row_count; i++) {
        tn_free(run.rows[i].group);
        tn_free(run.rows[i].name);
        tn_free(run.rows[i].limit);
        tn_free(run.rows[i].reason);
    }
    tn_free(run.rows);
}
END_TEST

START_TEST(no_memory)
{
    const tenon_bench_options options = tiny();
    tenon *handle = open_tenon();
    int32_t status = TN_E_MEMORY, refused = 0;
    for (int64_t nth = 0; status != TN_OK; nth++) {
        char *text = NULL;
        tn_error err = {0};
        tn_memory_fail_at(nth);
        status = tenon_bench(handle, "memory", &options, &text, &err);
        tn_memory_fail_at(-1);
        ck_assert_msg(status == TN_OK || status == TN_E_MEMORY, "allocation %d: %s", (int)nth, err.msg);
        ck_assert_int_eq(text != NULL, status == TN_OK);
        refused += status != TN_OK;
        tenon_free(text);
    }
    ck_assert_int_gt(refused, 10);
    tenon_close(handle);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bench");
    TCase *all = tcase_create("bench");
    tcase_set_timeout(all, 60);
    tcase_add_test(all, memory);
    tcase_add_test(all, update);
    tcase_add_test(all, every_link);
    tcase_add_test(all, costs);
    tcase_add_test(all, gemm);
    tcase_add_test(all, layer);
    tcase_add_test(all, for_people);
    tcase_add_test(all, refused);
    tcase_add_test(all, streams_keep_every_bit);
    tcase_add_test(all, streams_reach_every_byte);
    tcase_add_test(all, streams_of_chains);
    tcase_add_test(all, shares);
    tcase_add_test(all, no_memory);
    suite_add_tcase(suite, all);
    return test_main(suite);
}
