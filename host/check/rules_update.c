/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_update.c: what components that make an update must do.
 */
#include <string.h>

#include "host/check/motion.h"
#include "host/check/rules_update.h"

static const tn_motion_kind *kind_of(const tn_check_subject *s)
{
    return s->entry && strcmp(s->entry->device, "cpu") == 0 ? tn_motion_kind_of(s) : NULL;
}

static const char *fact(const tn_check_subject *s, const char *key) { return tn_fact_text(s->info->facts, key, ""); }

static bool is_matrix(const tn_check_subject *s)
{
    return strcmp(fact(s, "grain"), "matrix") == 0 || strcmp(fact(s, "grain"), "layer") == 0;
}

static bool is_link(const tn_check_subject *s) { return kind_of(s) == &tn_motion_link; }
static bool is_codec(const tn_check_subject *s) { return kind_of(s) == &tn_motion_codec; }
static bool is_loss_scale(const tn_check_subject *s) { return kind_of(s) == &tn_motion_loss_scale; }
static bool is_scheduler(const tn_check_subject *s) { return kind_of(s) == &tn_motion_scheduler; }
static bool is_either(const tn_check_subject *s) { return is_link(s) || kind_of(s) == &tn_motion_minimizer; }
static bool is_any(const tn_check_subject *s) { return kind_of(s) != NULL; }
static bool takes_empty(const tn_check_subject *s) { return is_link(s) && !is_matrix(s); }
static bool is_cut(const tn_check_subject *s) { return is_link(s) || is_codec(s) || is_scheduler(s); }
static bool keeps_state(const tn_check_subject *s) { return is_any(s) && !is_codec(s); }
static bool has_attempts(const tn_check_subject *s) { return is_either(s) || is_codec(s); }

const tn_check_rule tn_check_update_rules[] = {
    {"update-chain", "the host's own chain takes it, with more than one thread, and steps commit finite numbers",
     is_either, tn_check_update_chain},
    {"update-repeat",
     "the same numbers give the same bits, whatever lies in memory that is not set, and with another at work beside it",
     is_any, tn_check_update_repeat},
    {"update-threads",
     "one thread and four give the same bits, and no variable of its own changes, as threads share it", is_any,
     tn_check_update_threads},
    {"update-bounds", "no call touches what was not lent to it", is_any, tn_check_update_bounds},
    {"update-inputs", "no call writes to what is lent for reading: gradients, parameters, hyper-parameters, clocks",
     is_any, tn_check_update_inputs},
    {"update-slices",
     "work in one piece and in several, in any order, gives the same bits, as processes and threads cut it", is_cut,
     tn_check_update_slices},
    {"update-state",
     "what is saved is all: going on from it in a new process gives the bits of going on in the old one", keeps_state,
     tn_check_update_state},
    {"update-nonfinite", "NaN and infinity end no step in a crash or without end, and NaN shows in a sum, step or slot",
     is_either, tn_check_update_nonfinite},
    {"update-empty", "parameters without elements change nothing for others and make no NaN", takes_empty,
     tn_check_update_empty},
    {"update-clock", "a step after 2^31 updates is the step of a little before: no clock is cut to 32 bits", is_either,
     tn_check_update_clock},
    {"update-attempt", "random numbers of attempts 2^32 apart differ: no attempt is cut to 32 bits", has_attempts,
     tn_check_update_attempt},
    {"update-nonnegative", "a slot that is said to be nonnegative is, as its codec has no sign for it", is_link,
     tn_check_update_nonnegative},
    {"update-heap", "calls of a step allocate no memory: the host lends what the plan asked for", is_any,
     tn_check_update_heap},
    {"update-leak", "after 10,000 steps no memory and no file is left over", is_any, tn_check_update_leak},
    {"update-locale", "a locale with a decimal comma changes nothing: neither defaults as text nor a step", is_any,
     tn_check_update_locale},
    {"codec-again", "what came out of it comes out the same when it is put in once more", is_codec,
     tn_check_codec_again},
    {"codec-special", "NaN comes out as NaN, 0 as 0, and what is never below 0 never below 0", is_codec,
     tn_check_codec_special},
    {"loss-scale-values", "the scale is a power of two after any overflows, so that dividing by it is exact",
     is_loss_scale, tn_check_loss_scale_values},
    {"loss-scale-overflow", "an overflow does not raise the scale, and many lower one that keeps state", is_loss_scale,
     tn_check_loss_scale_overflow},
    {"scheduler-values", "values are finite over any horizon, behind it, and after metrics that are not finite",
     is_scheduler, tn_check_scheduler_values},
    {"scheduler-far", "a value after 2^31 steps is that of a little before: no step is cut to 32 bits", is_scheduler,
     tn_check_scheduler_far},
    {0},
};
