/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/sink/jsonl: lines that a JSON reader takes, numbers that read back exactly, in any locale.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include <tenon/sdk.h>
#include <tenon/sink.h>

#include "tests/comma_locale.h"
#include "tests/component.h"

typedef struct output {
    size_t used;
    int32_t fail; /* returned instead of taking bytes */
    char bytes[1 << 17];
} output;

static int32_t output_write(void *host, const void *bytes, int64_t count)
{
    output *out = host;
    if (out->fail != TN_OK)
        return out->fail;
    ck_assert_int_gt(count, 0);
    ck_assert_uint_lt(out->used + (size_t)count, sizeof out->bytes);
    memcpy(out->bytes + out->used, bytes, (size_t)count);
    out->used += (size_t)count;
    out->bytes[out->used] = 0;
    return TN_OK;
}

static output out;
static tn_sink sink;

static void open_sink(void)
{
    out.used = 0;
    out.fail = TN_OK;
    tn_instance *instance = component_open("sink", "jsonl", 0, &sink, sizeof sink);
    ck_assert_str_eq(json_string_value(json_object_get(instance->info->facts, "file")), "metrics.jsonl");
    tn_instance_free(instance);
    ck_assert_ptr_null(sink.begin);
}

static int32_t put(const char *event, const tn_field *fields, int32_t count, tn_error *err)
{
    const tn_writer writer = {sizeof writer, 0, &out, output_write};
    const tn_record record = {.struct_size = sizeof record,
                              .field_count = count,
                              .event = event,
                              .update = 12,
                              .attempt = 13,
                              .epoch = 0.5,
                              .time = 1700000000.123,
                              .fields = fields};
    return sink.record(NULL, &record, &writer, err);
}

START_TEST(one_line)
{
    const tn_field fields[] = {{"loss", 0.1},    {"test/accuracy", 1}, {"lr", 1e-5}, {"a", INFINITY},
                               {"b", -INFINITY}, {"c", NAN},           {"d", -0.0},  {"e", 5e-324}};
    open_sink();
    ck_assert_int_eq(put("train", fields, 8, NULL), TN_OK);
    ck_assert_int_eq(put("end", NULL, 0, NULL), TN_OK);
    ck_assert_str_eq(out.bytes,
                     "{\"event\":\"train\",\"update\":12,\"attempt\":13,\"epoch\":0.5,\"time\":1700000000.123,"
                     "\"loss\":0.1,\"test/accuracy\":1,\"lr\":1e-05,\"a\":\"inf\",\"b\":\"-inf\",\"c\":\"nan\","
                     "\"d\":-0,\"e\":4.94065645841247e-324}\n"
                     "{\"event\":\"end\",\"update\":12,\"attempt\":13,\"epoch\":0.5,\"time\":1700000000.123}\n");
}
END_TEST

START_TEST(names_are_escaped)
{
    const tn_field fields[] = {{"a\"b\\c\n\x01\x1f/\x7f", 1}, {"\xc3\xa9\xe2\x82\xac", 2}, {"", 3}};
    open_sink();
    ck_assert_int_eq(put("a \"quoted\" event", fields, 3, NULL), TN_OK);
    json_t *line = json_loads(out.bytes, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_ptr_nonnull(line);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(json_integer_value(json_object_get(line, fields[i].name)), i + 1);
    ck_assert_str_eq(json_string_value(json_object_get(line, "event")), "a \"quoted\" event");
    json_decref(line);
}
END_TEST

/* Random bit patterns, powers of ten and their neighbours: each comes back with the same bits. */
static void check_numbers(void)
{
    static tn_field fields[3000];
    char *at;
    open_sink();
    for (int i = 0; i < 3000; i++) {
        tn_random4 random = tn_philox(7, (uint64_t)i, 0);
        memcpy(&fields[i].value, random.v, sizeof(double));
        if (i % 3 == 1)
            fields[i].value = nextafter(pow(10, i % 600 - 300), i % 2 ? INFINITY : 0);
        if (i % 3 == 2)
            fields[i].value = (double)(random.v[2] % 100000) / 1000;
        if (!isfinite(fields[i].value))
            fields[i].value = 1e300;
        fields[i].name = "x";
    }
    ck_assert_int_eq(put("train", fields, 3000, NULL), TN_OK);
    at = strstr(out.bytes, "\"x\":");
    for (int i = 0; i < 3000; i++) {
        double value = NAN;
        char text[64];
        size_t length;
        ck_assert_ptr_nonnull(at);
        at += 4;
        length = strcspn(at, ",}");
        ck_assert_uint_lt(length, sizeof text);
        memcpy(text, at, length);
        text[length] = 0;
        ck_assert_msg(tn_parse_real(text, &value) == TN_OK && value == fields[i].value, "%s is not %.17g", text,
                      fields[i].value);
        if (i % 3 == 2)
            ck_assert_uint_le(length, 6);
        at = strstr(at, "\"x\":");
    }
    ck_assert_ptr_null(at);
}

START_TEST(numbers_read_back) { check_numbers(); }
END_TEST

START_TEST(any_decimal_point)
{
    static const char *const points[] = {",", "<U066B>"}, *const halves[] = {"0,5", "0\xd9\xab\x35"};
    char half[16];
    make_directory();
    use_locale(_i ? "tenon_point_1" : "tenon_point_0", points[_i]);
    remove_directory();
    snprintf(half, sizeof half, "%.1f", 0.5);
    ck_assert_str_eq(half, halves[_i]); /* else this test would show nothing */
    check_numbers();
    ck_assert_ptr_nonnull(setlocale(LC_NUMERIC, "C"));
}
END_TEST

START_TEST(long_records_and_names)
{
    static char name[9000];
    const tn_field fields[] = {{name, 1}, {"after", 2}};
    open_sink();
    memset(name, 'n', sizeof name - 1);
    ck_assert_int_eq(put("train", fields, 2, NULL), TN_OK);
    json_t *line = json_loads(out.bytes, 0, NULL);
    ck_assert_ptr_nonnull(line);
    ck_assert_int_eq(json_integer_value(json_object_get(line, name)), 1);
    ck_assert_int_eq(json_integer_value(json_object_get(line, "after")), 2);
    json_decref(line);
}
END_TEST

START_TEST(a_failing_writer)
{
    tn_error err = {0};
    open_sink();
    out.fail = TN_E_IO;
    ck_assert_int_eq(put("train", NULL, 0, &err), TN_E_IO);
    ck_assert_int_eq(err.code, TN_E_IO);
    ck_assert_ptr_nonnull(strstr(err.msg, "update 12"));
    ck_assert_int_eq(put("train", NULL, 0, NULL), TN_E_IO);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sink jsonl");
    TCase *tcase = tcase_create("jsonl");
    tcase_add_test(tcase, one_line);
    tcase_add_test(tcase, names_are_escaped);
    tcase_add_test(tcase, numbers_read_back);
    tcase_add_loop_test(tcase, any_decimal_point, 0, 2);
    tcase_add_test(tcase, long_records_and_names);
    tcase_add_test(tcase, a_failing_writer);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
