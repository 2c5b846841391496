/* SPDX-License-Identifier: Apache-2.0
 *
 * A multi-layer perceptron: for each width linear -> normalizer -> activation -> regularizer, then a linear head with
 * one output a class, or a number of a real target.
 */
#include <tenon/model.h>
#include <tenon/sdk.h>

#define HYPER(X)                                                                                                       \
    X(integers, widths, "[256, 128]", "[1, inf)", "units of each hidden layer; []: the head alone")                    \
    X(component, normalizer, none, "normalizer", "after each hidden linear layer")                                     \
    X(component, activation, relu, "activation", "after the normalizer")                                               \
    X(component, regularizer, none, "regularizer", "after the activation")
TN_DECLARE(mlp, HYPER)

/* Outputs of the head; 0 where the targets do not say. */
static int64_t mlp_outputs(const tn_model_input *input)
{
    int grown = input->struct_size >= sizeof *input; /* older hosts know classes only */
    return input->classes > 0 ? input->classes : grown && input->target_ndim == 1 ? input->target_shape[0] : 0;
}

static int32_t mlp_check(const tn_model_input *input, tn_error *err)
{
    char shape[TN_MAX_DIMS * 24] = "";
    size_t used = 0;
    for (int32_t i = 0; i < input->ndim && i < TN_MAX_DIMS; i++)
        used +=
            (size_t)snprintf(shape + used, sizeof shape - used, "%s%lld", i ? ", " : "", (long long)input->shape[i]);
    if (input->ndim != 2)
        return tn_fail(err, TN_E_INVALID,
                       "model mlp: the input has shape [%s], needed [batch, features]; "
                       "let the data set flatten its samples (e.g. `data: {flatten: true}`)",
                       shape);
    if (mlp_outputs(input) < 1)
        return tn_fail(
            err, TN_E_INVALID,
            "model mlp: the data set has %lld classes and targets of %d axes, needed at least 1 class, or real "
            "targets of one axis",
            (long long)input->classes, input->struct_size >= sizeof *input ? (int)input->target_ndim : 0);
    return TN_OK;
}

static int64_t mlp_linear(const tn_builder *builder, const char *instance, int64_t out, int32_t head, int64_t node)
{
    char text[24];
    tn_setting settings[] = {{"out", text}, {"head", head ? "true" : "false"}};
    snprintf(text, sizeof text, "%lld", (long long)out);
    return builder->layer(builder->host, "layer", "linear", instance, settings, 2, &node, 1);
}

/* The chosen layer after `node`, or `node` itself where none is chosen or the graph has failed already. */
static int64_t mlp_child(const tn_builder *builder, int64_t handle, int64_t i, const char *role, int64_t node)
{
    char instance[64];
    if (handle < 0 || node < 0)
        return node;
    snprintf(instance, sizeof instance, "hidden.%lld.%s", (long long)i, role);
    return builder->child(builder->host, handle, instance, &node, 1);
}

static int64_t mlp_build(const void *hyper, const tn_model_input *input, const tn_builder *builder, tn_error *err)
{
    const mlp *h = hyper;
    int64_t node = TN_INPUT;
    int32_t status = mlp_check(input, err);
    if (status != TN_OK)
        return -status;
    for (int64_t i = 0; i < h->widths.count && node >= 0; i++) {
        char instance[64];
        snprintf(instance, sizeof instance, "hidden.%lld.linear", (long long)i);
        node = mlp_linear(builder, instance, h->widths.values[i], 0, node);
        node = mlp_child(builder, h->normalizer, i, "norm", node);
        node = mlp_child(builder, h->activation, i, "activation", node);
        node = mlp_child(builder, h->regularizer, i, "regularizer", node);
    }
    return node < 0 ? node : mlp_linear(builder, "head", mlp_outputs(input), 1, node);
}

static const tn_model mlp_table = {sizeof(tn_model), 0, mlp_build};

TN_COMPONENT(mlp, "model", TN_MODEL, 0u, HYPER, "Multi-layer perceptron", "", mlp_table);
TN_PLUGIN("org.tenon.mlp", "0.1.0", "Apache-2.0", mlp)
