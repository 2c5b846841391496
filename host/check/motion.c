/* SPDX-License-Identifier: Apache-2.0
 *
 * motion.c: what all families share: opening, variants of hyper-parameters, spans, lending, numbers.
 */
#include "host/check/motion.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tenon/failure.h>

#include "host/base/memory.h"
#include "host/check/count.h"

/* ---- services ---- */

static void log_nothing(void *host, int32_t level, const char *text) { (void)host, (void)level, (void)text; }

static void keep_failure(void *host, int32_t code, const char *text)
{
    tn_failures_keep(&((tn_motion *)host)->failures, code, text);
}

static const void *interface(void *host, const char *id)
{
    static const tn_failure failure = {sizeof failure, 0, keep_failure};
    (void)host;
    return strcmp(id, TN_FAILURE) == 0 ? &failure : NULL;
}

/* ---- opening ---- */

static int32_t make_instance(tn_motion *m, tn_error *err)
{
    const tn_entry_info *entry = m->subject->entry;
    const tn_variant *variant = m->options.variant;
    char path[128];
    snprintf(path, sizeof path, "check.%.100s", entry->name);
    int32_t status =
        tn_instance_create(m->subject->registry, entry->kind, entry->name, entry->real ? entry->real : 32, path,
                           variant ? variant->rows : NULL, variant ? variant->count : 0, &m->instance, err);
    if (status == TN_OK && m->instance->entry != entry)
        status = tn_error_set(err, TN_E_PLUGIN, "another component of this name and type stands before it: %s",
                              m->instance->entry->path);
    return status;
}

int32_t tn_motion_open(const tn_check_subject *subject, const tn_motion_options *options, tn_motion **ret,
                       tn_error *err)
{
    tn_motion *m = tn_alloc(1, sizeof *m);
    if (!m)
        return tn_error_set(err, TN_E_MEMORY, "no memory for a component at work");
    m->subject = subject;
    m->options = *options;
    m->kind = tn_motion_kind_of(subject);
    m->services = (tn_services){sizeof m->services, 0, m, log_nothing, interface};
    for (int32_t t = 0; t < TN_MOTION_THREADS; t++) {
        m->desk[t].place = options->place;
        m->desk[t].lock = options->lock;
        m->desk[t].fill = options->fill;
    }
    int32_t status = make_instance(m, err);
    if (status == TN_OK && options->threads > 1)
        status = tn_pool_create(options->threads, &m->pool, err);
    tn_check_stage(subject, "planning %s", options->variant ? options->variant->label : "");
    if (status == TN_OK)
        status = m->kind->open(m, err);
    tn_check_stage(subject, NULL);
    if (status == TN_OK)
        *ret = m;
    else
        tn_motion_close(m);
    return status;
}

void tn_motion_close(tn_motion *m)
{
    if (!m)
        return;
    m->kind->close(m);
    for (int32_t t = 0; t < TN_MOTION_THREADS; t++)
        tn_desk_close(&m->desk[t]);
    tn_pool_destroy(m->pool);
    tn_instance_free(m->instance);
    tn_free(m->spans);
    tn_free(m);
}

void tn_motion_step(tn_motion *m, int64_t steps)
{
    for (int64_t i = 0; i < steps; i++) {
        m->kind->step(m);
        m->steps++;
    }
}

/* ---- variants ---- */

/* A row that is moved from a value which turns something off. */
static bool is_off(const tn_instance *instance, const tn_row *row)
{
    if (row->type == TN_TYPE_INTEGER)
        return tn_instance_integer(instance, row) == 0;
    if (row->type != TN_TYPE_REAL && row->type != TN_TYPE_FIXED)
        return false;
    double value = *tn_instance_real(instance, row);
    return value == 0 || !isfinite(value);
}

static void add_row(tn_variant *variant, const tn_row *row, const char *text)
{
    if (variant->count == TN_MOTION_CHANGES)
        return;
    char *copy = variant->text[variant->count];
    snprintf(copy, sizeof *variant->text, "%s", text);
    variant->rows[variant->count++] = (tn_setting){row->name, copy};
    size_t used = strlen(variant->label);
    snprintf(variant->label + used, sizeof variant->label - used, "%s%s=%s", used ? ", " : "", row->name, text);
}

/* The texts are within. */
static void settle_rows(tn_variant *variant)
{
    for (size_t i = 0; i < variant->count; i++)
        variant->rows[i].value = variant->text[i];
}

static void turn_on(const tn_check_subject *subject, tn_instance *instance, tn_variant *on)
{
    static const char *const reals[] = {"0.1", "0.5", "1", "2", "10"}, *const integers[] = {"3", "1", "100"};
    tn_error err;
    for (size_t i = 0; i < instance->info->row_count; i++) {
        const tn_row *row = &instance->info->rows[i];
        const char *const *texts = row->type == TN_TYPE_INTEGER ? integers : reals;
        size_t count = row->type == TN_TYPE_INTEGER ? 3 : 5, at = 0;
        if (!is_off(instance, row))
            continue;
        while (at < count && tn_instance_set(instance, subject->registry, row->name, texts[at], &err) != TN_OK)
            at++;
        if (at < count)
            add_row(on, row, texts[at]);
    }
}

/* The texts of a row that is no number, one at a time; NULL behind the last. */
static const char *taken(const tn_row *row, size_t at)
{
    static const char *const flags[] = {"false", "true"};
    const char *const *texts = row->type == TN_TYPE_FLAG ? flags : (const char *const *)row->choices;
    size_t count = row->type == TN_TYPE_FLAG ? 2 : row->type == TN_TYPE_CHOICE ? row->choice_count : 0;
    return at < count ? texts[at] : NULL;
}

typedef void variant_run(const tn_check_subject *subject, const tn_variant *variant, tn_check_finding *finding);

static void run_taken(const tn_check_subject *subject, tn_check_finding *finding, const tn_variant *on,
                      variant_run *run)
{
    for (size_t i = 0; i < subject->info->row_count; i++) {
        const tn_row *row = &subject->info->rows[i];
        const char *text;
        for (size_t at = 0; (text = taken(row, at)) && finding->verdict == TN_CHECK_PASSED; at++) {
            tn_variant alone = {0}, with = *on;
            if (strcmp(text, row->default_text) == 0)
                continue;
            add_row(&alone, row, text);
            run(subject, &alone, finding);
            add_row(&with, row, text);
            settle_rows(&with);
            if (on->count && finding->verdict == TN_CHECK_PASSED)
                run(subject, &with, finding);
        }
    }
}

void tn_motion_variants(const tn_check_subject *subject, tn_check_finding *finding, variant_run *run)
{
    tn_motion_options defaults = {0};
    tn_motion *m;
    tn_variant none = {0}, on = {0};
    if (!tn_motion_begin(subject, &defaults, &m, finding))
        return;
    turn_on(subject, m->instance, &on);
    tn_motion_close(m);
    settle_rows(&on);
    run(subject, &none, finding);
    if (on.count && finding->verdict == TN_CHECK_PASSED)
        run(subject, &on, finding);
    run_taken(subject, finding, &on, run);
}

bool tn_motion_begin(const tn_check_subject *subject, const tn_motion_options *options, tn_motion **ret,
                     tn_check_finding *finding)
{
    tn_error err = {0};
    int32_t status = tn_motion_open(subject, options, ret, &err);
    bool may_refuse = options->variant && options->variant->count > 0 &&
                      (status == TN_E_INVALID || status == TN_E_UNSUPPORTED || status == TN_E_NOT_FOUND);
    if (status != TN_OK && !may_refuse)
        tn_check_skip(finding, "%s", err.msg);
    return status == TN_OK;
}

void tn_motion_fail(const tn_motion_options *options, tn_check_finding *finding, const char *format, ...)
{
    char words[700];
    const char *label = options->variant ? options->variant->label : "";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    tn_check_fail(finding, "%s%s%s%s", *label ? "with " : "", label, *label ? ": " : "", words);
}

/* ---- spans ---- */

tn_span *tn_motion_span(tn_motion *m, void *data, size_t bytes, int32_t real, int32_t is_kept, tn_error *err,
                        const char *name, ...)
{
    if (tn_grow(&m->spans, &m->span_capacity, m->span_count, sizeof *m->spans)) {
        tn_error_set(err, TN_E_MEMORY, "no memory for a component at work");
        return NULL;
    }
    tn_span *span = &m->spans[m->span_count++];
    *span = (tn_span){.data = data, .bytes = bytes, .real = real, .is_kept = is_kept};
    va_list arguments;
    va_start(arguments, name);
    vsnprintf(span->name, sizeof span->name, name, arguments);
    va_end(arguments);
    return span;
}

static void tell_difference(const tn_motion *a, const tn_span *x, const tn_span *y, const char *why,
                            tn_check_finding *finding)
{
    size_t each = x->real ? (size_t)x->real / 8 : 1, at = 0;
    while (memcmp(x->data + at * each, y->data + at * each, each) == 0)
        at++;
    if (x->real)
        tn_motion_fail(&a->options, finding, "%s: element %zu is %.9g and %.9g: %s", x->name, at,
                       tn_motion_get((uint32_t)x->real, x->data, (int64_t)at),
                       tn_motion_get((uint32_t)x->real, y->data, (int64_t)at), why);
    else
        tn_motion_fail(&a->options, finding, "%s: byte %zu is %d and %d: %s", x->name, at, (unsigned char)x->data[at],
                       (unsigned char)y->data[at], why);
}

bool tn_motion_same(const tn_motion *a, const tn_motion *b, int32_t kept_only, const char *why,
                    tn_check_finding *finding)
{
    for (size_t i = 0; i < a->span_count; i++) {
        const tn_span *x = &a->spans[i], *y = &b->spans[i];
        if ((kept_only && !x->is_kept) || memcmp(x->data, y->data, x->bytes) == 0)
            continue;
        tell_difference(a, x, y, why, finding);
        return false;
    }
    return true;
}

const char *tn_motion_not_finite(const tn_motion *m, char *ret, size_t size)
{
    for (size_t i = 0; i < m->span_count; i++) {
        const tn_span *span = &m->spans[i];
        for (int64_t at = 0; at < tn_span_count(span); at++) {
            double value = tn_motion_get((uint32_t)span->real, span->data, at);
            if (isfinite(value))
                continue;
            snprintf(ret, size, "%s: element %lld is %g", span->name, (long long)at, value);
            return ret;
        }
    }
    return NULL;
}

size_t tn_motion_state_bytes(const tn_motion *m)
{
    size_t bytes = 0;
    for (size_t i = 0; i < m->span_count; i++)
        bytes += m->spans[i].is_kept ? m->spans[i].bytes : 0;
    return bytes;
}

void tn_motion_save(const tn_motion *m, char *to)
{
    for (size_t i = 0; i < m->span_count; i++) {
        size_t bytes = m->spans[i].is_kept ? m->spans[i].bytes : 0;
        memcpy(to, m->spans[i].data, bytes);
        to += bytes;
    }
}

void tn_motion_restore(tn_motion *m, const char *from)
{
    for (size_t i = 0; i < m->span_count; i++) {
        size_t bytes = m->spans[i].is_kept ? m->spans[i].bytes : 0;
        memcpy(m->spans[i].data, from, bytes);
        from += bytes;
    }
}

/* ---- calls ---- */

static _Thread_local int64_t allocations_before;

void tn_motion_enter(tn_motion *m, int32_t thread, const char *what)
{
    const char *label = m->options.variant ? m->options.variant->label : "";
    if (!m->pool)
        tn_check_stage(m->subject, "%s%s%s", what, *label ? " with " : "", label);
    if (thread > 0)
        m->was_shared = 1;
    tn_desk_enter(&m->desk[thread]);
    allocations_before = tn_count_allocations();
}

void tn_motion_leave(tn_motion *m, int32_t thread, const char *what, int32_t hot)
{
    int64_t made = tn_count_allocations() - allocations_before;
    if (hot && made > 0) {
        m->allocations += made;
        m->allocated_in = what;
    }
    tn_desk_leave(&m->desk[thread]);
    if (m->statics && !m->changed) {
        m->changed = tn_statics_changed(m->statics, &m->changed_name);
        m->changed_in = what;
    }
    if (!m->pool)
        tn_check_stage(m->subject, NULL);
}

static void *lend(tn_motion *m, int32_t thread, int32_t which, const char *name, const void *from, size_t bytes,
                  size_t alignment, int32_t how)
{
    void *at = tn_lend(&m->desk[thread], which, name, from, bytes, alignment, how);
    if (!at) { /* in the rule's own process, and nothing is left to be done */
        tn_check_stage(m->subject, "lending '%s': %s", name, m->desk[thread].damage);
        abort();
    }
    return at;
}

const void *tn_motion_in(tn_motion *m, int32_t thread, int32_t which, const char *name, const void *from, size_t bytes,
                         size_t alignment)
{
    return lend(m, thread, which, name, from, bytes, alignment, TN_LEND_IN);
}

void *tn_motion_out(tn_motion *m, int32_t thread, int32_t which, const char *name, const void *from, size_t bytes,
                    size_t alignment)
{
    return lend(m, thread, which, name, from, bytes, alignment, TN_LEND_OUT);
}

/* ---- numbers ---- */

double tn_motion_noise(int64_t tensor, int64_t element, int64_t use)
{
    uint64_t x = (uint64_t)(tensor * 1000003 + element) * 0x9E3779B97F4A7C15u + (uint64_t)use * 0xD1B54A32D192ED03u;
    x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9u;
    return (double)(int64_t)(x ^ (x >> 32)) * 0x1p-63;
}

double tn_motion_get(uint32_t real, const void *data, int64_t i)
{
    return real == 32 ? (double)((const float *)data)[i] : ((const double *)data)[i];
}

void tn_motion_set(uint32_t real, void *data, int64_t i, double value)
{
    if (real == 32)
        ((float *)data)[i] = (float)value;
    else
        ((double *)data)[i] = value;
}

double tn_motion_mixed(uint32_t real, tn_mix mix)
{
    switch (mix) {
    case TN_MIX_NAN:
        return NAN;
    case TN_MIX_INF:
        return INFINITY;
    case TN_MIX_MINUS_INF:
        return -INFINITY;
    case TN_MIX_LARGEST:
        return real == 32 ? (double)FLT_MAX : DBL_MAX;
    case TN_MIX_SUBNORMAL:
        return real == 32 ? 0x1p-149 : 0x1p-1074;
    default:
        return mix == TN_MIX_HIGH ? 7 : -7;
    }
}

/* ---- clocks ---- */

tn_clock tn_motion_clock(const tn_motion *m)
{
    int64_t update = m->steps + m->options.t;
    return (tn_clock){.struct_size = sizeof(tn_clock),
                      .t = update + 1,
                      .update = update,
                      .attempt = m->steps + m->options.attempt,
                      .services = &m->services};
}

tn_context tn_motion_context(const tn_motion *m)
{
    return (tn_context){.struct_size = sizeof(tn_context),
                        .attempt = m->steps + m->options.attempt,
                        .update = m->steps + m->options.t,
                        .key = 0x7E40A11CE5EED5u,
                        .services = &m->services};
}

const tn_motion_kind *tn_motion_kind_of(const tn_check_subject *subject)
{
    static const struct {
        const char *interface;
        const tn_motion_kind *kind;
    } kinds[] = {{"tenon.optimizer/", &tn_motion_link},
                 {"tenon.minimizer/", &tn_motion_minimizer},
                 {"tenon.codec/", &tn_motion_codec},
                 {"tenon.loss-scale/", &tn_motion_loss_scale},
                 {"tenon.scheduler/", &tn_motion_scheduler}};
    for (size_t i = 0; subject->entry && i < sizeof kinds / sizeof *kinds; i++)
        if (strncmp(subject->entry->interface, kinds[i].interface, strlen(kinds[i].interface)) == 0)
            return kinds[i].kind;
    return NULL;
}
