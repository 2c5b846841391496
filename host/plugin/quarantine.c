/* SPDX-License-Identifier: Apache-2.0
 *
 * quarantine.c: plugins that end the process as they load.
 */
#include "host/plugin/quarantine.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tenon/plugin.h>

#include "host/base/memory.h"
#include "host/plugin/hash.h"
#include "host/plugin/search.h"

static int is_disabled;

void tn_quarantine_disable(void) { is_disabled = 1; }

/* ---- a trial ---- */

static void try_in_child(const char *path, int pipe)
{
    tn_error err = {0};
    tn_entry *entry = NULL;
    const struct rlimit no_core = {1, 1}; /* 0 would still hand it to a program */
    int nowhere = open("/dev/null", O_RDWR);
    setrlimit(RLIMIT_CORE, &no_core);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = handle ? dlsym(handle, TN_ENTRY) : NULL;
    memcpy(&entry, &symbol, sizeof entry);
    if (entry)
        entry(&err);
    _exit(write(pipe, "", 1) != 1); /* what is wrong with it otherwise is told when it is loaded */
}

/* How the child ended without a word; "" if it came through. */
static void judge(pid_t child, int pipe, char *words, size_t size)
{
    struct pollfd wait_for = {.fd = pipe, .events = POLLIN};
    char byte;
    int how = 0;
    int late = poll(&wait_for, 1, TN_QUARANTINE_TRIAL_S * 1000) == 0;
    int came_through = !late && read(pipe, &byte, 1) == 1;
    if (late)
        kill(child, SIGKILL);
    while (waitpid(child, &how, 0) < 0 && errno == EINTR)
        ;
    if (came_through)
        *words = '\0';
    else if (late)
        snprintf(words, size, "it was not done after %d s", TN_QUARANTINE_TRIAL_S);
    else if (WIFSIGNALED(how))
        snprintf(words, size, "SIG%s ended it", sigabbrev_np(WTERMSIG(how)));
    else
        snprintf(words, size, "it ended its process with exit code %d", WEXITSTATUS(how));
}

/* As if it came through where no child can be had. */
static void try(const char *path, char *words, size_t size)
{
    int ends[2];
    *words = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0)
        return;
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        try_in_child(path, ends[1]);
    }
    close(ends[1]);
    if (child > 0)
        judge(child, ends[0], words, size);
    close(ends[0]);
}

/* ---- the folder ---- */

/* Made if needed; false where there can be none. */
static int32_t find_folder(char *ret, size_t size, tn_error *err)
{
    char *plugins;
    int32_t status = tn_search_user_folder(&plugins, err);
    if (status != TN_OK)
        return status;
    int length = snprintf(ret, size, "%.*s/loading", (int)(strrchr(plugins, '/') - plugins), plugins);
    tn_free(plugins);
    if (length < 0 || (size_t)length >= size)
        return TN_E_NOT_FOUND;
    for (char *slash = strchr(ret + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(ret, 0755);
        *slash = '/';
    }
    return mkdir(ret, 0700) == 0 || errno == EEXIST ? TN_OK : TN_E_NOT_FOUND;
}

/* Of a name "HASH-PID": was that process another one, and is it gone? */
static int is_abandoned(const char *name, const char *hash)
{
    size_t length = strlen(hash);
    if (strncmp(name, hash, length) != 0 || name[length] != '-')
        return 0;
    long pid = strtol(name + length + 1, NULL, 10);
    return pid > 0 && (pid == getpid() || (kill((pid_t)pid, 0) != 0 && errno == ESRCH));
}

/* Judges by a trial, once for all files of this hash; those of one that came through are removed. */
static int32_t look(const char *folder, const char *hash, const char *path, const tn_log *log, tn_error *err)
{
    char words[128] = "";
    int tried = 0;
    DIR *dir = opendir(folder);
    for (const struct dirent *entry; dir && !*words && (entry = readdir(dir));) {
        if (!is_abandoned(entry->d_name, hash))
            continue;
        if (!tried)
            try(path, words, sizeof words);
        tried = 1;
        if (*words)
            tn_error_set(err, TN_E_PLUGIN,
                         "QUARANTINED: %s: a process that was loading it never came back, and when it was tried just "
                         "now, %s; see `tenon check`, build it again, or remove %s/%s to load it all the same",
                         path, words, folder, entry->d_name);
        else
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir)
        closedir(dir);
    if (tried && !*words)
        tn_log_write(log, TN_LOG_INFO, "%s: a process ended while it loaded this, which now loads well", path);
    return *words ? TN_E_PLUGIN : TN_OK;
}

static void mark(const char *folder, const char *hash, const char *path, tn_quarantine *ret)
{
    int length = snprintf(ret->file, sizeof ret->file, "%s/%s-%ld", folder, hash, (long)getpid());
    int fd = length > 0 && (size_t)length < sizeof ret->file
                 ? open(ret->file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600)
                 : -1;
    if (fd < 0 || dprintf(fd, "%s\n", path) < 0)
        tn_quarantine_leave(ret);
    if (fd >= 0)
        close(fd);
}

int32_t tn_quarantine_enter(const char *path, const tn_log *log, tn_quarantine *ret, tn_error *err)
{
    char folder[PATH_MAX], hash[TN_HASH_TEXT];
    ret->file[0] = '\0';
    if (is_disabled || getauxval(AT_SECURE))
        return TN_OK;
    int32_t status = find_folder(folder, sizeof folder, err);
    if (status == TN_OK)
        status = tn_hash_file(path, hash, err);
    if (status != TN_OK)
        return status == TN_E_MEMORY ? status : TN_OK;
    status = look(folder, hash, path, log, err);
    if (status == TN_OK)
        mark(folder, hash, path, ret);
    return status;
}

void tn_quarantine_leave(tn_quarantine *quarantine)
{
    if (quarantine->file[0])
        unlink(quarantine->file);
    quarantine->file[0] = '\0';
}
