/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of experiments: declarations only, none of these does any work.
 *   rows    a link with rows of each type
 *   twin    a name that two kinds have (the other is in experiment-twin.c)
 *   endless a model whose default for an inner component is itself
 *   greedy  a data set that wants a key of the host
 *   bare    a scheduler without a length
 *   coded, stepped, kept   a codec, a loss scale and a recompute policy
 */
#include <tenon/data.h>
#include <tenon/model.h>
#include <tenon/optimizer.h>
#include <tenon/precision.h>
#include <tenon/recompute.h>
#include <tenon/scheduler.h>

#include "rows.h"

static const tn_optimizer link_table = {.struct_size = sizeof(tn_optimizer)};
TN_COMPONENT(rows, "optimizer", TN_OPTIMIZER, 0, ROWS_HYPER, "rows of each type", TN_FACT("stage", "\"rule\""),
             link_table);
TN_COMPONENT(twin, "transform", TN_OPTIMIZER, 0, TN_NO_HYPER, "one of two", TN_FACT("stage", "\"gradient\""),
             link_table);

#define ENDLESS_HYPER(X) X(component, inner, endless, "model", "itself")
static const tn_model model_table = {.struct_size = sizeof(tn_model)};
TN_COMPONENT(endless, "model", TN_MODEL, 0, ENDLESS_HYPER, "contains itself", "", model_table);

#define GREEDY_HYPER(X) X(integer, batch, 1, "[1, inf)", "the host's")
static const tn_data data_table = {.struct_size = sizeof(tn_data)};
TN_COMPONENT(greedy, "data", TN_DATA, 0, GREEDY_HYPER, "takes the host's key", "", data_table);

static const tn_scheduler scheduler_table = {.struct_size = sizeof(tn_scheduler)};
TN_COMPONENT(bare, "scheduler", TN_SCHEDULER, 0, TN_NO_HYPER, "has no steps", "", scheduler_table);

#define CODED_HYPER(X) X(integer, block, 64, "[1, 512]", "elements that share a scale")
static const tn_codec codec_table = {.struct_size = sizeof(tn_codec)};
TN_COMPONENT(coded, "codec", TN_CODEC, 0, CODED_HYPER, "stores nothing", "", codec_table);

#define STEPPED_HYPER(X) X(real, growth, 2, "[1, inf)", "factor of a step up")
static const tn_loss_scale loss_scale_table = {.struct_size = sizeof(tn_loss_scale)};
TN_COMPONENT(stepped, "loss-scale", TN_LOSS_SCALE, 0, STEPPED_HYPER, "scales nothing", "", loss_scale_table);

static const tn_recompute recompute_table = {.struct_size = sizeof(tn_recompute)};
TN_COMPONENT(kept, "recompute", TN_RECOMPUTE, 0, TN_NO_HYPER, "plans nothing", "", recompute_table);

TN_PLUGIN("org.tenon.test.rows", "1.0.0", "Apache-2.0", rows, twin, endless, greedy, bare, coded, stepped, kept)
