/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/sink/csv: a line of names, then a line a record, with empty cells where a record has no such number.
 */
#include <math.h>
#include <stdio.h>

#include <tenon/sdk.h>
#include <tenon/sink.h>

#include "tests/comma_locale.h"
#include "tests/component.h"

static struct {
    size_t used;
    int32_t fail; /* returned instead of taking bytes */
    char bytes[1 << 16];
} out;

static tn_sink sink;

static int32_t take(void *host, const void *bytes, int64_t count)
{
    (void)host;
    if (out.fail != TN_OK)
        return out.fail;
    ck_assert_uint_lt(out.used + (size_t)count, sizeof out.bytes);
    memcpy(out.bytes + out.used, bytes, (size_t)count);
    out.used += (size_t)count;
    out.bytes[out.used] = 0;
    return TN_OK;
}

static const tn_writer writer = {sizeof writer, 0, NULL, take};

static void open_sink(void)
{
    out.used = 0;
    out.fail = TN_OK;
    tn_instance *instance = component_open("sink", "csv", 0, &sink, sizeof sink);
    ck_assert_str_eq(json_string_value(json_object_get(instance->info->facts, "file")), "metrics.csv");
    tn_instance_free(instance);
}

static const char *const columns[] = {"loss", "rule.lr", "test/loss", "test/loss2", "skipped"};

static tn_record record_of(const char *event, const tn_field *fields, int32_t count, const char *const *names,
                           int64_t name_count)
{
    return (tn_record){.struct_size = sizeof(tn_record),
                       .field_count = count,
                       .event = event,
                       .update = 12,
                       .attempt = 13,
                       .epoch = 0.5,
                       .time = 1700000000.123,
                       .fields = fields,
                       .columns = names,
                       .column_count = name_count};
}

static int32_t put(const char *event, const tn_field *fields, int32_t count)
{
    tn_record record = record_of(event, fields, count, columns, 5);
    return sink.record(NULL, &record, &writer, NULL);
}

START_TEST(a_line_a_record)
{
    const tn_field train[] = {{"loss", 0.1}, {"rule.lr", 1e-5}}, eval[] = {{"test/loss", -0.0}, {"test/loss2", NAN}},
                   end[] = {{"skipped", INFINITY}}, turned[] = {{"rule.lr", 5e-324}, {"loss", -INFINITY}};
    open_sink();
    tn_record blank = record_of("", NULL, 0, columns, 5);
    ck_assert_int_eq(sink.begin(NULL, &blank, &writer, NULL), TN_OK);
    ck_assert_int_eq(put("start", NULL, 0), TN_OK);
    ck_assert_int_eq(put("train", train, 2), TN_OK);
    ck_assert_int_eq(put("train", turned, 2), TN_OK);
    ck_assert_int_eq(put("eval", eval, 2), TN_OK);
    ck_assert_int_eq(put("end", end, 1), TN_OK);
    ck_assert_str_eq(out.bytes, "event,update,attempt,epoch,time,loss,rule.lr,test/loss,test/loss2,skipped\n"
                                "start,12,13,0.5,1700000000.123,,,,,\n"
                                "train,12,13,0.5,1700000000.123,0.1,1e-05,,,\n"
                                "train,12,13,0.5,1700000000.123,-inf,4.94065645841247e-324,,,\n"
                                "eval,12,13,0.5,1700000000.123,,,-0,nan,\n"
                                "end,12,13,0.5,1700000000.123,,,,,inf\n");
}
END_TEST

/* RFC 4180, section 2, rules 5 to 7. */
START_TEST(odd_names_are_quoted)
{
    static const char *const names[] = {"a,b", "say \"x\"", "two\nlines", "plain"};
    const tn_field fields[] = {{"a,b", 1}, {"plain", 2}};
    open_sink();
    tn_record blank = record_of("", NULL, 0, names, 4), record = record_of("e,v", fields, 2, names, 4);
    ck_assert_int_eq(sink.begin(NULL, &blank, &writer, NULL), TN_OK);
    ck_assert_int_eq(sink.record(NULL, &record, &writer, NULL), TN_OK);
    ck_assert_str_eq(out.bytes, "event,update,attempt,epoch,time,\"a,b\",\"say \"\"x\"\"\",\"two\nlines\",plain\n"
                                "\"e,v\",12,13,0.5,1700000000.123,1,,,2\n");
}
END_TEST

START_TEST(any_decimal_point)
{
    const tn_field fields[] = {{"loss", 0.25}};
    char half[16];
    make_directory();
    use_locale("tenon_point", ",");
    remove_directory();
    snprintf(half, sizeof half, "%.1f", 0.5);
    ck_assert_str_eq(half, "0,5"); /* else this test would show nothing */
    open_sink();
    ck_assert_int_eq(put("train", fields, 1), TN_OK);
    ck_assert_str_eq(out.bytes, "train,12,13,0.5,1700000000.123,0.25,,,,\n");
    ck_assert_ptr_nonnull(setlocale(LC_NUMERIC, "C"));
}
END_TEST

/* A line longer than the helper's buffer, and numbers of any bits. */
START_TEST(long_lines_read_back)
{
    enum { N = 400 };
    static char names[N][40];
    static const char *list[N];
    static tn_field fields[N];
    open_sink();
    for (int i = 0; i < N; i++) {
        tn_random4 random = tn_philox(7, (uint64_t)i, 0);
        snprintf(names[i], sizeof names[i], "a-rather-long-name-of-a-column-%d", i);
        memcpy(&fields[i].value, random.v, sizeof(double));
        if (!isfinite(fields[i].value))
            fields[i].value = 1e300;
        list[i] = fields[i].name = names[i];
    }
    tn_record record = record_of("train", fields, N, list, N);
    ck_assert_int_eq(sink.record(NULL, &record, &writer, NULL), TN_OK);
    const char *at = out.bytes;
    for (int i = 0; i < 5; i++)
        at = strchr(at, ',') + 1;
    for (int i = 0; i < N; i++) {
        char *end;
        expect(strtod(at, &end) == fields[i].value, "column %d", i);
        expect(*end == (i + 1 < N ? ',' : '\n'), "column %d ends in '%c'", i, *end);
        at = end + 1;
    }
}
END_TEST

START_TEST(a_failing_writer)
{
    tn_error err = {0};
    tn_record record = record_of("train", NULL, 0, columns, 5);
    open_sink();
    out.fail = TN_E_IO;
    ck_assert_int_eq(sink.record(NULL, &record, &writer, &err), TN_E_IO);
    ck_assert_ptr_nonnull(strstr(err.msg, "update 12"));
    ck_assert_int_eq(sink.begin(NULL, &record, &writer, &err), TN_E_IO);
    ck_assert_ptr_nonnull(strstr(err.msg, "names"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sink csv");
    TCase *tcase = tcase_create("csv");
    tcase_add_test(tcase, a_line_a_record);
    tcase_add_test(tcase, odd_names_are_quoted);
    tcase_add_test(tcase, any_decimal_point);
    tcase_add_test(tcase, long_lines_read_back);
    tcase_add_test(tcase, a_failing_writer);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
