/* SPDX-License-Identifier: Apache-2.0
 *
 * foreign.h: the components `ffi` of the host itself: any C function of any library as an activation, a transform or a
 * scheduler (docs/foreign.md). They stand in the registry as if a file held them; their hyper structs end, behind what
 * the rows say, in a pointer to what tn_foreign_bind made.
 */
#ifndef TENON_HOST_FOREIGN_FOREIGN_H
#define TENON_HOST_FOREIGN_FOREIGN_H

#include <tenon/plugin.h>

#include "host/base/log.h"

typedef struct tn_foreign tn_foreign;

/* The i-th component, and the note of the plugin that they would be. */
#define TN_FOREIGN_COMPONENTS 3
const tn_component *tn_foreign_component(int i);
extern const tn_note *const tn_foreign_note;

/* Which setting is at fault: the name of its row, and the byte of its text. */
typedef struct tn_foreign_fault {
    const char *row;
    size_t at;
} tn_foreign_fault;

/* All that can be told from the settings and the library's file, which is read and not mapped: signature, library,
 * symbols, expressions. `kind`: activation, ...; `hyper`: its struct; `real`: 32 or 64. On failure *fault says where:
 * TN_E_INVALID, TN_E_NOT_FOUND, TN_E_PLUGIN, TN_E_IO, TN_E_MEMORY. [any] */
int32_t tn_foreign_check(const char *kind, const void *hyper, uint32_t real, tn_foreign_fault *fault, tn_error *err);

/* Maps the library, finds the functions and tries them on some numbers in a process of its own, so that one that
 * crashes, hangs, gives different results for the same number or has another derivative than was said is refused
 * before the run begins. `path`, the place in the experiment, is for messages. The caller frees *ret with
 * tn_foreign_free; the library stays. As tn_foreign_check; TN_E_UNSUPPORTED. [load] */
int32_t tn_foreign_bind(const char *kind, const char *path, const void *hyper, uint32_t real, const tn_log *log,
                        tn_foreign **ret, tn_error *err);
/* Accepts NULL. */
void tn_foreign_free(tn_foreign *foreign);

#endif
