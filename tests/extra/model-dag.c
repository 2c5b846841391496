/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of the graph: outputs with several readers, an input used twice by one layer, in-place layers.
 *   a = linear(x); r = relu(a); b = linear(r); s = a + b; t = s + s; head = linear(relu(layernorm(t)))
 */
#include <tenon/model.h>
#include <tenon/sdk.h>

#define HYPER(X)                                                                                                       \
    X(integer, width, 5, "[1, 4096]", "width of the inner layers")                                                     \
    X(flag, dead, false, "", "add a layer that feeds nothing, which the host must refuse")
TN_DECLARE(dag, HYPER)

static int64_t linear(const tn_builder *b, const char *name, int64_t width, int64_t from)
{
    char text[32];
    tn_setting out = {"out", text};
    snprintf(text, sizeof text, "%lld", (long long)width);
    return b->layer(b->host, "layer", "linear", name, &out, 1, &from, 1);
}

static int64_t plain(const tn_builder *b, const char *kind, const char *layer, const char *name, int64_t from,
                     int64_t with)
{
    int64_t inputs[] = {from, with};
    return b->layer(b->host, kind, layer, name, NULL, 0, inputs, with >= 0 ? 2 : 1);
}

static int64_t dag_build(const void *hyper, const tn_model_input *input, const tn_builder *b, tn_error *err)
{
    const dag *h = (const dag *)hyper;
    (void)err;
    int64_t a = linear(b, "a", h->width, TN_INPUT);
    int64_t r = a < 0 ? a : plain(b, "activation", "relu", "r", a, -1);
    int64_t c = r < 0 ? r : linear(b, "b", h->width, r);
    int64_t s = c < 0 ? c : plain(b, "layer", "add", "s", a, c);
    int64_t t = s < 0 ? s : plain(b, "layer", "add", "t", s, s);
    int64_t n = t < 0 ? t : plain(b, "normalizer", "layernorm", "n", t, -1);
    int64_t u = n < 0 ? n : plain(b, "activation", "relu", "u", n, -1);
    if (h->dead && u >= 0)
        plain(b, "activation", "relu", "dead", u, -1);
    return u < 0 ? u : linear(b, "head", input->classes, u);
}

static const tn_model dag_table = {sizeof(tn_model), 0, dag_build};
TN_COMPONENT(dag, "model", TN_MODEL, 0, HYPER, "A small graph with branches", "", dag_table);
TN_PLUGIN("org.tenon.test.dag", "0.1.0", "Apache-2.0", dag)
