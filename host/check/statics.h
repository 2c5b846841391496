/* SPDX-License-Identifier: Apache-2.0
 *
 * statics.h: the memory that a loaded file has for its own variables. What a plugin keeps there between calls, threads
 * share and checkpoints lack.
 *
 * Thread rule: one thread at a time, while none runs in the file.
 */
#ifndef TENON_HOST_CHECK_STATICS_H
#define TENON_HOST_CHECK_STATICS_H

#include "host/base/error.h"

typedef struct tn_statics tn_statics;

/* A copy of the variables of the file at `path`, as it is loaded. The caller frees *ret. TN_E_NOT_FOUND where it is
 * not, TN_E_MEMORY. */
int32_t tn_statics_take(const char *path, tn_statics **ret, tn_error *err);
void tn_statics_free(tn_statics *statics);

/* How many bytes differ from the copy; *ret_name: the variable that the first lies in, where the file names it, else
 * "". Static text or the file's. */
size_t tn_statics_changed(const tn_statics *statics, const char **ret_name);

#endif
