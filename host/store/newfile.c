/* SPDX-License-Identifier: Apache-2.0
 *
 * newfile.c: a file that appears whole under its name or not at all.
 */
#include "host/store/newfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/base/memory.h"

static int32_t io_error(tn_error *err, const char *what, const char *path)
{
    int full = errno == ENOSPC || errno == EDQUOT;
    return tn_error_set(err, TN_E_IO, "%s: can not %s: %s%s", path, what, strerror(errno),
                        full ? "; make room and try again: what was there before is as it was" : "");
}

/* Bytes of the folder's part of a path, its last '/' included. */
static size_t folder_bytes(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash + 1 - path) : 0;
}

/* Does the name still lead to the open file? Who had it before may have renamed it just now. */
static int is_named(int fd, const char *path)
{
    struct stat open, named;
    return fstat(fd, &open) == 0 && stat(path, &named) == 0 && open.st_dev == named.st_dev &&
           open.st_ino == named.st_ino;
}

/* The temporary file, empty and locked: two that write one file at once would mix its bytes. Where a file system has no
 * locks there is none. */
static int32_t open_alone(tn_newfile *file, tn_error *err)
{
    for (int tries = 0;; tries++) {
        file->fd = open(file->temporary, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (file->fd < 0)
            return io_error(err, "write", file->temporary);
        int busy = flock(file->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        if (!busy && (is_named(file->fd, file->temporary) || tries == 100))
            break;
        close(file->fd);
        file->fd = -1;
        if (busy)
            return tn_error_set(err, TN_E_IO, "%s: another process is writing it; wait until it has, or name another",
                                file->path);
    }
    return ftruncate(file->fd, 0) == 0 ? TN_OK : io_error(err, "write", file->temporary);
}

int32_t tn_newfile_open(const char *path, tn_newfile *ret, tn_error *err)
{
    int folder = (int)folder_bytes(path);
    *ret = (tn_newfile){-1, tn_strdup(path), tn_format("%.*s.%s.new", folder, path, path + folder)};
    if (!ret->path || !ret->temporary)
        return tn_error_set(err, TN_E_MEMORY, "no memory for a path");
    return open_alone(ret, err);
}

int32_t tn_newfile_write(tn_newfile *file, const void *bytes, size_t count, tn_error *err)
{
    for (const char *at = bytes; count > 0;) {
        ssize_t done = write(file->fd, at, count);
        if (done == 0)
            errno = EIO; /* a file that takes nothing and does not say why */
        if (done == 0 || (done < 0 && errno != EINTR))
            return io_error(err, "write", file->temporary);
        if (done > 0) {
            at += done;
            count -= (size_t)done;
        }
    }
    return TN_OK;
}

/* A rename is safe against a power cut once the folder itself is on disk. */
static int32_t sync_folder(const char *path, tn_error *err)
{
    size_t bytes = folder_bytes(path);
    char *folder = bytes ? tn_strndup(path, bytes) : tn_strdup(".");
    if (!folder)
        return tn_error_set(err, TN_E_MEMORY, "no memory for a path");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int32_t status = fd < 0 || fsync(fd) != 0 ? io_error(err, "put on disk the folder", folder) : TN_OK;
    if (fd >= 0)
        close(fd);
    tn_free(folder);
    return status;
}

/* Everything that puts the written file under its name. */
static int32_t settle(tn_newfile *file, tn_error *err)
{
    if (fsync(file->fd) != 0)
        return io_error(err, "write", file->temporary);
    if (rename(file->temporary, file->path) != 0)
        return io_error(err, "rename to its final name", file->temporary);
    return sync_folder(file->path, err);
}

int32_t tn_newfile_close(tn_newfile *file, int32_t status, tn_error *err)
{
    if (file->fd >= 0) {
        if (status == TN_OK)
            status = settle(file, err);
        if (status != TN_OK)
            unlink(file->temporary);
        close(file->fd); /* what it could still say, fsync has said */
    }
    tn_free(file->path);
    tn_free(file->temporary);
    *file = (tn_newfile){.fd = -1};
    return status;
}
