/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h: what the files of host/foreign share.
 *
 *   expression, signature   text -> what is called with what        library   names -> files, functions
 *   function                calls                                   slope     derivatives
 *   trial                   first calls, in a process of their own   foreign   all of these for one instance
 *   activation, transform, scheduler   the components
 */
#ifndef TENON_HOST_FOREIGN_INTERNAL_H
#define TENON_HOST_FOREIGN_INTERNAL_H

#include <tenon/sdk.h>

#include "host/foreign/foreign.h"
#include "host/foreign/function.h"

/* These notes are read where they lie in memory; in the section for notes libtenon would look like a plugin. */
#undef TN_NOTE_ATTRIBUTES_
#define TN_NOTE_ATTRIBUTES_ aligned(4)

#define TN_FOREIGN_ROWS(X)                                                                                             \
    X(text, library, "libm.so.6", "", "soname, found in the system's directories, or a path from /")                   \
    X(text, symbol, "", "", "name of the function; needed")                                                            \
    X(text, signature, "", "", "type of the function, such as f32(f32); needed")

/* Hyper structs: the rows, then what is bound. */
#define TN_FOREIGN_DECLARE(name, HYPER)                                                                                \
    typedef struct name {                                                                                              \
        HYPER(TN_ROW_FIELD)                                                                                            \
        const tn_foreign *foreign;                                                                                     \
    } name;

#define TN_ACTIVATION_ROWS(X)                                                                                          \
    TN_FOREIGN_ROWS(X)                                                                                                 \
    X(text, derivative, "", "", "function of the same library, or expression of x and y; empty: by differences")       \
    X(fixed, low, -4, "(-inf, inf)", "the derivative is checked from here")                                            \
    X(fixed, high, 4, "(-inf, inf)", "to here")
TN_FOREIGN_DECLARE(tn_ffi_activation, TN_ACTIVATION_ROWS)

TN_FOREIGN_DECLARE(tn_ffi_transform, TN_FOREIGN_ROWS)

#define TN_SCHEDULER_ROWS(X)                                                                                           \
    TN_FOREIGN_ROWS(X)                                                                                                 \
    X(text, value, "f", "", "expression of the result f and of the position")                                          \
    X(integer, steps, 0, "[0, inf) steps", "updates it takes; 0: the rest of the run")                                 \
    X(choice, reaches, auto, "auto | start | end | both", "which of its ends progress has exactly")
TN_FOREIGN_DECLARE(tn_ffi_scheduler, TN_SCHEDULER_ROWS)

#define TN_SLOPE_NONE        0
#define TN_SLOPE_SYMBOL      1
#define TN_SLOPE_EXPRESSION  2
#define TN_SLOPE_DIFFERENCES 3

struct tn_foreign {
    uint32_t real; /* 32 or 64: elements */
    int32_t slope; /* TN_SLOPE_* */
    tn_function function, derivative;
    tn_expression expression; /* activation: the derivative, of x and y; scheduler: the value, of tn_value_names */
    double low, high;
    int64_t steps, reaches;
    const char *symbol, *derivative_symbol; /* for messages; of the hyper struct */
};

extern const tn_component *const tn_foreign_activation;
extern const tn_component *const tn_foreign_transform;
extern const tn_component *const tn_foreign_scheduler;

/* ---- slope.c: f'(x), n <= TN_EXPRESSION_RUN ---- */

void tn_slope_f32(const tn_foreign *foreign, int64_t n, const float *x, const float *y, float *out);
void tn_slope_f64(const tn_foreign *foreign, int64_t n, const double *x, const double *y, double *out);

/* By central differences of fourth order, `wide` times as wide as training uses. */
void tn_slope_differences(const tn_foreign *foreign, double wide, int64_t n, const double *x, double *out);

/* ---- scheduler.c ---- */

/* Position names and `f`. */
extern const char *const tn_value_names[];

/* The value that the component gives, of tn_position fields. */
struct tn_position;
double tn_foreign_at(const tn_foreign *foreign, const struct tn_position *at);

/* ---- trial.c ---- */

/* Calls the functions in a child process. TN_E_PLUGIN, TN_E_INVALID. */
int32_t tn_foreign_try(const tn_foreign *foreign, int32_t purpose, tn_error *err);

#endif
