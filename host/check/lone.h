/* SPDX-License-Identifier: Apache-2.0
 *
 * lone.h: one layer by itself, for the rules about layers: it records the plan, lends exactly what the contract
 * promises (NULL for what is not kept, a pattern where nothing is promised) and cuts calls into pieces.
 *
 * Thread rule: one thread at a time for one layer; pieces of a call go to the layer's pool.
 */
#ifndef TENON_HOST_CHECK_LONE_H
#define TENON_HOST_CHECK_LONE_H

#include <tenon/normalizer.h>
#include <tenon/tangent.h>

#include "host/base/pool.h"
#include "host/check/check.h"
#include "host/check/guard.h"
#include "host/experiment/instance.h"

#define TN_LONE_PORTS   8 /* inputs, parameters, buffers or saved tensors, as in a graph */
#define TN_LONE_PIECES  32
#define TN_LONE_THREADS 4
#define TN_LONE_NAN     0xFF /* bytes of memory that a call has yet to write: NaN, or a large number */
#define TN_LONE_LARGE   0x7E

typedef struct tn_lone_tensor {
    tn_tensor view; /* contiguous */
    int64_t shape[TN_MAX_DIMS], strides[TN_MAX_DIMS];
    size_t bytes;
    tn_guard guard; /* map NULL: there is none */
} tn_lone_tensor;

typedef enum { TN_LONE_WHOLE, TN_LONE_ROWS, TN_LONE_COLUMNS, TN_LONE_ELEMENTS } tn_lone_axis;

/* Numbers in tensors, `context`, `refresh`, `fill` and `pool` may be changed between calls. It may not be moved. */
typedef struct tn_lone {
    const tn_check_subject *subject;
    tn_check_finding *finding;
    const tn_layer *table;
    tn_layer_rounds rounds; /* count NULL: none */
    tn_layer_tangents tangents;
    const tn_instance *instance;
    const char *variant; /* "affine=false"; "" at the defaults */
    tn_guard hyper;
    tn_lone_axis axis;
    bool keeps_input, keeps_output, in_place;
    bool is_strict; /* pages beside each tensor can not be touched, what is lent for reading can not be written */
    int32_t place;  /* then: TN_GUARD_* */
    int32_t inputs, parameters, buffers, saveds;
    tn_lone_tensor x[TN_LONE_PORTS], dx[TN_LONE_PORTS], y, dy;
    tn_lone_tensor parameter[TN_LONE_PORTS], gradient[TN_LONE_PORTS], buffer[TN_LONE_PORTS], saved[TN_LONE_PORTS];
    tn_lone_tensor partial[TN_LONE_PORTS][TN_LONE_PIECES];
    tn_lone_tensor workspace[TN_LONE_THREADS];
    /* Along a direction: x, parameter and dy are the direction. */
    tn_lone_tensor along_x[TN_LONE_PORTS], along_dx[TN_LONE_PORTS], along_y, along_dy;
    tn_lone_tensor along_parameter[TN_LONE_PORTS], along_gradient[TN_LONE_PORTS];
    char parameter_name[TN_LONE_PORTS][64], buffer_name[TN_LONE_PORTS][64];
    int32_t role[TN_LONE_PORTS];
    tn_weight weight[TN_LONE_PORTS]; /* without name and shape */
    double initial[TN_LONE_PORTS];   /* of buffers */
    int64_t workspace_bytes, planned;
    char fault[256]; /* what is wrong with the plan; "": nothing */
    tn_context context;
    int64_t refresh;
    int32_t fill; /* TN_LONE_NAN or TN_LONE_LARGE */
    tn_pool *pool;
    struct tn_lone *partner; /* has the other samples of the batch: its share of each round counts too; or NULL */
    double *sums;            /* of rounds */
    int64_t sums_room;
} tn_lone;

typedef struct tn_lone_use {
    bool is_strict;
    int32_t place;
    bool all;                     /* also with each flag turned and each choice taken */
    void (*visit)(tn_lone *lone); /* once for each variant and shape; told whole plans only, unless: */
    bool takes_faults;            /* also plans with a fault */
    void (*refused)(const tn_check_subject *subject, tn_check_finding *finding, const tn_tensor *x, int32_t inputs,
                    const char *words); /* a shape was, with these words; NULL: nothing to do */
} tn_lone_use;

/* Is the subject a layer, an activation, a normalizer or a regularizer for the CPU? */
bool tn_lone_applies(const tn_check_subject *subject);
/* Loads it and visits it with shapes that it takes, of 1 to 4 axes and up to some 1,000 elements, until something has
 * failed. Numbers are random: x in [-2, 2), parameters in [0.5, 1.5), dy in [-1, 1); buffers at their start. Skips
 * where none is taken. */
void tn_lone_each(const tn_check_subject *subject, tn_check_finding *finding, const tn_lone_use *use);

/* The plan for `inputs` equal inputs. The caller closes *ret on success. Statuses of infer; TN_E_MEMORY. */
int32_t tn_lone_open(const tn_layer *table, const tn_instance *instance, const tn_lone_use *use, int32_t inputs,
                     int32_t ndim, const int64_t *shape, tn_lone *ret, tn_error *err);
void tn_lone_close(tn_lone *lone);

/* May a call with these flags be made of the batch at hand? Also where nobody asks. */
bool tn_lone_may(const tn_lone *lone, uint32_t flags);
/* From now on the batch has n rows, at most the planned number; x and dy are random again. */
void tn_lone_batch(tn_lone *lone, int64_t n);

/* One call in pieces of `extent` on the layer's axis (0: one piece; elements: a multiple of 64; at most TN_LONE_PIECES
 * pieces), from the last to the first or by all threads of the pool. y, and under TN_TRAIN what is saved, are filled
 * before. */
void tn_lone_forward(tn_lone *lone, uint32_t flags, int64_t extent);
/* As above; dx, and gradients without TN_ACCUMULATE, are filled before. Partial gradients are added up. */
void tn_lone_backward(tn_lone *lone, uint32_t flags, int64_t extent);
/* The same with y in the place of x (which is lost), and dx in the place of dy. */
void tn_lone_in_place(tn_lone *lone, uint32_t flags, int64_t extent);
void tn_lone_back_in_place(tn_lone *lone, uint32_t flags, int64_t extent);
/* Along the direction; `zero_x`: x~ is lent as NULL. */
void tn_lone_tangent(tn_lone *lone, uint32_t flags, int64_t extent, bool zero_x);
void tn_lone_back_tangent(tn_lone *lone, uint32_t flags, int64_t extent, bool zero_x);

/* The finding's failure, begun with shape and variant. */
void tn_lone_fail(tn_lone *lone, const char *format, ...) TN_PRINTF(2, 3);
/* True once something has failed. */
bool tn_lone_is_done(const tn_lone *lone);

/* ---- tensors by themselves, for other rules ---- */

/* Memory for a zeroed or earlier one, filled with TN_LONE_NAN: guarded on one side where use->is_strict. The caller
 * closes t->guard. TN_E_MEMORY. */
int32_t tn_lone_make(tn_lone_tensor *t, const char *name, tn_dtype dtype, int32_t ndim, const int64_t *shape,
                     const tn_lone_use *use, tn_error *err);
/* The same for a shape that is there. */
int32_t tn_lone_memory(tn_lone_tensor *t, const char *name, const tn_lone_use *use, int32_t fill, tn_error *err);

/* ---- numbers ---- */

int64_t tn_lone_count(const tn_lone_tensor *t);
double tn_lone_get(const tn_lone_tensor *t, int64_t i);
void tn_lone_set(tn_lone_tensor *t, int64_t i, double value);
void tn_lone_random(tn_lone_tensor *t, uint64_t key, double lo, double hi);
/* All elements, on the heap; the caller frees it (tn_free). */
double *tn_lone_values(const tn_lone_tensor *t);

#define TN_LONE_Y        1u
#define TN_LONE_DX       2u
#define TN_LONE_GRADIENT 4u
#define TN_LONE_BUFFER   8u
#define TN_LONE_SAVED    16u
#define TN_LONE_RESULTS  (TN_LONE_Y | TN_LONE_DX | TN_LONE_GRADIENT)

/* Bytes of tensors one behind the other, to compare with. */
typedef struct tn_lone_copy {
    uint32_t what; /* TN_LONE_* */
    unsigned char *bytes;
} tn_lone_copy;

size_t tn_lone_copy_bytes(const tn_lone *lone, uint32_t what);
/* `bytes` NULL: a block of its own; tn_lone_drop. */
tn_lone_copy tn_lone_take(const tn_lone *lone, uint32_t what, void *bytes);
void tn_lone_put(tn_lone *lone, const tn_lone_copy *copy);
void tn_lone_drop(tn_lone_copy *copy);
/* Fails with the first number that has other bits: "y[3] is 1, was 2: " and `why`. */
bool tn_lone_same(tn_lone *lone, const tn_lone_copy *copy, const char *why);

#endif
