/* SPDX-License-Identifier: Apache-2.0
 *
 * hash.h: what tells one build of a file from another.
 */
#ifndef TENON_HOST_PLUGIN_HASH_H
#define TENON_HOST_PLUGIN_HASH_H

#include "host/base/error.h"

#define TN_HASH_TEXT 33 /* bytes, NUL included */

/* XXH3 of a file's bytes, 128 bits as 32 hexadecimal digits, as `xxh128sum` prints it. It finds changes, not forgeries.
 * TN_E_IO, TN_E_MEMORY. [any] */
int32_t tn_hash_file(const char *path, char ret[TN_HASH_TEXT], tn_error *err);

#endif
