/* SPDX-License-Identifier: Apache-2.0
 *
 * file.h: reading a small text file whole. Re-entrant.
 */
#ifndef TENON_HOST_EXPERIMENT_FILE_H
#define TENON_HOST_EXPERIMENT_FILE_H

#include "host/base/error.h"

/* All bytes of a regular file of at most `limit`, and a NUL behind them. Waits for nothing (a FIFO is refused). The
 * caller frees *ret_bytes with tn_free. TN_E_NOT_FOUND, TN_E_IO, TN_E_INVALID (no regular file, too large),
 * TN_E_MEMORY. */
int32_t tn_read_whole_file(const char *path, size_t limit, char **ret_bytes, size_t *ret_size, tn_error *err);

#endif
