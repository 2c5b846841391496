/* SPDX-License-Identifier: Apache-2.0
 *
 * host/base/text: the growable string, JSON strings, distances between names.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/base/text.h"
#include "tests/support.h"

START_TEST(grows_by_pieces)
{
    tn_text text = {0};
    char expected[3001];
    ck_assert_str_eq(tn_text_string(&text), "");
    for (int i = 0; i < 1000; i++) {
        tn_text_add(&text, "a");
        tn_text_char(&text, 'b');
        tn_text_addf(&text, "%d", i % 10);
        expected[3 * i] = 'a';
        expected[3 * i + 1] = 'b';
        expected[3 * i + 2] = (char)('0' + i % 10);
    }
    expected[3000] = 0;
    ck_assert_str_eq(text.data, expected);
    ck_assert_uint_eq(text.size, 3000);
    ck_assert_int_eq(tn_text_status(&text, NULL), TN_OK);
    tn_text_free(&text);
    ck_assert_uint_eq(text.size, 0);
    ck_assert_ptr_null(text.data);
}
END_TEST

START_TEST(one_large_piece_and_bytes)
{
    tn_text text = {0};
    char *large = tn_alloc(100001, 1);
    memset(large, 'x', 100000);
    tn_text_addf(&text, "<%s>", large);
    tn_text_addn(&text, "ab\0c", 4);
    ck_assert_uint_eq(text.size, 100006);
    ck_assert_int_eq(memcmp(text.data + 100001, ">ab\0c", 6), 0);
    tn_free(large);
    tn_text_free(&text);
}
END_TEST

START_TEST(take_hands_the_string_over)
{
    tn_text text = {0};
    tn_text_add(&text, "abc");
    char *taken = tn_text_take(&text), *empty = tn_text_take(&text);
    ck_assert_str_eq(taken, "abc");
    ck_assert_str_eq(empty, "");
    ck_assert_ptr_null(text.data);
    tn_free(taken);
    tn_free(empty);
}
END_TEST

START_TEST(json_strings)
{
    static const char *const cases[][2] = {
        {"", "\"\""},
        {"plain", "\"plain\""},
        {"a\"b\\c/", "\"a\\\"b\\\\c/\""},
        {"\b\f\n\r\t", "\"\\b\\f\\n\\r\\t\""},
        {"\x01\x1f\x7f", "\"\\u0001\\u001f\x7f\""},
        {"\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80", "\"\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80\""},
        {"\xF4\x8F\xBF\xBF\xED\x9F\xBF\xEE\x80\x80", "\"\xF4\x8F\xBF\xBF\xED\x9F\xBF\xEE\x80\x80\""},
        {"a\xFFz", "\"a\\ufffdz\""},                              /* no such byte */
        {"\x80", "\"\\ufffd\""},                                  /* a continuation alone */
        {"\xC0\xAF", "\"\\ufffd\\ufffd\""},                       /* overlong */
        {"\xE0\x9F\xBF", "\"\\ufffd\\ufffd\\ufffd\""},            /* overlong */
        {"\xF0\x8F\xBF\xBF", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""}, /* overlong */
        {"\xED\xA0\x80", "\"\\ufffd\\ufffd\\ufffd\""},            /* surrogate */
        {"\xF4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""}, /* beyond U+10FFFF */
        {"\xE2\x82", "\"\\ufffd\\ufffd\""},                       /* cut short */
        {"\xE2\x82x", "\"\\ufffd\\ufffdx\""},
        {"\xF0\x9F\x98", "\"\\ufffd\\ufffd\\ufffd\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tn_text text = {0};
        char *copy = tn_strdup(cases[i][0]); /* so that ASan sees a read past the NUL */
        tn_text_json(&text, copy);
        ck_assert_str_eq(tn_text_string(&text), cases[i][1]);
        tn_text_free(&text);
        tn_free(copy);
    }
}
END_TEST

START_TEST(reals)
{
    tn_text text = {0};
    for (int i = 0; i < 4; i++) {
        tn_text_real(&text, (double[]){0.1, 1e-5, -HUGE_VAL, 100}[i]);
        tn_text_char(&text, ' ');
    }
    ck_assert_str_eq(tn_text_string(&text), "0.1 1e-05 -inf 100 ");
    tn_text_free(&text);
}
END_TEST

static void compose(tn_text *text)
{
    for (int i = 0; i < 50; i++) {
        tn_text_addf(text, "%d:", i);
        tn_text_real(text, 0.5 * i);
        tn_text_json(text, "key\n\xFF");
        tn_text_char(text, ',');
    }
}

START_TEST(each_failure_is_remembered)
{
    int64_t before = tn_memory_count();
    tn_text whole = {0};
    compose(&whole);
    int64_t allocations = tn_memory_count() - before;
    ck_assert_int_gt(allocations, 2);
    for (int64_t nth = 0; nth < allocations; nth++) {
        tn_text text = {0};
        tn_error err;
        tn_memory_fail_at(nth);
        compose(&text);
        ck_assert_int_eq(tn_text_status(&text, &err), TN_E_MEMORY);
        ck_assert_int_eq(err.code, TN_E_MEMORY);
        ck_assert_uint_lt(text.size, whole.size);
        ck_assert_int_eq(strncmp(whole.data, tn_text_string(&text), text.size), 0);
        ck_assert_ptr_null(tn_text_take(&text));
        tn_text_free(&text);
        ck_assert_int_eq(tn_text_status(&text, NULL), TN_OK);
    }
    tn_text_free(&whole);
}
END_TEST

START_TEST(distances)
{
    static const struct {
        const char *a, *b;
        size_t distance;
    } cases[] = {
        {"", "", 0},
        {"", "abc", 3},
        {"abc", "abc", 0},
        {"adamw", "adam", 1},
        {"adamv", "adamw", 1},
        {"adma", "adam", 1},
        {"ca", "abc", 3},
        {"kitten", "sitting", 3},
        {"ab", "ba", 1},
        {"abcd", "badc", 2},
        {"weight_decay", "wieght_decya", 2},
        {"learning_rate", "lr", 11},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_uint_eq(tn_distance(cases[i].a, cases[i].b), cases[i].distance);
        ck_assert_uint_eq(tn_distance(cases[i].b, cases[i].a), cases[i].distance);
    }
}
END_TEST

/* The same by its recursive definition. */
static size_t slow_distance(const char *a, size_t m, const char *b, size_t n)
{
    if (!m || !n)
        return m + n;
    size_t best = slow_distance(a, m - 1, b, n - 1) + (a[m - 1] != b[n - 1]);
    size_t others[] = {slow_distance(a, m - 1, b, n) + 1, slow_distance(a, m, b, n - 1) + 1, SIZE_MAX};
    if (m > 1 && n > 1 && a[m - 1] == b[n - 2] && a[m - 2] == b[n - 1])
        others[2] = slow_distance(a, m - 2, b, n - 2) + 1;
    for (int i = 0; i < 3; i++)
        best = others[i] < best ? others[i] : best;
    return best;
}

START_TEST(distances_of_random_words)
{
    srand(1);
    for (int i = 0; i < 1000; i++) {
        char a[7] = "", b[7] = "";
        for (int j = rand() % 7; j--;)
            a[j] = (char)('a' + rand() % 3);
        for (int j = rand() % 7; j--;)
            b[j] = (char)('a' + rand() % 3);
        ck_assert_uint_eq(tn_distance(a, b), slow_distance(a, strlen(a), b, strlen(b)));
    }
}
END_TEST

START_TEST(long_words_have_no_distance)
{
    char longest[TN_DISTANCE_MAX + 1], too_long[TN_DISTANCE_MAX + 2];
    memset(longest, 'a', sizeof longest);
    memset(too_long, 'a', sizeof too_long);
    longest[TN_DISTANCE_MAX] = too_long[TN_DISTANCE_MAX + 1] = 0;
    ck_assert_uint_eq(tn_distance(longest, longest + 1), 1);
    ck_assert_uint_eq(tn_distance(longest, too_long), SIZE_MAX);
    ck_assert_uint_eq(tn_distance(too_long, too_long), SIZE_MAX);
    ck_assert_ptr_null(tn_nearest(too_long, (const char *[]){too_long}, 1));
}
END_TEST

START_TEST(nearest_word)
{
    static const char *const words[] = {"adamw", NULL, "lion", "weight-decay", "momentum", "adam"};
    size_t n = sizeof words / sizeof *words;
    ck_assert_str_eq(tn_nearest("adamv", words, n), "adamw");
    ck_assert_str_eq(tn_nearest("LION", words, n), "lion");
    ck_assert_str_eq(tn_nearest("Weight_Decai", words, n), "weight-decay");
    ck_assert_str_eq(tn_nearest("adam", words, n), "adam");
    ck_assert_str_eq(tn_nearest("lino", words, n), "lion");
    ck_assert_str_eq(tn_nearest("wieght_decya", words, n), "weight-decay");
    ck_assert_str_eq(tn_nearest("weight_decay", words, n), "weight-decay");
    ck_assert_str_eq(tn_nearest("adamm", words, n), "adamw"); /* the first of two */
    ck_assert_ptr_null(tn_nearest("sgd", words, n));
    ck_assert_ptr_null(tn_nearest("ln", words, n)); /* 2 edits, 1 allowed */
    ck_assert_ptr_null(tn_nearest("adam", words, 0));
    ck_assert_ptr_null(tn_nearest("adam", NULL, 0));
}
END_TEST

START_TEST(names_are_equal_up_to_dashes)
{
    ck_assert_int_eq(tn_name_equal("weight_decay", "weight-decay"), 1);
    ck_assert_int_eq(tn_name_equal("a_b-c", "a-b_c"), 1);
    ck_assert_int_eq(tn_name_equal("", ""), 1);
    ck_assert_int_eq(tn_name_equal("a", "ab"), 0);
    ck_assert_int_eq(tn_name_equal("ab", "a"), 0);
    ck_assert_int_eq(tn_name_equal("ab", "aB"), 0);
    ck_assert_int_eq(tn_name_equal("a_", "a "), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("text");
    TCase *tests = tcase_create("text");
    tcase_add_test(tests, grows_by_pieces);
    tcase_add_test(tests, one_large_piece_and_bytes);
    tcase_add_test(tests, take_hands_the_string_over);
    tcase_add_test(tests, json_strings);
    tcase_add_test(tests, reals);
    tcase_add_test(tests, each_failure_is_remembered);
    tcase_add_test(tests, distances);
    tcase_add_test(tests, distances_of_random_words);
    tcase_add_test(tests, long_words_have_no_distance);
    tcase_add_test(tests, nearest_word);
    tcase_add_test(tests, names_are_equal_up_to_dashes);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
