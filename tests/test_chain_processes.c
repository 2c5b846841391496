/* SPDX-License-Identifier: Apache-2.0
 *
 * The chain over two processes: parameters cut in odd places, or held whole by both. Scalars are summed exactly, so
 * lamb has the bits of one process; rows and columns are not, so adafactor is near. Maxima are the same in any case.
 */
#include "host/update/internal.h"
#include "tests/update.h"

#include "tests/processes.h"

#define STEPS 4

typedef struct plan {
    const char *const *links; /* to NULL */
    uint32_t real;
    int32_t replicated; /* bit i: parameter i is held whole by both */
    int32_t check;      /* a check of its own, of the gradients that each process has */
    int32_t bad;        /* a step with a gradient that is not finite, in this parameter; -1: none */
    world *whole;       /* the same in one process */
    double *p;          /* shared: [steps][elements] as the processes leave p, in whole's layout */
    double tolerance;   /* 0: the same bits */
} plan;

#define PARAMETERS 6
static const int64_t shapes[PARAMETERS][3] = {{2, 131, 700}, {1, 9000}, {2, 3, 5}, {2, 2000, 9}, {1, 4096}, {1, 7}};
/* Chunks of the first process; the rest is the other's, which may be none. */
static const int64_t first_chunks[PARAMETERS] = {7, 1, 1, 0, 1, 0};

static void add(world *w, const plan *it, int64_t i, int32_t rank, int32_t size)
{
    int64_t n = shapes[i][1] * (shapes[i][0] > 1 ? shapes[i][2] : 1), cut = first_chunks[i] * TN_CHUNK;
    cut = cut < n ? cut : n;
    int whole = size == 1 || (it->replicated >> i & 1);
    int64_t lo = whole || rank == 0 ? 0 : cut, end = whole || rank == 1 ? n : cut;
    if (lo % TN_CHUNK) /* nothing is left: an empty slice still begins on a chunk */
        lo = end = 0;
    world_slice(w, (int32_t)shapes[i][0], shapes[i] + 1, lo, end - lo);
    w->list[w->parameters.count - 1].replicas = whole ? size : 1;
}

static world *new_world(uint32_t real, int32_t threads)
{
    static int added;
    static const char *const files[] = {"links-rounds.so", "links-rounds-f64.so"};
    tn_error err;
    for (size_t i = 0; i < 2 && !added; i++)
        ck_ok(tn_registry_add_file(test_plugins(), test_path("TENON_TEST_PLUGINS", files[i]), &err), err);
    added = 1;
    return world_new(real, threads);
}

static world *build(const plan *it, tn_comm *comm)
{
    world *w = new_world(it->real, comm ? 2 : 1);
    w->comm = comm;
    for (int64_t i = 0; i < PARAMETERS; i++)
        add(w, it, i, tn_comm_rank(comm), tn_comm_size(comm));
    world_arenas(w);
    world_fill(w, w->parameters.p, 1);
    w->check_finite = it->check;
    for (const char *const *link = it->links; *link; link++)
        world_link(w, *link);
    world_chain(w);
    return w;
}

static void step(world *w, const plan *it, int at)
{
    world_fill(w, w->parameters.g, 2 + (uint64_t)at);
    w->present[1] = at != 1;
    if (at == 2 && it->bad >= 0 && w->list[it->bad].n) /* the last element, which one process has */
        for (int64_t j = 0; j < w->list[it->bad].n; j++)
            if (w->list[it->bad].lo + j == shapes[it->bad][1] - 1)
                world_put(w, w->parameters.g, it->bad, j, NAN);
    world_try_step(w, 0.5);
    int skipped = at == 2 && it->bad >= 0;
    ck_assert_msg(w->result.committed == !skipped, "step %d", at);
    ck_assert_int_eq(w->result.bad_parameter, skipped ? it->bad : -1);
}

static void body(tn_comm *comm, void *arg)
{
    const plan *it = arg;
    world *w = build(it, comm);
    for (int at = 0; at < STEPS; at++) {
        step(w, it, at);
        for (int64_t i = 0; i < PARAMETERS; i++)
            for (int64_t j = 0; j < w->list[i].n; j++)
                it->p[at * it->whole->parameters.elements + it->whole->at[i] + w->list[i].lo + j] = world_p(w, i, j);
    }
    ck_assert_int_eq(*tn_chain_update(w->chain), STEPS - (it->bad >= 0));
    world_free(w);
}

static void compare(plan *it)
{
    it->whole = build(it, NULL);
    it->p = processes_shared((size_t)(STEPS * it->whole->parameters.elements) * sizeof *it->p);
    processes_run(2, body, it);
    for (int at = 0; at < STEPS; at++) {
        const double *p = it->p + at * it->whole->parameters.elements;
        step(it->whole, it, at);
        for (int64_t i = 0; i < PARAMETERS; i++)
            for (int64_t j = 0; j < it->whole->list[i].n; j++) {
                double found = p[it->whole->at[i] + j], needed = world_p(it->whole, i, j);
                expect(fabs(found - needed) <= it->tolerance, "%s, step %d, parameter %d, element %d: %.17g, not %.17g",
                       it->links[0], at, (int)i, (int)j, found, needed);
            }
    }
    world_free(it->whole);
}

static const int32_t replications[] = {0, 0x5, 0x3F};

START_TEST(lamb_has_the_bits_of_one_process)
{
    for (uint32_t real = 32; real <= 64; real += 32)
        compare(&(plan){.links = (const char *const[]){"clip-norm", "lamb", "ema", NULL},
                        .real = real,
                        .replicated = replications[_i],
                        .bad = -1});
}
END_TEST

START_TEST(maxima_have_the_bits_of_one_process)
{
    for (uint32_t real = 32; real <= 64; real += 32) {
        compare(&(plan){.links = (const char *const[]){"sm3", "ema", NULL},
                        .real = real,
                        .replicated = replications[_i],
                        .bad = -1});
        compare(&(plan){.links = (const char *const[]){"crest", "peak", "sgd", NULL},
                        .real = real,
                        .replicated = replications[_i],
                        .bad = -1});
    }
}
END_TEST

START_TEST(adafactor_is_near_one_process)
{
    for (uint32_t real = 32; real <= 64; real += 32)
        compare(&(plan){.links = (const char *const[]){"adafactor", NULL},
                        .real = real,
                        .replicated = replications[_i],
                        .bad = -1,
                        .tolerance = real == 32 ? 1e-6 : 1e-12});
}
END_TEST

START_TEST(both_skip_what_one_must_skip)
{
    compare(&(plan){.links = (const char *const[]){"clip-norm", "adamw", NULL}, .real = 32, .bad = 1});
    compare(&(plan){.links = (const char *const[]){"adamw", NULL}, .real = 32, .check = 1, .bad = 1});
    compare(&(plan){.links = (const char *const[]){"lamb", "ema", NULL}, .real = 32, .bad = 4});
    compare(&(plan){.links = (const char *const[]){"sm3", NULL}, .real = 32, .bad = 1});
    compare(&(plan){.links = (const char *const[]){"peak", "adamw", NULL}, .real = 64, .bad = 5});
    compare(&(plan){.links = (const char *const[]){"clip-percentile", "lion", "cautious", NULL}, .real = 64, .bad = 5});
}
END_TEST

START_TEST(the_slices_and_replicas_are_checked)
{
    world *w = world_new(32, 1);
    world_vector(w, 10);
    world_arenas(w);
    world_link(w, "sgd");
    w->list[0].replicas = 3;
    world_chain(w); /* one process does not care */
    world_free(w);
}
END_TEST

static void wrong_replicas(tn_comm *comm, void *arg)
{
    (void)arg;
    world *w = world_new(32, 1);
    w->comm = comm;
    world_vector(w, 10);
    world_arenas(w);
    world_link(w, "sgd");
    w->list[0].replicas = 3;
    ck_assert_refused(world_try_chain(w), TN_E_UNSUPPORTED, w->err, "parameter 'p0'", "3 of 2");
    world_free(w);
}

START_TEST(a_slice_held_by_some_is_refused) { processes_run(2, wrong_replicas, NULL); }
END_TEST

static void gap(tn_comm *comm, void *arg)
{
    const int64_t n = 3 * TN_CHUNK;
    (void)arg;
    world *w = world_new(32, 1);
    w->comm = comm;
    world_slice(w, 1, &n, tn_comm_rank(comm) ? 2 * TN_CHUNK : 0, TN_CHUNK);
    world_arenas(w);
    world_link(w, "sgd");
    ck_assert_refused(world_try_chain(w), TN_E_INVALID, w->err, "parameter 'p0'", "8192 elements, needed 12288");
    world_free(w);
}

START_TEST(a_gap_between_slices_is_refused) { processes_run(2, gap, NULL); }
END_TEST

static void listed(tn_comm *comm, void *arg)
{
    world *w = build(arg, comm);
    tn_chain_slot row = world_slot(w, "adafactor", "row", 0), whole = world_slot(w, "adafactor", "v", 4),
                  cut = world_slot(w, "adafactor", "v", 1);
    ck_assert(row.replicated && row.elements == 131);
    ck_assert(whole.replicated && whole.elements == 4096);
    ck_assert(!cut.replicated && cut.elements == w->list[1].n);
    world_free(w);
}

START_TEST(slots_say_whether_all_processes_hold_them)
{
    plan it = {.links = (const char *const[]){"adafactor", NULL}, .real = 32, .replicated = 0x10, .bad = -1};
    processes_run(2, listed, &it);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chain processes");
    TCase *tests = tcase_create("chain processes");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, lamb_has_the_bits_of_one_process, 0, 3);
    tcase_add_loop_test(tests, maxima_have_the_bits_of_one_process, 0, 3);
    tcase_add_loop_test(tests, adafactor_is_near_one_process, 0, 3);
    tcase_add_test(tests, both_skip_what_one_must_skip);
    tcase_add_test(tests, the_slices_and_replicas_are_checked);
    tcase_add_test(tests, a_slice_held_by_some_is_refused);
    tcase_add_test(tests, a_gap_between_slices_is_refused);
    tcase_add_test(tests, slots_say_whether_all_processes_hold_them);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
