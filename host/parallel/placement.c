/* SPDX-License-Identifier: Apache-2.0
 *
 * placement.c: choosing a layer's form; deriving collectives.
 */
#include "host/parallel/placement.h"

#include <string.h>

/* ---- the form ---- */

/* The axis along which the tensor group splits a parameter, -1: it does not. */
static int32_t axis_of(const tn_placement *rows, int64_t count, int32_t parameter)
{
    for (int64_t i = 0; i < count; i++)
        if (rows[i].tensor_kind == TN_TENSOR_PARAMETER && rows[i].mesh_axis == TN_MESH_TENSOR &&
            rows[i].parameter == parameter && rows[i].place == TN_PLACE_SHARD)
            return rows[i].axis;
    return -1;
}

static int32_t place_of(const json_t *form, const char *key)
{
    const char *word = json_string_value(json_object_get(form, key));
    return !word || !strcmp(word, "whole") ? TN_PLACE_REPLICATE
           : !strcmp(word, "last")         ? TN_PLACE_SHARD
                                           : TN_PLACE_PARTIAL;
}

static tn_split read_form(const json_t *form, int32_t count)
{
    const json_t *parameters = json_object_get(form, "parameters");
    tn_split split = {1, place_of(form, "x"), place_of(form, "y"), count, {0}, json_object_get(form, "rows")};
    for (int32_t k = 0; k < count; k++) {
        const json_t *axis = json_array_get(parameters, (size_t)k);
        split.axis[k] = json_is_integer(axis) ? (int32_t)json_integer_value(axis) : -1;
    }
    return split;
}

int32_t tn_split_choose(const char *layer, const json_t *forms, const tn_placement *rows, int64_t row_count,
                        int32_t first, int32_t count, tn_split *ret, tn_error *err)
{
    tn_split wanted = {.parameters = count};
    for (int32_t k = 0; k < count && k < TN_FLOW_PORTS; k++) {
        wanted.axis[k] = axis_of(rows, row_count, first + k);
        wanted.split |= wanted.axis[k] >= 0;
    }
    for (size_t i = 0; wanted.split && i < json_array_size(forms); i++) {
        const json_t *form = json_array_get(forms, i);
        tn_split offered = read_form(form, count);
        if (!json_is_object(form) || memcmp(offered.axis, wanted.axis, sizeof wanted.axis) != 0)
            continue;
        *ret = offered;
        return TN_OK;
    }
    if (wanted.split)
        return tn_error_set(err, TN_E_UNSUPPORTED,
                            "%s: its parameters are to be split along axes %d, %d, ... (-1: not), which is none of the "
                            "forms that its note offers",
                            layer, wanted.axis[0], count > 1 ? wanted.axis[1] : -1);
    *ret = (tn_split){.parameters = count};
    return TN_OK;
}

/* ---- collectives ---- */

static int32_t between(int32_t have, int32_t need)
{
    static const int32_t table[3][3] = {
        [TN_PLACE_REPLICATE] = {TN_FLOW_NONE, TN_FLOW_SLICE, TN_FLOW_NONE},
        [TN_PLACE_SHARD] = {TN_ALL_GATHER, TN_FLOW_NONE, TN_FLOW_NONE},
        [TN_PLACE_PARTIAL] = {TN_ALL_REDUCE, TN_REDUCE_SCATTER, TN_FLOW_NONE},
    };
    return table[have][need];
}

/* What a node takes: elementwise ones what is there, if it is the same for all inputs. */
static int32_t needed(const tn_flow_node *node, const tn_flow *flows)
{
    if (node->split.split)
        return node->split.x;
    for (int32_t k = 0; k < node->inputs; k++)
        if (!node->elementwise || flows[node->input[k]].y != TN_PLACE_SHARD)
            return TN_PLACE_REPLICATE;
    return TN_PLACE_SHARD;
}

static void derive_node(const tn_flow_node *nodes, const tn_flow_node *node, tn_flow *flows, tn_flow *ret)
{
    int32_t need = needed(node, flows), made = node->split.split ? node->split.y : need;
    /* Of a whole input each process of a split layer sees the part of the gradient that its part of y gives. */
    int32_t left = need == TN_PLACE_REPLICATE && node->split.split ? TN_PLACE_PARTIAL : need;
    ret->y = made == TN_PLACE_PARTIAL ? TN_PLACE_REPLICATE : made;
    ret->after = between(made, ret->y);
    for (int32_t k = 0; k < node->inputs; k++) {
        int32_t have = flows[node->input[k]].y;
        ret->before[k] = between(have, need);
        ret->gradient[k] = nodes[node->input[k]].needs_gradient ? between(left, have) : TN_FLOW_NONE;
    }
}

void tn_flow_derive(const tn_flow_node *nodes, int32_t count, int32_t output, tn_flow *ret)
{
    const tn_flow_node loss = {.inputs = 1, .input = {output}};
    for (int32_t i = 0; i <= count; i++) {
        ret[i] = (tn_flow){.y = TN_PLACE_REPLICATE, .after = TN_FLOW_NONE};
        for (int32_t k = 0; k < TN_FLOW_PORTS; k++)
            ret[i].before[k] = ret[i].gradient[k] = TN_FLOW_NONE;
        if (i > 0)
            derive_node(nodes, i == count ? &loss : &nodes[i], ret, &ret[i]);
    }
}

const char *tn_flow_name(int32_t collective)
{
    switch (collective) {
    case TN_FLOW_NONE:
        return "nothing";
    case TN_FLOW_SLICE:
        return "slice";
    case TN_ALL_REDUCE:
        return "all-reduce";
    case TN_REDUCE_SCATTER:
        return "reduce-scatter";
    default:
        return "all-gather";
    }
}
