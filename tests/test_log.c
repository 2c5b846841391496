/* SPDX-License-Identifier: Apache-2.0
 *
 * host/base/log: lines reach the writer whole, or cut with a mark.
 */
#include <string.h>

#include "host/base/log.h"
#include "tests/support.h"

typedef struct heard {
    int lines;
    int32_t level;
    char line[2 * TN_LOG_LINE];
} heard;

static void hear(void *user, int32_t level, const char *line)
{
    heard *h = user;
    h->lines++;
    h->level = level;
    strcpy(h->line, line);
}

START_TEST(writes_one_formatted_line)
{
    heard h = {0};
    tn_log log = {hear, &h};
    tn_log_write(&log, TN_LOG_WARNING, "step %d of %s", 3, "run");
    ck_assert_int_eq(h.lines, 1);
    ck_assert_int_eq(h.level, TN_LOG_WARNING);
    ck_assert_str_eq(h.line, "step 3 of run");
}
END_TEST

START_TEST(null_is_silent)
{
    heard h = {0};
    tn_log none = {NULL, &h};
    tn_log_write(NULL, TN_LOG_INFO, "x");
    tn_log_write(&none, TN_LOG_INFO, "x");
    ck_assert_int_eq(h.lines, 0);
}
END_TEST

START_TEST(long_line_is_cut_and_says_so)
{
    heard h = {0};
    tn_log log = {hear, &h};
    char text[2 * TN_LOG_LINE];
    memset(text, 'b', sizeof text);
    text[TN_LOG_LINE - 1] = 0;
    tn_log_write(&log, TN_LOG_INFO, "%s", text);
    ck_assert_str_eq(h.line, text); /* just fits */
    tn_log_write(&log, TN_LOG_INFO, "c%s", text);
    ck_assert_uint_eq(strlen(h.line), TN_LOG_LINE - 1);
    ck_assert_str_eq(h.line + TN_LOG_LINE - 5, "b...");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("log");
    TCase *tests = tcase_create("log");
    tcase_add_test(tests, writes_one_formatted_line);
    tcase_add_test(tests, null_is_silent);
    tcase_add_test(tests, long_line_is_cut_and_says_so);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
