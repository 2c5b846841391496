/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h: what the files of the chain share. Nobody else but test_chain.c includes it.
 *
 *   layout.c  the parameters' layout: checks, and the cuts at which work is handed to threads
 *   link.c    one link: its note, its table, its state
 *   chain.c   the chain: creation, accessors
 *   step.c    one update
 *   kernel.c  its own loops over elements
 */
#ifndef TENON_HOST_UPDATE_INTERNAL_H
#define TENON_HOST_UPDATE_INTERNAL_H

#include "host/base/exact.h"
#include "host/update/chain.h"

#define TN_CHAIN_BLOCK   512   /* elements a call of `update`: what it touches stays in L1; divides TN_CHUNK */
#define TN_CHAIN_STRETCH 65536 /* elements a thread takes at a time, at least; whole chunks */
#define TN_CHAIN_PAD     16    /* `update` gets whole multiples of this */
#define TN_CHAIN_SLOTS   16    /* of one link for one parameter, at most */

enum { TN_LINK_SOURCE, TN_LINK_GRADIENT, TN_LINK_RULE, TN_LINK_UPDATE, TN_LINK_WRITE, TN_LINK_AFTER };

typedef struct tn_round {
    int32_t tensor; /* 1: one sum a tensor; 0: one for the model */
    int32_t scalars;
} tn_round;

/* One slot of a link for all parameters that have it, in their layout. */
typedef struct tn_arena {
    char *name;
    char *init; /* "zero", "one", "parameter" */
    int32_t persistent;
    void *block; /* what to free */
    char *data;
} tn_arena;

/* Which arenas tn_piece.slot points into, for one parameter. */
typedef struct tn_slot_list {
    int32_t count;
    int32_t arena[TN_CHAIN_SLOTS];
} tn_slot_list;

typedef struct tn_link {
    const tn_instance *instance;
    tn_optimizer table; /* what the plugin's own lacks is NULL */
    int32_t stage;      /* TN_LINK_* */
    tn_round *rounds;
    size_t round_count;
    int32_t per_tensor; /* 1: a round has one sum a tensor, so each parameter has its own k */
    tn_arena *arenas;
    int32_t arena_count;
    tn_slot_list *slots; /* [parameters] */
    int64_t scratch;     /* bytes for each call of `update` */
    char *k;             /* [parameters, or clocks in use] of k_size bytes */
    size_t k_size;
    tn_report *reports; /* into the chain's; NULL if it reports nothing */
    size_t report_count;
    tn_context context;
} tn_link;

/* A place in the order of the elements: element `at` of the slice of parameter `parameter`. */
typedef struct tn_cut {
    int64_t parameter, at;
} tn_cut;

/* A link's `update` as it goes from block to block. */
typedef struct tn_call {
    void (*update)(const tn_piece *piece);
    tn_piece piece; /* slot points at the next line */
    void *slot[TN_CHAIN_SLOTS];
    int32_t slots;
    int32_t g_in_arena; /* 1: g goes along; 0: it is in a buffer of the thread */
} tn_call;

/* One thread's own. */
typedef struct tn_thread {
    tn_call *calls;    /* [links] */
    void *gradient[2]; /* TN_CHAIN_BLOCK elements each */
    void *d;
    void *scratch;   /* what links asked for */
    double *scalars; /* of one partial */
    tn_exact *sums;  /* of one round over the model */
    int64_t bad;     /* the first parameter it found with a gradient that is not finite */
} tn_thread;

struct tn_chain {
    tn_chain_options options;
    const tn_parameters *parameters;
    size_t real; /* bytes of the real type */
    tn_link *links;
    size_t link_count;
    int32_t check; /* asked for: read the gradients for a finite check of their own before the first write */
    tn_report *reports;
    size_t report_count;
    tn_chain_slot *slots;
    size_t slot_count;
    const tn_arena *view; /* NULL: p */

    int64_t update;
    int64_t *clocks; /* [parameters]: committed updates */

    tn_cut *cuts; /* [item_count + 1] */
    int64_t item_count;
    tn_thread *threads;
    void *scratch;      /* what `threads` points into */
    int64_t *chunk_at;  /* [parameters + 1]: chunks before each parameter; NULL unless a round has a sum a tensor */
    double *chunk_sums; /* [chunks][scalars] of such a round */

    /* of one step */
    double scale;
    tn_clock *clock; /* [parameters]: the distinct clocks of the present parameters */
    int64_t clock_count;
    int64_t *clock_of; /* [parameters]: index into clock */
    double *sums;      /* of one scope, rounded */
    double *report;    /* of one fold */
};

/* ---- layout.c ---- */

/* Is the layout as parameters.h says, on chunks, each tensor there once? TN_E_INVALID naming the parameter. [main] */
int32_t tn_layout_check(const tn_parameters *parameters, tn_error *err);
/* Cuts the elements into stretches of at least `stretch`, a multiple of TN_CHUNK, the last one excepted. The caller
 * frees *ret, ret_count + 1 cuts. TN_E_MEMORY. [main] */
int32_t tn_layout_cut(const tn_parameters *parameters, int64_t stretch, tn_cut **ret, int64_t *ret_count,
                      tn_error *err);

/* ---- link.c ---- */

/* Reads the note, loads the table and refuses what this host can not drive. The link is zeroed before and is freed by
 * tn_link_free also after a failure. [main] */
int32_t tn_link_open(const tn_chain_options *options, tn_instance *instance, tn_link *link, tn_error *err);
/* Plans the slots of every parameter, allocates and initialises them and the constants. `ordinal`: how many arenas the
 * links before it have. [main] */
int32_t tn_link_plan(const tn_parameters *parameters, size_t ordinal, tn_link *link, tn_error *err);
/* TN_E_INVALID if the link would now plan other slots for a parameter than it has. [main] */
int32_t tn_link_check_plan(const tn_parameters *parameters, const tn_link *link, tn_error *err);
void tn_link_free(tn_link *link);
/* The link's k for a parameter. */
void *tn_link_k(const tn_chain *chain, const tn_link *link, int64_t parameter);

/* ---- kernel.c; `real` is 32 or 64, any thread ---- */

/* p <- keep * p + d for n elements. Where keep is 1 and d is 0, p keeps its bits. */
void tn_kernel_add(uint32_t real, void *p, const void *d, double keep, int64_t n);
/* 1 if none of n elements is inf or nan. */
int32_t tn_kernel_finite(uint32_t real, const void *x, int64_t n);

#endif
