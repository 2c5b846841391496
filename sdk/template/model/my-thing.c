/* SPDX-License-Identifier: Apache-2.0
 *
 * A perceptron whose hidden layers fall from `first` units by a factor, as encoders do: each linear, then a normalizer
 * and an activation that the experiment chooses; then a linear head.
 */
#include <tenon/model.h>
#include <tenon/sdk.h>

#define HYPER(X)                                                                                                       \
    X(integer, first, 128, "[1, 1048576] units", "of the first hidden layer")                                          \
    X(integer, layers, 3, "[0, 64]", "hidden layers")                                                                  \
    X(fixed, factor, 0.5, "(0, 1]", "from one layer to the next; no layer has fewer than 1 unit")                      \
    X(component, normalizer, none, "normalizer", "after each hidden linear layer")                                     \
    X(component, activation, relu, "activation", "after the normalizer")
TN_DECLARE(my_thing, HYPER)

/* Nodes are numbers; a negative one is a failure that the host keeps. */
static int64_t my_thing_linear(const tn_builder *builder, const char *instance, int64_t out, int head, int64_t node)
{
    char text[24];
    const tn_setting settings[] = {{"out", text}, {"head", head ? "true" : "false"}};
    snprintf(text, sizeof text, "%lld", (long long)out);
    return node < 0 ? node : builder->layer(builder->host, "layer", "linear", instance, settings, 2, &node, 1);
}

/* What the experiment chose, or nothing. */
static int64_t my_thing_chosen(const tn_builder *builder, int64_t handle, int64_t i, const char *role, int64_t node)
{
    char instance[64];
    snprintf(instance, sizeof instance, "hidden.%lld.%s", (long long)i, role);
    return handle < 0 || node < 0 ? node : builder->child(builder->host, handle, instance, &node, 1);
}

/* Outputs of the head: one a class, or a number of a real target; 0 where the data says neither. */
static int64_t my_thing_outputs(const tn_model_input *input)
{
    int grown = input->struct_size >= sizeof *input;
    return input->classes > 0 ? input->classes : grown && input->target_ndim == 1 ? input->target_shape[0] : 0;
}

static int64_t my_thing_build(const void *hyper, const tn_model_input *input, const tn_builder *builder, tn_error *err)
{
    const my_thing *h = (const my_thing *)hyper;
    double units = (double)h->first;
    int64_t node = TN_INPUT;
    if (input->ndim != 2 || my_thing_outputs(input) < 1)
        return -tn_fail(err, TN_E_INVALID,
                        "model my-thing: an input of %d extents and %lld outputs, needed [batch, features] and at "
                        "least 1",
                        (int)input->ndim, (long long)my_thing_outputs(input));
    for (int64_t i = 0; i < h->layers; i++, units = fmax(1, units * h->factor)) {
        char instance[64];
        snprintf(instance, sizeof instance, "hidden.%lld.linear", (long long)i);
        node = my_thing_linear(builder, instance, (int64_t)units, 0, node);
        node = my_thing_chosen(builder, h->normalizer, i, "norm", node);
        node = my_thing_chosen(builder, h->activation, i, "activation", node);
    }
    return my_thing_linear(builder, "head", my_thing_outputs(input), 1, node);
}

static const tn_model my_thing_table = {sizeof(tn_model), 0, TN_CALL(my_thing_build)};
TN_COMPONENT(my_thing, "model", TN_MODEL, 0u, HYPER, "A perceptron that narrows", "", my_thing_table);
TN_PLUGIN("org.example.my-thing", "0.1.0", "Apache-2.0", my_thing)
