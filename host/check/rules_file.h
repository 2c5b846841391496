/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_file.h: rules of the file's table that are in files of their own. Each is the `run` of a tn_check_rule.
 */
#ifndef TENON_HOST_CHECK_RULES_FILE_H
#define TENON_HOST_CHECK_RULES_FILE_H

#include "host/check/check.h"
#include "host/check/dynamic.h"

/* rules_file.c: loads the libraries that the file is linked to, so that what they do is told from what it does. False
 * after a skip or a failure. */
bool tn_check_open_needed(const tn_check_subject *subject, tn_dynamic *ret, tn_check_finding *finding);

/* rules_against.c */
void tn_check_against(const tn_check_subject *subject, tn_check_finding *finding);

/* rules_load.c: what mapping the file and calling its entry leaves behind */
void tn_check_entry_twice(const tn_check_subject *subject, tn_check_finding *finding);
void tn_check_float_modes(const tn_check_subject *subject, tn_check_finding *finding);
void tn_check_threads(const tn_check_subject *subject, tn_check_finding *finding);
void tn_check_signals(const tn_check_subject *subject, tn_check_finding *finding);
void tn_check_process(const tn_check_subject *subject, tn_check_finding *finding);
void tn_check_output(const tn_check_subject *subject, tn_check_finding *finding);

#endif
