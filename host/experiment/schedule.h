/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule.h: the section `schedule` of an experiment. Inside host/experiment only.
 */
#ifndef TENON_HOST_EXPERIMENT_SCHEDULE_H
#define TENON_HOST_EXPERIMENT_SCHEDULE_H

#include "host/experiment/build.h"
#include "host/experiment/experiment.h"

/* Fills experiment->schedules from the section (NULL or `none`: no schedules). The instances that schedules name are
 * there already. What was made before a failure is in the experiment. [main] */
int32_t tn_schedules_build(const tn_build *build, const tn_yaml *section, tn_experiment *experiment);

/* What overrides and schedules call an instance: its path, a link's without "update.". Lives as long as the instance.
 */
const char *tn_instance_call(const tn_instance *instance);

#endif
