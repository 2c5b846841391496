/* SPDX-License-Identifier: Apache-2.0
 *
 * install.h: a plugin file put where this user's plugins are found.
 */
#ifndef TENON_HOST_PLUGIN_INSTALL_H
#define TENON_HOST_PLUGIN_INSTALL_H

#include "host/base/log.h"
#include "host/base/text.h"

typedef struct tn_installed {
    char *path;    /* where it is now; freed by tn_installed_free */
    tn_text names; /* "optimizer/lion (cpu f32)", ..., one a line; freed too */
} tn_installed;

/* Checks `path` as listing and validation do (gate, notes, interfaces, facts, rows; a path that others could write is
 * warned about), without running its code, and copies it into tn_search_user_folder, which is made if needed: whole or
 * not at all, mode 0644. Refused unless `force`, with TN_E_INVALID: a file of its name that is there, and a component
 * that another file has. TN_E_PLUGIN for what can not be used and for a folder that others could write to; TN_E_IO,
 * TN_E_NOT_FOUND, TN_E_MEMORY. [main] */
int32_t tn_install(const char *path, int32_t force, const tn_log *log, tn_installed *ret, tn_error *err);
void tn_installed_free(tn_installed *installed);

#endif
