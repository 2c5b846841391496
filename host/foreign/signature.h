/* SPDX-License-Identifier: Apache-2.0
 *
 * signature.h: the type of a foreign function, and where its arguments come from:
 *
 *   signature  = type "(" [ argument { "," argument } ] ")"
 *   argument   = [ name ":" ] type [ "=" expression ]
 *   type       = "void" | number | number "*"
 *   number     = "f32" | "f64" | "i32" | "i64" | "u32" | "u64"
 *
 * Re-entrant; nothing is allocated.
 */
#ifndef TENON_HOST_FOREIGN_SIGNATURE_H
#define TENON_HOST_FOREIGN_SIGNATURE_H

#include "host/foreign/expression.h"

#define TN_ARGUMENTS_MOST 8

#define TN_NUMBER_VOID 0
#define TN_NUMBER_F32  1
#define TN_NUMBER_F64  2
#define TN_NUMBER_I32  3
#define TN_NUMBER_I64  4
#define TN_NUMBER_U32  5
#define TN_NUMBER_U64  6

/* What an argument is given. */
#define TN_GIVE_VALUE 0 /* what its expression says */
#define TN_GIVE_X     1 /* the element, or the elements read */
#define TN_GIVE_Y     2 /* the elements written */
#define TN_GIVE_N     3 /* their number */

typedef struct tn_argument {
    char name[TN_WORD_MAX]; /* "": none */
    int32_t type;           /* TN_NUMBER_* */
    int32_t is_pointer;
    int32_t give; /* TN_GIVE_* */
    tn_expression value;
    size_t at, value_at; /* bytes from the start of the text: name or type, expression */
} tn_argument;

typedef struct tn_signature {
    int32_t result; /* TN_NUMBER_* */
    int32_t count;
    int32_t x, y, n; /* index of the argument; -1: none */
    tn_argument argument[TN_ARGUMENTS_MOST];
} tn_signature;

/* What the function is for. */
#define TN_FOR_SCHEDULE 0 /* a number from a position: scheduler.h of the contract */
#define TN_FOR_ELEMENTS 1 /* y from x, one number at a time or as arrays (void) */

/* Reads and checks a signature. `real` 64: elements are f64, and a function of f32 would lose their precision; 32: both
 * will do. TN_E_INVALID; then *fault is the byte of `text` at fault and *ret is not touched. */
int32_t tn_signature_parse(const char *text, int32_t purpose, uint32_t real, tn_signature *ret, size_t *fault,
                           tn_error *err);

/* What an expression of TN_FOR_SCHEDULE may name; values in the same order. Ends in NULL. */
extern const char *const tn_position_names[];
#define TN_POSITION_STEP     0
#define TN_POSITION_HORIZON  1
#define TN_POSITION_PROGRESS 2
#define TN_POSITION_BASE     3
#define TN_POSITION_EPOCH    4
#define TN_POSITION_SAMPLES  5
#define TN_POSITION_TOKENS   6
#define TN_POSITION_BATCH    7
#define TN_POSITION_PASS     8
#define TN_POSITION_COUNT    9

/* "f32", ...; static. */
const char *tn_number_name(int32_t type);
/* 1 for the types of integers. */
int tn_number_is_integer(int32_t type);
/* 1 if the type has exactly this value (a real one: up to rounding). */
int tn_number_holds(int32_t type, double value);

#endif
