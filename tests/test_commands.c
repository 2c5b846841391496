/* SPDX-License-Identifier: Apache-2.0
 *
 * test_commands.c: eval, export, install and doctor by the C API: every allocation refused in turn is an error that
 * says so and leaves no part of a file; null options; what the API refuses itself. What they do is tested by
 * test_cli_commands.py.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "host/base/memory.h"
#include "host/tenon.h"
#include "tests/small_set.h"

static const char experiment[] = "name: short\n"
                                 "data: {use: idx, folder: %s, batch: 8}\n"
                                 "model: {use: mlp, widths: [6], normalizer: batchnorm}\n"
                                 "loss: cross-entropy\n"
                                 "update: [{use: adamw, lr: 1e-2}, ema]\n"
                                 "backend: reference\n"
                                 "precision: {use: f32, storage: bf16, master: true}\n"
                                 "train: {epochs: 1, seed: 4, threads: 1}\n"
                                 "eval: {split: test, refresh: 2}\n"
                                 "checkpoint: {every: 1 epoch}\n"
                                 "sinks: []\n";

static char *folder; /* of the run */
static char made[PATH_MAX + 64], share[PATH_MAX + 64];

static tenon *open_handle(void)
{
    tenon *handle;
    tn_error err = {0};
    ck_assert_msg(tenon_open(NULL, &handle, &err) == TN_OK, "%s", err.msg);
    return handle;
}

static void set_up(void)
{
    char text[PATH_MAX + sizeof experiment], file[PATH_MAX + 32];
    tn_error err = {0};
    make_directory();
    small_set(24, 8);
    snprintf(text, sizeof text, experiment, test_directory);
    snprintf(file, sizeof file, "%s/experiment.yaml", test_directory);
    write_text(file, text);
    snprintf(made, sizeof made, "%s/made.safetensors", test_directory);
    snprintf(share, sizeof share, "%s/share", test_directory);
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    setenv("TENON_PLUGIN_PATH", test_env("TENON_TEST_GOOD"), 1);
    setenv("XDG_DATA_HOME", share, 1);
    tenon *handle = open_handle();
    const tenon_run_options options = {.struct_size = sizeof options, .runs = in_test("runs")};
    ck_assert_msg(tenon_run(handle, file, NULL, 0, &options, &folder, &err) == TN_OK, "%s", err.msg);
    tenon_close(handle);
}

static void tear_down(void)
{
    tenon_free(folder);
    remove_directory();
}

/* ---- refused allocations ---- */

typedef int32_t work(tenon *handle, char **ret, tn_error *err);

static int32_t do_eval(tenon *handle, char **ret, tn_error *err)
{
    const tenon_eval_options options = {.struct_size = sizeof options, .flags = TENON_JSON, .split = "train"};
    return tenon_eval(handle, folder, &options, ret, err);
}

static int32_t do_export(tenon *handle, char **ret, tn_error *err)
{
    const tenon_export_options options = {.struct_size = sizeof options, .file = made};
    return tenon_export(handle, folder, &options, ret, err);
}

static int32_t do_install(tenon *handle, char **ret, tn_error *err)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/good-one.so", test_env("TENON_TEST_BAD"));
    return tenon_install(handle, path, TENON_JSON, ret, err);
}

static int32_t do_doctor(tenon *handle, char **ret, tn_error *err)
{
    int32_t wrong = -1, status = tenon_doctor(handle, NULL, 0, &wrong, ret, err);
    ck_assert_msg(wrong == (status == TN_OK ? 0 : -1), "%d wrong:\n%s", wrong, *ret ? *ret : "");
    return status;
}

/* One call with its nth allocation refused (-1: none); how many there were. */
static int64_t attempt(work *what, int64_t nth, int32_t *ret_status)
{
    char *text = NULL;
    tn_error err = {0};
    tenon *handle = open_handle();
    int64_t before = tn_memory_count();
    tn_memory_fail_at(nth);
    *ret_status = what(handle, &text, &err);
    tn_memory_fail_at(-1);
    int64_t count = tn_memory_count() - before;
    if (*ret_status == TN_OK)
        ck_assert_ptr_nonnull(text);
    else
        ck_assert_msg(*ret_status == TN_E_MEMORY && err.code == TN_E_MEMORY && err.msg[0] && !text,
                      "allocation %lld: status %d: %s", (long long)nth, *ret_status, err.msg);
    tenon_free(text);
    tenon_close(handle);
    return count;
}

/* `file`: what the call writes; NULL: nothing. `tolerated`: how many refusals may go unseen, where code goes on
 * without what it has asked for. */
static void refuse_each(work *what, const char *file, int most, int tolerated)
{
    int32_t status;
    int unseen = 0;
    struct stat whole, left;
    attempt(what, -1, &status); /* maps what it maps, once for the process */
    if (file)
        unlink(file);
    int64_t count = attempt(what, -1, &status), step = count / most + 1;
    ck_assert_int_eq(status, TN_OK);
    ck_assert_int_gt(count, 10);
    ck_assert(!file || stat(file, &whole) == 0);
    for (int64_t nth = 0; nth < count; nth += nth < 20 || nth > count - 20 ? 1 : step) {
        if (file)
            unlink(file);
        attempt(what, nth, &status);
        unseen += status == TN_OK;
        if (file && stat(file, &left) == 0)
            ck_assert_msg(left.st_size == whole.st_size, "allocation %lld: a part of a file is left", (long long)nth);
        else
            ck_assert(!file || status != TN_OK);
    }
    ck_assert_msg(unseen <= tolerated, "%d of %lld refusals were not seen", unseen, (long long)count);
    if (file)
        unlink(file);
    attempt(what, -1, &status);
    ck_assert_int_eq(status, TN_OK);
}

START_TEST(eval_without_memory) { refuse_each(do_eval, NULL, 60, 0); }
END_TEST
START_TEST(export_without_memory) { refuse_each(do_export, made, 300, 0); }
END_TEST
START_TEST(install_without_memory)
{
    char target[PATH_MAX + 128];
    snprintf(target, sizeof target, "%s/tenon/plugins/good-one.so", share);
    unlink(target);
    refuse_each(do_install, target, 200, 0);
}
END_TEST
START_TEST(doctor_without_memory) { refuse_each(do_doctor, NULL, 200, 0); }
END_TEST

/* ---- the API itself ---- */

START_TEST(options_may_be_null)
{
    tenon *handle = open_handle();
    char *text;
    tn_error err = {0};
    ck_assert_msg(tenon_eval(handle, folder, NULL, &text, &err) == TN_OK, "%s", err.msg);
    ck_assert_ptr_nonnull(strstr(text, "test/loss"));
    tenon_free(text);
    ck_assert_msg(tenon_export(handle, folder, NULL, &text, &err) == TN_OK, "%s", err.msg);
    ck_assert_ptr_nonnull(strstr(text, "model.safetensors"));
    tenon_free(text);
    tenon_close(handle);
}
END_TEST

START_TEST(views_have_two_names)
{
    tenon *handle = open_handle();
    char *text = NULL;
    tn_error err = {0};
    const tenon_export_options export = {.struct_size = sizeof export, .file = made, .view = "both"};
    ck_assert_int_eq(tenon_export(handle, folder, &export, &text, &err), TN_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "both"));
    const tenon_eval_options eval = {.struct_size = sizeof eval, .view = "both"};
    ck_assert_int_eq(tenon_eval(handle, folder, &eval, &text, &err), TN_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "both"));
    ck_assert_ptr_null(text);
    tenon_close(handle);
}
END_TEST

START_TEST(the_nearest_word)
{
    const char *const words[] = {"run", NULL, "resume", "eval"};
    ck_assert_str_eq(tenon_nearest("rnu", words, 4), "run");
    ck_assert_ptr_null(tenon_nearest("completion", words, 4));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("commands");
    TCase *cases = tcase_create("commands");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, eval_without_memory);
    tcase_add_test(cases, export_without_memory);
    tcase_add_test(cases, install_without_memory);
    tcase_add_test(cases, doctor_without_memory);
    tcase_add_test(cases, options_may_be_null);
    tcase_add_test(cases, views_have_two_names);
    tcase_add_test(cases, the_nearest_word);
    suite_add_tcase(suite, cases);
    return test_main(suite);
}
