/* SPDX-License-Identifier: Apache-2.0
 *
 * operand.h: one tensor's slice as it lies in memory: an arena in the real type, a caller's array, or stored through a
 * codec. The chain's inner loops load a block of it as elements of the real type and store it back.
 *
 *   tn_operand p = tn_operand_array(32, data, lo);
 *   float *block = tn_operand_load(&p, at, n, scratch);     the place itself where that will do, else `scratch`, filled
 *   ...                                                     elements n to the next multiple of TN_OPERAND_PAD: anything
 *   tn_operand_store(&p, at, n, block);                     nothing to do where the block is the place
 *
 * Elements have the indices of the logical tensor. A block begins a multiple of 512 elements into a chunk, so on a
 * codec's block, and ends within the chunk; scratch is 64-byte aligned and holds TN_CHUNK elements (or as many as the
 * longest block). A codec's blocks restart at each chunk and are short only at the tensor's end, so a slice that
 * begins on a chunk is stored as it would be within the whole.
 *
 * All functions are re-entrant and allocate nothing; blocks of one operand that do not overlap may be stored at once.
 */
#ifndef TENON_HOST_UPDATE_OPERAND_H
#define TENON_HOST_UPDATE_OPERAND_H

#include "host/update/chain.h"

#define TN_OPERAND_PAD 16 /* `load` gives whole multiples of this */

typedef struct tn_operand {
    char *data;    /* element lo: in the real type, or of a codec's payload; not owned */
    int64_t mask;  /* blocks of n elements with (n & mask) == 0 are used in place; -1: none but empty ones */
    int64_t lo;    /* of the slice; on a chunk */
    uint32_t real; /* 32 or 64 */
    uint32_t flags;
    const tn_codec *codec; /* NULL: the real type */
    const void *hyper;     /* the codec's */
    char *extra;           /* its block scales, from lo's block on */
    uint64_t key;          /* its random key: one an operand */
    const tn_context *context;
} tn_operand;

/* A slice in an arena of parameters.h: aligned to 64 bytes, padded. */
static inline tn_operand tn_operand_arena(uint32_t real, const void *data, int64_t lo)
{
    return (tn_operand){.data = (char *)data, .lo = lo, .real = real};
}

/* A slice in a caller's array: of any alignment, nothing behind its end. */
static inline tn_operand tn_operand_array(uint32_t real, const void *data, int64_t lo)
{
    return (tn_operand){
        .data = (char *)data, .mask = (uintptr_t)data % 64 ? -1 : TN_OPERAND_PAD - 1, .lo = lo, .real = real};
}

/* A slice of n elements behind a codec (without table: as tn_operand_array): the payload at `data`, of any alignment,
 * and the block scales at `extra`, aligned as the codec needs them; `extra` NULL: they follow the payload, as
 * tn_codec_bytes lays it out. flags: TN_CODEC_*. `context` gives the attempt of stochastic rounding, under `key`
 * (see tn_hash_key: seed, the codec's path, and the tensor and slot as purpose); both pointers are kept. */
tn_operand tn_operand_stored(uint32_t real, const tn_codec_use *use, uint32_t flags, const void *data,
                             const void *extra, int64_t lo, int64_t n, uint64_t key, const tn_context *context);

/* n elements from element `at` on into `to`, or back; what tn_operand_load and _store do where the place will not do.
 * n may here be of many chunks. */
void tn_operand_read(const tn_operand *operand, int64_t at, int64_t n, void *to);
void tn_operand_write(const tn_operand *operand, int64_t at, int64_t n, const void *from);

/* The place of element `at` of an operand without a codec. */
static inline void *tn_operand_place(const tn_operand *operand, int64_t at)
{
    return operand->data + (at - operand->lo) * (int64_t)(operand->real / 8);
}

static inline void *tn_operand_load(const tn_operand *operand, int64_t at, int64_t n, void *scratch)
{
    if ((n & operand->mask) == 0)
        return tn_operand_place(operand, at);
    tn_operand_read(operand, at, n, scratch);
    return scratch;
}

static inline void tn_operand_store(const tn_operand *operand, int64_t at, int64_t n, const void *block)
{
    if ((n & operand->mask) != 0 || block != tn_operand_place(operand, at))
        tn_operand_write(operand, at, n, block);
}

/* ---- storage ---- */

/* Bytes of n elements' payload, and of the scales of the blocks that they begin; `codec` NULL: of the real type. Slices
 * on chunks add up. */
int64_t tn_codec_payload(const tn_codec *codec, uint32_t real, int64_t n);
int64_t tn_codec_extra(const tn_codec *codec, int64_t n);
/* Of both in one piece: the payload, up to the next multiple of 16 bytes, the scales. */
int64_t tn_codec_bytes(const tn_codec *codec, uint32_t real, int64_t n);

/* Loads an instance of kind codec into a table that the caller keeps, and makes a use of both; instance NULL: the empty
 * use. TN_E_PLUGIN when its blocks are none that this host cuts to. [load] */
int32_t tn_codec_open(tn_registry *registry, const tn_instance *instance, tn_codec *table, tn_codec_use *ret,
                      tn_error *err);

#endif
