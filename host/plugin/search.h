/* SPDX-License-Identifier: Apache-2.0
 *
 * search.h: the directories in which plugins are found.
 *
 *   1. those in TENON_PLUGIN_PATH, with ':' between them; empty and relative ones are ignored, with a warning
 *   2. $XDG_DATA_HOME/tenon/plugins, or ~/.local/share/tenon/plugins
 *   3. plugins and tenon/1 beside the file that holds this code, so that a build tree, a wheel and an
 *      installation all find their own
 *
 * Never the working directory. A directory that does not exist is left out, one that comes twice is taken once.
 */
#ifndef TENON_HOST_PLUGIN_SEARCH_H
#define TENON_HOST_PLUGIN_SEARCH_H

#include <stddef.h>

#include "host/base/log.h"

typedef struct tn_search {
    char **directories; /* absolute, without links */
    size_t count;
} tn_search;

/* `secure`: as in a setuid program, where 1 and 2 are left out. The caller frees *ret with tn_search_free. Fails with
 * TN_E_MEMORY only. Thread rule: any thread, while none changes the environment. */
int32_t tn_search_path(int secure, const tn_log *log, tn_search *ret, tn_error *err);
void tn_search_free(tn_search *search);

/* The user's folder, 2 above, whether it exists or not; to be freed with tn_free. TN_E_NOT_FOUND where neither variable
 * names an absolute path; TN_E_MEMORY. */
int32_t tn_search_user_folder(char **ret, tn_error *err);

/* The shared library or program that holds this code, and its folder: absolute and without links, into PATH_MAX bytes.
 * 0 if it can not be told. Thread rule: any. */
int tn_search_own_file(char *ret);
int tn_search_own_folder(char *ret);

#endif
