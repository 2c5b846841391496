/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_load.c: what mapping a plugin and calling its entry leaves behind in the process.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/base/memory.h"
#include "host/check/dynamic.h"
#include "host/check/rules_file.h"

/* ---- mapping it, with nothing put back ---- */

static tn_entry *map(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_entry *entry = NULL;
    tn_check_stage(subject, "loading it");
    void *handle = dlopen(subject->path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void *symbol = handle ? dlsym(handle, TN_ENTRY) : NULL;
    tn_check_stage(subject, "calling %s", TN_ENTRY);
    if (!symbol)
        tn_check_skip(finding, "it can not be loaded: %s", dlerror());
    memcpy(&entry, &symbol, sizeof entry);
    return entry;
}

static const tn_plugin *enter(tn_entry *entry, tn_check_finding *finding)
{
    tn_error err = {0};
    const tn_plugin *plugin = entry(&err);
    if (!plugin)
        tn_check_fail(finding, "%s returned NULL: %s", TN_ENTRY, err.msg);
    return plugin;
}

/* Loads it and calls its entry; false if that is not possible. */
static bool use(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_entry *entry = map(subject, finding);
    return entry && enter(entry, finding);
}

/* ---- the entry once more ---- */

static uint64_t mix(uint64_t hash, const void *bytes, size_t size)
{
    for (const unsigned char *at = bytes, *end = at + size; at < end; at++)
        hash = (hash ^ *at) * 0x100000001B3u;
    return hash;
}

/* Of all that the record leads to, but the tables, whose sizes are those of their interfaces. */
static uint64_t record_hash(const tn_plugin *plugin)
{
    uint64_t hash = mix(0xCBF29CE484222325u, plugin, sizeof *plugin);
    hash = mix(hash, plugin->components, plugin->component_count * sizeof *plugin->components);
    for (uint32_t i = 0; i < plugin->component_count; i++) {
        const tn_component *component = plugin->components[i];
        hash = mix(hash, component, sizeof *component);
        hash = mix(hash, component->table, *(const uint32_t *)component->table);
    }
    return hash;
}

void tn_check_entry_twice(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_entry *entry = map(subject, finding);
    const tn_plugin *first = entry ? enter(entry, finding) : NULL;
    if (!first)
        return;
    uint64_t hash = record_hash(first);
    tn_check_stage(subject, "calling %s again", TN_ENTRY);
    const tn_plugin *second = enter(entry, finding);
    if (second && second != first)
        tn_check_fail(finding, "called again, %s returns another record (%p, was %p); return one static record",
                      TN_ENTRY, (const void *)second, (const void *)first);
    else if (second && record_hash(second) != hash)
        tn_check_fail(finding, "called again, %s has changed the record that it had returned; make it const", TN_ENTRY);
}

/* ---- modes of floating point ---- */

static bool compare_modes(tn_check_modes before, const char *when, tn_check_finding *finding)
{
    char words[128];
    if (tn_check_modes_compare(before, words, sizeof words))
        tn_check_fail(finding, "%s changes the arithmetic: %s; do not link with -ffast-math, -Ofast, -mpc32 or -mpc64",
                      when, words);
    return finding->verdict == TN_CHECK_PASSED;
}

void tn_check_float_modes(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_check_modes before = tn_check_modes_read();
    tn_entry *entry = map(subject, finding);
    if (entry && compare_modes(before, "loading it", finding) && enter(entry, finding))
        compare_modes(before, "its entry", finding);
}

/* ---- threads ---- */

/* Entries of a folder of /proc; -1: can not be read. */
static int count_entries(const char *path)
{
    int count = 0;
    DIR *dir = opendir(path);
    if (!dir)
        return -1;
    for (const struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

/* One that was joined is gone a moment later only. */
static int count_threads(int wanted)
{
    int count = count_entries("/proc/self/task");
    for (int i = 0; i < 200 && count > wanted; i++) {
        usleep(5000);
        count = count_entries("/proc/self/task");
    }
    return count;
}

void tn_check_threads(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_dynamic dynamic;
    if (!tn_check_open_needed(subject, &dynamic, finding))
        return;
    int before = count_entries("/proc/self/task");
    if (before < 0)
        tn_check_skip(finding, "/proc/self/task can not be read");
    else if (use(subject, finding)) {
        int now = count_threads(before);
        if (now != before)
            tn_check_fail(finding,
                          "%d thread%s left running; start them in a call, and join them before it returns: "
                          "the host counts on its own threads, and forks",
                          now - before, now - before == 1 ? " is" : "s are");
    }
}

/* ---- signals ---- */

static bool same_action(const struct sigaction *a, const struct sigaction *b)
{
    return a->sa_handler == b->sa_handler && a->sa_flags == b->sa_flags;
}

void tn_check_signals(const tn_check_subject *subject, tn_check_finding *finding)
{
    struct sigaction before[NSIG], now;
    sigset_t mask, mask_now;
    memset(before, 0, sizeof before);
    sigprocmask(SIG_SETMASK, NULL, &mask);
    for (int number = 1; number < NSIG; number++)
        sigaction(number, NULL, &before[number]);
    if (!use(subject, finding))
        return;
    sigprocmask(SIG_SETMASK, NULL, &mask_now);
    for (int number = 1; number < NSIG; number++) {
        const char *name = sigabbrev_np(number);
        memset(&now, 0, sizeof now);
        sigaction(number, NULL, &now);
        if (!same_action(&now, &before[number]))
            tn_check_fail(finding, "the handler of SIG%s is another one now; handlers are the program's", name);
        if (sigismember(&mask, number) != sigismember(&mask_now, number))
            tn_check_fail(finding, "SIG%s is %sblocked now; the mask is the program's", name,
                          sigismember(&mask_now, number) ? "" : "un");
    }
}

/* ---- the rest of a process ---- */

#define LIMITS 16 /* RLIMIT_NLIMITS is an enumerator */

typedef struct {
    mode_t mask;
    char folder[PATH_MAX];
    char *locale;
    locale_t thread_locale;
    char *environment; /* all of it, one a line */
    struct rlimit limits[LIMITS];
    int files;
} process_state;

static char *join_environment(void)
{
    tn_text text = {0};
    for (char **at = environ; at && *at; at++)
        tn_text_addf(&text, "%s\n", *at);
    return tn_text_take(&text);
}

static void read_process(process_state *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->mask = umask(0);
    umask(ret->mask);
    if (!getcwd(ret->folder, sizeof ret->folder))
        ret->folder[0] = '\0';
    ret->locale = tn_strdup(setlocale(LC_ALL, NULL));
    ret->thread_locale = uselocale((locale_t)0);
    ret->environment = join_environment();
    for (int i = 0; i < LIMITS; i++)
        getrlimit(i, &ret->limits[i]);
    ret->files = count_entries("/proc/self/fd");
}

static void compare_limits(const process_state *before, const process_state *now, tn_check_finding *finding)
{
    for (int i = 0; i < LIMITS; i++)
        if (before->limits[i].rlim_cur != now->limits[i].rlim_cur ||
            before->limits[i].rlim_max != now->limits[i].rlim_max)
            tn_check_fail(finding, "limit %d of the process (getrlimit) is %llu, was %llu", i,
                          (unsigned long long)now->limits[i].rlim_cur, (unsigned long long)before->limits[i].rlim_cur);
}

void tn_check_process(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_dynamic dynamic;
    process_state before, now;
    if (!tn_check_open_needed(subject, &dynamic, finding))
        return;
    read_process(&before);
    if (!use(subject, finding))
        return;
    read_process(&now);
    if (before.mask != now.mask)
        tn_check_fail(finding, "the umask is %03o, was %03o", now.mask, before.mask);
    if (strcmp(before.folder, now.folder) != 0)
        tn_check_fail(finding, "the working directory is %.200s, was %.200s", now.folder, before.folder);
    if (!before.locale || !now.locale || strcmp(before.locale, now.locale) != 0)
        tn_check_fail(finding, "the locale is %.200s, was %.200s; pass a locale to what needs one (newlocale)",
                      now.locale, before.locale);
    if (before.thread_locale != now.thread_locale)
        tn_check_fail(finding, "the thread has another locale (uselocale)");
    if (!before.environment || !now.environment || strcmp(before.environment, now.environment) != 0)
        tn_check_fail(finding, "the environment is changed (setenv, putenv); other threads may be reading it");
    compare_limits(&before, &now, finding);
    if (before.files != now.files)
        tn_check_fail(finding, "%d files are open, were %d", now.files, before.files);
}

/* ---- output ---- */

void tn_check_output(const tn_check_subject *subject, tn_check_finding *finding)
{
    char said[TN_CHECK_SAID];
    if (!use(subject, finding))
        return;
    fflush(NULL);
    ssize_t n = pread(subject->output, said, sizeof said - 1, 0);
    if (n > 0)
        tn_check_fail(finding, "it prints \"%.*s\"; return an error, or write to tn_services.log",
                      (int)strcspn((said[n] = '\0', said), "\n"), said);
}
