/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.h: the usual trouble of a machine: looked for, named, and with what mends it.
 */
#ifndef TENON_HOST_DOCTOR_DOCTOR_H
#define TENON_HOST_DOCTOR_DOCTOR_H

#include "host/base/text.h"
#include "host/plugin/registry.h"

#define TN_DOCTOR_OK    0
#define TN_DOCTOR_NOTE  1 /* works, but one may want to know */
#define TN_DOCTOR_WRONG 2 /* needs mending */

typedef struct tn_finding {
    const char *topic; /* static: "plugins" */
    int32_t state;
    char *found, *fix; /* owned; fix "" where there is nothing to do */
} tn_finding;

typedef struct tn_doctor {
    tn_registry *registry; /* borrowed */
    const char *runs;      /* where runs are to be; borrowed */
    tn_finding *findings;
    size_t count, room;
    int32_t failed; /* 1: out of memory */
} tn_doctor;

/* Everything below adds findings. TN_E_MEMORY. [main] */
int32_t tn_doctor_examine(tn_doctor *doctor, tn_error *err);
void tn_doctor_free(tn_doctor *doctor);
/* How many findings need mending. */
int32_t tn_doctor_wrong(const tn_doctor *doctor);
/* All findings as lines for people, or as {"wrong": n, "findings": [{topic, state, found, fix}]}. */
void tn_doctor_print(const tn_doctor *doctor, int32_t json, tn_text *text);

/* ---- for the files of this folder ---- */

/* A finding; `fix` is what mends it, or NULL. */
void tn_doctor_add(tn_doctor *doctor, const char *topic, int32_t state, const char *fix, const char *format, ...)
    TN_PRINTF(5, 6);
/* A refusal as the loader words it: what is behind its last "; " is the fix. */
void tn_doctor_add_reason(tn_doctor *doctor, const char *topic, int32_t state, const char *reason);
/* The same for what went wrong here; want of memory is the doctor's own failure. */
void tn_doctor_add_error(tn_doctor *doctor, const char *topic, const tn_error *why);

void tn_doctor_plugins(tn_doctor *doctor);   /* search path, files, components */
void tn_doctor_libraries(tn_doctor *doctor); /* BLAS, CUDA */
void tn_doctor_machine(tn_doctor *doctor);   /* processors, memory, disk */

#endif
