/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes that a step says it moves, against those that it moves: all memory of a chain is protected, and a fault
 * lets in one page, as a cache of CACHE pages would. A page that is let in counts as read, one that was written counts
 * again when it leaves.
 */
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "host/update/internal.h"
#include "tests/update.h"

#define PAGE     4096
#define CACHE    32
#define REGIONS  16
#define ELEMENTS (512 * 1024)

/* ---- the cache ---- */

static struct {
    char *from[REGIONS], *to[REGIONS];
    int regions;
    char *page[CACHE];
    int written[CACHE], next;
    int64_t reads, writes;
} cache;

static void evict(int at)
{
    if (cache.page[at])
        mprotect(cache.page[at], PAGE, PROT_NONE);
    cache.writes += cache.written[at];
    cache.page[at] = NULL;
    cache.written[at] = 0;
}

static int is_watched(const char *page)
{
    for (int i = 0; i < cache.regions; i++)
        if (page >= cache.from[i] && page < cache.to[i])
            return 1;
    return 0;
}

/* The first touch lets a page in to be read, a second fault of it is a write. Where the machine says that the first one
 * writes, nothing is read: the chain then writes whole pages. */
static int is_write(const void *context)
{
#if defined __x86_64__ && defined REG_ERR
    return (((const ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
    (void)context;
    return 0;
#endif
}

static void fault(int number, siginfo_t *info, void *context)
{
    char *page = (char *)((uintptr_t)info->si_addr / PAGE * PAGE);
    if (!is_watched(page)) {
        signal(number, SIG_DFL);
        return;
    }
    for (int i = 0; i < CACHE; i++)
        if (cache.page[i] == page) {
            cache.written[i] = 1;
            mprotect(page, PAGE, PROT_READ | PROT_WRITE);
            return;
        }
    evict(cache.next);
    cache.page[cache.next] = page;
    cache.written[cache.next] = is_write(context);
    cache.reads += !cache.written[cache.next];
    mprotect(page, PAGE, cache.written[cache.next] ? PROT_READ | PROT_WRITE : PROT_READ);
    cache.next = (cache.next + 1) % CACHE;
}

/* The whole pages of a block. */
static void watch(void *data, int64_t bytes)
{
    char *from = (char *)(((uintptr_t)data + PAGE - 1) / PAGE * PAGE);
    char *to = (char *)(((uintptr_t)data + (uintptr_t)bytes) / PAGE * PAGE);
    if (bytes < 16 * PAGE) /* what fold writes */
        return;
    ck_assert_int_lt(cache.regions, REGIONS);
    cache.from[cache.regions] = from;
    cache.to[cache.regions++] = to;
    ck_assert_int_eq(mprotect(from, (size_t)(to - from), PROT_NONE), 0);
}

static void unwatch(void)
{
    for (int i = 0; i < CACHE; i++)
        evict(i);
    for (int i = 0; i < cache.regions; i++)
        mprotect(cache.from[i], (size_t)(cache.to[i] - cache.from[i]), PROT_READ | PROT_WRITE);
    cache.regions = 0;
}

/* ---- a step under watch ---- */

static int64_t measure(world *w)
{
    struct sigaction action = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO | SA_NODEFER}, old;
    tn_step_result result = {0};
    cache.reads = cache.writes = 0;
    sigaction(SIGSEGV, &action, &old);
    watch(w->parameters.p, w->parameters.elements * (int64_t)(w->parameters.real / 8));
    watch(w->parameters.g, w->parameters.elements * (int64_t)(w->parameters.real / 8));
    for (size_t i = 0; i < tn_chain_slot_count(w->chain); i++) {
        tn_chain_slot slot;
        tn_chain_slot_at(w->chain, i, &slot);
        watch(slot.data, slot.bytes);
    }
    if (w->chain->backup)
        watch(w->chain->backup, w->chain->backup_at[w->parameters.count]);
    int32_t status = tn_chain_step(w->chain, &(tn_step){.scale = 1, .attempt = 7}, &result, &w->err);
    unwatch();
    sigaction(SIGSEGV, &old, NULL);
    ck_assert(status == TN_OK && result.committed);
    return (cache.reads + cache.writes) * PAGE;
}

static int32_t same_gradient(void *user, double *ret_loss, tn_error *err)
{
    (void)user, (void)err;
    *ret_loss = 0;
    return TN_OK;
}

static const struct {
    const char *links[6];
    int32_t check;
    double bytes;  /* a parameter; counted by hand */
    double unread; /* of these, p in rounds of rules that do not look at it */
} chains[] = {
    {{"sgd"}, 0, 4 + 8, 0},
    {{"adamw"}, 0, 4 + 8 + 16, 0},
    {{"clip-norm", "adamw", "ema"}, 0, 4 + 4 + 8 + 16 + 8, 0},
    {{"adamw", "ema"}, 1, 4 + 4 + 8 + 16 + 8, 0},
    {{"lamb"}, 0, 16 + 4 + 8 + 16, 0},
    {{"adafactor"}, 0, 8 + 8 + 4 + 8, 8},
    {{"clip-norm", "heavy-ball", "clip-percentile", "sgd"}, 0, 4 + 8 + 4 + 8 + 8, 0},
    {{"lion", "cautious", "unit-step"}, 0, 24 + 4 + 8 + 8, 8},
    {{"sam", "sgd"}, 0, 4 + 4 + 4 + 20 + 4 + 8, 0},
};

START_TEST(a_step_moves_what_it_says)
{
    static const char *const files[] = {"links-rounds.so"};
    static const tn_signals signals = {.gradient = same_gradient};
    const int64_t shape[] = {512, 1024};
    world *w;
    tn_error err;
    ck_ok(tn_registry_add_file(test_plugins(), test_path("TENON_TEST_PLUGINS", files[0]), &err), err);
    w = world_new(32, 1);
    world_slice(w, 2, shape, 0, -1);
    world_arenas(w);
    world_fill(w, w->parameters.p, 1);
    world_fill(w, w->parameters.g, 2);
    for (const char *const *link = chains[_i].links; *link; link++)
        world_link(w, *link);
    w->check_finite = chains[_i].check;
    w->signals = &signals;
    world_chain(w);
    world_step(w, 1);
    double said = (double)tn_chain_bytes_moved(w->chain), found = (double)measure(w);
    ck_assert_double_eq(said / ELEMENTS, chains[_i].bytes);
    /* Pages at the ends of blocks are not whole. */
    double unread = chains[_i].unread * ELEMENTS;
    ck_assert_msg(fabs(found + unread - said) < 0.02 * said, "%s: moved %g bytes a parameter, said %g",
                  chains[_i].links[0], found / ELEMENTS, said / ELEMENTS);
    world_free(w);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chain traffic");
    TCase *tests = tcase_create("chain traffic");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, a_step_moves_what_it_says, 0, sizeof chains / sizeof *chains);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
