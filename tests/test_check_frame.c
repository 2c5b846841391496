/* SPDX-License-Identifier: Apache-2.0
 *
 * test_check_frame.c: what `tenon check` stands on: a rule in its own process, with its signals, time, memory, output
 * and folder; memory between guards; which rules run; files that crash while they load; the report as text and JSON.
 */
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>

#include "host/base/memory.h"
#include "host/check/check.h"
#include "host/check/guard.h"
#include "tests/plugin_files.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* ---- one rule ---- */

typedef void run_function(const tn_check_subject *subject, tn_check_finding *finding);

static tn_check_finding run_one(run_function *run, int32_t timeout_s)
{
    const tn_check_rule rule = {"test-rule", "a rule of the test", NULL, run};
    const tn_check_subject subject = {.path = "/nowhere/plugin.so"};
    const tn_check_options options = {.timeout_s = timeout_s, .memory = (int64_t)512 << 20};
    tn_check_finding found = {.rule = rule.id, .verdict = -1};
    tn_error err = {0};
    ck_ok(tn_check_child(&rule, &subject, &options, &found, &err), err);
    return found;
}

#define expect_found(found, wanted, part)                                                                              \
    ck_assert_msg((found).verdict == (wanted) && strstr((found).message, part), "%s, not %s with '%s': %s",            \
                  tn_check_verdict_name((found).verdict), tn_check_verdict_name(wanted), part, (found).message)

static void do_nothing(const tn_check_subject *subject, tn_check_finding *finding) { (void)subject, (void)finding; }
static void do_fail(const tn_check_subject *subject, tn_check_finding *finding)
{
    (void)subject;
    tn_check_skip(finding, "skipped first");
    tn_check_fail(finding, "first %d", 1);
    tn_check_fail(finding, "second");
    tn_check_skip(finding, "skipped last");
}
static void do_skip(const tn_check_subject *subject, tn_check_finding *finding)
{
    (void)subject;
    tn_check_skip(finding, "because");
    tn_check_skip(finding, "another");
}

START_TEST(what_a_rule_says)
{
    expect_found(run_one(do_nothing, 0), TN_CHECK_PASSED, "");
    tn_check_finding found = run_one(do_fail, 0);
    expect_found(found, TN_CHECK_FAILED, "first 1");
    ck_assert_str_eq(found.rule, "test-rule");
    expect_found(run_one(do_skip, 0), TN_CHECK_SKIPPED, "because");
}
END_TEST

static void do_signal(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_check_fail(finding, "said before it ends, and lost with it");
    tn_check_stage(subject, "calling %s", "update");
    raise(SIGSEGV);
}
static void do_exit(const tn_check_subject *subject, tn_check_finding *finding)
{
    (void)finding;
    fprintf(stdout, "all is\nwell\n");
    tn_check_stage(subject, "at work");
    tn_check_stage(subject, NULL);
    exit(0);
}
static void do_abort(const tn_check_subject *subject, tn_check_finding *finding)
{
    (void)subject, (void)finding;
    for (int i = 0; i < 1000; i++)
        fprintf(stderr, "line %d\n", i);
    abort();
}
static void do_sleep(const tn_check_subject *subject, tn_check_finding *finding)
{
    (void)finding;
    tn_check_stage(subject, "waiting");
    for (;;)
        pause();
}

START_TEST(an_end_is_a_finding)
{
    expect_found(run_one(do_signal, 0), TN_CHECK_CRASHED, "SIGSEGV (Segmentation fault) while calling update");
    expect_found(run_one(do_exit, 0), TN_CHECK_CRASHED, "exit code 0; it said: all is well");
    expect_found(run_one(do_abort, 0), TN_CHECK_CRASHED, "SIGABRT");
    expect_found(run_one(do_abort, 0), TN_CHECK_CRASHED, "line 998 line 999");
    tn_check_finding found = run_one(do_sleep, 1);
    expect_found(found, TN_CHECK_TIMED_OUT, "not done after 1 s while waiting");
    ck_assert_msg(found.seconds >= 1 && found.seconds < 10, "%g s", found.seconds);
}
END_TEST

/* One that stays behind holds the pipe open. */
static void do_fork(const tn_check_subject *subject, tn_check_finding *finding)
{
    pid_t child = fork();
    if (child == 0) {
        signal(SIGTERM, SIG_IGN);
        for (;;)
            pause();
    }
    tn_check_fail(finding, "%d %s", (int)child, subject->folder);
}

START_TEST(what_a_rule_starts_ends_with_it)
{
    tn_check_finding found = run_one(do_fork, 20);
    int child = -1;
    ck_assert_int_eq(found.verdict, TN_CHECK_FAILED);
    ck_assert_int_eq(sscanf(found.message, "%d", &child), 1);
    ck_assert_msg(found.seconds < 10, "%g s", found.seconds);
    for (int i = 0; i < 1000 && kill(child, 0) == 0; i++) {
        char state[64] = "", path[64];
        snprintf(path, sizeof path, "/proc/%d/stat", child);
        FILE *file = fopen(path, "r"); /* nobody may wait for orphans in a container */
        if (file && fscanf(file, "%*d %*s %63s", state) == 1 && state[0] == 'Z')
            i = 1000;
        if (file)
            fclose(file);
        usleep(1000);
        ck_assert_msg(i != 999, "process %d lives on", child);
    }
}
END_TEST

static void do_write_file(const tn_check_subject *subject, tn_check_finding *finding)
{
    char folder[PATH_MAX];
    mkdir("inner", 0700);
    write_text("inner/file", "something");
    bool is_there = getcwd(folder, sizeof folder) && strcmp(folder, subject->folder) == 0;
    tn_check_fail(finding, "%s", is_there ? folder : "another folder");
}

START_TEST(a_rule_has_a_folder)
{
    tn_check_finding found = run_one(do_write_file, 0);
    ck_assert_int_eq(found.message[0], '/');
    ck_assert_msg(access(found.message, F_OK) != 0, "%s is left", found.message);
}
END_TEST

static void do_allocate(const tn_check_subject *subject, tn_check_finding *finding)
{
    (void)subject;
    void *block = malloc((size_t)1 << 30);
    if (block)
        tn_check_fail(finding, "1 GiB of 512 MiB");
    free(block);
}

START_TEST(memory_has_a_limit)
{
    if (!SANITIZED)
        expect_found(run_one(do_allocate, 0), TN_CHECK_PASSED, "");
}
END_TEST

/* ---- further processes ---- */

static void add_one(const tn_check_subject *subject, void *shared, tn_check_finding *finding)
{
    (void)subject;
    static int calls; /* 0 again in each process */
    *(int *)shared += 1 + 10 * calls++;
    if (*(int *)shared > 2)
        tn_check_fail(finding, "three");
}
static void do_apart(const tn_check_subject *subject, tn_check_finding *finding)
{
    int *shared = tn_check_shared(sizeof *shared);
    bool twice = tn_check_apart(subject, add_one, shared, finding) && tn_check_apart(subject, add_one, shared, finding);
    if (!twice || *shared != 2)
        tn_check_fail(finding, "%d", *shared);
    else if (tn_check_apart(subject, add_one, shared, finding))
        tn_check_skip(finding, "the third passed");
}
static void end_badly(const tn_check_subject *subject, void *shared, tn_check_finding *finding)
{
    (void)finding;
    tn_check_stage(subject, "in the second process");
    if (shared)
        raise(SIGFPE);
    exit(0);
}
static void do_crash_apart(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_check_apart(subject, end_badly, finding, finding);
}
static void do_exit_apart(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_check_apart(subject, end_badly, NULL, finding);
}

START_TEST(a_rule_can_run_parts_in_fresh_processes)
{
    expect_found(run_one(do_apart, 0), TN_CHECK_FAILED, "three");
    expect_found(run_one(do_crash_apart, 0), TN_CHECK_CRASHED, "SIGFPE (Floating point exception) while in the second");
    expect_found(run_one(do_exit_apart, 0), TN_CHECK_CRASHED, "exit code 0 while in the second");
}
END_TEST

/* ---- guards ---- */

enum touch { WRITE_BEHIND, WRITE_BEFORE, READ_BEHIND, WRITE_LENT, WRITE_EMPTY };

static void touch(const tn_check_subject *subject, enum touch how)
{
    tn_guard end, start, empty;
    tn_error err = {0};
    tn_guard_watch(subject->stage, 256);
    if (tn_guard_open("the end", 192, TN_GUARD_ALIGNMENT, TN_GUARD_END, &end, &err) ||
        tn_guard_open("the start", 100, TN_GUARD_ALIGNMENT, TN_GUARD_START, &start, &err) ||
        tn_guard_open("nothing", 0, TN_GUARD_ALIGNMENT, TN_GUARD_END, &empty, &err))
        _exit(3);
    volatile unsigned char *a = end.data, *b = start.data, *c = empty.data;
    a[0] = a[191] = b[0] = b[99] = 1;
    tn_guard_read_only(&end, 1);
    if (a[191] != 1)
        _exit(4);
    if (how == WRITE_BEHIND)
        a[194] = 1;
    else if (how == WRITE_BEFORE)
        b[-4] = 1;
    else if (how == READ_BEHIND)
        b[0] = a[192];
    else if (how == WRITE_LENT)
        a[5] = 1;
    else
        *c = 1;
}

static void do_write_behind(const tn_check_subject *s, tn_check_finding *f) { touch(s, WRITE_BEHIND), (void)f; }
static void do_write_before(const tn_check_subject *s, tn_check_finding *f) { touch(s, WRITE_BEFORE), (void)f; }
static void do_read_behind(const tn_check_subject *s, tn_check_finding *f) { touch(s, READ_BEHIND), (void)f; }
static void do_write_lent(const tn_check_subject *s, tn_check_finding *f) { touch(s, WRITE_LENT), (void)f; }
static void do_write_empty(const tn_check_subject *s, tn_check_finding *f) { touch(s, WRITE_EMPTY), (void)f; }

START_TEST(guards_end_what_goes_beyond)
{
    const char *writing =
#if defined __x86_64__
        "while writing ";
#else
        "while touching ";
#endif
    char words[128];
    snprintf(words, sizeof words, "SIGSEGV (Segmentation fault) %s2 bytes behind the end of 'the end'", writing);
    expect_found(run_one(do_write_behind, 0), TN_CHECK_CRASHED, words);
    snprintf(words, sizeof words, "%s4 bytes before the start of 'the start'", writing);
    expect_found(run_one(do_write_before, 0), TN_CHECK_CRASHED, words);
    expect_found(run_one(do_read_behind, 0), TN_CHECK_CRASHED, "0 bytes behind the end of 'the end'");
    snprintf(words, sizeof words, "%sto 'the end', which is lent for reading only", writing);
    expect_found(run_one(do_write_lent, 0), TN_CHECK_CRASHED, words);
    expect_found(run_one(do_write_empty, 0), TN_CHECK_CRASHED, "0 bytes behind the end of 'nothing'");
}
END_TEST

START_TEST(guards_know_their_damage)
{
    static const size_t sizes[] = {1, 64, 100, 4095, 4096, 4097, 70000};
    tn_error err = {0};
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        tn_guard guard;
        size_t bytes = sizes[i / 2];
        int place = i % 2 ? TN_GUARD_END : TN_GUARD_START;
        ck_ok(tn_guard_open("a", bytes, 64, place, &guard, &err), err);
        unsigned char *data = guard.data;
        ck_assert_uint_eq((uintptr_t)data % 64, 0);
        for (size_t at = 0; at < bytes; at++)
            expect(data[at] == 0, "not zeroed");
        memset(data, 7, bytes);
        ck_assert_uint_eq(tn_guard_damage(&guard), 0);
        bool has_rest = (place == TN_GUARD_END ? bytes % 64 : bytes % 4096) != 0;
        if (has_rest) {
            data[bytes] = 7;
            ck_assert_uint_eq(tn_guard_damage(&guard), 1);
        }
        tn_guard_close(&guard);
        ck_assert_ptr_null(guard.map);
        tn_guard_close(&guard);
    }
    tn_guard none;
    ck_assert_int_eq(tn_guard_open("a", SIZE_MAX / 2, 64, TN_GUARD_END, &none, &err), TN_E_MEMORY);
}
END_TEST

/* ---- which rules, which files ---- */

static const char *bad_file(const char *name)
{
    char file[256];
    snprintf(file, sizeof file, "%s.so", name);
    return test_path("TENON_TEST_BAD", file);
}

static int32_t check(const char *path, const char *only, tn_check_report *ret, tn_error *err)
{
    const tn_check_options options = {.path = path, .only = &only, .only_count = only != NULL, .timeout_s = 2};
    setenv("TENON_PLUGIN_PATH", test_env("TENON_TEST_GOOD"), 1);
    return tn_check_run(&options, ret, err);
}

START_TEST(only_what_was_asked_for)
{
    tn_check_report report = {0};
    tn_error err = {0};
    ck_ok(check(bad_file("good-one"), "file-record", &report, &err), err);
    ck_assert_uint_eq(report.count, 1);
    ck_assert_str_eq(report.findings[0].rule, "file-record");
    ck_assert_str_eq(report.findings[0].component, "");
    tn_check_report_free(&report);
    ck_assert_refused(check(bad_file("good-one"), "file-recrod", &report, &err), TN_E_INVALID, err, "no rule",
                      "did you mean 'file-record'");
    ck_assert_refused(check(bad_file("good-one"), "something else", &report, &err), TN_E_INVALID, err, "no rule",
                      "--list");
}
END_TEST

START_TEST(what_can_not_be_checked)
{
    tn_check_report report = {0};
    tn_error err = {0};
    ck_assert_refused(check("/nowhere/a.so", NULL, &report, &err), TN_E_NOT_FOUND, err, "ENOENT", "/nowhere/a.so");
    ck_assert_refused(check(bad_file("text"), NULL, &report, &err), TN_E_PLUGIN, err, "NOT_ELF", "text.so");
    ck_assert_refused(check(bad_file("clash-host"), NULL, &report, &err), TN_E_PLUGIN, err, "NOT_PLUGIN", "clash-host");
    const tn_check_options against = {.path = bad_file("good-one"), .against = "/nowhere/b.so"};
    ck_assert_refused(tn_check_run(&against, &report, &err), TN_E_NOT_FOUND, err, "ENOENT", "/nowhere/b.so");
    ck_assert_ptr_nonnull(dlopen(bad_file("good-one"), RTLD_NOW | RTLD_LOCAL));
    ck_assert_refused(check(bad_file("good-one"), NULL, &report, &err), TN_E_INVALID, err, "/",
                      "loaded in this process");
}
END_TEST

typedef struct {
    const char *file;
    int32_t verdict;
    const char *words;
} load_row;

static const load_row loads[] = {
    {"abort-at-load", TN_CHECK_CRASHED, "SIGABRT (Aborted) while loading it"},
    {"segv-at-load", TN_CHECK_CRASHED, "SIGSEGV (Segmentation fault) while loading it"},
    {"exit-at-load", TN_CHECK_CRASHED, "ended the process with exit code 0 while loading it"},
    {"sleep-at-load", TN_CHECK_TIMED_OUT, "not done after 2 s while loading it"},
    {"throw-at-load", TN_CHECK_CRASHED, "SIGABRT (Aborted) while loading it; it said: terminate called after"},
};

START_TEST(ends_while_loading)
{
    const load_row *row = &loads[_i];
    tn_check_report report = {0};
    tn_error err = {0};
    size_t skipped = 0;
    ck_ok(check(bad_file(row->file), NULL, &report, &err), err);
    ck_assert_uint_eq(report.failed, 1);
    for (size_t i = 0; i < report.count; i++) {
        const tn_check_finding *f = &report.findings[i];
        if (!strcmp(f->rule, "file-record"))
            expect_found(*f, row->verdict, row->words);
        else
            ck_assert_msg(f->verdict == TN_CHECK_PASSED || f->verdict == TN_CHECK_SKIPPED, "%s: %s", f->rule,
                          f->message);
        skipped += f->verdict == TN_CHECK_SKIPPED && strstr(f->message, "see file-record");
    }
    ck_assert_uint_ge(skipped, 6);
    tn_check_report_free(&report);
}
END_TEST

/* ---- files that can not be built wrong in that way ---- */

static tn_check_finding finding_of(const char *path, const char *rule)
{
    tn_check_report report = {0};
    tn_error err = {0};
    const tn_check_options options = {.path = path, .only = &rule, .only_count = 1};
    ck_ok(tn_check_run(&options, &report, &err), err);
    ck_assert_uint_eq(report.count, 1);
    tn_check_finding found = report.findings[0];
    tn_check_report_free(&report);
    return found;
}

/* Another soname of the same length. */
static void rename_library(const char *from, const char *to)
{
    size_t size;
    unsigned char *bytes = read_bytes_of(from, &size);
    static const char old[] = "libjansson.so.4";
    unsigned char *at = memmem(bytes, size, old, sizeof old);
    ck_assert_ptr_nonnull(at);
    memcpy(at, "libother", 8);
    write_bytes(to, bytes, size);
    free(bytes);
}

START_TEST(sonames_of_two_plugins)
{
    make_directory();
    rename_library(bad_file("elf-soname"), in_test("a.so"));
    setenv("TENON_PLUGIN_PATH", test_directory, 1);
    expect_found(finding_of(in_test("a.so"), "elf-soname"), TN_CHECK_PASSED, "");
    rename_library(bad_file("elf-soname"), in_test("b.so"));
    expect_found(finding_of(in_test("a.so"), "elf-soname"), TN_CHECK_FAILED, "b.so");
    remove_directory();
}
END_TEST

START_TEST(libraries_brought_along)
{
    make_directory();
    setenv("TENON_PLUGIN_PATH", test_directory, 1);
    copy_file(bad_file("bundling-1"), in_test("a.so"));
    expect_found(finding_of(in_test("a.so"), "elf-undefined-symbols"), TN_CHECK_FAILED, "needs libtenon_bundled.so");
    copy_file(bad_file("bundled-1"), in_test("libtenon_bundled.so"));
    expect_found(finding_of(in_test("a.so"), "elf-undefined-symbols"), TN_CHECK_PASSED, "");
    expect_found(finding_of(in_test("a.so"), "elf-soname"), TN_CHECK_PASSED, "");
    ck_assert_ptr_nonnull(dlopen(bad_file("bundled-2"), RTLD_NOW | RTLD_LOCAL));
    expect_found(finding_of(in_test("a.so"), "elf-soname"), TN_CHECK_FAILED, "brings libtenon_bundled.so along");
    remove_directory();
}
END_TEST

/* Nobody says whether its stack may be executed: old linkers, some assemblers. */
START_TEST(a_stack_without_a_word)
{
    size_t size;
    Elf64_Ehdr header;
    Elf64_Phdr segment;
    unsigned char *bytes = read_bytes_of(bad_file("good-one"), &size);
    memcpy(&header, bytes, sizeof header);
    for (unsigned i = 0; i < header.e_phnum; i++) {
        unsigned char *at = bytes + header.e_phoff + i * sizeof segment;
        memcpy(&segment, at, sizeof segment);
        segment.p_type = segment.p_type == PT_GNU_STACK ? PT_NULL : segment.p_type;
        memcpy(at, &segment, sizeof segment);
    }
    make_directory();
    write_bytes(in_test("a.so"), bytes, size);
    free(bytes);
    setenv("TENON_PLUGIN_PATH", test_directory, 1);
    expect_found(finding_of(in_test("a.so"), "elf-executable-stack"), TN_CHECK_FAILED, "PT_GNU_STACK");
    remove_directory();
}
END_TEST

/* ---- the report ---- */

START_TEST(the_report_is_text_and_json)
{
    tn_check_report report = {0};
    tn_error err = {0};
    tn_text text = {0}, lines = {0};
    ck_ok(check(bad_file("load-output"), "load-output", &report, &err), err);
    tn_check_print(&report, true, &text);
    json_t *root = json_loads(tn_text_string(&text), JSON_REJECT_DUPLICATES, NULL);
    ck_assert_ptr_nonnull(root);
    json_t *finding = json_array_get(json_object_get(root, "findings"), 0);
    ck_assert_int_eq(json_integer_value(json_object_get(root, "failed")), 1);
    ck_assert_str_eq(json_string_value(json_object_get(root, "path")), report.path);
    ck_assert_str_eq(json_string_value(json_object_get(finding, "rule")), "load-output");
    ck_assert_str_eq(json_string_value(json_object_get(finding, "component")), "");
    ck_assert_str_eq(json_string_value(json_object_get(finding, "verdict")), "failed");
    ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(finding, "message")), "fast kernels loaded"));
    ck_assert(json_real_value(json_object_get(finding, "seconds")) > 0);
    json_decref(root);
    tn_check_print(&report, false, &lines);
    ck_assert_ptr_nonnull(strstr(tn_text_string(&lines), "  failed     load-output  it prints \"fast"));
    ck_assert_ptr_nonnull(strstr(tn_text_string(&lines), "\n1 failed\n"));
    tn_text_free(&text);
    tn_text_free(&lines);
    tn_check_report_free(&report);
}
END_TEST

START_TEST(the_list_names_each_rule_once)
{
    tn_text text = {0};
    tn_check_list(true, &text);
    json_t *rules = json_loads(tn_text_string(&text), JSON_REJECT_DUPLICATES, NULL);
    size_t count = json_array_size(rules);
    ck_assert_uint_gt(count, 10);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j <= i; j++) {
            const char *id = json_string_value(json_object_get(json_array_get(rules, i), "id"));
            const char *other = json_string_value(json_object_get(json_array_get(rules, j), "id"));
            expect(i == j || strcmp(id, other) != 0, "%s is there twice", id);
            expect(id && strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(id), "%s is no id", id);
        }
    json_decref(rules);
    tn_text_free(&text);
}
END_TEST

START_TEST(without_memory)
{
    tn_check_report report = {0};
    tn_error err = {0};
    int32_t status = TN_E_MEMORY;
    int refused = 0;
    for (int64_t nth = 0; status != TN_OK || nth < 40; nth += nth < 60 ? 1 : 37) {
        int64_t before = tn_memory_count();
        tn_memory_fail_at(nth);
        status = check(bad_file("good-one"), "file-note", &report, &err);
        bool was_reached = tn_memory_count() - before > nth;
        tn_memory_fail_at(-1);
        ck_assert_msg(status == TN_OK || status == TN_E_MEMORY, "allocation %d: %s", (int)nth, err.msg);
        refused += status == TN_E_MEMORY;
        if (status == TN_OK)
            tn_check_report_free(&report);
        if (!was_reached)
            break;
    }
    ck_assert_int_gt(refused, 40);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("check_frame");
    TCase *cases = tcase_create("check_frame");
    tcase_add_test(cases, what_a_rule_says);
    tcase_add_test(cases, an_end_is_a_finding);
    tcase_add_test(cases, what_a_rule_starts_ends_with_it);
    tcase_add_test(cases, a_rule_has_a_folder);
    tcase_add_test(cases, memory_has_a_limit);
    tcase_add_test(cases, a_rule_can_run_parts_in_fresh_processes);
    tcase_add_test(cases, guards_end_what_goes_beyond);
    tcase_add_test(cases, guards_know_their_damage);
    tcase_add_test(cases, only_what_was_asked_for);
    tcase_add_test(cases, what_can_not_be_checked);
    tcase_add_loop_test(cases, ends_while_loading, 0, sizeof loads / sizeof *loads);
    tcase_add_test(cases, sonames_of_two_plugins);
    tcase_add_test(cases, libraries_brought_along);
    tcase_add_test(cases, a_stack_without_a_word);
    tcase_add_test(cases, the_report_is_text_and_json);
    tcase_add_test(cases, the_list_names_each_rule_once);
    tcase_add_test(cases, without_memory);
    suite_add_tcase(suite, cases);
    return test_main(suite);
}
