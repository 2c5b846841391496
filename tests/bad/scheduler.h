/* SPDX-License-Identifier: Apache-2.0
 *
 * scheduler.h: a scheduler, scheduler/bad, for plugins that are wrong in one way. A file has its value, and perhaps
 * what it observes.
 */
#ifndef TENON_TESTS_BAD_SCHEDULER_H
#define TENON_TESTS_BAD_SCHEDULER_H

#include <tenon/scheduler.h>
#include <tenon/sdk.h>

#define BAD_HYPER(X) X(text, metric, "loss", "", "which of the evaluation's values is watched")
#define SCALARS(S)   S(seen, "evaluations")

#define BAD_SCHEDULER(id, value, observe)                                                                              \
    static const tn_scheduler bad_table = {sizeof(tn_scheduler), 0, value, observe};                                   \
    TN_COMPONENT(bad, "scheduler", TN_SCHEDULER, 0u, BAD_HYPER, "a test", TN_SCALARS_FACT(SCALARS), bad_table);        \
    TN_PLUGIN("org.tenon.test." id, "0.1.0", "Apache-2.0", bad)

#endif
