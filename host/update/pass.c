/* SPDX-License-Identifier: Apache-2.0
 *
 * pass.c: passes over the elements. A pass hands parts of parameters to threads; within a part the links are called
 * block by block, so that what one leaves in cache is what the next one reads. What is done for a chunk depends on that
 * chunk only, so neither the number of threads nor the cuts change a bit.
 */
#include <string.h>

#include "host/update/internal.h"

/* ---- parts ---- */

static void do_cut(void *arg, int64_t index, int32_t thread)
{
    const tn_pass *p = arg;
    const tn_parameters *parameters = p->chain->parameters;
    const tn_cut *from = &p->chain->cuts[index], *to = from + 1;
    for (int64_t i = from->parameter; i < parameters->count && i <= to->parameter; i++) {
        int64_t at = i == from->parameter ? from->at : 0, end = i == to->parameter ? to->at : parameters->list[i].n;
        tn_part part = {i, at, end - at, -1};
        if ((parameters->present[i] || p->all) && at < end)
            p->work(p, &part, thread);
    }
}

static void do_band(void *arg, int64_t index, int32_t thread)
{
    const tn_pass *p = arg;
    const tn_part *part = &p->chain->bands[index].part;
    if (p->chain->parameters->present[part->parameter])
        p->work(p, part, thread);
}

void tn_pass_run(tn_pass *pass) { tn_pool_run(pass->chain->options.pool, do_cut, pass, pass->chain->item_count); }

void tn_pass_bands(tn_pass *pass)
{
    tn_pool_run(pass->chain->options.pool, do_band, pass, pass->chain->band_at[pass->chain->parameters->count]);
}

/* ---- operands ---- */

/* A slice in an arena of the caller, which has no room for block scales (tn_chain_create refuses them). */
static tn_operand operand_of(const tn_chain *chain, const tn_codec_use *use, void *const *of, const void *arena,
                             int64_t i, uint64_t key)
{
    const tn_parameters *parameters = chain->parameters;
    const tn_parameter *parameter = &parameters->list[i];
    const void *data =
        of ? of[i] : (const char *)arena + tn_codec_payload(use->table, parameters->real, parameters->at[i]);
    if (!of && !use->table)
        return tn_operand_arena(parameters->real, data, parameter->lo);
    return tn_operand_stored(parameters->real, use, 0, data, NULL, parameter->lo, parameter->n, key, &chain->context);
}

tn_operand tn_chain_p(const tn_chain *chain, int64_t parameter)
{
    return operand_of(chain, &chain->options.p, chain->parameters->p_of, chain->parameters->p, parameter,
                      chain->p_key ? chain->p_key[parameter] : 0);
}

tn_operand tn_chain_g(const tn_chain *chain, int64_t parameter)
{
    return operand_of(chain, &chain->options.g, chain->parameters->g_of, chain->parameters->g, parameter, 0);
}

/* ---- the links of a part ---- */

static double scale_of(const tn_chain *chain, const tn_link *link, int64_t parameter)
{
    return link->table.scale ? link->table.scale(tn_link_k(chain, link, parameter)) : 1;
}

static double keep_of(const tn_chain *chain, const tn_link *link, int64_t parameter)
{
    return link->table.keep ? link->table.keep(tn_link_k(chain, link, parameter)) : 1;
}

void tn_call_open(const tn_chain *chain, const tn_link *link, int64_t parameter, tn_thread *own, tn_call *ret)
{
    const tn_slot_list *slots = &link->slots[parameter];
    ret->link = link;
    ret->update = link->table.update;
    ret->slots = slots->count;
    ret->from = ret->to = TN_BUFFER_NONE;
    ret->dry = ret->loads = 0;
    ret->piece = (tn_piece){.struct_size = sizeof(tn_piece),
                            .parameter = &chain->parameters->list[parameter],
                            .context = &link->context,
                            .hyper = link->instance->hyper,
                            .k = tn_link_k(chain, link, parameter),
                            .scale = 1,
                            .slot = slots->count ? ret->slot : NULL,
                            .scratch = own->scratch};
    for (int32_t j = 0; j < slots->count; j++) {
        const tn_arena *arena = slots->arena[j] < 0 ? NULL : &link->arenas[slots->arena[j]];
        const tn_operand *like = arena && arena->operand ? &arena->operand[parameter] : NULL;
        ret->place[j] = like && !like->codec ? like->data : NULL;
        ret->like[j] = like && like->codec ? like : NULL;
        ret->slot[j] = arena && arena->copy ? tn_arena_copy(arena, parameter) : NULL;
        ret->loads |= ret->like[j] != NULL;
    }
}

void tn_call_load(tn_call *call, int64_t at, int64_t n, const tn_thread *own)
{
    size_t real = call->link->real, offset = (size_t)(at - call->piece.parameter->lo) * real;
    for (int32_t j = 0; j < call->slots; j++)
        if (call->place[j] && call->dry)
            tn_kernel_copy(call->slot[j] = own->slot[j], call->place[j] + offset, (size_t)n * real);
        else if (call->place[j])
            call->slot[j] = call->place[j] + offset;
        else if (call->like[j])
            tn_operand_read(call->like[j], at, n, call->slot[j] = own->slot[j]);
}

static void store(const tn_call *call, int64_t at, int64_t n)
{
    for (int32_t j = 0; j < call->slots; j++)
        if (call->like[j])
            tn_operand_write(call->like[j], at, n, call->slot[j]);
}

static tn_call *add_call(tn_run *run, const tn_link *link)
{
    tn_call *call = &run->calls[run->count++];
    tn_call_open(run->chain, link, run->parameter, run->own, call);
    run->slots += call->slots;
    return call;
}

/* What it reads and where it puts its result. */
static void connect(tn_run *run, const tn_link *link, tn_call *call)
{
    call->to = TN_BUFFER_D;
    call->piece.scale = run->keep;
    if (link->stage == TN_LINK_WRITE) {
        run->set = 1;
        return;
    }
    call->from = run->gradient;
    call->piece.scale = run->scale;
    run->reads |= call->from == TN_BUFFER_G;
    if (link->stage == TN_LINK_GRADIENT) {
        call->to = run->gradient = run->gradient == TN_BUFFER_1 ? TN_BUFFER_2 : TN_BUFFER_1;
        run->scale = 1;
    }
}

static void add_link(tn_run *run, const tn_link *link, int32_t kind)
{
    int32_t whole = link->items != NULL;
    tn_call *call = link->table.update && !(whole && kind != TN_RUN_STEP) ? add_call(run, link) : NULL;
    if (link->stage == TN_LINK_AFTER)
        return;
    run->before = run->count;
    run->given |= whole;
    run->stepped |= link->stage >= TN_LINK_RULE;
    if (call) {
        call->dry = kind == TN_RUN_DRY || (kind == TN_RUN_STEP && !whole);
        connect(run, link, call);
    }
    run->scale *= scale_of(run->chain, link, run->parameter);
    run->keep *= keep_of(run->chain, link, run->parameter);
}

void tn_run_open(tn_chain *chain, int64_t parameter, int32_t kind, const tn_link *stop, tn_thread *own, tn_run *ret)
{
    *ret = (tn_run){.chain = chain,
                    .own = own,
                    .parameter = parameter,
                    .p = tn_chain_p(chain, parameter),
                    .g = tn_chain_g(chain, parameter),
                    .calls = own->calls,
                    .keep = 1,
                    .scale = chain->scale};
    for (const tn_link *link = chain->links; link < stop; link++)
        if (link->active[parameter] && link->stage != TN_LINK_SOURCE && link->slots &&
            (kind != TN_RUN_AFTER || link->stage == TN_LINK_AFTER) &&
            (kind != TN_RUN_STEP || link->stage <= TN_LINK_RULE))
            add_link(ret, link, kind);
}

/* ---- blocks ---- */

/* Elements of a call of `update`, as the loads, products and stores of neighbouring calls then overlap best; but a
 * codec's blocks may be as long as TN_CHAIN_BLOCK. */
#define BLOCK 256

static int64_t block_length(const tn_run *run)
{
    int32_t coded = run->p.codec || run->g.codec;
    for (int32_t i = 0; i < run->count; i++)
        coded |= run->calls[i].loads;
    return coded ? TN_CHAIN_BLOCK : BLOCK;
}

/* What a block's calls share. */
typedef struct block {
    const void *p;
    void *const *buffer;
    int64_t at, n, padded; /* of the logical tensor */
    size_t offset;         /* bytes from the slice's first element */
} block;

static inline block block_of(const tn_run *run, const void *p, int64_t at, int64_t n)
{
    /* The padding's content never matters; whole multiples spare vector code its tails. */
    int64_t padded = (n + TN_CHAIN_PAD - 1) / TN_CHAIN_PAD * TN_CHAIN_PAD;
    return (block){p, run->buffer, at, n, padded, (size_t)(at - run->p.lo) * run->chain->real};
}

static void do_calls(tn_call *calls, int32_t count, const block *b, const tn_thread *own)
{
    for (tn_call *call = calls; call < calls + count; call++) {
        if (call->loads || call->dry)
            tn_call_load(call, b->at, b->n, own);
        else
            for (int32_t j = 0; j < call->slots; j++)
                call->slot[j] = call->place[j] ? call->place[j] + b->offset : call->slot[j];
        call->piece.lo = b->at;
        call->piece.n = b->padded;
        call->piece.p = b->p;
        call->piece.g = b->buffer[call->from];
        call->piece.d = b->buffer[call->to];
        call->update(&call->piece);
        if (call->loads && !call->dry)
            store(call, b->at, b->n);
    }
}

static void *step_of(const tn_run *run, int64_t at)
{
    const tn_parameters *parameters = run->chain->parameters;
    int64_t element = parameters->at[run->parameter] + at - parameters->list[run->parameter].lo;
    return run->chain->step + (size_t)element * run->chain->real;
}

/* Where links have no slots, p is asked for while they run: sgd gained a tenth. Others have enough on the way, and
 * clip-norm, adamw, ema lost a tenth. */
static void ask_for(const tn_run *run, const char *p, int64_t n)
{
    size_t bytes = run->slots ? 0 : (size_t)n * run->chain->real;
    for (size_t at = 0; at < bytes; at += 64)
        __builtin_prefetch(p + at, 1);
}

static void write_block(tn_run *run, int64_t at, int64_t n)
{
    tn_thread *own = run->own;
    void *p = tn_operand_load(&run->p, at, n, own->p);
    const block b = block_of(run, p, at, n);
    if (run->reads)
        run->buffer[TN_BUFFER_G] = tn_operand_load(&run->g, at, n, own->buffer[TN_BUFFER_G]);
    if (run->given)
        run->buffer[TN_BUFFER_D] = step_of(run, at);
    ask_for(run, p, n);
    do_calls(run->calls, run->before, &b, own);
    if (run->set)
        memcpy(p, run->buffer[TN_BUFFER_D], (size_t)n * run->chain->real);
    else
        tn_kernel_add(run->chain->parameters->real, p, run->buffer[TN_BUFFER_D], run->keep, n);
    if (run->p.mask)
        tn_operand_store(&run->p, at, n, p);
    if (run->p.codec && run->count > run->before) /* as it is now, rounded */
        tn_operand_read(&run->p, at, n, p);
    do_calls(run->calls + run->before, run->count - run->before, &b, own);
}

static void open_buffers(tn_run *run)
{
    for (int i = 0; i < TN_BUFFER_NONE; i++)
        run->buffer[i] = run->own->buffer[i];
}

void tn_run_write(const tn_pass *pass, const tn_part *part, int32_t thread)
{
    tn_chain *chain = pass->chain;
    tn_run run;
    tn_run_open(chain, part->parameter, TN_RUN_WRITE, chain->links + chain->link_count, &chain->threads[thread], &run);
    open_buffers(&run);
    int64_t length = block_length(&run);
    for (int64_t at = run.p.lo + part->at, end = at + part->n, n; at < end; at += n)
        write_block(&run, at, n = tn_smaller(length, end - at));
}

/* All calls over a part, p staying as it is. */
static void run_calls(const tn_pass *pass, const tn_part *part, int32_t thread, int32_t kind)
{
    tn_chain *chain = pass->chain;
    tn_run run;
    tn_run_open(chain, part->parameter, kind, chain->links + chain->link_count, &chain->threads[thread], &run);
    open_buffers(&run);
    int64_t length = block_length(&run);
    int32_t some = kind == TN_RUN_STEP ? run.given : run.count;
    for (int64_t at = run.p.lo + part->at, end = at + part->n, n; at < end && some; at += n) {
        n = tn_smaller(length, end - at);
        const block b = block_of(&run, tn_operand_load(&run.p, at, n, run.own->p), at, n);
        if (run.given) {
            run.buffer[TN_BUFFER_G] = tn_operand_load(&run.g, at, n, run.own->buffer[TN_BUFFER_G]);
            run.buffer[TN_BUFFER_D] = step_of(&run, at);
        }
        do_calls(run.calls, run.count, &b, run.own);
    }
}

void tn_run_step(const tn_pass *pass, const tn_part *part, int32_t thread)
{
    run_calls(pass, part, thread, TN_RUN_STEP);
}

void tn_run_after(const tn_pass *pass, const tn_part *part, int32_t thread)
{
    run_calls(pass, part, thread, TN_RUN_AFTER);
}

void tn_run_dry(tn_run *run, int64_t at, int64_t n)
{
    size_t real = run->chain->real;
    int64_t length = block_length(run);
    open_buffers(run);
    run->block = tn_operand_load(&run->p, at, n, run->own->p);
    if (run->reads || run->gradient == TN_BUFFER_G)
        run->buffer[TN_BUFFER_G] = tn_operand_load(&run->g, at, n, run->own->buffer[TN_BUFFER_G]);
    if (run->given)
        memcpy(run->buffer[TN_BUFFER_D], step_of(run, at), (size_t)n * real);
    for (int64_t done = 0, of; done < n && run->count; done += of) {
        void *buffer[TN_BUFFERS] = {NULL};
        of = tn_smaller(length, n - done);
        for (int i = 0; i < TN_BUFFER_NONE; i++)
            buffer[i] = (char *)run->buffer[i] + (size_t)done * real;
        block b = block_of(run, (char *)run->block + (size_t)done * real, at + done, of);
        b.buffer = buffer;
        do_calls(run->calls, run->count, &b, run->own);
    }
}
