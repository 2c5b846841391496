/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_graph.c: what components of a model, of its data and of what runs it must do: the table. A rule's plugin that
 * breaks it is tests/bad/<id>.c.
 */
#include <string.h>

#include "host/check/lone.h"
#include "host/check/rules_graph.h"

static bool is_kind(const tn_check_subject *subject, const char *kind)
{
    return tn_lone_applies(subject) && strcmp(subject->entry->kind, kind) == 0;
}

static bool is_regularizer(const tn_check_subject *subject) { return is_kind(subject, "regularizer"); }
static bool is_normalizer(const tn_check_subject *subject) { return is_kind(subject, "normalizer"); }

const tn_check_rule tn_check_graph_rules[] = {
    {"layer-plan",
     "infer plans one output with the batch first and parameters and buffers with names of their own, the same each "
     "time, and gives a reason where it refuses",
     tn_lone_applies, tn_check_layer_plan},
    {"layer-memory",
     "no call touches memory beyond what it was lent, and none writes what is lent for reading: the host's arena has "
     "other tensors there",
     tn_lone_applies, tn_check_layer_memory},
    {"layer-outputs",
     "y, dx and, without TN_ACCUMULATE, gradients are set whole, whatever they and the scratch held before",
     tn_lone_applies, tn_check_layer_outputs},
    {"layer-wishes",
     "TN_WANT_DX and TN_WANT_DW change nothing but what is computed, and TN_ACCUMULATE adds to the gradients",
     tn_lone_applies, tn_check_layer_wishes},
    {"layer-repeat",
     "the same call gives the same bits whatever was called between: a plugin keeps no memory of its own",
     tn_lone_applies, tn_check_layer_repeat},
    {"layer-pieces",
     "results do not depend on how the host cuts a call into pieces; partial gradients are of their own rows",
     tn_lone_applies, tn_check_layer_pieces},
    {"layer-batch", "any batch up to the planned one can be run, and nothing behind it is written; no rows sum up to 0",
     tn_lone_applies, tn_check_layer_batch},
    {"layer-in-place", "where the note says in_place, y may be x and dx may be dy, with the same bits", tn_lone_applies,
     tn_check_layer_in_place},
    {"layer-threads", "pieces, and layers side by side, run on several threads at once with the same bits",
     tn_lone_applies, tn_check_layer_threads},
    {"layer-heap", "forward and backward allocate nothing: a step of training must not wait for the heap",
     tn_lone_applies, tn_check_layer_heap},
    {"layer-leak", "10,000 calls and 1,000 plans leave no memory and no file behind", tn_lone_applies,
     tn_check_layer_leak},
    {"layer-slopes", "dx and gradients are the derivatives of forward, by central differences", tn_lone_applies,
     tn_check_layer_slopes},
    {"layer-tangents", "tangents, where offered, are the derivatives along the direction, by central differences",
     tn_lone_applies, tn_check_layer_tangents},
    {"layer-state", "buffers are all that training keeps: a new process that goes on from them computes the same bits",
     tn_lone_applies, tn_check_layer_state},
    {"layer-freeze",
     "evaluation, backward and calls under TN_FREEZE leave buffers alone: a replay must not count twice",
     tn_lone_applies, tn_check_layer_freeze},
    {"layer-refresh", "under `refresh` buffers become the mean over the batches, whatever they held before",
     tn_lone_applies, tn_check_layer_refresh},
    {"layer-nonfinite", "a NaN in x or dy is not swallowed, and no number crashes: a run that goes wrong must show it",
     tn_lone_applies, tn_check_layer_nonfinite},
    {"layer-random",
     "random numbers depend on the key, the attempt and the element alone, so that a replay draws them again; "
     "evaluation draws none",
     tn_lone_applies, tn_check_layer_random},
    {"regularizer-mean", "in the mean over attempts training gives what evaluation gives", is_regularizer,
     tn_check_regularizer_mean},
    {"normalizer-names",
     "rows, parameters and buffers of a normalizer carry the names, starts and role of normalizer.h, by which "
     "experiments and checkpoints find them",
     is_normalizer, tn_check_normalizer_names},
    {"normalizer-evaluation",
     "evaluation takes its statistics from buffers, not from the batch, and agrees with training on them",
     is_normalizer, tn_check_normalizer_evaluation},
    {"loss-shapes", "check refuses shapes and types that do not fit, with a reason, and broadcasts nothing",
     tn_check_is_loss, tn_check_loss_shapes},
    {"loss-memory", "no call touches memory beyond what it was lent, and none writes what is lent for reading",
     tn_check_is_loss, tn_check_loss_memory},
    {"loss-outputs", "sums and dx are set whole, whatever they held, and sums do not depend on whether dx is wanted",
     tn_check_is_loss, tn_check_loss_outputs},
    {"loss-repeat", "the same call gives the same bits whatever was called between", tn_check_is_loss,
     tn_check_loss_repeat},
    {"loss-pieces", "dx does not depend on how the rows are cut, and sums are of the rows at hand, 0 of none",
     tn_check_is_loss, tn_check_loss_pieces},
    {"loss-threads", "calls of several threads at once give the same bits", tn_check_is_loss, tn_check_loss_threads},
    {"loss-heap", "10,000 calls allocate nothing and leave nothing behind", tn_check_is_loss, tn_check_loss_heap},
    {"loss-slopes", "dx is seed times the derivative of the sum, by central differences", tn_check_is_loss,
     tn_check_loss_slopes},
    {"loss-curvature", "curvature, where offered, is the derivative of dx along the direction", tn_check_is_loss,
     tn_check_loss_curvature},
    {"loss-ignored", "rows whose class is negative count nothing and have no gradient, whatever they hold",
     tn_check_is_loss, tn_check_loss_ignored},
    {"loss-label", "a target that is no class shows in the loss, and nothing is read where its class would be",
     tn_check_is_loss, tn_check_loss_label},
    {"loss-nonfinite", "a NaN in the prediction shows in the loss, and no number crashes", tn_check_is_loss,
     tn_check_loss_nonfinite},
    {"loss-samples", "drawn targets, where offered, are of the model's distribution: they leave no slope in the mean",
     tn_check_is_loss, tn_check_loss_samples},
    {"sink-file", "the note names a plain file of the run's folder", tn_check_is_sink, tn_check_sink_file},
    {"sink-repeat",
     "what a record gives depends on the record alone and is written at once: a run that goes on is cut back to a "
     "record's end",
     tn_check_is_sink, tn_check_sink_repeat},
    {"sink-values", "numbers can be read back, and inf and nan are told apart", tn_check_is_sink, tn_check_sink_values},
    {"sink-locale", "a locale with a decimal comma changes no byte", tn_check_is_sink, tn_check_sink_locale},
    {"sink-failure", "a write that fails is an error, with words: a full disk must not go unseen", tn_check_is_sink,
     tn_check_sink_failure},
    {"sink-memory", "records of any number of fields with names of any length are read within their bounds",
     tn_check_is_sink, tn_check_sink_memory},
    {"sink-heap", "10,000 records allocate nothing and leave no file open", tn_check_is_sink, tn_check_sink_heap},
    {"data-describe", "a split is described as it is, the same each time, and an unknown one is refused with words",
     tn_check_is_data, tn_check_data_describe},
    {"data-memory", "load writes into the memory that it described alone, gather into x and target alone",
     tn_check_is_data, tn_check_data_memory},
    {"data-values", "all numbers are finite and all classes are there: records are checked in load", tn_check_is_data,
     tn_check_data_values},
    {"data-order", "a sample is the same in any order and company, also where it is augmented", tn_check_is_data,
     tn_check_data_order},
    {"data-fresh", "a new process gets the same samples, so that a run can go on", tn_check_is_data,
     tn_check_data_fresh},
    {"data-threads", "gather runs on several threads at once with the same results", tn_check_is_data,
     tn_check_data_threads},
    {"data-heap", "10,000 calls of gather allocate nothing and leave nothing behind", tn_check_is_data,
     tn_check_data_heap},
    {"data-leak", "describe and load leave no memory and no file behind", tn_check_is_data, tn_check_data_leak},
    {0},
};
