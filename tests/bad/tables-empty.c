/* SPDX-License-Identifier: Apache-2.0
 *
 * Components of which there is nothing but a name.
 */
#include <tenon/backend.h>
#include <tenon/data.h>
#include <tenon/loss.h>
#include <tenon/model.h>
#include <tenon/optimizer.h>
#include <tenon/parallel.h>
#include <tenon/scheduler.h>
#include <tenon/sdk.h>
#include <tenon/sink.h>

#define EMPTY(name, type, kind, interface)                                                                             \
    static const type name##_table = {.struct_size = sizeof(type)};                                                    \
    TN_COMPONENT(name, kind, interface, TN_REAL, TN_NO_HYPER, "Wrong", "", name##_table)

EMPTY(empty_loss, tn_loss, "loss", TN_LOSS);
EMPTY(empty_scheduler, tn_scheduler, "scheduler", TN_SCHEDULER);
EMPTY(empty_sink, tn_sink, "sink", TN_SINK);
EMPTY(empty_model, tn_model, "model", TN_MODEL);
EMPTY(empty_data, tn_data, "data", TN_DATA);
EMPTY(empty_backend, tn_backend, "backend", TN_BACKEND);
EMPTY(empty_collective, tn_collective, "collective", TN_COLLECTIVE);
EMPTY(empty_rule, tn_optimizer, "optimizer", TN_OPTIMIZER);
TN_PLUGIN("org.tenon.test.tables-empty", "0.1.0", "Apache-2.0", empty_loss, empty_scheduler, empty_sink, empty_model,
          empty_data, empty_backend, empty_collective, empty_rule)
