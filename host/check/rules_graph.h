/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_graph.h: the rules of tn_check_graph_rules, by the file that they are in. Each is the `run` of a tn_check_rule.
 */
#ifndef TENON_HOST_CHECK_RULES_GRAPH_H
#define TENON_HOST_CHECK_RULES_GRAPH_H

#include "host/check/check.h"

typedef void tn_check_run_rule(const tn_check_subject *subject, tn_check_finding *finding);

/* rules_graph_layer.c: memory, pieces, repeats */
tn_check_run_rule tn_check_layer_plan, tn_check_layer_memory, tn_check_layer_outputs, tn_check_layer_wishes,
    tn_check_layer_repeat, tn_check_layer_pieces, tn_check_layer_batch, tn_check_layer_in_place, tn_check_layer_threads,
    tn_check_layer_heap, tn_check_layer_leak;

/* rules_graph_slopes.c: derivatives */
tn_check_run_rule tn_check_layer_slopes, tn_check_layer_tangents;

/* rules_graph_state.c: buffers, random numbers, numbers that are none */
tn_check_run_rule tn_check_layer_state, tn_check_layer_freeze, tn_check_layer_refresh, tn_check_layer_nonfinite,
    tn_check_layer_random, tn_check_regularizer_mean, tn_check_normalizer_names, tn_check_normalizer_evaluation;

/* rules_graph_loss.c */
bool tn_check_is_loss(const tn_check_subject *subject);
tn_check_run_rule tn_check_loss_shapes, tn_check_loss_memory, tn_check_loss_outputs, tn_check_loss_repeat,
    tn_check_loss_pieces, tn_check_loss_slopes, tn_check_loss_curvature, tn_check_loss_ignored, tn_check_loss_label,
    tn_check_loss_nonfinite, tn_check_loss_samples, tn_check_loss_threads, tn_check_loss_heap;

/* rules_graph_sink.c */
bool tn_check_is_sink(const tn_check_subject *subject);
tn_check_run_rule tn_check_sink_file, tn_check_sink_repeat, tn_check_sink_values, tn_check_sink_locale,
    tn_check_sink_failure, tn_check_sink_memory, tn_check_sink_heap;

/* rules_graph_data.c */
bool tn_check_is_data(const tn_check_subject *subject);
tn_check_run_rule tn_check_data_describe, tn_check_data_memory, tn_check_data_values, tn_check_data_order,
    tn_check_data_fresh, tn_check_data_threads, tn_check_data_heap, tn_check_data_leak;

/* rules_graph_model.c */
bool tn_check_is_model(const tn_check_subject *subject);
tn_check_run_rule tn_check_model_builds, tn_check_model_repeat, tn_check_model_failure, tn_check_model_trains;

/* rules_graph_backend.c */
bool tn_check_is_backend(const tn_check_subject *subject);
tn_check_run_rule tn_check_backend_probe, tn_check_backend_products, tn_check_backend_memory, tn_check_backend_beta,
    tn_check_backend_repeat, tn_check_backend_threads, tn_check_backend_refusals, tn_check_backend_leak;

/* rules_graph_plan.c */
bool tn_check_is_strategy(const tn_check_subject *subject);
bool tn_check_is_recompute(const tn_check_subject *subject);
tn_check_run_rule tn_check_strategy_tables, tn_check_strategy_repeat, tn_check_strategy_room, tn_check_recompute_table,
    tn_check_recompute_repeat;

/* rules_graph_collective.c */
bool tn_check_is_collective(const tn_check_subject *subject);
tn_check_run_rule tn_check_collective_operations, tn_check_collective_ordered, tn_check_collective_mismatch,
    tn_check_collective_absent, tn_check_collective_heap;

/* rules_graph_parts.c */
tn_check_run_rule tn_check_layer_tap, tn_check_layer_split, tn_check_layer_rounds;

#endif
