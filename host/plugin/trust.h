/* SPDX-License-Identifier: Apache-2.0
 *
 * trust.h: could someone else have written this file? A guard against other users of the machine, not
 * against a hostile plugin.
 *
 * A path is trusted if the file or directory and every ancestor belong to root, the effective user or the user that
 * TENON_TRUST_UID names (a number; ignored in setuid programs), and neither the group nor others may write to them. A
 * sticky bit excuses a writable ancestor, for no one can replace another's files there; it does not excuse a
 * directory that is searched, for anyone can add files.
 *
 * Every message is "UNTRUSTED_PATH: component: mode, owner; what to do". Thread rule: any thread, any time.
 */
#ifndef TENON_HOST_PLUGIN_TRUST_H
#define TENON_HOST_PLUGIN_TRUST_H

#include <sys/stat.h>

#include <tenon/base.h>

/* Checks `real_path` (absolute, without links: checks apply to the target of a link) and all its ancestors.
 * `is_search_dir`: a directory whose files are going to be found, so that its sticky bit excuses nothing. TN_E_PLUGIN
 * if it is not trusted, TN_E_IO if a component can not be examined. */
int32_t tn_trust_check(const char *real_path, int is_search_dir, tn_error *err);

/* One component only, already examined: a file of a directory that was checked. */
int32_t tn_trust_check_one(const char *path, const struct stat *stat, int excused_by_sticky, tn_error *err);

#endif
