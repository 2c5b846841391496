/* SPDX-License-Identifier: Apache-2.0
 *
 * Two half circles that reach into each other, in the plane, with noise. Sample i of a split is a function of (seed,
 * split, i): nothing is read and nothing is kept. A set that reads files does so in `describe` and `load`.
 */
#include <tenon/data.h>
#include <tenon/sdk.h>

#define HYPER(X)                                                                                                       \
    X(integer, train, 2048, "[1, 4294967295] samples", "of the split train")                                           \
    X(integer, test, 512, "[1, 4294967295] samples", "of the split test")                                              \
    X(fixed, noise, 0.1, "[0, inf)", "deviation of what is added to each number")                                      \
    X(integer, seed, 0, "[0, inf)", "another one gives another set")
TN_DECLARE(my_thing, HYPER)

typedef struct {
    int64_t split; /* 0 train, 1 test */
} my_thing_memory;

static int32_t my_thing_find(const char *split, int64_t *ret, tn_error *err)
{
    *ret = strcmp(split, "test") == 0;
    if (*ret || strcmp(split, "train") == 0)
        return TN_OK;
    return tn_fail(err, TN_E_NOT_FOUND, "data my-thing: no split \"%s\"; it has train and test", split);
}

/* What a split holds; the rest of *ret is 0. */
static int32_t my_thing_describe(const void *hyper, const char *split, tn_data_split *ret, tn_error *err)
{
    const my_thing *h = (const my_thing *)hyper;
    int64_t which;
    int32_t status = my_thing_find(split, &which, err);
    if (status)
        return status;
    ret->ndim = 1;
    ret->shape[0] = 2;
    ret->samples = which ? h->test : h->train;
    ret->classes = 2;
    ret->bytes = (int64_t)sizeof(my_thing_memory);
    return TN_OK;
}

static int32_t my_thing_load(const void *hyper, const char *split, const tn_data_split *described, const void *train,
                             void *memory, tn_error *err)
{
    (void)hyper, (void)described, (void)train;
    return my_thing_find(split, &((my_thing_memory *)memory)->split, err);
}

/* One point: angle, then two normal numbers by Box and Muller. */
static void my_thing_point(const my_thing *h, int64_t split, int64_t i, tn_real *x)
{
    tn_random4 random = tn_philox((uint64_t)h->seed, (uint64_t)i, (uint64_t)split);
    double angle = 3.141592653589793 * random.v[0] * 0x1p-32, turn = 6.283185307179586 * random.v[1] * 0x1p-32;
    double radius = h->noise * sqrt(-2 * log(((double)random.v[2] + 1) * 0x1p-32));
    x[0] = (tn_real)((i % 2 ? 1 - cos(angle) : cos(angle)) + radius * cos(turn));
    x[1] = (tn_real)((i % 2 ? 0.5 - sin(angle) : sin(angle)) + radius * sin(turn));
}

/* Samples index[0..n) into x, [n, 2], and target, [n] classes. */
static void my_thing_gather(const void *hyper, const void *memory, const tn_context *context, const int64_t *index,
                            int64_t n, int32_t augment, void *x, void *target)
{
    (void)context, (void)augment;
    for (int64_t i = 0; i < n; i++) {
        my_thing_point((const my_thing *)hyper, ((const my_thing_memory *)memory)->split, index[i],
                       (tn_real *)x + 2 * i);
        ((int32_t *)target)[i] = (int32_t)(index[i] % 2);
    }
}

static const tn_data my_thing_table = {sizeof(tn_data), 0, TN_CALL(my_thing_describe), TN_CALL(my_thing_load),
                                       TN_CALL(my_thing_gather)};
TN_COMPONENT(my_thing, "data", TN_DATA, TN_REAL, HYPER, "Two half circles in the plane",
             TN_FORMULA("(cos a, sin a) or (1 - cos a, 0.5 - sin a), a uniform in [0, pi), and noise"), my_thing_table);
TN_PLUGIN("org.example.my-thing", "0.1.0", "Apache-2.0", my_thing)
