/* SPDX-License-Identifier: Apache-2.0
 *
 * machine.c: processors, memory and disk.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "host/base/memory.h"
#include "host/doctor/doctor.h"

#define MIB ((uint64_t)1 << 20)

/* The first line of a small file of the system; 0 where it can not be read. */
static int first_line(const char *path, char *ret, int size)
{
    FILE *file = fopen(path, "re");
    int found = file && fgets(ret, size, file);
    if (file)
        fclose(file);
    if (found)
        ret[strcspn(ret, "\n")] = '\0';
    return found;
}

/* ---- processors ---- */

static void list_features(char *ret, size_t size)
{
    ret[0] = '\0';
#if defined __x86_64__
#define ADD(feature, name)                                                                                             \
    if (__builtin_cpu_supports(feature))                                                                               \
        snprintf(ret + strlen(ret), size - strlen(ret), "%s" name, *ret ? ", " : "");
    ADD("sse4.2", "SSE4.2")
    ADD("avx2", "AVX2")
    ADD("fma", "FMA")
    ADD("avx512f", "AVX-512")
#undef ADD
#endif
    if (!*ret)
        snprintf(ret, size, "the base instruction set only");
}

/* Processors' worth of time that the control group grants, as "max 100000" or "150000 100000"; 0: no limit. */
static double granted(void)
{
    char line[128], *end;
    if (!first_line("/sys/fs/cgroup/cpu.max", line, sizeof line))
        return 0;
    unsigned long long quota = strtoull(line, &end, 10), period = strtoull(end, NULL, 10);
    return quota > 0 && period > 0 ? (double)quota / (double)period : 0;
}

static void examine_processors(tn_doctor *d)
{
    cpu_set_t set;
    char features[128];
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    long usable = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : online;
    double time = granted();
    list_features(features, sizeof features);
    tn_doctor_add(d, "processor", TN_DOCTOR_OK, NULL, "%ld of %ld processors may be used; %s", usable, online,
                  features);
    if (time > 0 && time < (double)usable) {
        char fix[64];
        snprintf(fix, sizeof fix, "train.threads=%d", time < 1 ? 1 : (int)time);
        tn_doctor_add(d, "processor", TN_DOCTOR_NOTE, fix,
                      "the control group grants the time of %.1f of them: threads beyond that slow a run down", time);
    }
}

/* ---- memory ---- */

static uint64_t available_memory(void)
{
    char line[128];
    uint64_t kib = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "MemAvailable:", 13) == 0)
            kib = strtoull(line + 13, NULL, 10);
    if (file)
        fclose(file);
    return kib << 10;
}

static void examine_memory(tn_doctor *d)
{
    char line[128];
    struct rlimit limit;
    uint64_t available = available_memory();
    tn_doctor_add(d, "memory", TN_DOCTOR_OK, NULL, "%" PRIu64 " MiB are available", available / MIB);
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < available)
        tn_doctor_add(d, "memory", TN_DOCTOR_NOTE, "ulimit -v unlimited",
                      "a process may take %" PRIu64 " MiB of addresses, less than there is",
                      (uint64_t)limit.rlim_cur / MIB);
    if (first_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line) && strstr(line, "[never]"))
        tn_doctor_add(d, "memory", TN_DOCTOR_NOTE,
                      "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
                      "pages of 2 MiB are switched off: updates of large models are slower");
}

/* ---- disk ---- */

/* The longest part of a path that exists, "." at least; to be freed. */
static char *existing_part(const char *path)
{
    char *part = tn_strdup(*path ? path : ".");
    while (part && access(part, F_OK) != 0) {
        char *slash = strrchr(part, '/');
        if (!slash || slash == part) {
            strcpy(part, slash ? "/" : ".");
            break;
        }
        *slash = '\0';
    }
    return part;
}

static void examine_folder(tn_doctor *d, const char *folder)
{
    struct statvfs disk;
    uint64_t left;
    if (statvfs(folder, &disk) != 0) {
        tn_doctor_add(d, "disk", TN_DOCTOR_WRONG, "take another folder with --runs", "%s: can not be examined: %s",
                      folder, strerror(errno));
        return;
    }
    left = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (access(folder, W_OK | X_OK) != 0)
        tn_doctor_add(d, "disk", TN_DOCTOR_WRONG, "take a folder that you may write to with --runs",
                      "%s: runs can not be written there: %s", folder, strerror(errno));
    else if (left < 256 * MIB || (disk.f_files > 0 && disk.f_favail == 0))
        tn_doctor_add(d, "disk", TN_DOCTOR_WRONG,
                      "make room, or take a folder on another disk with --runs; checkpoint.keep=1 keeps fewer",
                      "%s: %" PRIu64 " MiB and %" PRIu64 " files are left for runs", folder, left / MIB,
                      (uint64_t)disk.f_favail);
    else
        tn_doctor_add(d, "disk", TN_DOCTOR_OK, NULL, "%" PRIu64 " MiB are left for runs in %s", left / MIB, folder);
}

static void examine_disk(tn_doctor *d)
{
    struct statvfs shared;
    char *folder = existing_part(d->runs);
    d->failed |= !folder;
    if (folder)
        examine_folder(d, folder);
    tn_free(folder);
    if (access("/dev/shm", W_OK | X_OK) != 0)
        tn_doctor_add(d, "disk", TN_DOCTOR_NOTE, "mount -t tmpfs tmpfs /dev/shm",
                      "/dev/shm can not be written: runs of several processes (collective: shm) need it");
    else if (statvfs("/dev/shm", &shared) == 0 && (uint64_t)shared.f_bavail * shared.f_frsize < 64 * MIB)
        tn_doctor_add(d, "disk", TN_DOCTOR_NOTE,
                      "mount -o remount,size=1g /dev/shm; in a container, start it with --shm-size=1g",
                      "/dev/shm has %" PRIu64 " MiB left: runs of several processes (collective: shm) may need more",
                      (uint64_t)shared.f_bavail * shared.f_frsize / MIB);
}

void tn_doctor_machine(tn_doctor *d)
{
    examine_processors(d);
    examine_memory(d);
    examine_disk(d);
}
