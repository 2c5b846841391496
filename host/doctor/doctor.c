/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.c: the findings.
 */
#include "host/doctor/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "host/base/memory.h"

static const char *const state_names[] = {"ok", "note", "wrong"};

static void add(tn_doctor *d, const char *topic, int32_t state, const char *found, const char *fix)
{
    d->failed |= tn_grow(&d->findings, &d->room, d->count, sizeof *d->findings) != TN_OK;
    if (d->failed)
        return;
    tn_finding *f = &d->findings[d->count++];
    *f = (tn_finding){topic, state, tn_strdup(found), tn_strdup(fix)};
    d->failed = !f->found || !f->fix;
}

void tn_doctor_add(tn_doctor *d, const char *topic, int32_t state, const char *fix, const char *format, ...)
{
    char found[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(found, sizeof found, format, args);
    va_end(args);
    add(d, topic, state, found, fix ? fix : "");
}

void tn_doctor_add_reason(tn_doctor *d, const char *topic, int32_t state, const char *reason)
{
    const char *fix = NULL;
    for (const char *at = reason; (at = strstr(at, "; ")); at += 2)
        fix = at + 2;
    size_t length = fix ? (size_t)(fix - reason) - 2 : strlen(reason);
    char *found = tn_strndup(reason, length);
    d->failed |= !found;
    if (found)
        add(d, topic, state, found, fix ? fix : "");
    tn_free(found);
}

void tn_doctor_add_error(tn_doctor *d, const char *topic, const tn_error *why)
{
    d->failed |= why->code == TN_E_MEMORY;
    tn_doctor_add_reason(d, topic, TN_DOCTOR_WRONG, why->msg);
}

int32_t tn_doctor_examine(tn_doctor *d, tn_error *err)
{
    tn_doctor_plugins(d);
    tn_doctor_libraries(d);
    tn_doctor_machine(d);
    return d->failed ? tn_error_set(err, TN_E_MEMORY, "no memory for findings") : TN_OK;
}

void tn_doctor_free(tn_doctor *d)
{
    for (size_t i = 0; i < d->count; i++) {
        tn_free(d->findings[i].found);
        tn_free(d->findings[i].fix);
    }
    tn_free(d->findings);
    d->findings = NULL;
    d->count = d->room = 0;
}

int32_t tn_doctor_wrong(const tn_doctor *d)
{
    int32_t wrong = 0;
    for (size_t i = 0; i < d->count; i++)
        wrong += d->findings[i].state == TN_DOCTOR_WRONG;
    return wrong;
}

/* Names of files are their makers': control characters do not reach the terminal. */
static void add_plain(tn_text *text, const char *string)
{
    for (; *string; string++)
        tn_text_char(text, (unsigned char)*string < ' ' || *string == 0x7F ? '?' : *string);
}

static void print_lines(const tn_doctor *d, tn_text *text)
{
    for (size_t i = 0; i < d->count; i++) {
        const tn_finding *f = &d->findings[i];
        tn_text_addf(text, "%-6s %-11s ", f->state == TN_DOCTOR_WRONG ? "WRONG" : state_names[f->state], f->topic);
        add_plain(text, f->found);
        if (*f->fix) {
            tn_text_addf(text, "\n%-18s to mend it: ", "");
            add_plain(text, f->fix);
        }
        tn_text_char(text, '\n');
    }
    int32_t wrong = tn_doctor_wrong(d);
    if (wrong)
        tn_text_addf(text, "\n%d %s to be mended\n", wrong, wrong == 1 ? "thing is" : "things are");
    else
        tn_text_add(text, "\nnothing is wrong\n");
}

static void add_pair(tn_text *text, const char *before, const char *key, const char *value)
{
    tn_text_addf(text, "%s\"%s\":", before, key);
    tn_text_json(text, value);
}

static void print_json(const tn_doctor *d, tn_text *text)
{
    tn_text_addf(text, "{\"wrong\":%d,\"findings\":[", tn_doctor_wrong(d));
    for (size_t i = 0; i < d->count; i++) {
        const tn_finding *f = &d->findings[i];
        add_pair(text, i ? ",\n{" : "{", "topic", f->topic);
        add_pair(text, ",", "state", state_names[f->state]);
        add_pair(text, ",", "found", f->found);
        add_pair(text, ",", "fix", f->fix);
        tn_text_char(text, '}');
    }
    tn_text_add(text, "]}\n");
}

void tn_doctor_print(const tn_doctor *d, int32_t json, tn_text *text) { (json ? print_json : print_lines)(d, text); }
