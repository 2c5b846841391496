/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/minimizer.h: update rules that look at the loss more than once a step: line searches, conjugate gradients,
 * Krylov methods. Interface "tenon.minimizer/0.1", kind optimizer; it is the rule of a chain whose other links are
 * averages, and is on all parameters.
 *
 * The rule is a coroutine without a stack: the host calls `advance` again and again; each call reads the answers to its
 * last request and makes the next, until one of them ends the step. What it must remember between calls, its place
 * included, stands in `memory`, saved with the run. Vectors are as long as all parameters together; the host owns them
 * and does the arithmetic. A dot product is an exact sum over chunks of each chunk's own sum, rounded once.
 *
 * Facts: stage "rule", grain "model", slots (as tn_slot, shape "like"; for people: what counts is `plan`), reports.
 *
 * Every evaluation covers the whole window with the same samples and random numbers; statistics of layers change in
 * the first only, which the host has done when it calls with `first`. A step whose first loss or gradient is not finite
 * is skipped without a call; later ones come back as they are: the rule goes back or rejects.
 *
 * A rejected step leaves no trace: p and memory get their bits back. Persistent slots keep theirs if the rule writes
 * them only once it is sure. More than 10,000 requests in a step are an error, and so is a request that is none.
 */
#ifndef TENON_MINIMIZER_H
#define TENON_MINIMIZER_H

#include <tenon/optimizer.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TN_MINIMIZER "tenon.minimizer/0.1"

/* Vectors by number: the parameters, the gradient of the mean loss, then the planned slots in order. */
#define TN_VECTOR_P     0
#define TN_VECTOR_G     1
#define TN_VECTOR_FIRST 2

#define TN_ASK_DOTS     1 /* answers[i] = a[i] . b[i], for i < count */
#define TN_ASK_COMBINE  2 /* vector `to`, not g, = sum of factor[i] * a[i], rounded once; `to` may be among them */
#define TN_ASK_EVALUATE 3 /* answers[0] = the mean loss at p; g becomes its gradient */
#define TN_ASK_PRODUCT  4 /* slot `to` = Hessian at p times slot a[0], another one; g and p stay */
#define TN_ASK_COMMIT   5 /* p is the result */
#define TN_ASK_REJECT   6 /* p and memory get their bits of before the step, which counts as skipped */
#define TN_ASK_MAX      128

/* Allocated by the host, filled by `advance`. */
typedef struct tn_ask {
    uint32_t struct_size;
    int32_t what, to, count; /* count <= TN_ASK_MAX */
    int32_t a[TN_ASK_MAX], b[TN_ASK_MAX];
    double factor[TN_ASK_MAX];
} tn_ask;
TN_AT(tn_ask, a, 16);
TN_AT(tn_ask, factor, 1040);
TN_SIZE(tn_ask, 2064);

typedef struct tn_advance {
    uint32_t struct_size;
    int32_t first; /* 1: a step begins; answers[0] is the mean loss at p and g its gradient */
    const void *hyper;
    const tn_clock *clock;
    const tn_context *context;
    const double *answers;
    double *memory;   /* as planned; 0 before the first step */
    double *report;   /* the values that the note's `reports` names; holds the last ones */
    int64_t elements; /* of a vector, over all processes */
} tn_advance;
TN_AT(tn_advance, answers, 32);
TN_SIZE(tn_advance, 64);

typedef struct tn_minimizer_planner {
    uint32_t struct_size;
    uint32_t reserved;
    void *host;
    int32_t (*slot)(void *host, const tn_slot *slot); /* copied; the order is the vector's number */
    int32_t (*memory)(void *host, int64_t count);     /* f64 scalars; the largest call counts */
} tn_minimizer_planner;
TN_SIZE(tn_minimizer_planner, 32);

typedef struct tn_minimizer {
    uint32_t struct_size;
    int32_t products; /* 1: it asks for Hessian products; refused where layers or loss offer no tangents */
    /* NULL is refused, here and below. [load] */
    int32_t (*plan)(const void *hyper, const tn_minimizer_planner *planner, tn_error *err);
    void (*advance)(const tn_advance *call, tn_ask *ask); /* `ask` comes zeroed. [main] */
} tn_minimizer;
TN_AT(tn_minimizer, plan, 8);
TN_SIZE(tn_minimizer, 24);

#ifdef __cplusplus
}
#endif
#endif
