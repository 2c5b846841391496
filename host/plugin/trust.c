/* SPDX-License-Identifier: Apache-2.0
 *
 * trust.c: could someone else have written this file?
 */
#include "host/plugin/trust.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/base/error.h"
#include "host/base/number.h"

static int trusted_owner(uid_t owner)
{
    int64_t site;
    const char *text = secure_getenv("TENON_TRUST_UID");
    return owner == 0 || owner == geteuid() ||
           (text && tn_parse_integer(text, &site) == TN_OK && site == (int64_t)owner);
}

int32_t tn_trust_check_one(const char *path, const struct stat *stat, int excused_by_sticky, tn_error *err)
{
    unsigned mode = stat->st_mode & 07777;
    if (!trusted_owner(stat->st_uid))
        return tn_error_set(
            err, TN_E_PLUGIN,
            "UNTRUSTED_PATH: %s: owned by user %u (mode %04o), needed root or user %u; change the owner "
            "or, if you trust that user, set TENON_TRUST_UID=%u",
            path, (unsigned)stat->st_uid, mode, (unsigned)geteuid(), (unsigned)stat->st_uid);
    if ((mode & 02) && S_ISDIR(stat->st_mode) && (mode & S_ISVTX) && !excused_by_sticky) /* /tmp is to stay as it is */
        return tn_error_set(err, TN_E_PLUGIN,
                            "UNTRUSTED_PATH: %s: mode %04o lets everyone write to it; put the plugins into a folder of "
                            "your own",
                            path, mode);
    if ((mode & 022) && !(excused_by_sticky && S_ISDIR(stat->st_mode) && (mode & S_ISVTX)))
        return tn_error_set(err, TN_E_PLUGIN, "UNTRUSTED_PATH: %s: mode %04o lets %s write to it; run: chmod go-w '%s'",
                            path, mode, mode & 02 ? "everyone" : "its group", path);
    return TN_OK;
}

static int32_t check_path(const char *path, int excused_by_sticky, tn_error *err)
{
    struct stat stat;
    if (lstat(path, &stat) != 0)
        return tn_error_set(err, TN_E_IO, "%s: %s: can not examine: %s", strerrorname_np(errno), path, strerror(errno));
    return tn_trust_check_one(path, &stat, excused_by_sticky, err);
}

int32_t tn_trust_check(const char *real_path, int is_search_dir, tn_error *err)
{
    char path[PATH_MAX];
    size_t length = strlen(real_path);
    if (real_path[0] != '/' || length >= sizeof path)
        return tn_error_set(err, TN_E_INVALID, "%s: not an absolute path of less than %d bytes", real_path, PATH_MAX);
    memcpy(path, real_path, length + 1);
    int32_t status = check_path(path, !is_search_dir, err);
    while (!status && strcmp(path, "/") != 0) {
        char *slash = strrchr(path, '/');
        slash[slash == path] = 0;
        status = check_path(path, 1, err);
    }
    return status;
}
