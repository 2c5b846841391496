/* SPDX-License-Identifier: Apache-2.0
 *
 * motion.h: a component of an update at work, for the rules that hold for all of them: links, minimizers, codecs, loss
 * scales and schedulers. A rule sets it going in several ways and compares what came out, bit by bit.
 *
 *   motion_link.c        links: the host's part of a step for one link alone, on a dozen shapes of parameters
 *   motion_minimizer.c   minimizers, on a function of a few hundred numbers
 *   motion_small.c       codecs, loss scales, schedulers
 *
 * Everything that a call of the plugin is lent stands in blocks of lend.h, and what each call allocates is counted
 * (count.h). The numbers that go in depend on the step alone.
 *
 * Thread rule: one thread at a time for one motion; pieces go to its pool.
 */
#ifndef TENON_HOST_CHECK_MOTION_H
#define TENON_HOST_CHECK_MOTION_H

#include <tenon/parameter.h>

#include "host/base/failure.h"
#include "host/base/pool.h"
#include "host/check/check.h"
#include "host/check/lend.h"
#include "host/check/statics.h"
#include "host/experiment/instance.h"

#define TN_MOTION_THREADS 4
#define TN_MOTION_CHANGES 12 /* rows that differ from their defaults, at most */

/* Hyper-parameters that are not all at their defaults. */
typedef struct tn_variant {
    tn_setting rows[TN_MOTION_CHANGES]; /* texts below, or of the note */
    char text[TN_MOTION_CHANGES][32];
    size_t count;
    char label[256]; /* "nesterov=true"; "" at the defaults */
} tn_variant;

/* What is put into the numbers that go in, one at a time; the last two are 7 and -7. */
typedef enum {
    TN_MIX_NONE,
    TN_MIX_NAN,
    TN_MIX_INF,
    TN_MIX_MINUS_INF,
    TN_MIX_LARGEST,
    TN_MIX_SUBNORMAL,
    TN_MIX_HIGH,
    TN_MIX_LOW
} tn_mix;

/* All zero but for `variant`: as a run would do it. */
typedef struct tn_motion_options {
    const tn_variant *variant;
    int32_t place;      /* TN_LEND_MIDDLE, ... of what is lent */
    int32_t lock;       /* 1: what is lent for reading can not be written */
    unsigned char fill; /* bytes of what is yet to be set, and of padding */
    int32_t piece;      /* elements of a piece at most, on 16 (codecs: on 512); 0: a chunk */
    int32_t cut;        /* 1: links: parameters in two slices; items one by one */
    int32_t backwards;  /* 1: pieces, codecs' calls and positions from the last to the first */
    int32_t small;      /* 1: little work, for many steps */
    int32_t empty;      /* links: 1: empty parameters among others; 2: those others alone */
    int32_t threads;    /* 0: 1 */
    int64_t t, attempt; /* added to the clock and update; to the attempt */
    tn_mix mix;         /* from the second step on */
} tn_motion_options;

/* Some of what came out. */
typedef struct tn_span {
    char name[96]; /* "p of [15]" */
    char *data;
    size_t bytes;
    int32_t real;    /* 32 or 64; 0: bytes */
    int32_t is_kept; /* 1: saved with the run */
    int32_t nonnegative;
} tn_span;

/* Its numbers; 0 where it holds bytes. */
static inline int64_t tn_span_count(const tn_span *span)
{
    return span->real ? (int64_t)(span->bytes * 8) / span->real : 0;
}

typedef struct tn_motion tn_motion;
struct tn_motion {
    const tn_check_subject *subject;
    tn_motion_options options;
    tn_instance *instance;
    tn_pool *pool; /* NULL: one thread */
    int64_t steps; /* done */
    tn_span *spans;
    size_t span_count, span_capacity;
    tn_desk desk[TN_MOTION_THREADS];
    _Atomic int64_t allocations; /* in calls that may make none */
    const char *_Atomic allocated_in;
    int32_t skipped;            /* the last step was voted down, as a sum was not finite */
    tn_failures failures;       /* what calls said by tenon/failure.h; steps go on all the same */
    _Atomic int32_t was_shared; /* another thread than the first has made a call */
    const tn_statics *statics;  /* looked at behind each call while one thread steps; NULL: not */
    size_t changed;             /* bytes of them, after the first call that changed some */
    const char *changed_name, *changed_in;
    tn_services services; /* lent in clocks and contexts */
    const struct tn_motion_kind *kind;
    void *own;
};

/* One family of components. */
typedef struct tn_motion_kind {
    /* Loads the table and plans; adds spans. TN_E_INVALID or TN_E_UNSUPPORTED: refused by the component. */
    int32_t (*open)(tn_motion *motion, tn_error *err);
    void (*step)(tn_motion *motion);
    void (*close)(tn_motion *motion); /* accepts a half opened one */
} tn_motion_kind;

extern const tn_motion_kind tn_motion_link, tn_motion_minimizer, tn_motion_codec, tn_motion_loss_scale,
    tn_motion_scheduler;

/* What a minimizer did that ended its step as it should not; "": nothing. */
const char *tn_motion_minimizer_fault(const tn_motion *motion);

/* NULL for a component of another family. */
const tn_motion_kind *tn_motion_kind_of(const tn_check_subject *subject);

/* ---- for rules ---- */

/* The caller closes *ret. What the plugin refuses is TN_E_INVALID or TN_E_UNSUPPORTED, what it does wrong TN_E_PLUGIN.
 */
int32_t tn_motion_open(const tn_check_subject *subject, const tn_motion_options *options, tn_motion **ret,
                       tn_error *err);
void tn_motion_close(tn_motion *motion);
void tn_motion_step(tn_motion *motion, int64_t steps);

/* Calls `run` at the defaults, then with rows changed: all that are 0, inf or NaN moved inside their range, each flag
 * turned and each choice taken, until something has failed. Where the defaults are refused it skips. */
void tn_motion_variants(const tn_check_subject *subject, tn_check_finding *finding,
                        void (*run)(const tn_check_subject *subject, const tn_variant *variant,
                                    tn_check_finding *finding));

/* Opens for a rule; false if that failed: at the defaults the finding says why. */
bool tn_motion_begin(const tn_check_subject *subject, const tn_motion_options *options, tn_motion **ret,
                     tn_check_finding *finding);

/* True if all spans have the same bits; else fails the finding with the first that differs and `why`. kept_only: those
 * that are not saved are passed over. */
bool tn_motion_same(const tn_motion *a, const tn_motion *b, int32_t kept_only, const char *why,
                    tn_check_finding *finding);
/* The first number of the spans that is not finite, as text; NULL: all are. */
const char *tn_motion_not_finite(const tn_motion *motion, char *ret, size_t size);

/* What is saved with a run, one span behind the other. */
size_t tn_motion_state_bytes(const tn_motion *motion);
void tn_motion_save(const tn_motion *motion, char *to);
void tn_motion_restore(tn_motion *motion, const char *from);

/* Fails with the variant before the words. */
void tn_motion_fail(const tn_motion_options *options, tn_check_finding *finding, const char *format, ...)
    TN_PRINTF(3, 4);

/* ---- for families ---- */

/* NULL, and a message in `err`, out of memory. Freed with the motion's instance by nobody: families free it. */
tn_span *tn_motion_span(tn_motion *motion, void *data, size_t bytes, int32_t real, int32_t is_kept, tn_error *err,
                        const char *name, ...) TN_PRINTF(7, 8);

/* Round each call of the plugin, by thread `thread`: stage, locks, and where `hot`, counts. */
void tn_motion_enter(tn_motion *motion, int32_t thread, const char *what);
void tn_motion_leave(tn_motion *motion, int32_t thread, const char *what, int32_t hot);

/* A copy lent for reading, and memory lent for writing. */
const void *tn_motion_in(tn_motion *motion, int32_t thread, int32_t which, const char *name, const void *from,
                         size_t bytes, size_t alignment);
void *tn_motion_out(tn_motion *motion, int32_t thread, int32_t which, const char *name, const void *from, size_t bytes,
                    size_t alignment);

/* Numbers in (-1, 1) by tensor, element and use. */
double tn_motion_noise(int64_t tensor, int64_t element, int64_t use);
double tn_motion_get(uint32_t real, const void *data, int64_t i);
void tn_motion_set(uint32_t real, void *data, int64_t i, double value);
/* The number that is mixed in. */
double tn_motion_mixed(uint32_t real, tn_mix mix);
/* What calls are lent; their services log nothing and take failures. */
tn_clock tn_motion_clock(const tn_motion *motion);
tn_context tn_motion_context(const tn_motion *motion);

#endif
