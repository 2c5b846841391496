/* SPDX-License-Identifier: Apache-2.0
 *
 * Every struct of the contract reachable from one exported function, so that libabigail compares them all.
 */
#include <tenon/backend.h>
#include <tenon/data.h>
#include <tenon/failure.h>
#include <tenon/layer.h>
#include <tenon/loss.h>
#include <tenon/matrix.h>
#include <tenon/minimizer.h>
#include <tenon/model.h>
#include <tenon/normalizer.h>
#include <tenon/optimizer.h>
#include <tenon/parallel.h>
#include <tenon/plugin.h>
#include <tenon/precision.h>
#include <tenon/recompute.h>
#include <tenon/scheduler.h>
#include <tenon/sink.h>
#include <tenon/strategy.h>
#include <tenon/tangent.h>

typedef struct tn_abi_anchor {
    const tn_action *action;
    const tn_advance *advance;
    const tn_ask *ask;
    const tn_backend *backend;
    const tn_box *box;
    const tn_builder *builder;
    const tn_clock *clock;
    const tn_codec *codec;
    const tn_codec_call *codec_call;
    const tn_collective *collective;
    const tn_component *component;
    const tn_compute *compute;
    const tn_context *context;
    const tn_data *data;
    const tn_data_split *data_split;
    const tn_error *error;
    const tn_failure *failure;
    const tn_field *field;
    const tn_fold *fold;
    const tn_gemm *gemm;
    const tn_group *group;
    const tn_integers *integers;
    const tn_layer *layer;
    const tn_layer_call *layer_call;
    const tn_layer_planner *layer_planner;
    const tn_layer_rounds *layer_rounds;
    const tn_layer_tangents *layer_tangents;
    const tn_loss *loss;
    const tn_loss_call *loss_call;
    const tn_loss_scale *loss_scale;
    const tn_matrix *matrix;
    const tn_matrix_call *matrix_call;
    const tn_mesh *mesh;
    const tn_minimizer *minimizer;
    const tn_minimizer_planner *minimizer_planner;
    const tn_model *model;
    const tn_model_input *model_input;
    const tn_node_cost *node_cost;
    const tn_note *note;
    const tn_optimizer *optimizer;
    const tn_parameter *parameter;
    const tn_partial *partial;
    const tn_piece *piece;
    const tn_placement *placement;
    const tn_plan_graph *plan_graph;
    const tn_plan_node *plan_node;
    const tn_plugin *plugin;
    const tn_position *position;
    const tn_recompute *recompute;
    const tn_record *record;
    const tn_scheduler *scheduler;
    const tn_services *services;
    const tn_setting *setting;
    const tn_sink *sink;
    const tn_slot *slot;
    const tn_slot_planner *slot_planner;
    const tn_strategy *strategy;
    const tn_tangent_call *tangent_call;
    const tn_tap_call *tap_call;
    const tn_tensor *tensor;
    const tn_transfer *transfer;
    const tn_weight *weight;
    const tn_writer *writer;
    tn_entry *entry;
} tn_abi_anchor;

__attribute__((visibility("default"))) int tn_abi_anchor_use(const tn_abi_anchor *anchor);
int tn_abi_anchor_use(const tn_abi_anchor *anchor) { return anchor != 0; }
