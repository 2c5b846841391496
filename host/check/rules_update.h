/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_update.h: the rules of tn_check_update_rules, by the file that they are in. Each is the `run` of a
 * tn_check_rule.
 */
#ifndef TENON_HOST_CHECK_RULES_UPDATE_H
#define TENON_HOST_CHECK_RULES_UPDATE_H

#include "host/check/check.h"

typedef void tn_check_run_rule(const tn_check_subject *subject, tn_check_finding *finding);

/* rules_update_all.c: of whatever can be a tn_motion */
tn_check_run_rule tn_check_update_repeat, tn_check_update_threads, tn_check_update_bounds, tn_check_update_inputs,
    tn_check_update_slices, tn_check_update_state, tn_check_update_heap, tn_check_update_leak, tn_check_update_locale;

/* rules_update_link.c: of links and minimizers */
tn_check_run_rule tn_check_update_nonfinite, tn_check_update_empty, tn_check_update_clock, tn_check_update_attempt,
    tn_check_update_nonnegative;

/* rules_update_chain.c: in the host's own chain */
tn_check_run_rule tn_check_update_chain;

/* rules_update_small.c: of codecs, loss scales, schedulers */
tn_check_run_rule tn_check_codec_again, tn_check_codec_special, tn_check_loss_scale_values,
    tn_check_loss_scale_overflow, tn_check_scheduler_values, tn_check_scheduler_far;

#endif
