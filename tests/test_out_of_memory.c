/* SPDX-License-Identifier: Apache-2.0
 *
 * test_out_of_memory.c: every allocation of short runs refused in turn: an error that says so, no crash, no leak, and
 * the process and its folders as good as before. Each refusal has a process of its own, forked before anything is
 * loaded, so loading is among what fails.
 *
 * Without TENON_TEST_EVERY=1 in the environment only some of the allocations are refused, spread over the run.
 */
#include <sys/mman.h>
#include <sys/wait.h>

#include "host/base/memory.h"
#include "host/store/folder.h"
#include "host/tenon.h"
#include "host/train/trainer.h"
#include "tests/small_set.h"

#define SAMPLES 16 /* of the allocations of one run */

int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

/* Nothing here is about power cuts, and thousands of runs wait for disks. */
int fsync(int fd)
{
    (void)fd;
    return 0;
}

static const char experiment[] =
    "name: short\n"
    "data: {use: idx, folder: %s, batch: 4}\n"
    "model: {use: mlp, widths: [6, 5], activation: gelu, normalizer: batchnorm, regularizer: dropout}\n"
    "loss: cross-entropy\n"
    "update: [{use: clip-norm, max_norm: 1}, {use: adamw, as: rule, lr: 1e-2}, ema]\n"
    "schedule: {rule.lr: {use: cosine}}\n"
    "backend: reference\n"
    "train: {epochs: 1, seed: 4, threads: 1, accumulate: 2}\n"
    "eval: {split: test, every: 2 steps}\n"
    "checkpoint: {every: 2 steps}\n"
    "sinks: []\n";

/* What a child does. */
typedef struct {
    const char *name;
    int32_t (*work)(tenon *handle, const char *const *overrides, size_t count, tn_error *err);
    const char *overrides[8];
} action;

static char file[PATH_MAX + 32];

static void set_up(void)
{
    char text[PATH_MAX + sizeof experiment];
    make_directory();
    small_set(24, 8);
    snprintf(text, sizeof text, experiment, test_directory);
    snprintf(file, sizeof file, "%s/experiment.yaml", test_directory);
    write_text(file, text);
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    setenv("TENON_PLUGIN_PATH", test_env("TENON_TEST_GOOD"), 1);
}

/* ---- what is done ---- */

static void copy_tree(const char *from, const char *to)
{
    char command[4 * PATH_MAX];
    snprintf(command, sizeof command, "rm -rf '%s' && cp -r '%s' '%s'", to, from, to);
    ck_assert_int_eq(system(command), 0);
}

static int32_t do_run(tenon *handle, const char *const *overrides, size_t count, tn_error *err)
{
    char runs[32]; /* of its own: trying names that are taken would shift what is counted */
    snprintf(runs, sizeof runs, "runs-%d", (int)getpid());
    const tenon_run_options options = {.struct_size = sizeof options, .runs = in_test(runs)};
    char *folder = NULL;
    int32_t status = tenon_run(handle, file, overrides, count, &options, &folder, err);
    tenon_free(folder);
    return status;
}

/* In the folder "again", which is a copy of a run that stopped half-way. */
static int32_t do_resume(tenon *handle, const char *const *overrides, size_t count, tn_error *err)
{
    (void)overrides;
    (void)count;
    return tenon_resume(handle, in_test("again"), NULL, 0, NULL, err);
}

/* The state of the caller's own tensors. */
static int32_t do_update(tenon *handle, const char *const *overrides, size_t count, tn_error *err)
{
    float p[2][24] = {{0}}, g[2][24] = {{0}};
    const int64_t shape[] = {4, 6}, strides[] = {1, 4};
    const void *gradients[] = {g[0], g[1]};
    const int64_t *turned[] = {NULL, strides};
    const tn_dtype f32 = {TN_FLOAT, 32, 1};
    const tenon_tensor tensors[] = {
        {.struct_size = sizeof(tenon_tensor), .name = "a", .data = p[0], .dtype = f32, .ndim = 2, .shape = shape},
        {.struct_size = sizeof(tenon_tensor), .name = "b", .data = p[1], .dtype = f32, .ndim = 2, .shape = shape}};
    const tenon_update_options options = {
        .struct_size = sizeof options, .threads = 2, .state = "blockwise8", .backend = "reference"};
    tenon_update *update = NULL;
    (void)count;
    int32_t status = tenon_update_open(handle, overrides[0], tensors, 2, &options, &update, err);
    if (status == TN_OK) {
        const tenon_step step = {.struct_size = sizeof step, .g = gradients, .g_strides = turned};
        status = tenon_update_step(update, &step, NULL, err);
    }
    tenon_update_close(update);
    return status;
}

static int32_t do_ask(tenon *handle, const char *const *overrides, size_t count, tn_error *err)
{
    char *text = NULL;
    int32_t status = tenon_list(handle, NULL, TENON_JSON | TENON_ALL, &text, err);
    tenon_free(text);
    text = NULL;
    if (status == TN_OK)
        status = tenon_info(handle, "optimizer/adamw", 0, &text, err);
    tenon_free(text);
    text = NULL;
    if (status == TN_OK)
        status = tenon_resolve(handle, file, overrides, count, &text, err);
    tenon_free(text);
    return status;
}

static const action actions[] = {
    {"plain", do_run, {NULL}},
    {"ask", do_ask, {NULL}},
    {"update-muon", do_update, {"[{use: clip-norm}, muon, ema]"}},
    {"muon", do_run, {"update=[{use: muon, as: rule, on: {axes: 2}}, {use: adamw, as: rest}]", "train.threads=2"}},
    {"kfac",
     do_run,
     {"update=[{use: kfac, as: rule, on: {axes: 2}}, {use: adamw, as: rest}, kl-clip]", "model.normalizer=layernorm"}},
    {"lbfgs", do_run, {"update=[{use: lbfgs, as: rule}]", "schedule={}", "model.regularizer=none", "precision=f64"}},
    {"newton-cg", do_run, {"update=[{use: newton-cg, as: rule}]", "schedule={}", "model.normalizer=layernorm"}},
    {"sam",
     do_run,
     {"update=[{use: sam}, {use: centralize}, {use: clip-percentile}, {use: lamb, as: rule}, {use: cautious}, "
      "{use: schedule-free}]",
      "eval.view=eval", "eval.refresh=1"}},
    {"adafactor", do_run, {"update=[{use: adafactor, as: rule, beta1: 0.8}, {use: ema}]", "model.activation=relu"}},
    {"storage", do_run, {"precision={storage: fp16, loss_scale: dynamic}", "recompute=sqrt"}},
    {"codec",
     do_run,
     {"precision={storage: {use: bf16, rounding: stochastic}, master: false, state: blockwise8}",
      "recompute={use: every}"}},
    {"plateau", do_run, {"schedule={rule.lr: {use: plateau}}", "backend=openblas", "sinks=[jsonl]"}},
};
#define ACTIONS ((int)(sizeof actions / sizeof *actions))

static size_t override_count(const action *a)
{
    size_t count = 0;
    while (a->overrides[count])
        count++;
    return count;
}

static int32_t work(const action *a, tn_error *err)
{
    tenon *handle = NULL;
    int32_t status = tenon_open(NULL, &handle, err);
    if (status == TN_OK)
        status = a->work(handle, a->overrides, override_count(a), err);
    tenon_close(handle);
    return status;
}

/* ---- what refuses ---- */

static int64_t json_asked, json_fail_at = -1;

static void *json_block(size_t size) { return json_asked++ == json_fail_at ? NULL : malloc(size); }

/* Whose allocations are refused: the host's, or those of the JSON library. */
typedef enum { HOST, JSON } victim;

static int64_t asked(victim v) { return v == HOST ? tn_memory_count() : json_asked; }

static void refuse(victim v, int64_t nth)
{
    if (v == HOST)
        tn_memory_fail_at(nth);
    else
        json_fail_at = nth < 0 ? -1 : json_asked + nth;
}

/* What a child leaves for its parent. */
typedef struct {
    int64_t count; /* of allocations, when nothing was refused */
    char text[2048];
} report;

static report *shared_report(void)
{
    report *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(r != MAP_FAILED);
    return r;
}

/* Runs with the nth allocation refused, then again with none; what is wrong goes into r->text. The JSON library says
 * "invalid token" for some of its own, and lets a character of a long text go where its buffer can not grow. */
static void live(const action *a, victim v, int64_t nth, report *r)
{
    tn_error err = {0};
    json_set_alloc_funcs(json_block, free);
    int64_t before = asked(v);
    refuse(v, nth);
    int32_t status = work(a, &err);
    refuse(v, -1);
    r->count = asked(v) - before;
    if (nth < 0 ? status != TN_OK : v == HOST && status != TN_E_MEMORY)
        snprintf(r->text, sizeof r->text, "%s: %s", tn_status_name(status), status ? err.msg : "as if nothing was");
    else if (status != TN_OK && (err.code != status || !err.msg[0]))
        snprintf(r->text, sizeof r->text, "%s without a message", tn_status_name(status));
    if (r->text[0] || nth < 0)
        return;
    status = work(a, &err);
    if (status != TN_OK)
        snprintf(r->text, sizeof r->text, "the next one fails: %s: %s", tn_status_name(status), err.msg);
}

static void child(const action *a, victim v, int64_t nth, report *r)
{
    *r = (report){0};
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        live(a, v, nth, r);
        if (__lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check() && !r->text[0])
            strcpy(r->text, "it leaks");
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status))
        snprintf(r->text, sizeof r->text, "signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status) != 0)
        snprintf(r->text, sizeof r->text, "exit status %d", WEXITSTATUS(status));
}

/* Refuses one allocation after the other; `prepare` comes before each child, `check` after. */
static void refuse_in_turn(const action *a, victim v, void (*prepare)(void), void (*check)(int64_t nth))
{
    report *r = shared_report();
    int every = getenv("TENON_TEST_EVERY") != NULL;
    int wrong = 0;
    if (prepare)
        prepare();
    child(a, v, -1, r);
    ck_assert_msg(!r->text[0], "%s: %s", a->name, r->text);
    int64_t count = r->count, step = every || count < SAMPLES ? 1 : count / SAMPLES;
    ck_assert_int_gt(count, 20);
    for (int64_t nth = every ? 0 : step / 2; nth < count; nth += step) {
        if (prepare)
            prepare();
        child(a, v, nth, r);
        if (r->text[0])
            fprintf(stderr, "%s: allocation %lld of %lld: %s\n", a->name, (long long)nth, (long long)count, r->text);
        else if (check)
            check(nth);
        wrong += r->text[0] != 0;
    }
    munmap(r, sizeof *r);
    ck_assert_msg(wrong == 0, "%s: %d refusals went wrong", a->name, wrong);
}

/* ---- the tests ---- */

START_TEST(host_allocations_of_a_run) { refuse_in_turn(&actions[_i], HOST, NULL, NULL); }
END_TEST

START_TEST(json_allocations_of_a_run) { refuse_in_turn(&actions[_i], JSON, NULL, NULL); }
END_TEST

static int32_t stop_early(void *user, const tn_record *record)
{
    (void)user;
    return record->attempt >= 2 && !strcmp(record->event, "train");
}

static unsigned char *last_checkpoint(const char *folder, size_t *ret_size)
{
    char *path = NULL;
    tn_error err;
    ck_ok(tn_checkpoint_last(folder, &path, &err), err);
    FILE *in = fopen(path, "rb");
    ck_assert_ptr_nonnull(in);
    unsigned char *bytes = malloc(1 << 20);
    *ret_size = fread(bytes, 1, 1 << 20, in);
    fclose(in);
    tn_free(path);
    return bytes;
}

static void fresh_copy(void) { copy_tree(in_test("half"), in_test("again")); }

/* The child went on after the refusal: to the same end. */
static void same_end(int64_t nth)
{
    size_t sizes[2];
    unsigned char *whole = last_checkpoint(in_test("whole"), &sizes[0]);
    unsigned char *again = last_checkpoint(in_test("again"), &sizes[1]);
    ck_assert_msg(sizes[0] == sizes[1] && !memcmp(whole, again, sizes[0]), "allocation %lld: another end",
                  (long long)nth);
    free(whole);
    free(again);
}

/* In a child, so that nothing is loaded here. */
static void make_runs(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        tn_error err = {0};
        tenon *handle = NULL;
        char *folder = NULL;
        tenon_run_options options = {.struct_size = sizeof options, .runs = in_test("runs")};
        int32_t status = tenon_open(NULL, &handle, &err);
        if (status == TN_OK)
            status = tenon_run(handle, file, NULL, 0, &options, &folder, &err);
        if (status == TN_OK && rename(folder, in_test("whole")))
            status = TN_E_IO;
        options.observe = stop_early;
        if (status == TN_OK && tenon_run(handle, file, NULL, 0, &options, &folder, &err) != TN_E_STOPPED)
            status = TN_E_INTERNAL;
        if (status == TN_OK && rename(folder, in_test("half")))
            status = TN_E_IO;
        _exit(status != TN_OK);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}

static const action resume = {"resume", do_resume, {NULL}};

START_TEST(allocations_of_a_resumed_run)
{
    make_runs();
    refuse_in_turn(&resume, _i ? JSON : HOST, fresh_copy, same_end);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("out-of-memory");
    TCase *tests = tcase_create("out-of-memory");
    tcase_set_timeout(tests, getenv("TENON_TEST_EVERY") ? 7200 : 100);
    tcase_add_checked_fixture(tests, set_up, remove_directory);
    tcase_add_loop_test(tests, host_allocations_of_a_run, 0, ACTIONS);
    tcase_add_loop_test(tests, json_allocations_of_a_run, 0, ACTIONS);
    tcase_add_loop_test(tests, allocations_of_a_resumed_run, 0, 2);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
