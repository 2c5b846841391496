/* SPDX-License-Identifier: Apache-2.0
 *
 * number.h: the host's one reader and printer of numbers, and ranges. The same in every locale; re-entrant.
 *
 * A parser takes the whole text or refuses it: TN_E_INVALID if it is not a number of that form, TN_E_NUMERIC if it
 * does not fit (1e400; 1e-400, which would become 0), TN_E_MEMORY if the C locale can not be had.
 */
#ifndef TENON_HOST_BASE_NUMBER_H
#define TENON_HOST_BASE_NUMBER_H

#include "host/base/error.h"

/* What authors may write: [+-] then 1e-3  .5  1.  0x1p-3  0x10  inf; or nan without sign. Rounded to nearest. */
int32_t tn_parse_real(const char *text, double *ret);

/* What experiments may hold: as tn_parse_real, but a point stands between digits (no .5, no 1.). */
int32_t tn_parse_user_real(const char *text, double *ret);

/* [+-] then decimal or 0x hexadecimal digits; 010 is ten. */
int32_t tn_parse_integer(const char *text, int64_t *ret);

/* Writes the shortest decimal that reads back as the same bits ("0.1", "1e-05", "100", "-0", "inf", "-inf", "nan")
 * with its NUL. Returns its length, or -1 with `buffer` untouched if it does not fit; TN_REAL_TEXT bytes always do. */
#define TN_REAL_TEXT 40
int tn_print_real(char *buffer, size_t size, double value);

/* A range as plugin.h describes it: "[0, 1)", "(-inf, inf) or nan", "[0, inf) steps; since 1.2.0". No bounds: anything,
 * nan included. */
typedef struct tn_range {
    double lo, hi;
    int32_t lo_open, hi_open; /* 1: the bound itself is outside */
    int32_t nan_ok;
    char unit[32];  /* "steps"; "" if none */
    char since[16]; /* "1.2.0"; "" if none */
} tn_range;

/* TN_E_INVALID also for an empty interval, a bound that is nan, or a unit or version that is too long. */
int32_t tn_range_parse(const char *text, tn_range *ret);

/* 1 if the value lies in the range. */
int tn_range_holds(const tn_range *range, double value);

#endif
