/* SPDX-License-Identifier: Apache-2.0
 *
 * test_trust.c: who may have written a file.
 */
#include "host/plugin/trust.h"

#include "tests/plugin_files.h"

/* directory/inner/file, all of this user alone */
static const char *make_file(void)
{
    make_subdirectory("inner");
    write_bytes(in_test("inner/file"), "x", 1);
    return in_test("inner/file");
}

START_TEST(own_file_is_trusted)
{
    tn_error err;
    ck_ok(tn_trust_check(make_file(), 0, &err), err);
    ck_ok(tn_trust_check(in_test("inner"), 1, &err), err);
    ck_ok(tn_trust_check("/", 1, &err), err);
}
END_TEST

START_TEST(writable_component_is_named)
{
    static const struct {
        const char *name;
        mode_t mode;
        const char *shown;
    } cases[] = {
        {"inner/file", 0620, "0620"}, {"inner/file", 0602, "0602"}, {"inner", 0720, "0720"}, {"inner", 0702, "0702"}};
    tn_error err;
    const char *file = make_file();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = in_test(cases[i].name);
        ck_assert_int_eq(chmod(path, cases[i].mode), 0);
        ck_assert_refused(tn_trust_check(file, 0, &err), TN_E_PLUGIN, err, "UNTRUSTED_PATH: ", path);
        ck_assert_ptr_nonnull(strstr(err.msg, cases[i].shown));
        ck_assert_ptr_nonnull(strstr(err.msg, "chmod go-w"));
        ck_assert_int_eq(chmod(path, 0700), 0);
    }
    ck_ok(tn_trust_check(file, 0, &err), err);
}
END_TEST

START_TEST(sticky_excuses_ancestors_only)
{
    tn_error err;
    const char *file = make_file();
    ck_assert_int_eq(chmod(in_test("inner"), 01777), 0);
    ck_ok(tn_trust_check(file, 0, &err), err);
    ck_assert_refused(tn_trust_check(in_test("inner"), 1, &err), TN_E_PLUGIN, err, "UNTRUSTED_PATH", "1777");
    ck_assert_msg(strstr(err.msg, "a folder of your own") && !strstr(err.msg, "chmod"), "%s",
                  err.msg);                  /* it may be /tmp */
    ck_assert_int_eq(chmod(file, 01622), 0); /* it means nothing on a file */
    ck_assert_refused(tn_trust_check(file, 0, &err), TN_E_PLUGIN, err, "UNTRUSTED_PATH", "inner/file");
}
END_TEST

START_TEST(owner_is_root_self_or_configured)
{
    struct stat stat = {.st_mode = S_IFREG | 0644, .st_uid = geteuid() + 4242};
    char uid[24];
    tn_error err;
    unsetenv("TENON_TRUST_UID");
    snprintf(uid, sizeof uid, "%u", (unsigned)stat.st_uid);
    ck_assert_refused(tn_trust_check_one("/x.so", &stat, 0, &err), TN_E_PLUGIN, err, "UNTRUSTED_PATH: /x.so", uid);
    setenv("TENON_TRUST_UID", uid, 1);
    ck_ok(tn_trust_check_one("/x.so", &stat, 0, &err), err);
    stat.st_uid++;
    ck_assert_int_eq(tn_trust_check_one("/x.so", &stat, 0, NULL), TN_E_PLUGIN);
    setenv("TENON_TRUST_UID", "root", 1);
    ck_assert_int_eq(tn_trust_check_one("/x.so", &stat, 0, NULL), TN_E_PLUGIN);
    stat.st_uid = 0;
    ck_ok(tn_trust_check_one("/x.so", &stat, 0, &err), err);
    stat.st_uid = geteuid();
    ck_ok(tn_trust_check_one("/x.so", &stat, 0, &err), err);
}
END_TEST

START_TEST(impossible_paths)
{
    tn_error err;
    char *lengthy = calloc(1, 2 * PATH_MAX);
    memset(lengthy, '/', 2 * PATH_MAX - 1);
    ck_assert_refused(tn_trust_check("relative/x.so", 0, &err), TN_E_INVALID, err, "relative/x.so", "absolute");
    ck_assert_int_eq(tn_trust_check(lengthy, 0, &err), TN_E_INVALID);
    ck_assert_refused(tn_trust_check(in_test("missing"), 0, &err), TN_E_IO, err, "ENOENT", "missing");
    free(lengthy);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("trust");
    TCase *tests = tcase_create("paths");
    tcase_add_checked_fixture(tests, make_directory, remove_directory);
    tcase_add_test(tests, own_file_is_trusted);
    tcase_add_test(tests, writable_component_is_named);
    tcase_add_test(tests, sticky_excuses_ancestors_only);
    tcase_add_test(tests, owner_is_root_self_or_configured);
    tcase_add_test(tests, impossible_paths);
    suite_add_tcase(suite, tests);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed ? 1 : 0;
}
