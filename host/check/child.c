/* SPDX-License-Identifier: Apache-2.0
 *
 * child.c: one rule in its own process. Only a finding that came whole through the pipe counts: a plugin that crashes,
 * hangs or calls exit(0) leaves none.
 */
#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host/base/memory.h"
#include "host/check/check.h"
#include "host/plugin/quarantine.h"

#define STAGE_BYTES 256

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* ---- what rules say ---- */

static void say(tn_check_finding *finding, int32_t verdict, const char *format, va_list arguments)
{
    finding->verdict = verdict;
    vsnprintf(finding->message, sizeof finding->message, format, arguments);
}

void tn_check_fail(tn_check_finding *finding, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (finding->verdict == TN_CHECK_PASSED || finding->verdict == TN_CHECK_SKIPPED)
        say(finding, TN_CHECK_FAILED, format, arguments);
    va_end(arguments);
}

void tn_check_skip(tn_check_finding *finding, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (finding->verdict == TN_CHECK_PASSED)
        say(finding, TN_CHECK_SKIPPED, format, arguments);
    va_end(arguments);
}

void tn_check_stage(const tn_check_subject *subject, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (format)
        vsnprintf(subject->stage, STAGE_BYTES, format, arguments);
    else
        *subject->stage = '\0';
    va_end(arguments);
}

static bool load(const tn_check_subject *subject, const tn_entry_info *entry, void *table, size_t size,
                 tn_check_finding *finding)
{
    tn_error err = {0};
    tn_check_stage(subject, "loading %s", entry->path);
    int32_t status = tn_registry_load(subject->registry, entry, table, size, &err);
    tn_check_stage(subject, NULL);
    if (status != TN_OK)
        tn_check_skip(finding, "can not be loaded: %s", err.msg);
    return status == TN_OK;
}

bool tn_check_load(const tn_check_subject *subject, void *table, size_t size, tn_check_finding *finding)
{
    return load(subject, subject->entry, table, size, finding);
}

bool tn_check_load_other(const tn_check_subject *subject, const char *kind, const char *name, uint32_t real,
                         void *table, size_t size, tn_check_finding *finding)
{
    tn_error err = {0};
    const tn_entry_info *entry;
    if (tn_registry_find(subject->registry, kind, name, "cpu", real, &entry, &err) == TN_OK)
        return load(subject, entry, table, size, finding);
    tn_check_skip(finding, "%s", err.msg);
    return false;
}

/* ---- shared memory ---- */

void *tn_check_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* ---- the child ---- */

static void limit(int what, int64_t value)
{
    struct rlimit now;
    if (getrlimit(what, &now) != 0)
        return;
    if (now.rlim_max == RLIM_INFINITY || (rlim_t)value < now.rlim_max)
        now.rlim_max = (rlim_t)value;
    now.rlim_cur = now.rlim_max;
    setrlimit(what, &now);
}

/* 1 byte of core: the kernel then neither writes one nor hands it to a program, which it would with 0. */
static void set_limits(const tn_check_options *options)
{
    limit(RLIMIT_CORE, 1);
    limit(RLIMIT_FSIZE, TN_CHECK_OUTPUT_MOST);
    if (!SANITIZED)
        limit(RLIMIT_AS, options->memory > 0 ? options->memory : TN_CHECK_MEMORY);
}

static void reset_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void settle(const tn_check_subject *subject, const tn_check_options *options)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    reset_signals();
    set_limits(options);
    tn_quarantine_disable();
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    __fpurge(stdout); /* what the parent has yet to write */
    __fpurge(stderr);
    dup2(subject->output, STDOUT_FILENO);
    dup2(subject->output, STDERR_FILENO);
    if (chdir(subject->folder) != 0)
        _exit(1);
}

static void send(int pipe, const tn_check_finding *finding)
{
    const char *at = (const char *)finding;
    for (size_t left = sizeof *finding; left > 0;) {
        ssize_t n = write(pipe, at, left);
        if (n < 0 && errno != EINTR)
            _exit(1);
        at += n > 0 ? n : 0;
        left -= n > 0 ? (size_t)n : 0;
    }
}

typedef struct {
    tn_check_finding finding;
    int done; /* a part that calls exit(0) never gets there */
} apart;

/* Ends this process as that one ended, unless it came to its end. */
static void end_alike(pid_t child, const apart *theirs)
{
    int how = 0;
    while (waitpid(child, &how, 0) < 0 && errno == EINTR)
        ;
    if (WIFSIGNALED(how)) {
        signal(WTERMSIG(how), SIG_DFL);
        raise(WTERMSIG(how));
    }
    if (!theirs->done)
        _exit(WEXITSTATUS(how));
}

bool tn_check_apart(const tn_check_subject *subject,
                    void (*part)(const tn_check_subject *subject, void *shared, tn_check_finding *finding),
                    void *shared, tn_check_finding *finding)
{
    apart *theirs = tn_check_shared(sizeof *theirs);
    if (!theirs)
        return tn_check_skip(finding, "no memory for a further process"), false;
    theirs->finding = *finding;
    pid_t child = fork();
    if (child < 0)
        return tn_check_skip(finding, "no further process: %s", strerror(errno)), false;
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        part(subject, shared, &theirs->finding);
        theirs->done = 1;
        _exit(0);
    }
    end_alike(child, theirs);
    *finding = theirs->finding;
    munmap(theirs, sizeof *theirs);
    return finding->verdict == TN_CHECK_PASSED;
}

/* ---- the parent ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Takes what is in the pipe; 1 when there will be no more. */
static int receive(int pipe, int wait_ms, char *into, size_t *got)
{
    struct pollfd poll_for = {.fd = pipe, .events = POLLIN};
    if (poll(&poll_for, 1, wait_ms) <= 0)
        return 0;
    ssize_t n = read(pipe, into + *got, sizeof(tn_check_finding) - *got);
    *got += n > 0 ? (size_t)n : 0;
    return *got == sizeof(tn_check_finding) || n == 0 || (n < 0 && errno != EINTR);
}

/* The child is gone when this returns, with all that it started in its group. 1 if its time was up. */
static int await(pid_t child, int pipe, double deadline, tn_check_finding *into, size_t *got, int *how)
{
    int done = 0, gone = 0, late = 0;
    while (!gone && !late && !done) {
        done = receive(pipe, 10, (char *)into, got);
        gone = waitpid(child, how, WNOHANG) == child;
        late = now() >= deadline;
    }
    while (gone && !done && receive(pipe, 0, (char *)into, got) == 0 && *got > 0 && *got < sizeof *into)
        ;
    /* What it does after the finding, or behind a closed pipe, has time too. */
    while (!gone && !late) {
        gone = waitpid(child, how, WNOHANG) == child;
        late = now() >= deadline;
        if (!gone && !late)
            poll(NULL, 0, 1);
    }
    kill(-child, SIGKILL);
    if (!gone) {
        kill(child, SIGKILL);
        while (waitpid(child, how, 0) < 0 && errno == EINTR)
            ;
    }
    return !gone;
}

/* The end of what it printed, one line. */
static void last_words(int output, char *ret, size_t size)
{
    off_t end = lseek(output, 0, SEEK_END);
    off_t at = end > (off_t)size - 1 ? end - ((off_t)size - 1) : 0;
    ssize_t n = pread(output, ret, size - 1, at);
    ret[n > 0 ? n : 0] = '\0';
    for (char *c = ret; *c; c++)
        *c = *c == '\n' || *c == '\t' ? ' ' : *c;
    for (size_t length = strlen(ret); length > 0 && ret[length - 1] == ' '; length--)
        ret[length - 1] = '\0';
}

static const char *signal_name(int number)
{
    const char *name = sigabbrev_np(number);
    return name ? name : "?";
}

static void tell_end(const tn_check_subject *subject, const tn_check_options *options, int how, int late,
                     tn_check_finding *ret)
{
    char said[TN_CHECK_SAID], what[128];
    const char *stage = subject->stage;
    last_words(subject->output, said, sizeof said);
    if (late)
        snprintf(what, sizeof what, "not done after %d s",
                 options->timeout_s > 0 ? options->timeout_s : TN_CHECK_TIMEOUT_S);
    else if (WIFSIGNALED(how))
        snprintf(what, sizeof what, "SIG%s (%s)", signal_name(WTERMSIG(how)), strsignal(WTERMSIG(how)));
    else
        snprintf(what, sizeof what, "ended the process with exit code %d", WEXITSTATUS(how));
    ret->verdict = late ? TN_CHECK_TIMED_OUT : TN_CHECK_CRASHED;
    snprintf(ret->message, sizeof ret->message, "%s%s%s%s%s", what, *stage ? " while " : "", stage,
             *said ? "; it said: " : "", said);
}

static int32_t start(const tn_check_rule *rule, const tn_check_subject *subject, const tn_check_options *options,
                     const int *ends, pid_t *ret, tn_error *err)
{
    *ret = fork();
    if (*ret < 0)
        return tn_error_set(err, TN_E_IO, "%s: %s: no process for it: %s", subject->path, rule->id, strerror(errno));
    if (*ret == 0) {
        tn_check_finding finding = {.rule = rule->id};
        close(ends[0]);
        settle(subject, options);
        tn_check_modes before = tn_check_modes_read();
        rule->run(subject, &finding);
        if (subject->entry)
            tn_check_calls_look(subject, before, &finding);
        send(ends[1], &finding);
        _exit(0);
    }
    setpgid(*ret, *ret);
    return TN_OK;
}

static int32_t run_in(const tn_check_rule *rule, const tn_check_subject *subject, const tn_check_options *options,
                      const int *ends, tn_check_finding *ret, tn_error *err)
{
    pid_t child;
    int how = 0;
    size_t got = 0;
    tn_check_finding found;
    double begin = now(), seconds = options->timeout_s > 0 ? options->timeout_s : TN_CHECK_TIMEOUT_S;
    int32_t status = start(rule, subject, options, ends, &child, err);
    close(ends[1]);
    if (status != TN_OK)
        return status;
    int late = await(child, ends[0], begin + seconds, &found, &got, &how);
    if (got == sizeof found && !late && WIFEXITED(how) && WEXITSTATUS(how) == 0) {
        ret->verdict = found.verdict;
        memcpy(ret->message, found.message, sizeof ret->message);
        ret->message[sizeof ret->message - 1] = '\0';
        memcpy(ret->left, found.left, sizeof ret->left);
        ret->left[sizeof ret->left - 1] = '\0';
    } else {
        tell_end(subject, options, how, late, ret);
    }
    ret->seconds = now() - begin;
    return TN_OK;
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *walk)
{
    (void)stat, (void)type, (void)walk;
    return remove(path);
}

static int32_t with_pipe(const tn_check_rule *rule, const tn_check_subject *subject, const tn_check_options *options,
                         tn_check_finding *ret, tn_error *err)
{
    int ends[2];
    if (pipe(ends) != 0)
        return tn_error_set(err, TN_E_IO, "%s: %s: no pipe: %s", subject->path, rule->id, strerror(errno));
    int32_t status = run_in(rule, subject, options, ends, ret, err);
    close(ends[0]);
    return status;
}

int32_t tn_check_child(const tn_check_rule *rule, const tn_check_subject *subject, const tn_check_options *options,
                       tn_check_finding *ret, tn_error *err)
{
    char folder[] = "/tmp/tenon-check-XXXXXX";
    tn_check_subject own = *subject;
    own.stage = tn_check_shared(STAGE_BYTES);
    own.output = memfd_create("tenon-check", MFD_CLOEXEC);
    own.folder = mkdtemp(folder);
    int32_t status = TN_OK;
    if (!own.stage || own.output < 0 || !own.folder)
        status = tn_error_set(err, TN_E_IO, "%s: %s: no folder in /tmp or no memory for it: %s", subject->path,
                              rule->id, strerror(errno));
    else
        status = with_pipe(rule, &own, options, ret, err);
    if (own.stage)
        munmap(own.stage, STAGE_BYTES);
    if (own.output >= 0)
        close(own.output);
    if (own.folder)
        nftw(own.folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return status;
}
