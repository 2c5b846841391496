/* SPDX-License-Identifier: Apache-2.0
 *
 * What the chain's promises cost, f32, one thread, candidate and reference in turn, medians of paired ratios:
 *   exact   a norm whose chunks are added exactly, against the same norm with a plain f64 sum
 *   vote    clip-norm, adamw against adamw: the gradient is read once more
 *   dry     adamw, cautious against adamw: the rule runs twice, the first time on copies
 *   tails   1,000 tensors of 1,000 elements against 1,000 of 1,008, which is a multiple of 16, by element
 *   caller  1,000 arrays of a caller, without padding, against 1,000 tensors in arenas
 * Run it with TENON_TEST_GOOD=build/plugins from a release build, in a quiet hour.
 */
#include <stdio.h>
#include <time.h>

#include "host/base/exact.h"
#define WORLD_PARAMETERS 1000
#include "tests/update.h"

#define TURNS 31
#define LARGE ((int64_t)16 << 20)
#define SMALL 1000

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct side {
    void (*run)(void *);
    void *arg;
    double weight; /* elements of a run */
} side;

static double time_of(const side *s, int repeat)
{
    double start = now();
    for (int i = 0; i < repeat; i++)
        s->run(s->arg);
    return (now() - start) / repeat / s->weight * 1e9;
}

static void compare(const char *what, side candidate, side reference, int repeat)
{
    double ratio[TURNS], best[2] = {1e9, 1e9};
    for (int i = -2; i < TURNS; i++) { /* the first two warm up */
        double a = time_of(&candidate, repeat), b = time_of(&reference, repeat);
        best[0] = a < best[0] ? a : best[0];
        best[1] = b < best[1] ? b : best[1];
        if (i >= 0)
            ratio[i] = a / b;
    }
    qsort(ratio, TURNS, sizeof *ratio, by_size);
    printf("%-8s %.3f (quartiles %.3f to %.3f), best %.3f against %.3f ns an element\n", what, ratio[TURNS / 2],
           ratio[TURNS / 4], ratio[TURNS * 3 / 4], best[0], best[1]);
}

/* ---- sums ---- */

typedef struct norm {
    const float *g;
    int64_t n;
    tn_exact exact;
    volatile double plain;
} norm;

__attribute__((noinline)) static double squares(const float *g)
{
    double lane[16] = {0}, sum = 0;
    for (int i = 0; i < TN_CHUNK; i += 16)
        for (int j = 0; j < 16; j++)
            lane[j] += (double)g[i + j] * (double)g[i + j];
    for (int j = 0; j < 16; j++)
        sum += lane[j];
    return sum;
}

static void norm_exact(void *arg)
{
    norm *n = arg;
    tn_exact_clear(&n->exact);
    for (int64_t i = 0; i < n->n; i += TN_CHUNK)
        tn_exact_add(&n->exact, squares(n->g + i));
    n->plain = tn_exact_value(&n->exact);
}

static void norm_plain(void *arg)
{
    norm *n = arg;
    double sum = 0;
    for (int64_t i = 0; i < n->n; i += TN_CHUNK)
        sum += squares(n->g + i);
    n->plain = sum;
}

/* ---- chains ---- */

static world *tensors(int64_t count, int64_t n, const char *first, const char *second)
{
    world *w = world_new(32, 1);
    for (int64_t i = 0; i < count; i++)
        world_vector(w, n);
    world_arenas(w);
    world_fill(w, w->parameters.p, 1);
    world_fill(w, w->parameters.g, 2);
    world_link(w, first);
    if (second)
        world_link(w, second);
    world_chain(w);
    return w;
}

static void step(void *arg) { world_step(arg, 1); }

static void compare_chains(const char *what, const char *first, const char *second)
{
    world *candidate = tensors(1, LARGE, first, second), *reference = tensors(1, LARGE, "adamw", NULL);
    compare(what, (side){step, candidate, LARGE}, (side){step, reference, LARGE}, 1);
    world_free(candidate);
    world_free(reference);
}

/* A caller's arrays: each where it begins in a block without gaps. */
static world *callers(int64_t count, int64_t n, float **ret_block)
{
    static void *p_of[WORLD_PARAMETERS], *g_of[WORLD_PARAMETERS];
    world *w = world_new(32, 1);
    float *block = calloc((size_t)(2 * count * n + 1), sizeof *block);
    ck_assert_ptr_nonnull(block);
    for (int64_t i = 0; i < count; i++) {
        world_vector(w, n);
        p_of[i] = block + 1 + i * n;
        g_of[i] = block + 1 + (count + i) * n;
    }
    w->parameters.p_of = p_of;
    w->parameters.g_of = g_of;
    world_link(w, "adamw");
    world_chain(w);
    *ret_block = block;
    return w;
}

static void compare_small(void)
{
    float *block;
    world *odd = tensors(SMALL, 1000, "adamw", NULL), *even = tensors(SMALL, 1008, "adamw", NULL);
    world *caller = callers(SMALL, 1000, &block);
    compare("tails", (side){step, odd, 1000.0 * SMALL}, (side){step, even, 1008.0 * SMALL}, 10);
    compare("caller", (side){step, caller, 1000.0 * SMALL}, (side){step, odd, 1000.0 * SMALL}, 10);
    world_free(odd);
    world_free(even);
    world_free(caller);
    free(block);
}

START_TEST(times)
{
    float *g = tn_alloc_aligned(LARGE * sizeof *g);
    ck_assert_ptr_nonnull(g);
    for (int64_t i = 0; i < LARGE; i++)
        g[i] = (float)world_noise(0, i, 3);
    norm n = {.g = g, .n = LARGE};
    compare("exact", (side){norm_exact, &n, LARGE}, (side){norm_plain, &n, LARGE}, 1);
    compare_chains("vote", "clip-norm", "adamw");
    compare_chains("dry", "adamw", "cautious");
    compare_small();
    tn_free(g);
}
END_TEST

/* The harness reports its own failures through libcheck. */
int main(void)
{
    Suite *suite = suite_create("bench");
    TCase *all = tcase_create("chain");
    tcase_set_timeout(all, 300);
    tcase_add_test(all, times);
    suite_add_tcase(suite, all);
    return test_main(suite);
}
