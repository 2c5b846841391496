/* SPDX-License-Identifier: Apache-2.0
 *
 * host/base/error: messages, their prefixes, what does not fit.
 */
#include <string.h>

#include "host/base/error.h"
#include "tests/support.h"

START_TEST(sets_code_and_message)
{
    tn_error err = {0};
    ck_assert_int_eq(tn_error_set(&err, TN_E_DATA, "%s: found %d", "a.idx", 7), TN_E_DATA);
    ck_assert_int_eq(err.code, TN_E_DATA);
    ck_assert_str_eq(err.msg, "a.idx: found 7");
}
END_TEST

START_TEST(null_error_keeps_the_status)
{
    ck_assert_int_eq(tn_error_set(NULL, TN_E_IO, "x"), TN_E_IO);
    ck_assert_int_eq(tn_error_wrap(NULL, TN_E_DATA, "x"), TN_E_DATA);
}
END_TEST

START_TEST(wrap_puts_a_prefix_and_keeps_the_code)
{
    tn_error err;
    tn_error_set(&err, TN_E_NOT_FOUND, "no optimizer adamv");
    ck_assert_int_eq(tn_error_wrap(&err, TN_E_NOT_FOUND, "run %d", 3), TN_E_NOT_FOUND);
    ck_assert_int_eq(err.code, TN_E_NOT_FOUND);
    ck_assert_str_eq(err.msg, "run 3: no optimizer adamv");
}
END_TEST

START_TEST(message_may_come_from_itself)
{
    tn_error err;
    tn_error_set(&err, TN_E_IO, "disk full");
    tn_error_set(&err, TN_E_DATA, "(%s)", err.msg);
    ck_assert_str_eq(err.msg, "(disk full)");
    tn_error_wrap(&err, err.code, "%s", err.msg);
    ck_assert_str_eq(err.msg, "(disk full): (disk full)");
}
END_TEST

START_TEST(long_message_is_cut_and_says_so)
{
    tn_error err;
    char text[1200];
    memset(text, 'a', sizeof text);
    text[1023] = 0;
    tn_error_set(&err, TN_E_IO, "%s", text);
    ck_assert_str_eq(err.msg, text); /* just fits */
    tn_error_wrap(&err, err.code, "p");
    ck_assert_uint_eq(strlen(err.msg), 1023);
    ck_assert_str_eq(err.msg + 1018, "aa...");
}
END_TEST

START_TEST(cut_leaves_whole_utf8_characters)
{
    for (int shift = 0; shift < 3; shift++) {
        tn_error err;
        char text[1200] = "aaa";
        for (int i = shift; i < 1190; i += 3)
            memcpy(text + i, "\xE2\x82\xAC", 4);
        tn_error_set(&err, TN_E_IO, "%s", text);
        size_t length = strlen(err.msg);
        ck_assert_uint_ge(length, 1021);
        ck_assert_str_eq(err.msg + length - 3, "...");
        ck_assert_uint_eq((length - 3 - (size_t)shift) % 3, 0);
    }
}
END_TEST

START_TEST(statuses_have_names)
{
    ck_assert_str_eq(tn_status_name(TN_OK), "TN_OK");
    ck_assert_str_eq(tn_status_name(TN_E_NOT_FOUND), "TN_E_NOT_FOUND");
    ck_assert_str_eq(tn_status_text(TN_E_MEMORY), "out of memory");
    ck_assert_str_eq(tn_status_name(-1), "unknown status");
    ck_assert_str_eq(tn_status_text(4711), "unknown status");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("error");
    TCase *tests = tcase_create("error");
    tcase_add_test(tests, sets_code_and_message);
    tcase_add_test(tests, null_error_keeps_the_status);
    tcase_add_test(tests, wrap_puts_a_prefix_and_keeps_the_code);
    tcase_add_test(tests, message_may_come_from_itself);
    tcase_add_test(tests, long_message_is_cut_and_says_so);
    tcase_add_test(tests, cut_leaves_whole_utf8_characters);
    tcase_add_test(tests, statuses_have_names);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
