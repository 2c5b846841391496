/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor parallelism of pairs of layers. Shoeybi et al. 2019, Megatron-LM, arXiv:1909.08053, section 3: of two linear
 * layers with elementwise layers between, the first is cut by columns of W^T (each process computes a part of the
 * features, weight and bias cut along axis 0), the second by rows (each takes its part of the features, weight cut
 * along axis 1): one all-reduce a pair in forward, one in backward.
 */
#include <tenon/sdk.h>
#include <tenon/strategy.h>

#define HYPER(X) X(integer, skip, 0, "[0, inf) layers", "layers that can be split but stay whole before the first pair")
TN_DECLARE(tensor_pair, HYPER)

/* Is `word` one of the words of `list`? */
static int tensor_pair_offers(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; *at; at += strcspn(at, " "), at += *at == ' ')
        if (strcspn(at, " ") == length && memcmp(at, word, length) == 0)
            return 1;
    return 0;
}

/* The next node from `at` that can be split both ways, or -1. */
static int64_t tensor_pair_next(const tn_plan_graph *graph, int64_t at)
{
    for (; at < graph->nodes; at++)
        if (tensor_pair_offers(graph->node[at].splits, "column") && tensor_pair_offers(graph->node[at].splits, "row"))
            return at;
    return -1;
}

typedef struct {
    tn_placement *rows;
    int64_t room, count;
} tensor_pair_table;

static void tensor_pair_shard(tensor_pair_table *table, int32_t parameter, int32_t axis)
{
    if (table->count < table->room)
        table->rows[table->count] =
            (tn_placement){TN_TENSOR_PARAMETER, parameter, TN_MESH_TENSOR, TN_PLACE_SHARD, axis, 0};
    table->count++;
}

static int64_t tensor_pair_placements(const void *hyper, const tn_mesh *mesh, const tn_plan_graph *graph,
                                      tn_placement *rows, int64_t room, tn_error *err)
{
    const tensor_pair *h = hyper;
    tensor_pair_table table = {rows, room, 0};
    int64_t first = tensor_pair_next(graph, 0);
    for (int64_t i = 0; i < h->skip && first >= 0; i++)
        first = tensor_pair_next(graph, first + 1);
    for (;;) {
        int64_t second = first < 0 ? -1 : tensor_pair_next(graph, first + 1);
        if (second < 0)
            return table.count;
        const tn_plan_node *column = &graph->node[first], *row = &graph->node[second];
        int64_t features = graph->parameter[column->parameter].shape[0];
        if (features % mesh->tensor)
            return -tn_fail(err, TN_E_INVALID,
                            "strategy tensor-pair: %s has %lld features, needed a multiple of %d, the mesh's `tensor`",
                            column->name, (long long)features, mesh->tensor);
        for (int32_t k = 0; k < column->parameters; k++)
            tensor_pair_shard(&table, column->parameter + k, 0);
        tensor_pair_shard(&table, row->parameter, 1);
        first = tensor_pair_next(graph, second + 1);
    }
}

static const tn_strategy tensor_pair_table_ = {.struct_size = sizeof(tn_strategy),
                                               .placements = tensor_pair_placements};

TN_COMPONENT(tensor_pair, "strategy", TN_STRATEGY, 0u, HYPER, "Pairs of linear layers cut by columns, then by rows",
             TN_PAPER("arXiv:1909.08053") TN_FORMULA("y = sum over processes of f(x A_r^T) B_r^T"), tensor_pair_table_);
TN_PLUGIN("org.tenon.tensor-pair", "0.1.0", "Apache-2.0", tensor_pair)
