/* SPDX-License-Identifier: Apache-2.0
 *
 * resolved.h: an experiment as YAML text with every default filled in. Inside host/experiment only.
 */
#ifndef TENON_HOST_EXPERIMENT_RESOLVED_H
#define TENON_HOST_EXPERIMENT_RESOLVED_H

#include "host/base/text.h"
#include "host/experiment/experiment.h"

/* Adds the text of a complete experiment; read again it gives the same experiment and the same text. [any] */
void tn_resolved_print(const tn_experiment *experiment, tn_text *text);

#endif
