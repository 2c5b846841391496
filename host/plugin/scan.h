/* SPDX-License-Identifier: Apache-2.0
 *
 * scan.h: files looked at for listing. One open, one stat of the descriptor and, mostly, one read a file;
 * a directory's own trust is examined once.
 *
 * Thread rule: re-entrant; one tn_scan is used by one thread at a time.
 */
#ifndef TENON_HOST_PLUGIN_SCAN_H
#define TENON_HOST_PLUGIN_SCAN_H

#include "host/base/log.h"
#include "host/plugin/note.h"

/* One file. */
typedef struct tn_scanned {
    char *path;       /* absolute, without links */
    struct stat stat; /* all zero if it could not be opened */
    tn_notes notes;   /* none: see refusal; else an ordinary library */
    int32_t status;   /* TN_OK, or that it can not be read as a plugin */
    char *refusal;    /* the message behind status, with its reason code; NULL if TN_OK */
    char *untrusted;  /* why its path is not to be trusted, with its reason code, or NULL */
    int named;        /* 1: the user named it, so that `untrusted` does not count */
} tn_scanned;

typedef struct tn_scan {
    tn_scanned **files;
    size_t count;
    size_t capacity;
} tn_scan;

/* Adds the files named *.so in `directory` (a real path) in the order of their names, except those that are there
 * already (same device and inode). A directory that can not be read is a warning in the log. TN_E_MEMORY. */
int32_t tn_scan_directory(tn_scan *scan, const char *directory, const tn_log *log, tn_error *err);

/* Adds one file that the user named, or finds it, and returns it. TN_E_NOT_FOUND, TN_E_IO, or TN_E_PLUGIN if it can not
 * be read as a plugin or is none (NOT_PLUGIN); TN_E_MEMORY. Warns of an untrusted path. */
int32_t tn_scan_named(tn_scan *scan, const char *path, const tn_log *log, tn_scanned **ret, tn_error *err);

/* Takes the file that was added last out again. */
void tn_scan_drop_last(tn_scan *scan);

void tn_scan_free(tn_scan *scan);

#endif
