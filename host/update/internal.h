/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h: what the files of the chain share. Nobody else but the chain's tests includes it.
 *
 *   layout.c   the parameters' layout: checks, and the cuts at which work is handed to threads
 *   route.c    which parameters each link is on, and the order of the links
 *   link.c     one link: its note and its table
 *   plan.c     the slots that it plans, and planning again to compare
 *   state.c    their memory: arenas, copies for fold, the list for checkpoints
 *   chain.c    the chain: creation, accessors
 *   scratch.c  what a step needs
 *   pass.c     passes over the elements: the links of a part, called block by block
 *   rounds.c   partial, sums, fold
 *   source.c   gradients taken again elsewhere
 *   step.c     one update
 *   traffic.c  the bytes that it moves
 *   kernel.c   its own loops over elements
 */
#ifndef TENON_HOST_UPDATE_INTERNAL_H
#define TENON_HOST_UPDATE_INTERNAL_H

#include "host/base/exact.h"
#include "host/plugin/slot.h"
#include "host/update/chain.h"
#include "host/update/matrix.h"
#include "host/update/minimizer.h"
#include "host/update/operand.h"

#define TN_CHAIN_BLOCK   512   /* elements a call of `update`: what it touches stays in L1; divides TN_CHUNK */
#define TN_CHAIN_STRETCH 65536 /* elements a thread takes at a time, at least; whole chunks */
#define TN_CHAIN_PAD     16    /* `update` gets whole multiples of this */
#define TN_CHAIN_SLOTS   16    /* of one link for one parameter, at most */

enum { TN_LINK_SOURCE, TN_LINK_GRADIENT, TN_LINK_RULE, TN_LINK_UPDATE, TN_LINK_WRITE, TN_LINK_AFTER };

typedef struct tn_round {
    int32_t tensor; /* 1: sums a tensor; 0: over all parameters that the link is on */
    int32_t max;    /* 1: the largest numbers, not sums */
    int32_t scalars, rows, columns;
} tn_round;

/* One slot of a link, for all parameters that have it. */
typedef struct tn_arena {
    char *name;
    char *init;    /* "zero", "one", "parameter" */
    int32_t shape; /* TN_SHAPE_* */
    int32_t count; /* scalar and global: f64 */
    int32_t persistent;
    int32_t nonnegative;
    tn_codec_use codec; /* like; without table: the real type */
    int64_t *at;        /* [parameters] where each one's begins, in bytes; -1: it has none */
    void *block;        /* what to free */
    char *data;
    int64_t bytes;
    tn_operand *operand; /* [parameters] like */
    char *copy;          /* others: what fold writes and everyone reads; becomes data at the commit */
    char *spare;         /* global: the copy before a round's first fold */
} tn_arena;

/* What tn_piece.slot points at, for one parameter. */
typedef struct tn_slot_list {
    int32_t count;
    int32_t arena[TN_CHAIN_SLOTS]; /* -1: a slot of an item, which is no piece's */
} tn_slot_list;

typedef struct tn_link {
    const tn_instance *instance;
    tn_optimizer table; /* what the plugin's own lacks is NULL */
    int32_t stage;      /* TN_LINK_* */
    size_t real;        /* bytes of the real type */
    uint8_t *active;    /* [parameters] 1 where it is on */
    int64_t first;      /* the first parameter that it is on, or -1 */
    tn_round *rounds;
    size_t round_count;
    int32_t per_tensor; /* 1: a round has sums a tensor, so each parameter has its own k */
    int32_t late;       /* 1: its rounds need a step that is there after the vote only */
    int32_t layer;      /* 1: grain layer */
    tn_arena *arenas;
    int32_t arena_count;
    tn_slot_list *slots; /* [parameters] */
    tn_items *items;     /* of a rule for whole matrices; else NULL */
    int64_t scratch;     /* bytes for each call of `update` */
    char *k;             /* [parameters, or clocks in use] of k_size bytes */
    size_t k_size;
    uint8_t *used;      /* the like: 1 where a present parameter uses that k in this step */
    int32_t shared;     /* 1: its sums are over processes, as it is on parameters that they hold slices of */
    tn_report *reports; /* into the chain's; NULL if it reports nothing */
    size_t report_count;
    tn_context context;
} tn_link;

/* A place in the order of the elements: element `at` of the slice of parameter `parameter`. */
typedef struct tn_cut {
    int64_t parameter, at;
} tn_cut;

/* n elements of a parameter's slice from element `at` on, within a band or in none (-1). */
typedef struct tn_part {
    int64_t parameter, at, n, band;
} tn_part;

/* Whole chunks whose row and column sums one thread adds, in order. The grid of bands belongs to the logical tensor. */
typedef struct tn_band {
    tn_part part;
    int64_t row;     /* its first one */
    int64_t rows;    /* before this band's in the partial sums, of one vector */
    int64_t columns; /* likewise */
} tn_band;

/* The buffers that links pass on. */
enum { TN_BUFFER_G, TN_BUFFER_1, TN_BUFFER_2, TN_BUFFER_D, TN_BUFFER_NONE, TN_BUFFERS };

/* A link's `update` as it goes from block to block. */
typedef struct tn_call {
    const tn_link *link;
    void (*update)(const tn_piece *piece);
    tn_piece piece;                         /* slot points at `slot` */
    char *place[TN_CHAIN_SLOTS];            /* of those used in place, the slice's first element */
    const tn_operand *like[TN_CHAIN_SLOTS]; /* of those loaded and stored; both NULL: whole */
    void *slot[TN_CHAIN_SLOTS];
    int32_t slots;
    int32_t loads;    /* 1: some are loaded */
    int32_t from, to; /* TN_BUFFER_* */
    int32_t dry;      /* 1: on copies of like-shaped slots */
} tn_call;

/* One thread's own. */
typedef struct tn_thread {
    tn_call *calls; /* [links + 1] */
    void *p;        /* TN_CHUNK elements each */
    void *buffer[TN_BUFFER_NONE];
    void *slot[TN_CHAIN_SLOTS];
    void *scratch;   /* what links asked for */
    double *scalars; /* of one partial */
    double *rows;    /* likewise */
    double *columns; /* likewise; 0 between calls */
    double *maxima;  /* of one round over the model */
    tn_exact *sums;  /* of one round over the model */
    int64_t bad;     /* the first parameter it found with a gradient that is not finite */
} tn_thread;

struct tn_chain {
    tn_chain_options options;
    const tn_parameters *parameters;
    size_t real; /* bytes of the real type */
    tn_link *links;
    size_t link_count;
    int32_t check;  /* asked for: read the gradients for a finite check of their own before the first write */
    int32_t voting; /* 1: a step may be skipped */
    int32_t rank, size;
    tn_report *reports;
    size_t report_count;
    tn_chain_slot *slots;
    size_t slot_count;
    tn_arena *view; /* NULL: p */
    const tn_link *view_link;
    tn_minimizer_link *minimizer; /* NULL: the rules are links */
    size_t minimizer_at;          /* which link it is */
    tn_context context;           /* of codecs */
    uint64_t *p_key;              /* [parameters] of p's codec; NULL without */

    int64_t update, next_attempt;
    int64_t *clocks; /* [parameters]: committed updates */

    tn_cut *cuts; /* [item_count + 1] */
    int64_t item_count;
    tn_thread *threads;
    void *scratch;       /* what `threads` points into */
    int64_t *chunk_at;   /* [parameters + 1]: chunks before each parameter; NULL unless a round has sums a tensor */
    double *chunk_sums;  /* [chunks][scalars] of such a round */
    double *tensor_sums; /* [parameters][scalars] */
    tn_exact *exact;     /* [exact_count] of one batch of tensors */
    int64_t exact_count;
    tn_band *bands;      /* of all parameters that a round with rows or columns sees; NULL without */
    int64_t *band_at;    /* [parameters + 1] */
    int64_t *rows_at;    /* [parameters + 1] rows before each parameter's in `vectors` */
    int64_t *columns_at; /* likewise */
    double *thread_sums; /* what `threads` points into: rows and columns */
    double *band_rows;   /* partial sums of the bands */
    double *band_columns;
    double *vectors; /* sums of a round: of each parameter its rows, then its columns */
    char *step;      /* steps of rules for whole matrices, in the parameters' layout; NULL without */
    void *step_block;
    char *backup;       /* p as stored, of source links; NULL without */
    int64_t *backup_at; /* [parameters + 1] bytes */
    uint8_t *moved;     /* [parameters] 1: p is elsewhere, the backup holds it */

    /* of one step */
    double scale;
    tn_clock *clock; /* [parameters]: the distinct clocks of the present parameters */
    int64_t clock_count;
    int64_t *clock_of; /* [parameters]: index into clock */
    double *sums;      /* of one scope, rounded */
    double *report;    /* of one fold */
};

static inline int64_t tn_smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- layout.c ---- */

/* Is the layout as parameters.h says, on chunks, each tensor there once? TN_E_INVALID naming the parameter. [main] */
int32_t tn_layout_check(const tn_parameters *parameters, tn_error *err);
/* Cuts the elements into stretches of at least `stretch`, a multiple of TN_CHUNK, the last one excepted. The caller
 * frees *ret, ret_count + 1 cuts. TN_E_MEMORY. [main] */
int32_t tn_layout_cut(const tn_parameters *parameters, int64_t stretch, tn_cut **ret, int64_t *ret_count,
                      tn_error *err);
/* The matrix view; 0 and 0 for fewer than two axes. */
void tn_layout_view(const tn_parameter *parameter, int64_t *ret_rows, int64_t *ret_columns);
/* The bands of a parameter's slice, numbered from 0: how many, and the one at `index` but for its rows and columns. */
int64_t tn_layout_bands(const tn_parameter *parameter);
tn_part tn_layout_band(const tn_parameter *parameter, int64_t index);

/* ---- route.c ---- */

/* Sets `active` of every link: each parameter gets one rule. TN_E_INVALID naming parameter and links. [main] */
int32_t tn_route(tn_chain *chain, tn_error *err);
/* Are the links in the order of their stages, called by different names, and at most one the writer of a parameter?
 * [main] */
int32_t tn_route_order(const tn_chain *chain, tn_error *err);

/* ---- link.c ---- */

/* Reads the note, loads the table and refuses what this host can not drive. The link is zeroed before and is freed by
 * tn_link_free also after a failure. [main] */
int32_t tn_link_open(const tn_chain_options *options, tn_instance *instance, tn_link *link, tn_error *err);
void tn_link_free(tn_link *link);
int32_t tn_link_no_memory(const tn_link *link, tn_error *err);
int32_t tn_link_not_driven(const tn_link *link, const char *fact, const char *word, tn_error *err);
int32_t tn_link_bad_note(const tn_link *link, const char *what, tn_error *err);
/* The link's k for a parameter. */
void *tn_link_k(const tn_chain *chain, const tn_link *link, int64_t parameter);

/* ---- plan.c ---- */

/* Plans the slots and items of every parameter that the link is on. [main] */
int32_t tn_link_plan(const tn_chain *chain, tn_link *link, tn_error *err);
/* TN_E_INVALID if the link would now plan other slots for a parameter than it has. [main] */
int32_t tn_link_check_plan(const tn_chain *chain, const tn_link *link, tn_error *err);

/* ---- state.c ---- */

/* The memory of what is planned, initialised. `ordinal`: how many arenas the links before it have. [main] */
int32_t tn_link_allocate(const tn_chain *chain, size_t ordinal, tn_link *link, tn_error *err);
/* Whole slots: copies for a step's folds; the copies become the state. */
void tn_link_copy(tn_link *link);
void tn_link_commit(tn_link *link);
/* The place that fold writes and pieces read; NULL where the parameter has no such slot. */
void *tn_arena_copy(const tn_arena *arena, int64_t parameter);
/* Fills chain->slots. */
int32_t tn_state_list(tn_chain *chain, tn_error *err);
int64_t tn_state_bytes(const tn_chain *chain);

/* ---- scratch.c ---- */

/* What steps need beyond state: thread buffers, sums, backups. [main] */
int32_t tn_scratch_create(tn_chain *chain, tn_error *err);
void tn_scratch_free(tn_chain *chain);

/* ---- pass.c ---- */

typedef struct tn_pass tn_pass;
struct tn_pass {
    tn_chain *chain;
    void (*work)(const tn_pass *pass, const tn_part *part, int32_t thread);
    tn_link *link; /* of a round, or of a source */
    int32_t round;
    int32_t all; /* 1: absent parameters too */
};
/* Calls work for parts that cover all elements of present parameters. */
void tn_pass_run(tn_pass *pass);
/* Likewise for the bands of parameters that have them. */
void tn_pass_bands(tn_pass *pass);

enum {
    TN_RUN_WRITE, /* all links */
    TN_RUN_DRY,   /* those before `stop`, on copies */
    TN_RUN_STEP,  /* up to the rule, which is one for whole matrices: its slots and the step, the others on copies */
    TN_RUN_AFTER, /* those of stage after */
};

/* The links of one part. */
typedef struct tn_run {
    tn_chain *chain;
    tn_thread *own;
    int64_t parameter;
    tn_operand p, g;
    tn_call *calls; /* of the thread; the first `before` come before the write, those up to `count` after it */
    int32_t before, count;
    int32_t reads; /* 1: someone reads the gradient as it came */
    int32_t set;   /* 1: a link has left in d what p becomes */
    int32_t given; /* 1: the rule's step lies in chain->step */
    int32_t stepped;
    int32_t slots; /* of all calls */
    double keep;
    int32_t gradient; /* TN_BUFFER_* that holds it now */
    double scale;     /* to be multiplied by this */
    void *block;      /* p's elements, of a dry run */
    void *buffer[TN_BUFFERS];
} tn_run;

tn_operand tn_chain_p(const tn_chain *chain, int64_t parameter);
tn_operand tn_chain_g(const tn_chain *chain, int64_t parameter);
void tn_run_open(tn_chain *chain, int64_t parameter, int32_t kind, const tn_link *stop, tn_thread *own, tn_run *ret);
/* A call of a link that is in no run: its piece but for the round, the gradient, d and elements. */
void tn_call_open(const tn_chain *chain, const tn_link *link, int64_t parameter, tn_thread *own, tn_call *ret);
/* Sets its slots for n elements from element `at` of the logical tensor on, within a chunk. */
void tn_call_load(tn_call *call, int64_t at, int64_t n, const tn_thread *own);
/* A dry run over n elements of one chunk from element `at` of the logical tensor on: sets run->block and ->buffer. */
void tn_run_dry(tn_run *run, int64_t at, int64_t n);
/* Work of passes. */
void tn_run_write(const tn_pass *pass, const tn_part *part, int32_t thread);
void tn_run_step(const tn_pass *pass, const tn_part *part, int32_t thread);
void tn_run_after(const tn_pass *pass, const tn_part *part, int32_t thread);

/* ---- rounds.c ---- */

/* All rounds of one link. *ret_finite: 1 if all sums are, the same on all processes. Fails only as comm does. */
int32_t tn_rounds(tn_chain *chain, tn_link *link, int32_t *ret_finite, tn_error *err);
/* The clock of one set of constants; NULL: unused. */
const tn_clock *tn_set_clock(const tn_chain *chain, const tn_link *link, int64_t set);
int64_t tn_set_count(const tn_chain *chain, const tn_link *link);

/* ---- source.c ---- */

/* Rounds, then the gradient elsewhere, into g; p has its bits again in any case. *ret_finite: 0: skip, and the gradient
 * is perhaps that of elsewhere. */
int32_t tn_source(tn_chain *chain, tn_link *link, int32_t *ret_finite, tn_error *err);

/* ---- step.c ---- */

/* The first present parameter whose gradient is not finite on this process, or -1. */
int64_t tn_find_bad(tn_chain *chain);

/* ---- kernel.c; `real` is 32 or 64, any thread ---- */

/* p <- keep * p + d for n elements. Where keep is 1 and d is 0, p keeps its bits. */
void tn_kernel_add(uint32_t real, void *p, const void *d, double keep, int64_t n);
/* Copies a block, up to the next multiple of 64 bytes, and asks for what lies behind it. Both aligned to 64. */
void tn_kernel_copy(void *to, const void *from, size_t bytes);
/* 1 if none of n elements is inf or nan. */
int32_t tn_kernel_finite(uint32_t real, const void *x, int64_t n);

#endif
