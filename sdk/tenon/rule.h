/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/rule.h: an update rule from its arithmetic alone.
 *
 *   #define HYPER(X) X(real, lr, 1e-3, "[0, inf)", "step size") ...
 *   #define SLOTS(S) S(m, like, zero, signed, "mean of the gradient") ...
 *   TN_DECLARE_RULE(lion, HYPER, SLOTS)                  -> struct lion, struct lion_slots
 *   typedef struct { tn_real lr, ...; } lion_constants;
 *   static void lion_begin(const lion *h, double t, lion_constants *k)                       the step's constants
 *   TN_BOTH tn_real lion_element(lion_constants k, tn_real p, tn_real g, tn_real *m)         returns d; one slot
 *   TN_ELEMENT_RULE(lion, HYPER, SLOTS, "summary", TN_PAPER("...") TN_FORMULA("..."))        argument a SLOTS row
 *   TN_PLUGIN("org.example.lion", "1.0.0", "Apache-2.0", lion)
 *
 * S(name, shape, init, flags, doc): see tn_slot in optimizer.h; the flag `signed` says nothing special.
 *
 * Any other link is a tn_optimizer filled by hand, with TN_LINK. For those:
 *   TN_ROUND("model", 1)                                           one round, of so many scalars
 *   TN_ROUNDS(TN_SUMS("tensor", 1, 1, 1) TN_SUMS("tensor", 1, 0, 0))  several, or with vectors of rows and columns
 *   TN_ROUNDS(TN_MAXIMA("tensor", 1, 1, 1))                        likewise, of the largest numbers >= 0
 *   SLOTS(TN_SLOT_RECORD)                                          slot_NAME for each row, to be handed to a planner
 *   for (tn_row_run r = tn_rows_of(piece); tn_next_row(&r);)       the parts of a piece that lie in one row each
 *   tn_squares, tn_add_squares                                     the sum of squares for a norm, at once or in parts
 */
#ifndef TENON_RULE_H
#define TENON_RULE_H

#include <tenon/optimizer.h>
#include <tenon/sdk.h>

#ifdef __CUDACC__
#include <tenon/backend.h>
/* The stream that the host runs this call on; the default stream where it names none. */
static inline TN_UNUSED cudaStream_t tn_cuda_stream(const tn_context *context)
{
    const tn_services *services = context ? context->services : NULL;
    return services ? (cudaStream_t)services->interface(services->host, TN_CUDA_STREAM) : (cudaStream_t)0;
}
#endif

#define TN_SLOT_FIELD(name, shape, init, flags, doc)   void *name;
#define TN_SLOT_PARAM(name, shape, init, flags, doc)   , tn_real *__restrict name
#define TN_SLOT_PASS(name, shape, init, flags, doc)    , (tn_real *)slots->name
#define TN_SLOT_ADDRESS(name, shape, init, flags, doc) , &name[i_]
#define TN_SLOT_TEXT(name, shape, init, flags, doc)                                                                    \
    "{\"name\":\"" #name "\",\"shape\":\"" #shape "\",\"init\":\"" #init "\",\"flags\":\"" #flags "\",\"doc\":\"" doc  \
    "\"},"
#define TN_SLOT_RECORD(name, shape, init, flags, doc)                                                                  \
    static const tn_slot slot_##name TN_UNUSED = {sizeof(tn_slot), 0, #name, #shape, #init, #flags, NULL};
#define TN_NO_SLOTS(S)

#define TN_STAGE(text)           ",\"stage\":" #text
#define TN_GRAIN(text)           ",\"grain\":" #text
#define TN_ROUND(scope, scalars) ",\"rounds\":[{\"scope\":" #scope ",\"scalars\":" #scalars "}]"
#define TN_ROUND_TEXT(scope, scalars, rows, columns)                                                                   \
    "\"scope\":" #scope ",\"scalars\":" #scalars ",\"rows\":" #rows ",\"columns\":" #columns "},"
#define TN_SUMS(scope, scalars, rows, columns)   "{" TN_ROUND_TEXT(scope, scalars, rows, columns)
#define TN_MAXIMA(scope, scalars, rows, columns) "{\"reduce\":\"max\"," TN_ROUND_TEXT(scope, scalars, rows, columns)
#define TN_ROUNDS(sums)                          ",\"rounds\":[" sums "null]"
#define TN_SIGNALS(...)                          ",\"signals\":[" #__VA_ARGS__ "]"
#define TN_REPORTS(...)                          ",\"reports\":[" #__VA_ARGS__ "]"
#define TN_VIEW(slot)                            ",\"view\":\"" #slot "\""
#define TN_SLOTS_FACT(SLOTS)                     ",\"slots\":[" SLOTS(TN_SLOT_TEXT) "null]"

/* ---- shapes and sums, for links filled by hand ---- */

static inline TN_UNUSED int64_t tn_elements(const tn_parameter *parameter)
{
    int64_t n = 1;
    for (int32_t i = 0; i < parameter->ndim; i++)
        n *= parameter->shape[i];
    return n;
}

/* 1 if the parameter has a matrix view: shape[0] rows of tn_view_columns. */
static inline TN_UNUSED int tn_is_matrix(const tn_parameter *parameter) { return parameter->ndim >= 2; }

static inline TN_UNUSED int64_t tn_view_columns(const tn_parameter *parameter)
{
    int64_t n = 1;
    for (int32_t i = 1; i < parameter->ndim; i++)
        n *= parameter->shape[i];
    return n;
}

/* How many of a piece's elements are the tensor's: `update` may be handed padding behind them. */
static inline TN_UNUSED int64_t tn_piece_elements(const tn_piece *piece)
{
    int64_t left = tn_elements(piece->parameter) - piece->lo;
    return piece->n < left ? piece->n : left;
}

/* The part of a piece that lies in one row of the matrix view; padding is left out. */
typedef struct tn_row_run {
    int64_t row, column; /* of its first element */
    int64_t at, n;       /* elements at .. at + n of the piece's arrays */
    int64_t lo, end, columns;
} tn_row_run;

static inline TN_UNUSED tn_row_run tn_rows_of(const tn_piece *piece)
{
    tn_row_run run = {0, 0, 0, 0, piece->lo, tn_piece_elements(piece), tn_view_columns(piece->parameter)};
    return run;
}

/* Goes to the first or next row; 0 behind the last. */
static inline TN_UNUSED int tn_next_row(tn_row_run *run)
{
    run->at += run->n;
    if (run->at >= run->end)
        return 0;
    run->row = (run->lo + run->at) / run->columns;
    run->column = (run->lo + run->at) % run->columns;
    run->n = run->columns - run->column;
    if (run->n > run->end - run->at)
        run->n = run->end - run->at;
    return 1;
}

static inline TN_UNUSED double tn_add_lanes(double *lane)
{
    for (int half = TN_LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] += lane[j + half];
    return lane[0];
}

/* Adds (scale * x[i])^2 to lane i % TN_LANES. Where a sum is taken in parts, all but the last are whole multiples of
 * TN_LANES. f32 can not overflow; f64 beyond 1e154 does. To be called from a function with TN_CLONES. */
static inline TN_UNUSED void tn_add_squares(double *__restrict lane, const tn_real *__restrict x, int64_t n,
                                            double scale)
{
    int64_t i = 0;
    for (; i + TN_LANES <= n; i += TN_LANES)
        for (int j = 0; j < TN_LANES; j++) {
            double y = scale * (double)x[i + j];
            lane[j] += y * y;
        }
    for (int j = 0; i + j < n; j++) {
        double y = scale * (double)x[i + j];
        lane[j] += y * y;
    }
}

/* The sum of all of them; likewise. */
static inline TN_UNUSED double tn_squares(const tn_real *__restrict x, int64_t n, double scale)
{
    double lane[TN_LANES] = {0};
    tn_add_squares(lane, x, n, scale);
    return tn_add_lanes(lane);
}

/* What a round with reduce "max" takes of two numbers: the larger one, NaN as infinity, so that it is not lost. */
static inline TN_UNUSED double tn_larger(double a, double b)
{
    double x = b == b ? b : INFINITY;
    return x > a ? x : a;
}

/* ---- rules ---- */

#define TN_DECLARE_RULE(name, HYPER, SLOTS)                                                                            \
    TN_DECLARE(name, HYPER)                                                                                            \
    typedef struct name##_slots {                                                                                      \
        SLOTS(TN_SLOT_FIELD)                                                                                           \
        void *end_;                                                                                                    \
    } name##_slots;

/* NAME_update: calls ELEMENT(k, p, scale * g, &slot...) for every element of a piece and stores d. A slot may have any
 * name: those of the loop end in '_'. Compiled by nvcc it
 * starts one device thread an element on the call's stream; then the piece's arrays are device memory, and k is still
 * the host's. */
#ifdef __CUDACC__
#define TN_ELEMENT_UPDATE(name, element, constants, slots_type, SLOTS)                                                 \
    static __global__ void name##_kernel(constants k_, int64_t n_, tn_real scale_, const tn_real *__restrict p_,       \
                                         const tn_real *__restrict g_, tn_real *__restrict d_ SLOTS(TN_SLOT_PARAM))    \
    {                                                                                                                  \
        int64_t i_ = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;                                                   \
        if (i_ < n_)                                                                                                   \
            d_[i_] = element(k_, p_[i_], scale_ * g_[i_] SLOTS(TN_SLOT_ADDRESS));                                      \
    }                                                                                                                  \
    static void name##_update(const tn_piece *piece)                                                                   \
    {                                                                                                                  \
        const slots_type *slots = (const slots_type *)piece->slot;                                                     \
        (void)slots;                                                                                                   \
        if (piece->n > 0)                                                                                              \
            name##_kernel<<<(unsigned)((piece->n + 255) / 256), 256, 0, tn_cuda_stream(piece->context)>>>(             \
                *(const constants *)piece->k, piece->n, (tn_real)piece->scale, (const tn_real *)piece->p,              \
                (const tn_real *)piece->g, (tn_real *)piece->d SLOTS(TN_SLOT_PASS));                                   \
    }
#else
#define TN_ELEMENT_UPDATE(name, element, constants, slots_type, SLOTS)                                                 \
    TN_CLONES static void name##_loop(constants k_, int64_t n_, tn_real scale_, const tn_real *__restrict p_,          \
                                      const tn_real *__restrict g_, tn_real *__restrict d_ SLOTS(TN_SLOT_PARAM))       \
    {                                                                                                                  \
        for (int64_t i_ = 0; i_ < n_; i_++)                                                                            \
            d_[i_] = element(k_, p_[i_], scale_ * g_[i_] SLOTS(TN_SLOT_ADDRESS));                                      \
    }                                                                                                                  \
    static void name##_update(const tn_piece *piece)                                                                   \
    {                                                                                                                  \
        const slots_type *slots = (const slots_type *)piece->slot;                                                     \
        (void)slots;                                                                                                   \
        name##_loop(*(const constants *)piece->k, piece->n, (tn_real)piece->scale, (const tn_real *)piece->p,          \
                    (const tn_real *)piece->g, (tn_real *)piece->d SLOTS(TN_SLOT_PASS));                               \
    }
#endif

/* A whole element-wise rule; NAME_begin and NAME_element are the author's. `keep_` is NULL or a function of the
 * constants that returns the factor of decoupled decay. */
#define TN_ELEMENT_RULE_KEEP(name, HYPER, SLOTS, summary, facts, keep_)                                                \
    TN_ELEMENT_UPDATE(name, name##_element, name##_constants, name##_slots, SLOTS)                                     \
    static void name##_begin_(const void *hyper, const tn_clock *clock, void *k)                                       \
    {                                                                                                                  \
        name##_begin((const name *)hyper, (double)clock->t, (name##_constants *)k);                                    \
    }                                                                                                                  \
    TN_STATIC_ASSERT(sizeof(name##_constants) <= TN_CONSTANTS_MAX, #name "_constants is too large");                   \
    static const tn_optimizer name##_table = {sizeof(tn_optimizer),                                                    \
                                              (uint32_t)sizeof(name##_constants),                                      \
                                              NULL,                                                                    \
                                              TN_CALL(name##_begin_),                                                  \
                                              NULL,                                                                    \
                                              NULL,                                                                    \
                                              TN_CALL(name##_update),                                                  \
                                              NULL,                                                                    \
                                              keep_,                                                                   \
                                              NULL};                                                                   \
    TN_COMPONENT(name, "optimizer", TN_OPTIMIZER, TN_REAL, HYPER, summary,                                             \
                 TN_STAGE("rule") TN_GRAIN("element") TN_SLOTS_FACT(SLOTS) facts, name##_table);
#define TN_ELEMENT_RULE(name, HYPER, SLOTS, summary, facts)                                                            \
    TN_ELEMENT_RULE_KEEP(name, HYPER, SLOTS, summary, facts, NULL)

/* Any other link: the author fills the table. */
#define TN_LINK(name, kind, HYPER, SLOTS, summary, facts, table)                                                       \
    TN_COMPONENT(name, kind, TN_OPTIMIZER, TN_REAL, HYPER, summary, TN_SLOTS_FACT(SLOTS) facts, table);

#endif
