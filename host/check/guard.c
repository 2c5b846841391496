/* SPDX-License-Identifier: Apache-2.0
 *
 * guard.c: [no access] [left over | block | left over, in whole pages] [no access]
 */
#include "host/check/guard.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define FILL      0xA5
#define OPEN_MOST 256
#define NEAR      ((uintptr_t)1 << 24) /* bytes: farther away it is no block that was meant */

/* What the handler of signals looks through: entries come and go whole. */
static const tn_guard *open_guards[OPEN_MOST];
static char *watched;
static size_t watched_size;

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static unsigned char *pages_of(const tn_guard *guard) { return (unsigned char *)guard->map + page_bytes(); }
static size_t pages_size(const tn_guard *guard) { return guard->map_bytes - 2 * page_bytes(); }

static void list(const tn_guard *old, const tn_guard *new)
{
    for (size_t i = 0; i < OPEN_MOST; i++) {
        if (open_guards[i] != old)
            continue;
        open_guards[i] = new;
        return;
    }
}

int32_t tn_guard_open(const char *name, size_t bytes, size_t alignment, int32_t place, tn_guard *ret, tn_error *err)
{
    size_t page = page_bytes(), inner = (bytes + page - 1) / page * page;
    if (bytes > SIZE_MAX / 4)
        return tn_error_set(err, TN_E_MEMORY, "%s: no room for %zu bytes", name, bytes);
    unsigned char *map = mmap(NULL, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED || (inner && mprotect(map + page, inner, PROT_READ | PROT_WRITE) != 0))
        return tn_error_set(err, TN_E_MEMORY, "%s: no room for %zu bytes: %s", name, bytes, strerror(errno));
    size_t at = place == TN_GUARD_END ? (inner - bytes) / alignment * alignment : 0;
    memset(map + page, FILL, inner);
    *ret = (tn_guard){map + page + at, bytes, name, map, inner + 2 * page, 0};
    memset(ret->data, 0, bytes);
    list(NULL, ret);
    return TN_OK;
}

void tn_guard_close(tn_guard *guard)
{
    if (!guard->map)
        return;
    list(guard, NULL);
    munmap(guard->map, guard->map_bytes);
    *guard = (tn_guard){0};
}

void tn_guard_read_only(tn_guard *guard, int32_t read_only)
{
    if (guard->bytes)
        mprotect(pages_of(guard), pages_size(guard), read_only ? PROT_READ : PROT_READ | PROT_WRITE);
    guard->is_read_only = read_only;
}

size_t tn_guard_damage(const tn_guard *guard)
{
    const unsigned char *pages = pages_of(guard), *data = guard->data;
    size_t found = 0;
    for (const unsigned char *at = pages; at < data; at++)
        found += *at != FILL;
    for (const unsigned char *at = data + guard->bytes; at < pages + pages_size(guard); at++)
        found += *at != FILL;
    return found;
}

/* ---- the handler: nothing here may take a lock ---- */

static void add(const char *words)
{
    size_t used = strnlen(watched, watched_size - 1), n = strnlen(words, watched_size - 1 - used);
    memcpy(watched + used, words, n);
    watched[used + n] = '\0';
}

static void add_number(uintptr_t n)
{
    char digits[24], *at = digits + sizeof digits - 1;
    *at = '\0';
    do
        *--at = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    add(at);
}

/* 1 writing, 0 reading, -1 not known here. */
static int is_writing(const void *context)
{
#if defined __x86_64__
    return (((const ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
    (void)context;
    return -1;
#endif
}

static uintptr_t distance(const tn_guard *guard, uintptr_t at)
{
    uintptr_t lo = (uintptr_t)guard->data, hi = lo + guard->bytes;
    return at < lo ? lo - at : at >= hi ? at - hi : 0;
}

static const tn_guard *nearest(uintptr_t at)
{
    const tn_guard *best = NULL;
    for (size_t i = 0; i < OPEN_MOST; i++) {
        const tn_guard *guard = open_guards[i];
        if (guard && distance(guard, at) < NEAR && (!best || distance(guard, at) < distance(best, at)))
            best = guard;
    }
    return best;
}

static void tell(int number, siginfo_t *info, void *context)
{
    static const char *const doing[] = {"touching ", "reading ", "writing "};
    uintptr_t at = (uintptr_t)info->si_addr;
    const tn_guard *guard = nearest(at);
    if (guard && watched) {
        uintptr_t lo = (uintptr_t)guard->data, hi = lo + guard->bytes;
        add(*watched ? ", " : "");
        add(doing[is_writing(context) + 1]);
        if (at >= lo && at < hi) {
            add("to ");
        } else {
            add_number(at < lo ? lo - at : at - hi);
            add(at < lo ? " bytes before the start of " : " bytes behind the end of ");
        }
        add("'");
        add(guard->name);
        add(at >= lo && at < hi ? "', which is lent for reading only" : "'");
    }
    signal(number, SIG_DFL); /* the same access again ends the process */
}

void tn_guard_watch(char *words, size_t size)
{
    static char stack[65536];
    const stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_sigaction = tell, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    watched_size = size;
    watched = words;
    sigaltstack(&other, NULL);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}
