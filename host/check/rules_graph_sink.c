/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_graph_sink.c: sinks.
 */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tenon/sink.h>

#include "host/base/text.h"
#include "host/check/comma.h"
#include "host/check/count.h"
#include "host/check/guard.h"
#include "host/check/rules_graph.h"
#include "host/experiment/instance.h"

/* A sink, what it wrote, and how long its writer takes bytes. */
typedef struct {
    tn_sink table;
    tn_instance *instance;
    const void *hyper;
    tn_text bytes;
    bool is_counting;             /* bytes are not kept */
    int64_t writes, refuses_from; /* of writes; -1: never */
} drain;

bool tn_check_is_sink(const tn_check_subject *subject)
{
    return subject->entry && strcmp(subject->entry->interface, TN_SINK) == 0;
}

static int32_t write_bytes(void *host, const void *bytes, int64_t count)
{
    drain *d = host;
    d->writes++;
    if (d->refuses_from >= 0 && d->writes > d->refuses_from)
        return TN_E_IO;
    if (!d->is_counting)
        tn_text_addn(&d->bytes, bytes, (size_t)count);
    return TN_OK;
}

static bool open_sink(const tn_check_subject *subject, tn_check_finding *finding, drain *d)
{
    tn_error err = {0};
    const tn_entry_info *entry = subject->entry;
    *d = (drain){.table = {.struct_size = sizeof d->table}, .refuses_from = -1};
    if (!tn_check_load(subject, &d->table, sizeof d->table, finding))
        return false;
    if (tn_instance_create(subject->registry, entry->kind, entry->name, entry->real ? entry->real : 32, entry->name,
                           NULL, 0, &d->instance, &err) != TN_OK) {
        tn_check_skip(finding, "no instance with its defaults: %s", err.msg);
        return false;
    }
    d->hyper = d->instance->hyper;
    if (!d->table.record)
        tn_check_fail(finding, "its table lacks record");
    return d->table.record != NULL;
}

/* ---- records ---- */

static const char *const columns[] = {"loss", "accuracy", "rule.lr", "test/loss", "skipped"};
#define COLUMNS ((int64_t)(sizeof columns / sizeof *columns))

static tn_record record_of(const char *event, int64_t update, const tn_field *fields, int32_t count)
{
    return (tn_record){.struct_size = sizeof(tn_record),
                       .field_count = count,
                       .event = event,
                       .update = update,
                       .attempt = update + 1,
                       .epoch = (double)update / 8,
                       .time = 1700000000.125 + (double)update,
                       .fields = fields,
                       .columns = columns,
                       .column_count = COLUMNS};
}

static int32_t put(drain *d, const tn_record *record, tn_error *err)
{
    const tn_writer writer = {sizeof writer, 0, d, write_bytes};
    return d->table.record(d->hyper, record, &writer, err);
}

static int32_t begin(drain *d, tn_error *err)
{
    const tn_writer writer = {sizeof writer, 0, d, write_bytes};
    const tn_record blank = {.struct_size = sizeof blank, .event = "", .columns = columns, .column_count = COLUMNS};
    return d->table.begin ? d->table.begin(d->hyper, &blank, &writer, err) : TN_OK;
}

static const char *const events[] = {"start", "train", "eval", "skip", "end"};
#define EVENTS 5

/* Record k of a run. */
static int32_t put_number(drain *d, int64_t k, tn_error *err)
{
    const tn_field fields[] = {
        {"loss", 1.0 / (double)(k + 3)}, {"rule.lr", 1e-3 * (double)k}, {"test/loss", -2.5e-300}};
    const tn_record record = record_of(events[k % EVENTS], k, fields, (int32_t)(k % 4));
    return put(d, &record, err);
}

static bool take(drain *d, const tn_check_subject *subject, int64_t first, int64_t count, tn_check_finding *finding)
{
    tn_error err = {0};
    tn_text_free(&d->bytes);
    for (int64_t k = first; k < first + count; k++) {
        tn_check_stage(subject, "record of a %s event", events[k % EVENTS]);
        if (put_number(d, k, &err) != TN_OK) {
            tn_check_fail(finding, "record fails though its writer takes all: %s", err.msg);
            return false;
        }
    }
    tn_check_stage(subject, NULL);
    return true;
}

/* ---- the file ---- */

void tn_check_sink_file(const tn_check_subject *subject, tn_check_finding *finding)
{
    const char *file = tn_fact_text(subject->info->facts, "file", "");
    if (!*file || *file == '.' || strchr(file, '/'))
        tn_check_fail(finding,
                      "its note names the file \"%s\"; needed a plain name in the run's folder, by the fact `file`",
                      file);
}

/* ---- a record's bytes depend on the record ---- */

void tn_check_sink_repeat(const tn_check_subject *subject, tn_check_finding *finding)
{
    enum { RECORDS = 40 };
    drain d, alone;
    tn_error err = {0};
    tn_text sum = {0};
    if (!open_sink(subject, finding, &d) || !take(&d, subject, 0, RECORDS, finding))
        return;
    alone = d;
    alone.bytes = (tn_text){0};
    for (int64_t k = 0; k < RECORDS; k++) {
        take(&alone, subject, RECORDS - 1 - k, 1, finding); /* another order, into nothing */
        begin(&alone, &err);
    }
    for (int64_t k = 0; k < RECORDS && finding->verdict == TN_CHECK_PASSED; k++) {
        take(&alone, subject, k, 1, finding);
        tn_text_addn(&sum, tn_text_string(&alone.bytes), alone.bytes.size);
    }
    if (finding->verdict != TN_CHECK_PASSED)
        return;
    if (d.bytes.size == 0)
        tn_check_fail(finding,
                      "%d records of all events leave no byte; what a record gives is written before it "
                      "returns",
                      RECORDS);
    else if (sum.size != d.bytes.size || memcmp(sum.data, d.bytes.data, sum.size) != 0)
        tn_check_fail(finding,
                      "records in a row give other bytes than the same records by themselves (%zu and %zu): a sink "
                      "keeps nothing between calls, or a run that goes on writes another file",
                      d.bytes.size, sum.size);
}

/* ---- numbers show ---- */

static bool differs(drain *d, const tn_record *a, const tn_record *b)
{
    tn_text first;
    tn_text_free(&d->bytes);
    if (put(d, a, NULL) != TN_OK)
        return true;
    first = d->bytes;
    d->bytes = (tn_text){0};
    put(d, b, NULL);
    bool same = first.size == d->bytes.size && (first.size == 0 || memcmp(first.data, d->bytes.data, first.size) == 0);
    tn_text_free(&first);
    return !same;
}

static bool writes(drain *d, const tn_record *record)
{
    tn_text_free(&d->bytes);
    return put(d, record, NULL) == TN_OK && d->bytes.size > 0;
}

void tn_check_sink_values(const tn_check_subject *subject, tn_check_finding *finding)
{
    static const double pairs[][2] = {{0.1, 0.2},     {1e300, 1}, {0, NAN}, {1, INFINITY}, {INFINITY, -INFINITY},
                                      {NAN, INFINITY}};
    drain d;
    if (!open_sink(subject, finding, &d))
        return;
    for (int e = 0; e < EVENTS; e++)
        for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
            const tn_field a = {"loss", pairs[k][0]}, b = {"loss", pairs[k][1]};
            const tn_record one = record_of(events[e], 7, &a, 1), two = record_of(events[e], 7, &b, 1);
            tn_check_stage(subject, "record of %g", a.value);
            if (writes(&d, &one) && !differs(&d, &one, &two))
                tn_check_fail(finding, "%s records with the loss %g and %g give the same bytes", events[e], a.value,
                              b.value);
        }
}

/* ---- locales ---- */

void tn_check_sink_locale(const tn_check_subject *subject, tn_check_finding *finding)
{
    drain d;
    tn_error err = {0};
    setlocale(LC_ALL, "C");
    if (!open_sink(subject, finding, &d) || begin(&d, &err) != TN_OK || !take(&d, subject, 0, 20, finding))
        return;
    tn_text before = d.bytes;
    d.bytes = (tn_text){0};
    if (!tn_check_comma_locale()) {
        tn_check_skip(finding, "no locale with a decimal comma is installed here, nor localedef");
        return;
    }
    if (!take(&d, subject, 0, 20, finding))
        return;
    if (before.size != d.bytes.size || memcmp(before.data, d.bytes.data, before.size) != 0)
        tn_check_fail(finding,
                      "in a locale with a decimal comma the records have other bytes (%.60s); numbers have a "
                      "point in every locale",
                      tn_text_string(&d.bytes));
    if (strcmp(localeconv()->decimal_point, ",") != 0)
        tn_check_fail(finding, "it calls setlocale: the locale is another one after its calls");
}

/* ---- a writer that refuses ---- */

void tn_check_sink_failure(const tn_check_subject *subject, tn_check_finding *finding)
{
    drain d;
    if (!open_sink(subject, finding, &d))
        return;
    for (int64_t k = 0; k < 10 && finding->verdict == TN_CHECK_PASSED; k++) {
        tn_error err = {0};
        d.refuses_from = -1;
        d.writes = 0;
        put_number(&d, k, &err);
        int64_t needed = d.writes;
        for (int64_t from = 0; from < needed; from++) {
            d.writes = 0;
            d.refuses_from = from;
            tn_check_stage(subject, "record with a writer that refuses");
            if (put_number(&d, k, NULL) == TN_OK)
                tn_check_fail(finding,
                              "the writer refuses write %lld of %lld, and record returns TN_OK; hand its "
                              "status on, or a full disk goes unseen",
                              (long long)from + 1, (long long)needed);
            d.writes = 0;
            if (put_number(&d, k, &err) != TN_OK && !*err.msg)
                tn_check_fail(finding, "record fails and does not say why");
        }
    }
}

/* ---- memory ---- */

#define FIELDS 300

static char *copy_of(tn_guard *guard, const char *text)
{
    tn_error err;
    if (tn_guard_open("a name", strlen(text) + 1, 1, TN_GUARD_END, guard, &err) != TN_OK)
        return NULL;
    strcpy(guard->data, text);
    tn_guard_read_only(guard, 1);
    return guard->data;
}

static void put_guarded(drain *d, const tn_check_subject *subject, const char *event, int32_t count, size_t length,
                        double value, tn_check_finding *finding)
{
    static tn_guard name, word, list, whole;
    char text[2000];
    tn_error err = {0};
    memset(text, 'n', length);
    text[length] = '\0';
    const char *lent = copy_of(&name, text), *told = copy_of(&word, event);
    if (!lent || !told ||
        tn_guard_open("the fields", (size_t)count * sizeof(tn_field), 8, TN_GUARD_END, &list, &err) != TN_OK ||
        tn_guard_open("the record", sizeof(tn_record), 8, TN_GUARD_END, &whole, &err) != TN_OK) {
        tn_check_skip(finding, "no memory for a record");
        return;
    }
    for (int32_t i = 0; i < count; i++)
        ((tn_field *)list.data)[i] = (tn_field){lent, value};
    tn_record record = record_of(told, 7, list.data, count);
    record.columns = &lent;
    record.column_count = count ? 1 : 0;
    memcpy(whole.data, &record, sizeof record);
    tn_guard_read_only(&list, 1);
    tn_guard_read_only(&whole, 1);
    tn_check_stage(subject, "record of %d fields with names of %zu bytes", count, length);
    if (put(d, whole.data, &err) != TN_OK)
        tn_check_fail(finding, "a record of %d fields with names of %zu bytes fails: %s", count, length, err.msg);
    tn_guard_close(&name);
    tn_guard_close(&word);
    tn_guard_close(&list);
    tn_guard_close(&whole);
}

void tn_check_sink_memory(const tn_check_subject *subject, tn_check_finding *finding)
{
    static const size_t lengths[] = {1, 5, 63, 64, 255, 1000};
    static const double values[] = {0.1, NAN, -INFINITY, -1.7976931348623157e308, 5e-324};
    drain d;
    if (!open_sink(subject, finding, &d))
        return;
    tn_guard_watch(subject->stage, 256);
    d.is_counting = true;
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (int32_t count = 0; count <= FIELDS; count = count ? count * 17 : 1)
            put_guarded(&d, subject, events[l % EVENTS], count, lengths[l], values[l % 5], finding);
}

/* ---- the heap ---- */

void tn_check_sink_heap(const tn_check_subject *subject, tn_check_finding *finding)
{
    enum { RECORDS = 10000 };
    drain d;
    tn_error err = {0};
    if (!open_sink(subject, finding, &d) || !take(&d, subject, 0, 10, finding))
        return;
    d.is_counting = true;
    if (tn_count_open(&err) != TN_OK) {
        tn_check_skip(finding, "%s", err.msg);
        return;
    }
    int64_t files = tn_count_files(), before = tn_count_allocations();
    for (int64_t k = 0; k < RECORDS; k++)
        put_number(&d, k, &err);
    int64_t made = tn_count_allocations() - before;
    if (made > 0)
        tn_check_fail(finding,
                      "%d records allocate %lld times (%s); records are written between steps, which allocate nothing",
                      RECORDS, (long long)made, tn_count_last());
    else if (tn_count_files() > files)
        tn_check_fail(finding, "%lld files are left open; the host owns the file",
                      (long long)(tn_count_files() - files));
}
