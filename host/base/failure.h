/* SPDX-License-Identifier: Apache-2.0
 *
 * failure.h: the first error of calls that return nothing (tenon/failure.h), kept until the host asks for it.
 */
#ifndef TENON_HOST_BASE_FAILURE_H
#define TENON_HOST_BASE_FAILURE_H

#include <stdatomic.h>

#include "host/base/error.h"

/* Begins as {0}. */
typedef struct tn_failures {
    _Atomic int32_t state; /* 0: none; 1: one is being written; 2: it can be read */
    tn_error first;
} tn_failures;

/* Keeps it if it is the first; what is no code of an error becomes TN_E_INTERNAL. By any thread at any time. */
void tn_failures_keep(tn_failures *failures, int32_t code, const char *text);
/* The first one, which is then forgotten, or TN_OK. While no call that could fail is running. */
int32_t tn_failures_take(tn_failures *failures, tn_error *err);

#endif
