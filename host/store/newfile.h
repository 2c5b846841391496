/* SPDX-License-Identifier: Apache-2.0
 *
 * newfile.h: a file that appears whole under its name or not at all: written under a temporary one beside it, put on
 * disk, then renamed. One process at a time writes one file.
 *
 *   tn_newfile file;
 *   status = tn_newfile_open(path, &file, err);
 *   if (!status) status = tn_newfile_write(&file, bytes, count, err); ...
 *   status = tn_newfile_close(&file, status, err);
 */
#ifndef TENON_HOST_STORE_NEWFILE_H
#define TENON_HOST_STORE_NEWFILE_H

#include <stddef.h>

#include "host/base/error.h"

typedef struct tn_newfile {
    int fd; /* -1: not open */
    char *path, *temporary;
} tn_newfile;

/* Creates the temporary file, ".NAME.new" in the folder of `path`; one left behind by a killed process is replaced.
 * Close it also after a failure. TN_E_IO, also where another process is writing it; TN_E_MEMORY. [main] */
int32_t tn_newfile_open(const char *path, tn_newfile *ret, tn_error *err);
/* Appends. [main] */
int32_t tn_newfile_write(tn_newfile *file, const void *bytes, size_t count, tn_error *err);
/* With status TN_OK the file takes its name, replacing an older one, and both file and folder are on disk; otherwise,
 * or if that fails, the temporary file is removed and an older one stays. Returns `status` or its own failure, and
 * frees everything. [main] */
int32_t tn_newfile_close(tn_newfile *file, int32_t status, tn_error *err);

#endif
