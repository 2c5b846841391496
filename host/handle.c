/* SPDX-License-Identifier: Apache-2.0
 *
 * handle.c: what the files that implement tenon.h share.
 */
#include "host/handle.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "host/base/memory.h"

int32_t tn_handle_experiment_of(const char *folder, char **ret, tn_error *err)
{
    struct stat found;
    char *path = tn_format("%s/experiment.resolved.yaml", folder);
    int32_t status = path ? TN_OK : tn_error_set(err, TN_E_MEMORY, "no memory for a path");
    if (path && stat(folder, &found) != 0)
        status = tn_error_set(err, TN_E_NOT_FOUND, "%s: %s; needed the folder of a run, as `tenon run` prints it",
                              folder, strerror(errno));
    else if (path && !S_ISDIR(found.st_mode))
        status = tn_error_set(err, TN_E_NOT_FOUND,
                              "%s: is a file; needed the folder of a run, as `tenon run` prints it", folder);
    else if (path && stat(path, &found) != 0 && errno == ENOENT)
        status = tn_error_set(
            err, TN_E_NOT_FOUND,
            "%s: is no folder of a run, which holds experiment.resolved.yaml; `tenon run` prints its own", folder);
    if (status == TN_OK)
        *ret = path;
    else
        tn_free(path);
    return status;
}

int32_t tn_handle_give(tn_text *text, int32_t status, char **ret, tn_error *err)
{
    if (status == TN_OK)
        status = tn_text_status(text, err);
    if (status == TN_OK) {
        *ret = tn_text_take(text);
        if (!*ret)
            status = tn_error_set(err, TN_E_MEMORY, "no memory for the text");
    }
    tn_text_free(text);
    return status;
}
