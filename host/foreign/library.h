/* SPDX-License-Identifier: Apache-2.0
 *
 * library.h: shared objects that are no plugins, and the functions that they export.
 *
 * A library is named by an absolute path, or by its soname, which is looked for in the directories of /etc/ld.so.conf
 * and in the system's own: never in LD_LIBRARY_PATH, the working directory or a search path of some file. Whichever it
 * is, the file must be trusted (trust.h) and pass the gate (elf.h) before it is mapped, and it stays mapped.
 */
#ifndef TENON_HOST_FOREIGN_LIBRARY_H
#define TENON_HOST_FOREIGN_LIBRARY_H

#include "host/base/log.h"

/* The file behind a name: absolute, without links. The caller frees *ret with tn_free. TN_E_NOT_FOUND, TN_E_INVALID for
 * a relative path, TN_E_PLUGIN with a reason code if it is not to be trusted or no library, TN_E_MEMORY. [any] */
int32_t tn_foreign_find(const char *library, char **ret, tn_error *err);

/* Does the file export a function of that name? It is read, not mapped. TN_E_NOT_FOUND with the nearest name,
 * TN_E_PLUGIN if it is data, TN_E_IO, TN_E_MEMORY. [any] */
int32_t tn_foreign_exports(const char *path, const char *symbol, tn_error *err);

/* Maps the file, unless it is mapped, and finds the function. TN_E_PLUGIN, TN_E_NOT_FOUND. [any; one at a time] */
int32_t tn_foreign_open(const char *path, const char *symbol, const tn_log *log, void (**ret)(void), tn_error *err);

#endif
