/* SPDX-License-Identifier: Apache-2.0
 *
 * file.c: reading a small text file whole.
 */
#include "host/experiment/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/base/memory.h"
#include "host/experiment/place.h"

static int32_t system_error(tn_place place, const char *what, tn_error *err)
{
    int32_t code = errno == ENOENT || errno == ENOTDIR ? TN_E_NOT_FOUND : TN_E_IO;
    return tn_place_error(err, code, place, "can not %s: %s", what, strerrordesc_np(errno));
}

static int32_t check(tn_place place, int file, size_t limit, tn_error *err)
{
    struct stat stat;
    if (fstat(file, &stat))
        return system_error(place, "examine", err);
    if (!S_ISREG(stat.st_mode))
        return tn_place_error(err, TN_E_INVALID, place, "%s; needed a regular file",
                              S_ISDIR(stat.st_mode) ? "a directory" : "a device, FIFO or socket");
    if ((uint64_t)stat.st_size > limit)
        return tn_place_error(err, TN_E_INVALID, place, "%lld bytes; at most %zu are read", (long long)stat.st_size,
                              limit);
    return TN_OK;
}

/* Fills `bytes`, which has room for limit + 2. */
static int32_t read_all(tn_place place, int file, size_t limit, char *bytes, size_t *ret_size, tn_error *err)
{
    size_t size = 0;
    for (ssize_t got = 1; got > 0 && size <= limit;) {
        got = read(file, bytes + size, limit + 1 - size);
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got < 0)
            return system_error(place, "read", err);
        else
            size += (size_t)got;
    }
    if (size > limit)
        return tn_place_error(err, TN_E_INVALID, place, "more than %zu bytes", limit);
    *ret_size = size;
    return TN_OK;
}

int32_t tn_read_whole_file(const char *path, size_t limit, char **ret_bytes, size_t *ret_size, tn_error *err)
{
    const tn_place_text text = {path, "", 0, 1};
    const tn_place place = {&text, TN_WHOLE};
    int file = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (file < 0)
        return system_error(place, "open", err);
    char *bytes = NULL;
    int32_t status = check(place, file, limit, err);
    if (!status && !(bytes = tn_alloc(limit + 2, 1)))
        status = tn_place_error(err, TN_E_MEMORY, place, "out of memory while reading");
    if (!status)
        status = read_all(place, file, limit, bytes, ret_size, err);
    close(file);
    if (status)
        tn_free(bytes);
    else
        *ret_bytes = bytes;
    return status;
}
