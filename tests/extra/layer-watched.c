/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of the graph: y = x / 2, which tells the host's log of each call: what, flags, key, attempt.
 */
#include <tenon/layers.h>

TN_DECLARE(watched, TN_NO_HYPER)

static int32_t watched_infer(const void *hyper, const tn_tensor *x, int32_t inputs, const tn_layer_planner *planner,
                             tn_error *err)
{
    (void)hyper;
    return tn_element_infer("watched", x, inputs, planner, err);
}

static void watched_tell(const tn_layer_call *call, const char *what)
{
    const tn_services *services = call->context->services;
    char text[96];
    if (!services || call->lo != 0)
        return;
    snprintf(text, sizeof text, "%s %x %llx %lld", what, call->flags, (unsigned long long)call->context->key,
             (long long)call->context->attempt);
    services->log(services->host, 0, text);
}

static void watched_forward(const tn_layer_call *call)
{
    watched_tell(call, "forward");
    for (int64_t i = call->lo; i < call->lo + call->n; i++)
        tn_reals(call->y)[i] = tn_reals(call->x)[i] / 2;
}

static void watched_backward(const tn_layer_call *call)
{
    watched_tell(call, "backward");
    for (int64_t i = call->lo; i < call->lo + call->n && tn_wants_dx(call); i++)
        tn_reals(call->dx)[i] = tn_reals(call->dy)[i] / 2;
}

static const tn_layer watched_table = {
    .struct_size = sizeof(tn_layer), .infer = watched_infer, .forward = watched_forward, .backward = watched_backward};
TN_COMPONENT(watched, "activation", TN_LAYER, TN_REAL, TN_NO_HYPER, "Half of x, telling of each call",
             TN_AXIS("elements") TN_KEEPS("input"), watched_table);
TN_PLUGIN("org.tenon.test.watched", "0.1.0", "Apache-2.0", watched)
