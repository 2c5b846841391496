/* SPDX-License-Identifier: Apache-2.0
 *
 * folder.h: the folder of a run: what went in, what came out.
 */
#ifndef TENON_HOST_STORE_FOLDER_H
#define TENON_HOST_STORE_FOLDER_H

#include <stddef.h>
#include <tenon/base.h>

/* Makes <parent>/<yyyymmdd-hhmmss>-<name>, with -2, -3, ... appended where that exists; `parent` is made if needed.
 * `name` may hold anything: '/', control characters and a leading '.' become '-'. The caller frees *ret with tn_free.
 * [main] */
int32_t tn_folder_create(const char *parent, const char *name, char **ret, tn_error *err);

/* Writes one whole small file in the folder: temporary name, fsync, rename. [main] */
int32_t tn_folder_write(const char *folder, const char *file, const void *bytes, size_t count, tn_error *err);

#endif
