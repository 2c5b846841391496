/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/model.h: a graph of layers from hyper-parameters. Interface "tenon.model/0.1", kind model.
 *
 * A model names layers; the host finds them, infers shapes, allocates and runs. Rows of type `component` let the
 * experiment choose: model: {use: mlp, activation: gelu}. The value of such a row is a handle, -1 for none.
 */
#ifndef TENON_MODEL_H
#define TENON_MODEL_H

#include <tenon/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TN_MODEL "tenon.model/0.1"

/* A hyper-parameter that the model sets on a layer it names itself. */
typedef struct tn_setting {
    const char *name;
    const char *value; /* as in an experiment: "128", "true", "0.1" */
} tn_setting;
TN_SIZE(tn_setting, 16);

/* Of the host, lent to `build`. Nodes are numbered from 0; node TN_INPUT is the batch. Each function returns the
 * new node, or a negative status with the error kept by the host; the first failure fails the model. [load] */
#define TN_INPUT 0

typedef struct tn_builder {
    uint32_t struct_size;
    uint32_t reserved;
    void *host;
    /* A layer by kind and name, e.g. "layer", "linear". `instance` is its stable name: "hidden.0.linear". */
    int64_t (*layer)(void *host, const char *kind, const char *name, const char *instance, const tn_setting *settings,
                     int64_t setting_count, const int64_t *inputs, int64_t input_count);
    /* A layer that the experiment chose, by the handle of a `component` row >= 0. */
    int64_t (*child)(void *host, int64_t handle, const char *instance, const int64_t *inputs, int64_t input_count);
    /* The shape of a node's output at the maximum batch; returns ndim. `ret` has room for TN_MAX_DIMS extents. */
    int64_t (*shape)(void *host, int64_t node, int64_t *ret);
} tn_builder;
TN_SIZE(tn_builder, 40);

/* What the data set offers, for the last layer. */
typedef struct tn_model_input {
    uint32_t struct_size;
    int32_t ndim;
    const int64_t *shape; /* with the maximum batch first */
    int64_t classes;      /* 0: targets are real, of target_shape */
    int32_t target_ndim;  /* of one sample's target, without the batch */
    int32_t reserved;
    const int64_t *target_shape; /* NULL where target_ndim is 0 */
} tn_model_input;
TN_AT(tn_model_input, classes, 16);
TN_AT(tn_model_input, target_shape, 32);
TN_SIZE(tn_model_input, 40);

typedef struct tn_model {
    uint32_t struct_size;
    uint32_t reserved;
    /* Builds the graph and returns its output node, the last one, or a negative status with `err` filled. Every other
     * node must feed one. [load] */
    int64_t (*build)(const void *hyper, const tn_model_input *input, const tn_builder *builder, tn_error *err);
} tn_model;
TN_SIZE(tn_model, 16);

#ifdef __cplusplus
}
#endif
#endif
