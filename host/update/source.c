/* SPDX-License-Identifier: Apache-2.0
 *
 * source.c: links of stage source, which take the gradient again elsewhere, such as sharpness-aware minimization (Foret
 * et al., ICLR 2021, arXiv:2010.01412): rounds on the gradient at hand, p moved by d, the new gradient, p put back from
 * a copy of its stored bytes.
 */
#include <string.h>

#include "host/update/internal.h"

/* The same operand, stored in the backup. */
static tn_operand backup_of(const tn_chain *chain, int64_t parameter)
{
    const tn_parameter *it = &chain->parameters->list[parameter];
    const char *data = chain->backup + chain->backup_at[parameter];
    return tn_operand_stored(chain->parameters->real, &chain->options.p, 0, data, NULL, it->lo, it->n, 0,
                             &chain->context);
}

/* Stored bytes of a part, which begins on a chunk. */
static void copy_stored(const tn_chain *chain, const tn_part *part, const tn_operand *to, const tn_operand *from)
{
    const tn_codec *codec = from->codec;
    uint32_t real = chain->parameters->real;
    int64_t at = tn_codec_payload(codec, real, part->at), extra = tn_codec_extra(codec, part->at);
    int64_t end = part->at + part->n;
    memcpy(to->data + at, from->data + at, (size_t)(tn_codec_payload(codec, real, end) - at));
    if (from->extra)
        memcpy(to->extra + extra, from->extra + extra, (size_t)(tn_codec_extra(codec, end) - extra));
}

/* p <- p + d for a chunk, which the backup then holds. */
static void move_chunk(const tn_chain *chain, tn_call *call, const tn_part *part, tn_thread *own)
{
    tn_operand p = tn_chain_p(chain, part->parameter), g = tn_chain_g(chain, part->parameter);
    tn_operand backup = backup_of(chain, part->parameter);
    copy_stored(chain, part, &backup, &p);
    for (int64_t at = p.lo + part->at, end = at + part->n, n; at < end; at += n) {
        n = tn_smaller(TN_CHAIN_BLOCK, end - at);
        void *block = tn_operand_load(&p, at, n, own->p);
        call->piece.p = block;
        call->piece.g = tn_operand_load(&g, at, n, own->buffer[TN_BUFFER_G]);
        call->piece.lo = at;
        call->piece.n = (n + TN_CHAIN_PAD - 1) / TN_CHAIN_PAD * TN_CHAIN_PAD;
        call->update(&call->piece);
        tn_kernel_add(chain->parameters->real, block, call->piece.d, 1, n);
        tn_operand_store(&p, at, n, block);
    }
}

static void move_part(const tn_pass *pass, const tn_part *part, int32_t thread)
{
    tn_chain *chain = pass->chain;
    tn_thread *own = &chain->threads[thread];
    tn_call *call = own->calls;
    tn_part chunk = *part;
    if (!chain->moved[part->parameter])
        return;
    tn_call_open(chain, pass->link, part->parameter, own, call);
    call->piece.scale = chain->scale;
    call->piece.d = own->buffer[TN_BUFFER_D];
    for (int64_t end = part->at + part->n; chunk.at < end; chunk.at += chunk.n) {
        chunk.n = tn_smaller(TN_CHUNK, end - chunk.at);
        move_chunk(chain, call, &chunk, own);
    }
}

static void return_part(const tn_pass *pass, const tn_part *part, int32_t thread)
{
    const tn_chain *chain = pass->chain;
    tn_operand p = tn_chain_p(chain, part->parameter), backup = backup_of(chain, part->parameter);
    (void)thread;
    if (chain->moved[part->parameter])
        copy_stored(chain, part, &p, &backup);
}

static int32_t elsewhere(tn_chain *chain, tn_link *link, tn_error *err)
{
    const tn_signals *signals = chain->options.signals;
    double loss;
    tn_pass there = {.chain = chain, .work = move_part, .link = link}, back = there;
    back.work = return_part;
    back.all = 1; /* a parameter without a gradient there may have had one here */
    for (int64_t i = 0; i < chain->parameters->count; i++)
        chain->moved[i] = chain->parameters->present[i] && link->active[i];
    tn_pass_run(&there);
    int32_t status = signals->gradient(signals->user, &loss, err);
    tn_pass_run(&back);
    return status;
}

int32_t tn_source(tn_chain *chain, tn_link *link, int32_t *ret_finite, tn_error *err)
{
    int32_t status = tn_rounds(chain, link, ret_finite, err);
    if (status || !*ret_finite)
        return status;
    status = elsewhere(chain, link, err);
    if (!status)
        *ret_finite = tn_find_bad(chain) < 0;
    return status;
}
