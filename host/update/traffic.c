/* SPDX-License-Identifier: Apache-2.0
 *
 * traffic.c: the bytes that a committed step moves between memory and the chain, from what is planned: what a pass
 * reads once and writes once, block by block. Left out are slots that fold writes, which are small, and what happens
 * outside of the chain: signals, and the products of rules for whole matrices.
 *
 * A round is counted with the gradient, the slots of the links that run dry for it and its own; also with p, where a
 * rule is among them: the host can not know whether it reads it. In stage gradient few do, so there p is left out.
 */
#include "host/update/internal.h"

static int64_t stored(const tn_chain *chain, const tn_codec_use *use, int64_t i)
{
    const tn_codec *codec = use->table;
    int64_t n = chain->parameters->list[i].n;
    return tn_codec_payload(codec, chain->parameters->real, n) + tn_codec_extra(codec, n);
}

static int64_t of_p(const tn_chain *chain, int64_t i) { return stored(chain, &chain->options.p, i); }
static int64_t of_g(const tn_chain *chain, int64_t i) { return stored(chain, &chain->options.g, i); }

/* A link's like-shaped slots. */
static int64_t of_slots(const tn_chain *chain, const tn_link *link, int64_t i)
{
    int64_t bytes = 0;
    for (int32_t j = 0; j < link->slots[i].count; j++) {
        int32_t at = link->slots[i].arena[j];
        if (at >= 0 && link->arenas[at].shape == TN_SHAPE_LIKE)
            bytes += stored(chain, &link->arenas[at].codec, i);
    }
    return bytes;
}

static int is_on(const tn_link *link, int64_t i) { return link->slots && link->active[i]; }

/* One round of a link. */
static int64_t of_round(const tn_chain *chain, const tn_link *link, int64_t i)
{
    int64_t bytes = of_g(chain, i) + of_slots(chain, link, i), dry = 0, rule = link->stage >= TN_LINK_RULE;
    for (const tn_link *before = chain->links; before < link; before++)
        if (is_on(before, i) && before->stage != TN_LINK_SOURCE && before->table.update && !before->items)
            dry += of_slots(chain, before, i);
    if (link->late)
        for (const tn_link *before = chain->links; before < link; before++)
            dry += is_on(before, i) && before->items ? chain->parameters->list[i].n * (int64_t)chain->real : 0;
    return bytes + dry + (rule ? of_p(chain, i) : 0);
}

/* p is kept and moved, then put back; the new gradient is checked. */
static int64_t of_source(const tn_chain *chain, int64_t i) { return 2 * of_g(chain, i) + 5 * of_p(chain, i); }

/* The step of a rule for whole matrices, to memory and back. */
static int64_t of_matrix(const tn_chain *chain, const tn_link *rule, int64_t i)
{
    int64_t bytes = of_g(chain, i) + of_p(chain, i) + 2 * of_slots(chain, rule, i);
    for (const tn_link *before = chain->links; before < rule; before++)
        if (is_on(before, i) && before->stage == TN_LINK_GRADIENT && before->table.update)
            bytes += of_slots(chain, before, i);
    return bytes + 2 * chain->parameters->list[i].n * (int64_t)chain->real;
}

static int64_t of_parameter(const tn_chain *chain, int64_t i)
{
    int64_t bytes = 2 * of_p(chain, i) + (chain->check ? of_g(chain, i) : 0), reads = 0;
    for (const tn_link *link = chain->links; link < chain->links + chain->link_count; link++) {
        if (!is_on(link, i))
            continue;
        bytes += (int64_t)link->round_count * of_round(chain, link, i);
        if (link->stage == TN_LINK_SOURCE)
            bytes += of_source(chain, i);
        else if (link->items)
            bytes += of_matrix(chain, link, i);
        else if (link->table.update)
            bytes += 2 * of_slots(chain, link, i);
        reads |= link->table.update && !link->items && link->stage <= TN_LINK_UPDATE && link->stage != TN_LINK_SOURCE;
    }
    return bytes + (reads ? of_g(chain, i) : 0);
}

int64_t tn_chain_bytes_moved(const tn_chain *chain)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < chain->parameters->count && !chain->minimizer; i++)
        bytes += of_parameter(chain, i);
    return bytes;
}
