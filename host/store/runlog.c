/* SPDX-License-Identifier: Apache-2.0
 *
 * runlog.c: the log of a run.
 */
#include "host/store/runlog.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "host/base/memory.h"
#include "host/base/text.h"

#define KEPT_MAX ((size_t)1 << 16) /* bytes that wait for a folder */

struct tn_runlog {
    tn_log next;
    pthread_mutex_t lock;
    int fd; /* -1: no folder yet */
    tn_text kept;
};

static int32_t no_memory(tn_error *err) { return tn_error_set(err, TN_E_MEMORY, "no memory for the run's log"); }

/* "2026-01-31T12:00:00Z warning: ..." with its newline. Control characters become blanks. */
static size_t format_line(int32_t level, const char *line, char ret[TN_LOG_LINE + 64])
{
    static const char *const levels[] = {"debug", "info", "warning"};
    struct tm tm;
    time_t now = time(NULL);
    gmtime_r(&now, &tm);
    int size = snprintf(ret, TN_LOG_LINE + 63, "%04d-%02d-%02dT%02d:%02d:%02dZ %s: %s", tm.tm_year + 1900,
                        tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
                        levels[level < 0   ? 0
                               : level > 2 ? 2
                                           : level],
                        line);
    size = size < TN_LOG_LINE + 62 ? size : TN_LOG_LINE + 62;
    for (int i = 0; i < size; i++)
        if ((unsigned char)ret[i] < ' ' || ret[i] == 0x7F)
            ret[i] = ' ';
    ret[size] = '\n';
    return (size_t)size + 1;
}

static void put(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t done = write(fd, bytes, count);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return;
        bytes += done;
        count -= (size_t)done;
    }
}

static void take_line(void *user, int32_t level, const char *line)
{
    tn_runlog *runlog = user;
    char text[TN_LOG_LINE + 64];
    size_t size = format_line(level, line, text);
    pthread_mutex_lock(&runlog->lock);
    if (runlog->fd >= 0)
        put(runlog->fd, text, size);
    else if (runlog->kept.size + size <= KEPT_MAX)
        tn_text_addn(&runlog->kept, text, size);
    pthread_mutex_unlock(&runlog->lock);
    if (runlog->next.write)
        runlog->next.write(runlog->next.user, level, line);
}

int32_t tn_runlog_open(const tn_log *next, tn_runlog **ret, tn_error *err)
{
    tn_runlog *runlog = tn_alloc(1, sizeof *runlog);
    if (!runlog)
        return no_memory(err);
    if (next)
        runlog->next = *next;
    runlog->fd = -1;
    pthread_mutex_init(&runlog->lock, NULL);
    *ret = runlog;
    return TN_OK;
}

tn_log tn_runlog_log(tn_runlog *runlog) { return (tn_log){take_line, runlog}; }

/* One process at a time writes a run. The lock ends with its holder, however that ends. Where a file system has no
 * locks there is none. */
static int32_t hold(int fd, const char *folder, tn_error *err)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return TN_OK;
    return tn_error_set(err, TN_E_IO, "%s: another process writes this run; wait until it has ended, or stop it",
                        folder);
}

int32_t tn_runlog_put_in(tn_runlog *runlog, const char *folder, tn_error *err)
{
    char *path = tn_format("%s/" TN_RUNLOG_FILE, folder);
    if (!path || runlog->kept.failed) {
        tn_free(path);
        return no_memory(err);
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    int32_t status = fd < 0 ? tn_error_set(err, TN_E_IO, "%s: can not write: %s", path, strerror(errno)) : TN_OK;
    tn_free(path);
    if (status == TN_OK)
        status = hold(fd, folder, err);
    if (status != TN_OK) {
        if (fd >= 0)
            close(fd);
        return status;
    }
    pthread_mutex_lock(&runlog->lock);
    runlog->fd = fd;
    put(fd, tn_text_string(&runlog->kept), runlog->kept.size);
    tn_text_free(&runlog->kept);
    pthread_mutex_unlock(&runlog->lock);
    return TN_OK;
}

void tn_runlog_mute(tn_runlog *runlog) { runlog->next = (tn_log){0}; }

void tn_runlog_close(tn_runlog *runlog)
{
    if (!runlog)
        return;
    if (runlog->fd >= 0)
        close(runlog->fd);
    tn_text_free(&runlog->kept);
    pthread_mutex_destroy(&runlog->lock);
    tn_free(runlog);
}
