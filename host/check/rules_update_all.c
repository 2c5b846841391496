/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_update_all.c: what holds of links, minimizers, codecs, loss scales and schedulers alike: the same numbers give
 * the same bits, whoever else computes, wherever the memory lies, and nothing else is touched.
 */
#include <locale.h>
#include <string.h>

#include "host/check/comma.h"
#include "host/check/count.h"
#include "host/check/motion.h"
#include "host/check/rules_update.h"
#include "host/check/statics.h"

/* Two bytes that memory is filled with: NaN, and a number. */
#define FILL_NAN    0xFF
#define FILL_NUMBER 0x3C

#define STEPS 3

/* ---- repeat ---- */

static void tell_failure(tn_motion *m, tn_check_finding *finding)
{
    tn_error err = {0};
    if (tn_failures_take(&m->failures, &err) != TN_OK)
        tn_motion_fail(&m->options, finding, "a step on good numbers fails: %s", err.msg);
}

/* Two at work in turn, on memory that differs in all that is not promised. */
static void repeat_one(const tn_check_subject *subject, const tn_variant *variant, tn_check_finding *finding)
{
    const tn_motion_options one = {.variant = variant, .fill = FILL_NAN};
    const tn_motion_options other = {.variant = variant, .fill = FILL_NUMBER};
    tn_motion *a, *b;
    if (!tn_motion_begin(subject, &one, &a, finding))
        return;
    if (tn_motion_begin(subject, &other, &b, finding)) {
        for (int i = 0; i < STEPS; i++) {
            tn_motion_step(a, 1);
            tn_motion_step(b, 1);
        }
        tell_failure(a, finding);
        tn_motion_same(a, b, 0,
                       "two runs of the same numbers differ; is something read before it is set, read beside "
                       "what was lent, or kept between calls?",
                       finding);
        tn_motion_close(b);
    }
    tn_motion_close(a);
}

void tn_check_update_repeat(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_motion_variants(subject, finding, repeat_one);
}

/* ---- threads ---- */

/* What is set up in the first step may be; after each further call of one thread nothing has changed. */
static void watch_statics(const tn_check_subject *subject, tn_motion *m, tn_check_finding *finding)
{
    tn_error err;
    tn_statics *statics = NULL;
    tn_motion_step(m, 1);
    if (tn_statics_take(subject->path, &statics, &err) != TN_OK)
        return;
    m->statics = statics;
    tn_motion_step(m, 1);
    m->statics = NULL;
    tn_statics_free(statics);
    if (m->changed > 0)
        tn_motion_fail(
            &m->options, finding,
            "%zu bytes of its own variables%s%s changed in %s: several threads call at once, and nothing may "
            "be kept between calls",
            m->changed, *m->changed_name ? ", first of " : "", m->changed_name, m->changed_in);
}

static void race(const tn_check_subject *subject, tn_motion *one, tn_motion *many, tn_check_finding *finding)
{
    /* On a busy machine the others may come too late for the little that there is to do. */
    int rounds = 10, most = many->kind == &tn_motion_minimizer ? 10 : 200;
    watch_statics(subject, one, finding);
    tn_check_stage(subject, "calling with four threads %s", one->options.variant->label);
    tn_motion_step(many, 2);
    for (int i = 0; i < rounds && finding->verdict == TN_CHECK_PASSED; i++) {
        tn_motion_step(one, STEPS);
        tn_check_stage(subject, "calling with four threads %s", one->options.variant->label);
        tn_motion_step(many, STEPS);
        tn_motion_same(one, many, 0, "one thread and four differ", finding);
        rounds += i + 1 == rounds && rounds < most && !many->was_shared;
    }
}

static void threads_one(const tn_check_subject *subject, const tn_variant *variant, tn_check_finding *finding)
{
    const tn_motion_options alone = {.variant = variant, .piece = 512};
    const tn_motion_options together = {.variant = variant, .piece = 512, .threads = TN_MOTION_THREADS};
    tn_motion *a, *b;
    if (!tn_motion_begin(subject, &alone, &a, finding))
        return;
    if (tn_motion_begin(subject, &together, &b, finding)) {
        race(subject, a, b, finding);
        tn_motion_close(b);
    }
    tn_motion_close(a);
}

void tn_check_update_threads(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_motion_variants(subject, finding, threads_one);
}

/* ---- memory ---- */

static void touch(const tn_check_subject *subject, const tn_motion_options *options, tn_check_finding *finding)
{
    tn_motion *m;
    if (!tn_motion_begin(subject, options, &m, finding))
        return;
    tn_motion_step(m, STEPS);
    for (int32_t t = 0; t < TN_MOTION_THREADS; t++)
        if (*m->desk[t].damage && !options->lock)
            tn_motion_fail(options, finding, "%s", m->desk[t].damage);
    tn_motion_close(m);
}

static void bounds_one(const tn_check_subject *subject, const tn_variant *variant, tn_check_finding *finding)
{
    static const int32_t pieces[] = {0, 512};
    for (size_t i = 0; i < 2; i++)
        for (int32_t place = TN_LEND_START; place <= TN_LEND_END; place++)
            touch(subject,
                  &(tn_motion_options){.variant = variant, .place = place, .piece = pieces[i], .fill = FILL_NAN},
                  finding);
}

void tn_check_update_bounds(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_guard_watch(subject->stage, 256);
    tn_motion_variants(subject, finding, bounds_one);
}

static void inputs_one(const tn_check_subject *subject, const tn_variant *variant, tn_check_finding *finding)
{
    touch(subject, &(tn_motion_options){.variant = variant, .lock = 1}, finding);
}

void tn_check_update_inputs(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_guard_watch(subject->stage, 256);
    tn_motion_variants(subject, finding, inputs_one);
}

/* ---- slices ---- */

static void compare_cut(const tn_check_subject *subject, const tn_motion *whole, const tn_motion_options *options,
                        tn_check_finding *finding)
{
    tn_motion *m;
    if (finding->verdict != TN_CHECK_PASSED || !tn_motion_begin(subject, options, &m, finding))
        return;
    tn_motion_step(m, STEPS);
    tn_motion_same(whole, m, 0,
                   options->piece == 512 ? "in one piece, and in pieces of 512 from the last to the first, differ"
                                         : "in one piece and in smaller pieces differ",
                   finding);
    tn_motion_close(m);
}

static void slices_one(const tn_check_subject *subject, const tn_variant *variant, tn_check_finding *finding)
{
    const bool is_codec = tn_motion_kind_of(subject) == &tn_motion_codec;
    const tn_motion_options whole = {.variant = variant};
    tn_motion *m;
    if (!tn_motion_begin(subject, &whole, &m, finding))
        return;
    tn_motion_step(m, STEPS);
    compare_cut(subject, m, &(tn_motion_options){.variant = variant, .piece = 512, .backwards = 1}, finding);
    if (!is_codec) {
        compare_cut(subject, m, &(tn_motion_options){.variant = variant, .piece = 48, .cut = 1}, finding);
        compare_cut(subject, m, &(tn_motion_options){.variant = variant, .piece = 16, .backwards = 1, .cut = 1},
                    finding);
    }
    tn_motion_close(m);
}

void tn_check_update_slices(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_motion_variants(subject, finding, slices_one);
}

/* ---- state ---- */

#define STATE_MOST ((size_t)64 << 20)

typedef struct {
    tn_variant variant;
    size_t bytes;
    char state[STATE_MOST], end[STATE_MOST]; /* in shared memory: pages that are not touched cost nothing */
} shared_state;

/* Reads and writes in a process of its own. */
static void state_first(const tn_check_subject *subject, void *arg, tn_check_finding *finding)
{
    shared_state *shared = arg;
    const tn_motion_options options = {.variant = &shared->variant};
    tn_motion *m;
    if (!tn_motion_begin(subject, &options, &m, finding))
        return;
    tn_motion_step(m, STEPS);
    shared->bytes = tn_motion_state_bytes(m);
    if (shared->bytes > STATE_MOST) {
        tn_check_skip(finding, "its state is larger than %zu bytes", STATE_MOST);
        return;
    }
    tn_motion_save(m, shared->state);
    tn_motion_step(m, STEPS);
    tn_motion_save(m, shared->end);
}

static void state_second(const tn_check_subject *subject, void *arg, tn_check_finding *finding)
{
    shared_state *shared = arg;
    const tn_motion_options options = {.variant = &shared->variant};
    tn_motion *through, *m;
    if (shared->bytes == 0 || !tn_motion_begin(subject, &options, &m, finding))
        return;
    m->steps = STEPS;
    tn_motion_restore(m, shared->state);
    tn_motion_step(m, STEPS);
    if (!tn_motion_begin(subject, &options, &through, finding))
        return;
    tn_motion_restore(through, shared->end);
    tn_motion_same(through, m, 1,
                   "going on in a new process from what is saved is not going on in the old one; what "
                   "is kept beside the declared state?",
                   finding);
}

/* Settings point into the struct, which lies at the same place in each process. */
static void state_one(const tn_check_subject *subject, const tn_variant *variant, tn_check_finding *finding)
{
    static shared_state *shared;
    if (!shared && !(shared = tn_check_shared(sizeof *shared))) {
        tn_check_skip(finding, "no memory that processes share");
        return;
    }
    shared->variant = *variant;
    for (size_t i = 0; i < variant->count; i++)
        shared->variant.rows[i].value = shared->variant.text[i];
    shared->bytes = 0;
    if (tn_check_apart(subject, state_first, shared, finding))
        tn_check_apart(subject, state_second, shared, finding);
}

void tn_check_update_state(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_motion_variants(subject, finding, state_one);
}

/* ---- allocations ---- */

static bool count(tn_check_finding *finding)
{
    tn_error err;
    if (tn_count_open(&err) == TN_OK)
        return true;
    tn_check_skip(finding, "%s", err.msg);
    return false;
}

static void heap_one(const tn_check_subject *subject, const tn_variant *variant, tn_check_finding *finding)
{
    const tn_motion_options options = {.variant = variant};
    tn_motion *m;
    if (!count(finding) || !tn_motion_begin(subject, &options, &m, finding))
        return;
    tn_motion_step(m, STEPS);
    if (m->allocations > 0)
        tn_motion_fail(&options, finding,
                       "%lld allocations in %d steps, at last by %s in %s: memory is the host's, "
                       "and hot calls make none",
                       (long long)m->allocations, STEPS, tn_count_last(), m->allocated_in);
    tn_motion_close(m);
}

void tn_check_update_heap(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_motion_variants(subject, finding, heap_one);
}

/* ---- leaks ---- */

#define LEAK_STEPS 10000
#define LEAK_OPENS 200
#define LEAK_FILES 16
#define LEAK_BYTES ((int64_t)4 << 20)

typedef struct {
    int64_t held, mapped, files;
} holding;

static holding holding_now(void) { return (holding){tn_count_held(), tn_count_mapped(), tn_count_files()}; }

static void compare_holding(const holding *before, int64_t often, const char *what, tn_check_finding *finding)
{
    const holding now = holding_now();
    if (now.held - before->held >= often / 20)
        tn_check_fail(finding, "%lld blocks of memory are left over from %lld %s", (long long)(now.held - before->held),
                      (long long)often, what);
    if (now.mapped - before->mapped > LEAK_BYTES)
        tn_check_fail(finding, "%lld bytes stay mapped after %lld %s", (long long)(now.mapped - before->mapped),
                      (long long)often, what);
    if (now.files - before->files >= LEAK_FILES)
        tn_check_fail(finding, "%lld files are left open by %lld %s", (long long)(now.files - before->files),
                      (long long)often, what);
}

static void leak_plans(const tn_check_subject *subject, const tn_motion_options *options, tn_check_finding *finding)
{
    tn_motion *m;
    holding before = {0};
    for (int i = 0; i < LEAK_OPENS + 10 && finding->verdict == TN_CHECK_PASSED; i++) {
        if (i == 10)
            before = holding_now();
        if (tn_motion_begin(subject, options, &m, finding))
            tn_motion_close(m);
    }
    compare_holding(&before, LEAK_OPENS, "plans", finding);
}

void tn_check_update_leak(const tn_check_subject *subject, tn_check_finding *finding)
{
    static const tn_variant defaults;
    const tn_motion_options options = {.variant = &defaults, .small = 1};
    tn_motion *m;
    if (!tn_motion_begin(subject, &options, &m, finding) || !count(finding))
        return;
    tn_motion_step(m, 100);
    const holding before = holding_now();
    tn_motion_step(m, LEAK_STEPS);
    compare_holding(&before, LEAK_STEPS, "steps", finding);
    tn_motion_close(m);
    leak_plans(subject, &options, finding);
}

/* ---- locales ---- */

/* Each default through its text, as an experiment would give it. */
static void compare_defaults(const tn_check_subject *subject, const tn_instance *instance, tn_check_finding *finding)
{
    tn_error err;
    tn_instance *copy;
    const tn_entry_info *entry = subject->entry;
    if (tn_instance_create(subject->registry, entry->kind, entry->name, instance->real, "check", NULL, 0, &copy,
                           &err) != TN_OK) {
        tn_check_fail(finding, "in a locale with a decimal comma: %s", err.msg);
        return;
    }
    for (size_t i = 0; i < instance->info->row_count; i++) {
        const tn_row *row = &instance->info->rows[i];
        bool has_place = row->type == TN_TYPE_TEXT || row->type == TN_TYPE_INTEGERS || row->type == TN_TYPE_COMPONENT;
        if (!has_place && tn_instance_set(copy, subject->registry, row->name, row->default_text, &err) != TN_OK)
            tn_check_fail(finding, "%s: its default as text: %s", row->name, err.msg);
        if (!has_place &&
            memcmp((char *)copy->hyper + row->offset, (char *)instance->hyper + row->offset, row->size) != 0)
            tn_check_fail(finding, "%s: its default '%s' is another number in a locale with a decimal comma", row->name,
                          row->default_text);
    }
    tn_instance_free(copy);
}

void tn_check_update_locale(const tn_check_subject *subject, tn_check_finding *finding)
{
    static const tn_variant defaults;
    const tn_motion_options options = {.variant = &defaults};
    tn_motion *a, *b;
    setlocale(LC_ALL, "C");
    if (!tn_motion_begin(subject, &options, &a, finding))
        return;
    tn_motion_step(a, STEPS);
    if (!tn_check_comma_locale()) {
        tn_check_skip(finding, "no locale with a decimal comma is installed here, nor localedef");
        return;
    }
    compare_defaults(subject, a->instance, finding);
    if (!tn_motion_begin(subject, &options, &b, finding))
        return;
    tn_motion_step(b, STEPS);
    tn_motion_same(a, b, 0, "a locale with a decimal comma changes it", finding);
    if (strcmp(localeconv()->decimal_point, ",") != 0)
        tn_check_fail(finding, "it calls setlocale: the locale is another one after its calls");
    tn_motion_close(b);
    tn_motion_close(a);
}
