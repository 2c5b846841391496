/* SPDX-License-Identifier: Apache-2.0
 *
 * storage.c: tensors rounded to what a narrow type can hold, through a codec's own encode and decode. The numbers stay
 * in memory of the real type: this shows what narrow storage does to training, it saves no memory.
 */
#include "host/graph/internal.h"

/* A whole number of every codec's blocks, which divide 512. */
#define RUN 4096

int64_t tn_storage_bytes(const tn_graph_options *options)
{
    const tn_codec *codec = options->storage.table;
    if (!codec)
        return 0;
    int64_t blocks = RUN / (codec->block > 0 ? codec->block : 1);
    return round_up(RUN * codec->bits / 8, 64) + round_up(blocks * codec->extra_bytes, 64);
}

typedef struct {
    const tn_graph *graph;
    tn_context context;
    const tn_tensor *tensor;
    int64_t elements;
} rounding;

static void round_run(void *arg, int64_t index, int32_t thread)
{
    const rounding *r = arg;
    const tn_codec_use *use = &r->graph->options.storage;
    unsigned char *stored = r->graph->stored + thread * r->graph->stored_bytes;
    int64_t lo = index * RUN, n = r->elements - lo < RUN ? r->elements - lo : RUN;
    tn_codec_call call = {.struct_size = sizeof call,
                          .hyper = use->instance ? use->instance->hyper : NULL,
                          .context = &r->context,
                          .lo = lo,
                          .n = n,
                          .stored = stored,
                          .extra = use->table->extra_bytes ? stored + round_up(RUN * use->table->bits / 8, 64) : NULL,
                          .real = (char *)r->tensor->data + lo * real_bytes(r->graph)};
    use->table->encode(&call);
    use->table->decode(&call);
}

void tn_storage_round(const tn_graph *graph, uint64_t key, const tn_graph_run *run, const tn_tensor *tensor)
{
    if (!graph->options.storage.table || !tensor->data)
        return;
    rounding r = {graph, tn_run_context(graph, key, run), tensor, tn_tensor_elements(tensor)};
    tn_pool_run(graph->options.pool, round_run, &r, ceil_div(r.elements, RUN));
}
