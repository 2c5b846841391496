/* SPDX-License-Identifier: Apache-2.0
 *
 * model.h: a good model, two linear layers with relu between, in which parts may be replaced before this file is
 * included, to be wrong in one way.
 */
#ifndef TENON_TESTS_BAD_MODEL_H
#define TENON_TESTS_BAD_MODEL_H

#include <tenon/model.h>
#include <tenon/sdk.h>

#ifndef MODEL_HEAD /* name of the last layer */
#define MODEL_HEAD "head"
#endif
#ifndef MODEL_WIDTH
#define MODEL_WIDTH "8"
#endif
#ifndef MODEL_BETWEEN /* (builder, node): behind the first layer */
#define MODEL_BETWEEN(builder, node)
#endif
#ifndef MODEL_RESULT /* (node) */
#define MODEL_RESULT(node) (node)
#endif
#ifndef MODEL_BATCH /* node that the first layer reads */
#define MODEL_BATCH(builder) TN_INPUT
#endif

static int64_t probe_linear(const tn_builder *builder, const char *instance, const char *out, int64_t node)
{
    const tn_setting settings[] = {{"out", out}};
    return node < 0 ? node : builder->layer(builder->host, "layer", "linear", instance, settings, 1, &node, 1);
}

static int64_t probe_build(const void *hyper, const tn_model_input *input, const tn_builder *builder, tn_error *err)
{
    char out[24];
    (void)hyper;
    if (input->ndim != 2 || input->classes < 1)
        return -tn_fail(err, TN_E_INVALID, "model probe: needs a batch of features, and classes");
    snprintf(out, sizeof out, "%lld", (long long)input->classes);
    int64_t node = probe_linear(builder, "first", MODEL_WIDTH, MODEL_BATCH(builder));
    MODEL_BETWEEN(builder, node)
    if (node >= 0)
        node = builder->layer(builder->host, "activation", "relu", "between", NULL, 0, &node, 1);
    node = probe_linear(builder, MODEL_HEAD, out, node);
    return MODEL_RESULT(node);
}

static const tn_model probe_table = {sizeof(tn_model), 0, probe_build};

TN_COMPONENT(probe, "model", TN_MODEL, 0u, TN_NO_HYPER, "a test", "", probe_table);
TN_PLUGIN("org.tenon.test.probe", "0.1.0", "Apache-2.0", probe)

#endif
