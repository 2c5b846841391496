/* SPDX-License-Identifier: Apache-2.0
 *
 * Every rule that the registry finds, by loops: its golden trajectories (golden/rules.json), and the same bits for any
 * threads, slices, stops and skips. Then the bundled links one by one: cases of the project's list, by their id.
 */
#include <jansson.h>

#include "tests/malloc_count.h"
#include "tests/update.h"

static json_t *golden(void)
{
    static json_t *root;
    return root ? root : (root = test_golden("rules.json", NULL));
}

static json_t *vector_at(size_t i) { return json_array_get(json_object_get(golden(), "vectors"), i); }

static size_t vector_count(void) { return json_array_size(json_object_get(golden(), "vectors")); }

static double number(const json_t *list, size_t i) { return json_real_value(json_array_get(list, i)); }

static json_t *chains(void) { return json_object_get(golden(), "chains"); }

static void add_link(world *w, const char *component, json_t *settings)
{
    const char *row;
    json_t *value;
    world_link(w, component);
    json_object_foreach(settings, row, value)
        ck_assert_msg(
            tn_instance_set(w->links[w->link_count - 1], w->registry, row, json_string_value(value), &w->err) == TN_OK,
            "%s", w->err.msg);
}

/* The gradient as a function of the parameters, where a chain has a curvature: a base, kept here, plus that times p. */
typedef struct field {
    world *w;
    double curvature;
    void *base; /* an arena */
    int32_t asked;
} field;
static field slope;
static const tn_signals slopes;

/* Adds the component of a vector, or the links of a chain, with their settings. */
static void add_links(world *w, json_t *subject)
{
    size_t i;
    json_t *link, *links = json_object_get(subject, "links");
    if (!links)
        add_link(w, json_string_value(json_object_get(subject, "component")), json_object_get(subject, "settings"));
    json_array_foreach(links, i, link)
        add_link(w, json_string_value(json_object_get(link, "use")), json_object_get(link, "settings"));
    slope.curvature = json_number_value(json_object_get(subject, "curvature"));
    w->signals = slope.curvature != 0 ? &slopes : NULL;
}

static const char *name_of(const json_t *subject)
{
    static char name[128];
    size_t i;
    json_t *link;
    const char *component = json_string_value(json_object_get(subject, "component"));
    snprintf(name, sizeof name, "%s", component ? component : "");
    json_array_foreach(json_object_get(subject, "links"), i, link)
        snprintf(name + strlen(name), sizeof name - strlen(name), "%s%s", i ? ", " : "",
                 json_string_value(json_object_get(link, "use")));
    return name;
}

/* Call it once g is the base: adds what the parameters make of it. */
static void bend(world *w)
{
    size_t bytes = (size_t)w->parameters.elements * (w->parameters.real / 8);
    if (slope.curvature == 0)
        return;
    slope.w = w;
    slope.base = realloc(slope.base, bytes);
    memcpy(slope.base, w->parameters.g, bytes);
    slopes.gradient(&slope, NULL, NULL);
}

static int32_t slope_gradient(void *user, double *ret_loss, tn_error *err)
{
    (void)user;
    (void)err;
    world *w = slope.w;
    slope.asked++;
    for (int64_t i = 0; i < w->parameters.count; i++)
        for (int64_t j = 0; j < w->list[i].n; j++)
            world_put(w, w->parameters.g, i, j, world_get(w, slope.base, i, j) + slope.curvature * world_p(w, i, j));
    if (ret_loss)
        *ret_loss = 0;
    return TN_OK;
}
static const tn_signals slopes = {.user = &slope, .gradient = slope_gradient};

/* ---- golden trajectories ---- */

static int32_t is_in_a_chain(const char *component)
{
    size_t i, j;
    json_t *chain, *link;
    json_array_foreach(chains(), i, chain)
        json_array_foreach(json_object_get(chain, "links"), j, link)
            if (strcmp(json_string_value(json_object_get(link, "use")), component) == 0)
                return 1;
    return 0;
}

/* Links after the step change no parameter, and rules of matrices and layers need more than elements: they have tests
 * of their own. */
START_TEST(every_rule_has_a_vector)
{
    tn_registry *registry = test_plugins();
    size_t rules = 0;
    for (size_t i = 0; i < tn_registry_count(registry); i++) {
        const tn_entry_info *entry = tn_registry_at(registry, i);
        const tn_component_info *info;
        if (entry->state != TN_FOUND || strcmp(entry->interface, TN_OPTIMIZER) != 0 || entry->own)
            continue; /* a foreign function: test_foreign */
        ck_assert_int_eq(tn_registry_info(registry, entry, &info, NULL), TN_OK);
        const char *stage = json_string_value(json_object_get(info->facts, "stage"));
        const char *grain = json_string_value(json_object_get(info->facts, "grain"));
        int32_t whole = grain && (strcmp(grain, "matrix") == 0 || strcmp(grain, "layer") == 0);
        int32_t found = whole || strcmp(stage, "after") == 0 || is_in_a_chain(entry->name);
        rules += strcmp(stage, "rule") == 0;
        for (size_t j = 0; j < vector_count(); j++)
            found |= strcmp(json_string_value(json_object_get(vector_at(j), "component")), entry->name) == 0;
        ck_assert_msg(found, "rule '%s' has no vector in golden/rules.json; add it to golden/rules.py", entry->name);
    }
    ck_assert_uint_ge(rules, 10);
}
END_TEST

static const int64_t shapes[][2] = {{0, 0}, {0, 0}, {1, 0}, {7, 0}, {3, 5}, {64, 128}, {2, 3}, {31, 0}};
static const int32_t axes[] = {1, 0, 1, 1, 2, 2, 2, 1};
#define SHAPES 8

static void fill_repeated(world *w, void *arena, const json_t *row)
{
    for (int64_t i = 0; i < w->parameters.count; i++)
        for (int64_t j = 0; j < w->list[i].n; j++)
            world_put(w, arena, i, j, number(row, (size_t)j % json_array_size(row)));
}

static int is_whole(const json_t *vector) { return json_is_true(json_object_get(vector, "whole")); }

/* Rounding errors of f32 are relative to the largest number that the element went through. */
static void compare(const world *w, const json_t *right, double *largest, size_t step, const json_t *vector)
{
    const char *component = json_string_value(json_object_get(vector, "component"));
    size_t period = json_array_size(right);
    for (size_t e = 0; e < period; e++)
        largest[e] = fmax(largest[e], fabs(number(right, e)));
    for (int64_t i = 0; i < w->parameters.count; i++)
        /* A rule of whole tensors sees the same norms' ratio only where the input is repeated whole. */
        for (int64_t j = 0; j < w->list[i].n && !(is_whole(vector) && w->list[i].n % (int64_t)period); j++) {
            size_t e = (size_t)j % period;
            double found = world_p(w, i, j), needed = number(right, e);
            double allowed = w->parameters.real == 64 ? 1e-12 : 2e-6 * (double)step * largest[e];
            expect(fabs(found - needed) <= allowed, "%s f%u: step %zu, shape %d, element %d: %.17g, needed %.17g",
                   component, w->parameters.real, step, (int)i, (int)j, found, needed);
        }
}

START_TEST(rules_follow_their_golden_trajectories)
{
    for (size_t v = 0; v < vector_count(); v++)
        for (uint32_t real = 32; real <= 64; real += 32) {
            json_t *vector = vector_at(v), *p = json_object_get(vector, "p");
            json_t *input = json_object_get(json_object_get(golden(), "inputs"),
                                            json_string_value(json_object_get(vector, "input")));
            double largest[64] = {0};
            world *w = world_new(real, 2);
            for (size_t s = 0; s < SHAPES; s++)
                world_slice(w, axes[s], shapes[s], 0, -1);
            world_arenas(w);
            fill_repeated(w, w->parameters.p, json_object_get(input, "p0"));
            for (size_t e = 0; e < json_array_size(json_object_get(input, "p0")); e++)
                largest[e] = fabs(number(json_object_get(input, "p0"), e));
            add_links(w, vector);
            world_chain(w);
            for (size_t step = 0; step < json_array_size(p); step++) {
                fill_repeated(w, w->parameters.g, json_array_get(json_object_get(input, "g"), step));
                world_step(w, 1);
                compare(w, json_array_get(p, step), largest, step + 1, vector);
            }
            world_free(w);
        }
}
END_TEST

static tn_instance *link_of_stage(const world *w, const char *stage)
{
    for (size_t i = 0; i < w->link_count; i++)
        if (strcmp(json_string_value(json_object_get(w->links[i]->info->facts, "stage")), stage) == 0)
            return w->links[i];
    return NULL;
}

static int32_t has_stage(const world *w, const char *stage) { return link_of_stage(w, stage) != NULL; }

/* ---- golden chains, over parameters of many shapes at once ---- */

static const json_t *at(const json_t *list, size_t i, size_t j) { return json_array_get(json_array_get(list, i), j); }

static void compare_chain(const world *w, const json_t *right, size_t step, const json_t *chain)
{
    const json_t *which = json_object_get(golden(), "at");
    for (size_t i = 0; i < json_array_size(which); i++)
        for (size_t j = 0; j < json_array_size(json_array_get(which, i)); j++) {
            int64_t element = json_integer_value(at(which, i, j));
            double found = world_p(w, (int64_t)i, element), needed = json_real_value(at(right, i, j));
            double allowed = w->parameters.real == 64 ? 1e-12 : 2e-6 * (double)step * fmax(2, fabs(needed));
            expect(fabs(found - needed) <= allowed, "%s f%u: step %zu, shape %zu, element %d: %.17g, needed %.17g",
                   name_of(chain), w->parameters.real, step, i, (int)element, found, needed);
        }
}

static world *golden_world(const json_t *chain, uint32_t real, json_t *input)
{
    size_t s, a;
    json_t *shape, *extent;
    world *w = world_new(real, 2);
    json_array_foreach(json_object_get(golden(), "shapes"), s, shape) {
        int64_t extents[TN_MAX_DIMS] = {0};
        json_array_foreach(shape, a, extent)
            extents[a] = json_integer_value(extent);
        world_slice(w, (int32_t)json_array_size(shape), extents, 0, -1);
    }
    world_arenas(w);
    fill_repeated(w, w->parameters.p, json_object_get(input, "p0"));
    add_links(w, (json_t *)chain);
    world_chain(w);
    return w;
}

START_TEST(chains_follow_their_golden_trajectories)
{
    size_t c, step;
    json_t *chain, *right;
    json_array_foreach(chains(), c, chain)
        for (uint32_t real = 32; real <= 64; real += 32) {
            json_t *input = json_object_get(json_object_get(golden(), "inputs"),
                                            json_string_value(json_object_get(chain, "input")));
            world *w = golden_world(chain, real, input);
            json_array_foreach(json_object_get(chain, "p"), step, right) {
                fill_repeated(w, w->parameters.g, json_array_get(json_object_get(input, "g"), step));
                bend(w);
                slope.asked = 0;
                world_step(w, 1);
                ck_assert_int_eq(slope.asked, has_stage(w, "source"));
                compare_chain(w, right, step + 1, chain);
            }
            world_free(w);
        }
}
END_TEST

/* ---- loops over every vector's rule and settings, and every chain ---- */

static size_t subject_count(void) { return vector_count() + json_array_size(chains()); }

static json_t *subject_at(size_t i)
{
    return i < vector_count() ? vector_at(i) : json_array_get(chains(), i - vector_count());
}

#define LONG (17 * TN_CHUNK + 1234) /* over a stretch, and a ragged end */

static world *long_world(json_t *vector, uint32_t real, int32_t threads)
{
    world *w = world_new(real, threads);
    world_vector(w, LONG);
    world_vector(w, 100);
    world_vector(w, 2 * TN_CHUNK + 1);
    world_slice(w, 2, (int64_t[]){131, 700}, 0, -1); /* rows over chunks and stretches */
    world_slice(w, 3, (int64_t[]){37, 3, 5}, 0, -1);
    world_slice(w, 2, (int64_t[]){3, 0}, 0, -1);
    world_arenas(w);
    world_fill(w, w->parameters.p, 1);
    add_links(w, vector);
    world_chain(w);
    return w;
}

static void long_steps(world *w, uint64_t first, uint64_t end)
{
    for (uint64_t step = first; step < end; step++) {
        world_fill(w, w->parameters.g, 2 + step);
        bend(w);
        w->present[1] = w->present[4] = step != 1;
        world_step(w, 0.75);
        w->present[1] = w->present[4] = 1;
    }
}

static uint64_t hash_of(json_t *vector, uint32_t real, int32_t threads)
{
    world *w = long_world(vector, real, threads);
    long_steps(w, 0, 3);
    uint64_t hash = world_hash(w);
    world_free(w);
    return hash;
}

#define FOR_EACH_RULE(vector, real)                                                                                    \
    for (size_t v_ = 0; v_ < subject_count(); v_++)                                                                    \
        if (strcmp(json_string_value(json_object_get(subject_at(v_), "input")), "base") == 0)                          \
            for (uint32_t real = 32; real <= 64; real += 32)                                                           \
                for (json_t *vector = subject_at(v_); vector; vector = NULL)

#define assert_same(a, b, vector, what) expect((a) == (b), "%s: %s changes bits", name_of(vector), what)

START_TEST(threads_do_not_change_bits)
{
    FOR_EACH_RULE(vector, real)
    {
        uint64_t one = hash_of(vector, real, 1);
        assert_same(hash_of(vector, real, 2), one, vector, "a second thread");
        assert_same(hash_of(vector, real, 3), one, vector, "a third thread");
    }
}
END_TEST

static void copy_state(const world *from, world *to)
{
    size_t real = from->parameters.real / 8;
    memcpy(to->parameters.p, from->parameters.p, (size_t)from->parameters.elements * real);
    for (size_t i = 0; i < tn_chain_slot_count(from->chain); i++) {
        tn_chain_slot a, b;
        tn_chain_slot_at(from->chain, i, &a);
        tn_chain_slot_at(to->chain, i, &b);
        ck_assert_int_eq(a.bytes, b.bytes);
        memcpy(b.data, a.data, (size_t)a.bytes);
    }
    memcpy(tn_chain_clocks(to->chain), tn_chain_clocks(from->chain), (size_t)from->parameters.count * sizeof(int64_t));
    *tn_chain_update(to->chain) = *tn_chain_update(from->chain);
    to->attempt = from->attempt;
}

START_TEST(stopping_and_going_on_does_not_change_bits)
{
    FOR_EACH_RULE(vector, real)
    {
        world *whole = long_world(vector, real, 1), *stopped = long_world(vector, real, 1),
              *resumed = long_world(vector, real, 2);
        long_steps(whole, 0, 4);
        long_steps(stopped, 0, 2);
        copy_state(stopped, resumed);
        long_steps(resumed, 2, 4);
        assert_same(world_hash(resumed), world_hash(whole), vector, "stopping");
        world_free(whole);
        world_free(stopped);
        world_free(resumed);
    }
}
END_TEST

/* 1 if a link has a round with a sum for each tensor. */
static int32_t sums_tensors(json_t *subject)
{
    int32_t found = 0;
    size_t j;
    json_t *round;
    world *w = world_new(32, 1);
    add_links(w, subject);
    for (size_t i = 0; i < w->link_count; i++)
        json_array_foreach(json_object_get(w->links[i]->info->facts, "rounds"), j, round)
            found |= strcmp(json_string_value(json_object_get(round, "scope")), "tensor") == 0;
    world_free(w);
    return found;
}

/* As world_fill, but all slices are of tensor 0. */
static void fill_as_one(world *w, void *arena, uint64_t salt)
{
    for (int64_t i = 0; i < w->parameters.count; i++)
        for (int64_t j = 0; j < w->list[i].n; j++)
            world_put(w, arena, i, j, world_noise(0, w->list[i].lo + j, salt));
}

START_TEST(slices_do_not_change_bits)
{
    static const int64_t n = LONG, cuts[] = {9 * TN_CHUNK, LONG, 0, TN_CHUNK, TN_CHUNK, 9 * TN_CHUNK};
    FOR_EACH_RULE(vector, real)
    {
        if (sums_tensors(vector)) /* a slice is another tensor to it; over processes: see the tests of shards */
            continue;
        world *whole = world_new(real, 1), *sliced = world_new(real, 2), *both[] = {whole, sliced};
        world_vector(whole, n);
        for (size_t i = 0; i < 6; i += 2)
            world_slice(sliced, 1, &n, cuts[i], cuts[i + 1] - cuts[i]);
        for (size_t b = 0; b < 2; b++) {
            world *w = both[b];
            world_arenas(w);
            fill_as_one(w, w->parameters.p, 1);
            add_links(w, vector);
            world_chain(w);
            for (uint64_t salt = 2; salt < 5; salt++) {
                fill_as_one(w, w->parameters.g, salt);
                bend(w);
                world_step(w, 1);
            }
        }
        for (int64_t i = 0; i < 3; i++)
            for (int64_t j = 0; j < sliced->list[i].n; j++)
                assert_same(world_p(sliced, i, j), world_p(whole, 0, sliced->list[i].lo + j), vector, "slicing");
        world_free(whole);
        world_free(sliced);
    }
}
END_TEST

START_TEST(absent_and_skipped_gradients_change_no_bit)
{
    FOR_EACH_RULE(vector, real)
    {
        world *w = long_world(vector, real, 2);
        tn_chain_destroy(w->chain);
        w->check_finite = 1;
        world_chain(w);
        long_steps(w, 0, 2);
        uint64_t before = world_hash(w);
        world_put(w, w->parameters.g, 2, 5, NAN);
        world_try_step(w, 1);
        ck_assert_int_eq(w->result.committed, 0);
        ck_assert_int_eq(w->result.bad_parameter, 2);
        assert_same(world_hash(w), before, vector, "a skipped step");
        world_fill(w, w->parameters.g, 2);
        memset(w->present, 0, (size_t)w->parameters.count);
        world_step(w, 1);
        *tn_chain_update(w->chain) -= 1;
        assert_same(world_hash(w), before, vector, "a step without gradients");
        world_free(w);
    }
}
END_TEST

/* OPT-16: a tensor that starts at 0 has norm 0; the trust ratio is 1 and it moves. A zero gradient leaves it at 0. */
START_TEST(lamb_moves_a_tensor_that_starts_at_zero)
{
    static const double needed[] = {-0.00999999, -0.009999995};
    for (uint32_t real = 32; real <= 64; real += 32)
        for (int zero = 0; zero < 2; zero++) {
            world *w = world_new(real, 1);
            world_vector(w, 2);
            world_arenas(w);
            world_link(w, "lamb");
            ck_assert_int_eq(tn_instance_set(w->links[0], w->registry, "lr", "0.01", &w->err), TN_OK);
            ck_assert_int_eq(tn_instance_set(w->links[0], w->registry, "weight_decay", "0", &w->err), TN_OK);
            world_chain(w);
            for (int64_t j = 0; j < 2; j++) {
                world_put(w, w->parameters.p, 0, j, 0);
                world_put(w, w->parameters.g, 0, j, zero ? 0 : (double)(j + 1));
            }
            world_step(w, 1);
            for (int64_t j = 0; j < 2; j++)
                expect(fabs(world_p(w, 0, j) - (zero ? 0 : needed[j])) <= (real == 64 ? 1e-10 : 2e-6) * 0.01,
                       "f%u: element %d: %.17g", real, (int)j, world_p(w, 0, j));
            world_free(w);
        }
}
END_TEST

/* Moments that die out: the ratio grows beyond f32, and no parameter may become NaN. */
START_TEST(lamb_survives_a_gradient_that_stays_zero)
{
    world *w = world_new(32, 1);
    world_vector(w, 64);
    world_arenas(w);
    world_fill(w, w->parameters.p, 1);
    world_fill(w, w->parameters.g, 2);
    world_link(w, "lamb");
    ck_assert_int_eq(tn_instance_set(w->links[0], w->registry, "weight_decay", "0", &w->err), TN_OK);
    ck_assert_int_eq(tn_instance_set(w->links[0], w->registry, "lr", "0.01", &w->err), TN_OK);
    world_chain(w);
    for (int step = 0; step < 1500; step++) {
        world_step(w, 1);
        for (int64_t j = 0; j < 64; j++) {
            expect(isfinite(world_p(w, 0, j)), "step %d: element %d is not finite", step, (int)j);
            world_put(w, w->parameters.g, 0, j, 0);
        }
    }
    world_free(w);
}
END_TEST

/* The y sequence of schedule-free sgd, lr 0.1, beta 0.9, as the other record has it; z and x by the paper's formulas.
 */
START_TEST(schedule_free_follows_the_other_record)
{
    static const double w0[6] = {1.0, -0.5, 0.25, 0.75, 2.0, -1.5};
    static const double g[3][6] = {
        {0.5, -0.25, 1.0, -0.1, 0.0, 0.2}, {-0.3, 0.4, 0.1, 0.6, -0.2, 0.05}, {0.2, 0.1, -0.7, 0.0, 0.3, -0.4}};
    static const double y[3][6] = {
        {0.95, -0.475, 0.15, 0.76, 2.0, -1.52},
        {0.9664999999999999, -0.497, 0.1445, 0.727, 2.011, -1.5227499999999998},
        {0.9630000000000001, -0.507, 0.17099999999999996, 0.718, 2.0020000000000002, -1.5074999999999998}};
    for (uint32_t real = 32; real <= 64; real += 32) {
        double z[6], x[6], allowed = real == 64 ? 1e-12 : 1e-6;
        world *w = world_new(real, 2);
        world_vector(w, 6);
        world_arenas(w);
        for (int64_t j = 0; j < 6; j++)
            world_put(w, w->parameters.p, 0, j, z[j] = x[j] = w0[j]);
        world_link(w, "sgd");
        ck_assert_int_eq(tn_instance_set(w->links[0], w->registry, "lr", "0.1", &w->err), TN_OK);
        world_link(w, "schedule-free");
        world_chain(w);
        for (int t = 1; t <= 3; t++) {
            for (int64_t j = 0; j < 6; j++)
                world_put(w, w->parameters.g, 0, j, g[t - 1][j]);
            world_step(w, 1);
            const void *view = tn_chain_view(w->chain);
            for (int64_t j = 0; j < 6; j++) {
                z[j] -= 0.1 * g[t - 1][j];
                x[j] = (1 - 1.0 / t) * x[j] + z[j] / t;
                double seen = real == 64 ? ((const double *)view)[j] : ((const float *)view)[j];
                expect(fabs(world_p(w, 0, j) - y[t - 1][j]) <= allowed, "f%u step %d: y[%d] %.17g", real, t, (int)j,
                       world_p(w, 0, j));
                expect(fabs(seen - x[j]) <= allowed, "f%u step %d: x[%d] %.17g, needed %.17g", real, t, (int)j, seen,
                       x[j]);
            }
        }
        world_free(w);
    }
}
END_TEST

/* A warm-up of 2: steps weigh 1/4, 1, 1; decay acts at y. */
START_TEST(schedule_free_weighs_its_warm_up_and_keeps_decay)
{
    static const double weight[] = {0.25, 1, 1};
    double z = 1, x = 1, y = 1, sum = 0;
    world *w = world_new(64, 1);
    world_vector(w, 1);
    world_arenas(w);
    world_put(w, w->parameters.p, 0, 0, 1);
    world_link(w, "sgd");
    ck_assert_int_eq(tn_instance_set(w->links[0], w->registry, "lr", "0.1", &w->err), TN_OK);
    ck_assert_int_eq(tn_instance_set(w->links[0], w->registry, "weight_decay", "0.5", &w->err), TN_OK);
    world_link(w, "schedule-free");
    ck_assert_int_eq(tn_instance_set(w->links[1], w->registry, "warmup", "2", &w->err), TN_OK);
    world_chain(w);
    for (int t = 0; t < 3; t++) {
        world_put(w, w->parameters.g, 0, 0, 0.5 - t);
        world_step(w, 1);
        sum += weight[t];
        z -= 0.1 * (0.5 - t) + 0.1 * 0.5 * y;
        x += weight[t] / sum * (z - x);
        y = 0.1 * z + 0.9 * x;
        expect(fabs(world_p(w, 0, 0) - y) <= 1e-12, "step %d: %.17g, needed %.17g", t + 1, world_p(w, 0, 0), y);
    }
    world_free(w);
}
END_TEST

static uint64_t schedule_free_hash(uint32_t real, int32_t threads)
{
    world *w = world_new(real, threads);
    world_vector(w, LONG);
    world_vector(w, 100);
    world_vector(w, 2 * TN_CHUNK + 1);
    world_arenas(w);
    world_fill(w, w->parameters.p, 1);
    world_link(w, "clip-norm");
    world_link(w, "adamw");
    world_link(w, "schedule-free");
    world_link(w, "ema");
    world_chain(w);
    long_steps(w, 0, 3);
    uint64_t before = world_hash(w);
    world_put(w, w->parameters.g, 2, 5, NAN);
    world_try_step(w, 1);
    ck_assert_int_eq(w->result.committed, 0);
    ck_assert(world_hash(w) == before);
    world_free(w);
    return before;
}

START_TEST(schedule_free_has_the_same_bits_for_any_threads)
{
    for (uint32_t real = 32; real <= 64; real += 32)
        for (int32_t threads = 2; threads <= 3; threads++)
            ck_assert(schedule_free_hash(real, threads) == schedule_free_hash(real, 1));
}
END_TEST

START_TEST(steps_allocate_nothing)
{
    FOR_EACH_RULE(vector, real)
    {
        world *w = long_world(vector, real, 2);
        long_steps(w, 0, 1);
        int32_t status = TN_OK;
        int64_t ours = tn_memory_count(), all = malloc_count();
        for (int i = 0; i < 3; i++)
            status |= tn_chain_step(w->chain, &(tn_step){.scale = 1, .attempt = i}, &w->result, &w->err);
        all = malloc_count() - all;
        ours = tn_memory_count() - ours;
        ck_assert_msg(all == 0 && ours == 0, "%s allocates: %lld times, %lld of them the host's", name_of(vector),
                      (long long)all, (long long)ours);
        ck_assert_int_eq(status, TN_OK);
        world_free(w);
    }
}
END_TEST

static int32_t is_zero(const tn_chain_slot *slot)
{
    static const char zero[8];
    for (int64_t at = 0; at < slot->bytes; at += 4)
        if (memcmp((const char *)slot->data + at, zero, 4) != 0)
            return 0;
    return 1;
}

/* A mean or sum of whole steps, lr included, or what is learned only from steps that move something. */
static int32_t needs_steps(const tn_chain_slot *slot)
{
    static const char *const those[][2] = {
        {"adafactor", "m"},    {"sgdw", "buffer"},     {"lars", "buffer"},
        {"prodigy", "s"},      {"prodigy", "largest"}, {"prodigy", "numerator"},
        {"d-adapt-adam", "m"}, {"d-adapt-adam", "s"},  {"d-adapt-adam", "numerator"}};
    for (size_t i = 0; i < sizeof those / sizeof *those; i++)
        if (strcmp(slot->link, those[i][0]) == 0 && strcmp(slot->slot, those[i][1]) == 0)
            return 1;
    return 0;
}

/* They set p anew, which rounds; or have no lr that may be 0; or decay without it. */
static int32_t has_another_lr(const char *name)
{
    static const char *const those[] = {"adamw, schedule-free", "sgd, lookahead", "adamw, lookahead", "rprop", "freeze",
                                        "adamw, weight-decay"};
    for (size_t i = 0; i < sizeof those / sizeof *those; i++)
        if (strcmp(name, those[i]) == 0)
            return 1;
    return 0;
}

START_TEST(lr_0_moves_the_state_but_no_parameter)
{
    FOR_EACH_RULE(vector, real)
    {
        if (has_another_lr(name_of(vector)))
            continue;
        world *w = long_world(vector, real, 1);
        size_t bytes = (size_t)w->parameters.elements * (real / 8);
        for (int64_t j = 0; j < 10; j++)
            world_put(w, w->parameters.p, 1, j, -0.0);
        void *p = malloc(bytes);
        memcpy(p, w->parameters.p, bytes);
        ck_assert_int_eq(tn_instance_set(link_of_stage(w, "rule"), w->registry, "lr", "0", &w->err), TN_OK);
        tn_instance_set(link_of_stage(w, "rule"), w->registry, "decay", "torch",
                        NULL); /* where it has the row: lr times it */
        long_steps(w, 0, 3);
        ck_assert_msg(memcmp(p, w->parameters.p, bytes) == 0, "%s f%u: lr 0 changes p", name_of(vector), real);
        for (size_t i = 0; i < tn_chain_slot_count(w->chain); i++) {
            tn_chain_slot slot;
            tn_chain_slot_at(w->chain, i, &slot);
            /* An empty parameter may have rows. */
            if ((slot.parameter < 0 || w->list[slot.parameter].n > 0) && !needs_steps(&slot))
                expect(!is_zero(&slot), "%s f%u: lr 0 leaves %s.%s at 0", name_of(vector), real, slot.link, slot.slot);
        }
        free(p);
        world_free(w);
    }
}
END_TEST

/* ---- the case list: one scalar parameter, a gradient and the right p for each step ---- */

#define STEPS 3
static const struct {
    const char *id, *component, *settings[9];
    double p0;
    int32_t steps;
    double g[STEPS], p[STEPS];
} cases[] = {
    {"OPT-01", "adam", {"lr", "0.1", "eps", "1e-3"}, 1, 1, {1e-3}, {0.95}},
    {"OPT-10", "sgd", {"lr", "0.1", "momentum", "0.9", "dampening", "0.5"}, 1, 3, {1, 1, 1}, {0.9, 0.76, 0.584}},
    {"OPT-11", "sgd", {"lr", "0.1", "momentum", "0.9", "nesterov", "true"}, 1, 3, {1, 1, 1}, {0.81, 0.539, 0.1951}},
    {"OPT-13a", "sgd", {"lr", "0.1", "momentum", "0.9"}, 1, 2, {1, 0}, {0.9, 0.81}},
    {"OPT-14a", "adamw", {"lr", "0.1", "weight_decay", "0.1"}, 1, 1, {0.5}, {0.890000002}},
    {"OPT-14 adam", "adam-l2", {"lr", "0.1", "l2", "0.1"}, 1, 1, {0.5}, {0.9000000016666666}},
};
#define CASES (sizeof cases / sizeof *cases)

/* A scalar parameter under one component with up to four settings. */
static world *scalar_world(uint32_t real, double p0, const char *component, const char *const *settings)
{
    static const int64_t none[1] = {0};
    world *w = world_new(real, 1);
    world_slice(w, 0, none, 0, -1);
    world_arenas(w);
    world_set_p(w, 0, p0);
    world_link(w, component);
    for (; settings && *settings; settings += 2)
        ck_assert_msg(tn_instance_set(w->links[0], w->registry, settings[0], settings[1], &w->err) == TN_OK, "%s",
                      w->err.msg);
    return w;
}

static void scalar_step(world *w, double g)
{
    world_set_g(w, 0, g);
    world_step(w, 1);
}

static void assert_close(const world *w, double found, double needed, const char *id)
{
    double allowed = (w->parameters.real == 64 ? 1e-10 : 2e-6) * fabs(needed);
    ck_assert_msg(fabs(found - needed) <= allowed, "%s f%u: %.17g, needed %.17g", id, w->parameters.real, found,
                  needed);
}

START_TEST(listed_cases)
{
    for (uint32_t real = 32; real <= 64; real += 32) {
        world *w = scalar_world(real, cases[_i].p0, cases[_i].component, cases[_i].settings);
        world_chain(w);
        for (int32_t step = 0; step < cases[_i].steps; step++) {
            scalar_step(w, cases[_i].g[step]);
            assert_close(w, world_p(w, 0, 0), cases[_i].p[step], cases[_i].id);
        }
        world_free(w);
    }
}
END_TEST

START_TEST(opt_02_each_parameter_has_its_own_clock)
{
    for (uint32_t real = 32; real <= 64; real += 32) {
        world *w = world_new(real, 1);
        world_vector(w, 1);
        world_vector(w, 1);
        world_arenas(w);
        world_set_p(w, 0, 1);
        world_set_p(w, 1, 1);
        world_set_g(w, 0, 0.5);
        world_link(w, "adam", "lr", "0.1");
        world_chain(w);
        w->present[1] = 0;
        world_step(w, 1);
        w->present[1] = 1;
        world_set_g(w, 1, 0.5);
        world_step(w, 1);
        assert_close(w, world_p(w, 0, 0), 0.800000004, "OPT-02 A");
        assert_close(w, world_p(w, 1, 0), 0.900000002, "OPT-02 B");
        world_free(w);
    }
}
END_TEST

START_TEST(opt_04_the_clock_is_an_integer)
{
    static const char *const settings[] = {"lr", "1e-4", NULL};
    for (uint32_t real = 32; real <= 64; real += 32) {
        world *w = scalar_world(real, 1, "adam", settings);
        world_chain(w);
        for (int i = 0; i < 1000; i++)
            scalar_step(w, 0.1);
        ck_assert_int_eq(tn_chain_clocks(w->chain)[0], 1000);
        ck_assert_double_eq_tol(world_p(w, 0, 0), 0.90000001, (real == 64 ? 1e-9 : 2e-5) * 0.9);
        world_free(w);
    }
}
END_TEST

START_TEST(opt_05_huge_clocks_go_on)
{
    static const char *const settings[] = {"lr", "0.01", NULL};
    static const int64_t clocks[] = {16777216, 2147483647};
    for (uint32_t real = 32; real <= 64; real += 32)
        for (size_t i = 0; i < 2; i++) {
            world *w = scalar_world(real, 1, "adam", settings);
            world_chain(w);
            tn_chain_clocks(w->chain)[0] = clocks[i];
            const tn_chain_slot m = world_slot(w, "adam", "m", 0), v = world_slot(w, "adam", "v", 0);
            if (real == 32) {
                *(float *)m.data = 0.3f;
                *(float *)v.data = 0.25f;
            } else {
                *(double *)m.data = 0.3;
                *(double *)v.data = 0.25;
            }
            scalar_step(w, 0.5);
            ck_assert_int_eq(tn_chain_clocks(w->chain)[0], clocks[i] + 1);
            assert_close(w, world_p(w, 0, 0), 0.9936000001, "OPT-05");
            assert_close(w, world_state(w, "adam", "m", 0, 0), 0.32, "OPT-05 m");
            assert_close(w, world_state(w, "adam", "v", 0, 0), 0.25, "OPT-05 v");
            world_free(w);
        }
}
END_TEST

START_TEST(opt_13_an_absent_gradient_is_not_zero)
{
    static const char *const settings[] = {"lr", "0.1", "momentum", "0.9", NULL};
    world *w = scalar_world(64, 1, "sgd", settings);
    world_chain(w);
    scalar_step(w, 1);
    w->present[0] = 0;
    scalar_step(w, 0);
    assert_close(w, world_p(w, 0, 0), 0.9, "OPT-13b");
    ck_assert_double_eq(world_state(w, "sgd", "momentum_buffer", 0, 0), 1);
    world_free(w);
}
END_TEST

START_TEST(opt_14_lr_0_stops_decay_but_not_the_moments)
{
    static const char *const settings[] = {"lr", "0", "weight_decay", "0.1", NULL};
    for (uint32_t real = 32; real <= 64; real += 32) {
        world *w = scalar_world(real, 1, "adamw", settings);
        world_chain(w);
        scalar_step(w, 0.5);
        ck_assert_double_eq(world_p(w, 0, 0), 1);
        assert_close(w, world_state(w, "adamw", "m", 0, 0), 0.05, "OPT-14b m");
        assert_close(w, world_state(w, "adamw", "v", 0, 0), 0.00025, "OPT-14b v");
        world_free(w);
    }
}
END_TEST

static const struct {
    const char *component, *row, *value, *range;
} outside[] = {
    {"adam", "beta2", "1.0", "[0, 1)"},
    {"adamw", "beta2", "1.0", "[0, 1)"},
    {"adam", "beta1", "-0.1", "[0, 1)"},
    {"adamw", "eps", "-1", "inf)"},
    {"adam", "lr", "-0.1", "[0, inf)"},
    {"adamw", "lr", "nan", "[0, inf)"},
    {"sgd", "lr", "nan", "[0, inf)"},
    {"sgd", "momentum", "inf", "[0, 1)"},
    {"clip-norm", "max_norm", "-1", "(0, inf]"},
    {"clip-norm", "max_norm", "0", "(0, inf]"},
    {"ema", "decay", "1.5", "[0, 1]"},
};

START_TEST(opt_22_values_out_of_range_are_refused_with_the_range)
{
    world *w = world_new(64, 1);
    ck_assert_int_eq(world_try_link(w, outside[_i].component, outside[_i].row, outside[_i].value, NULL), TN_E_INVALID);
    ck_assert_msg(strstr(w->err.msg, outside[_i].row) && strstr(w->err.msg, outside[_i].range), "%s", w->err.msg);
    world_free(w);
}
END_TEST

/* ---- rules ---- */

START_TEST(without_a_gradient_adamw_is_decay_alone)
{
    static const char *const settings[] = {"lr", "0.1", "weight_decay", "0.25", NULL};
    for (uint32_t real = 32; real <= 64; real += 32) {
        world *w = scalar_world(real, 1.5, "adamw", settings);
        world_chain(w);
        float f = 1.5f;
        double d = 1.5;
        for (int i = 0; i < 50; i++) {
            scalar_step(w, 0);
            f *= (float)(1 - 0.1 * 0.25);
            d *= 1 - 0.1 * 0.25;
        }
        ck_assert(world_p(w, 0, 0) == (real == 32 ? (double)f : d));
        world_free(w);
    }
}
END_TEST

START_TEST(sgd_plans_a_buffer_only_with_momentum)
{
    static const char *const momentum[] = {"momentum", "0.9", NULL};
    world *w = scalar_world(64, 1, "sgd", NULL);
    world_chain(w);
    ck_assert_uint_eq(tn_chain_slot_count(w->chain), 0);
    ck_assert_int_eq(tn_chain_bytes(w->chain), 0);
    world_free(w);
    w = scalar_world(64, 1, "sgd", momentum);
    world_chain(w);
    ck_assert_uint_eq(tn_chain_slot_count(w->chain), 1);
    ck_assert_int_eq(tn_chain_bytes(w->chain), 64 * 8);
    world_free(w);
}
END_TEST

START_TEST(sgd_follows_a_scheduled_momentum)
{
    static const char *const settings[] = {"lr", "0.1", "momentum", "0.9", NULL};
    world *w = scalar_world(64, 1, "sgd", settings);
    world_chain(w);
    scalar_step(w, 1); /* b = 1 */
    double *momentum = tn_instance_real(w->links[0], tn_instance_row(w->links[0], "momentum"));
    *momentum = 0.5;
    scalar_step(w, 1); /* b = 1.5 */
    *momentum = 0;
    scalar_step(w, 1); /* b = 1 */
    assert_close(w, world_p(w, 0, 0), 1 - 0.1 - 0.15 - 0.1, "sgd");
    world_free(w);
}
END_TEST

START_TEST(nesterov_needs_momentum_without_dampening)
{
    static const char *const wrong[][7] = {{"nesterov", "true", NULL},
                                           {"nesterov", "true", "momentum", "0.9", "dampening", "0.1", NULL}};
    for (size_t i = 0; i < 2; i++) {
        world *w = scalar_world(64, 1, "sgd", wrong[i]);
        ck_assert_int_eq(world_try_chain(w), TN_E_INVALID);
        ck_assert_msg(strstr(w->err.msg, "nesterov") && strstr(w->err.msg, "dampening 0"), "%s", w->err.msg);
        world_free(w);
    }
}
END_TEST

/* ---- clip-norm ---- */

/* Parameters of one element each under clip-norm and plain steps of lr 1 from 0: p is minus the gradient used. */
static world *clip_world(uint32_t real, const char *max_norm, int64_t count, double g)
{
    world *w = world_new(real, 2);
    world_vector(w, count);
    world_arenas(w);
    world_set_p(w, 0, 0);
    world_set_g(w, 0, g);
    world_link(w, "clip-norm", "max_norm", max_norm);
    world_link(w, "sgd", "lr", "1");
    world_chain(w);
    return w;
}

static void put_3_4(world *w)
{
    world_put(w, w->parameters.g, 0, 0, 3);
    world_put(w, w->parameters.g, 0, 1, 4);
}

START_TEST(clip_02_large_gradients_do_not_overflow)
{
    for (uint32_t real = 32; real <= 64; real += 32) {
        world *w = clip_world(real, "1", 100, 1e20);
        world_step(w, 1);
        ck_assert_double_eq_tol(world_report(w, "clip-norm.norm"), 1e21, 1e15);
        for (int64_t j = 0; j < 100; j++)
            ck_assert_double_eq_tol(world_p(w, 0, j), -0.1, 1e-7);
        world_free(w);
    }
}
END_TEST

START_TEST(clip_02_squares_beyond_f64_skip_the_step)
{
    world *w = clip_world(64, "1", 3, 1e200);
    world_try_step(w, 1);
    ck_assert_int_eq(w->result.committed, 0);
    ck_assert_int_eq(w->result.bad_parameter, -1);
    world_free(w);
}
END_TEST

START_TEST(clip_04_boundaries)
{
    for (uint32_t real = 32; real <= 64; real += 32) {
        world *w = clip_world(real, "5", 2, 0);
        put_3_4(w);
        world_step(w, 1);
        ck_assert_double_eq(world_report(w, "clip-norm.scale"), 1);
        ck_assert_double_eq(world_p(w, 0, 0), -3);
        ck_assert_double_eq(world_p(w, 0, 1), -4);
        world_free(w);
        w = clip_world(real, "1", 2, 0);
        put_3_4(w);
        world_step(w, 1);
        assert_close(w, world_p(w, 0, 0), -3 / (5 + 1e-6), "CLIP-04");
        assert_close(w, world_p(w, 0, 1), -4 / (5 + 1e-6), "CLIP-04");
        world_free(w);
        w = clip_world(real, "1", 2, 0);
        world_step(w, 1);
        ck_assert_double_eq(world_report(w, "clip-norm.norm"), 0);
        ck_assert_double_eq(world_p(w, 0, 0), 0);
        world_free(w);
        w = clip_world(real, "inf", 2, 1e15);
        world_step(w, 1);
        ck_assert_double_eq(world_report(w, "clip-norm.scale"), 1);
        ck_assert_double_eq(world_p(w, 0, 0), -(real == 32 ? (double)1e15f : 1e15));
        world_free(w);
    }
}
END_TEST

START_TEST(clip_05_the_norm_does_not_depend_on_the_cut)
{
    const int64_t n = 50 * TN_CHUNK;
    world *one = clip_world(32, "1", n, 0), *many = world_new(32, 3);
    for (int i = 49; i >= 0; i--)
        world_slice(many, 1, &n, i * TN_CHUNK, TN_CHUNK);
    world_arenas(many);
    for (int64_t j = 0; j < n; j++) {
        double g = world_noise(0, j, 3) * exp2(40 * world_noise(0, j, 4));
        world_put(one, one->parameters.g, 0, j, g);
        world_put(many, many->parameters.g, 49 - j / TN_CHUNK, j % TN_CHUNK, g);
    }
    for (int64_t i = 0; i < 50; i++)
        world_set_p(many, i, 0);
    world_link(many, "clip-norm");
    world_link(many, "sgd", "lr", "1");
    world_chain(many);
    world_step(one, 1);
    world_step(many, 1);
    ck_assert(world_report(one, "clip-norm.norm") == world_report(many, "clip-norm.norm"));
    for (int64_t j = 0; j < n; j++)
        expect(world_p(one, 0, j) == world_p(many, 49 - j / TN_CHUNK, j % TN_CHUNK), "element %d", (int)j);
    world_free(one);
    world_free(many);
}
END_TEST

START_TEST(clipping_twice_changes_little_and_keeps_the_direction)
{
    world *w = clip_world(64, "2", 5000, 0);
    world_fill(w, w->parameters.g, 5);
    world_step(w, 1);
    double scale = world_report(w, "clip-norm.scale");
    ck_assert(scale > 0 && scale < 1);
    for (int64_t j = 0; j < 5000; j++) {
        double g = world_get(w, w->parameters.g, 0, j);
        expect(fabs(world_p(w, 0, j) + scale * g) <= 1e-15, "element %d", (int)j);
        world_put(w, w->parameters.g, 0, j, scale * g);
    }
    world_step(w, 1);
    ck_assert_double_eq_tol(world_report(w, "clip-norm.norm"), 2, 2e-6);
    ck_assert_double_eq_tol(world_report(w, "clip-norm.scale"), 1, 1e-6);
    world_free(w);
}
END_TEST

START_TEST(acc_05_the_mean_is_taken_before_the_norm)
{
    world *w = clip_world(64, "10", 2, 0);
    world_put(w, w->parameters.g, 0, 0, 4 * 3);
    world_put(w, w->parameters.g, 0, 1, 4 * 4);
    world_step(w, 1.0 / 4);
    ck_assert_double_eq(world_report(w, "clip-norm.norm"), 5);
    ck_assert_double_eq(world_p(w, 0, 0), -3);
    ck_assert_double_eq(world_p(w, 0, 1), -4);
    world_free(w);
}
END_TEST

START_TEST(acc_01_sums_are_divided_once)
{
    static const char *const settings[] = {"lr", "0.1", NULL};
    world *w = scalar_world(64, 0, "sgd", settings);
    world_chain(w);
    world_set_g(w, 0, 4 * 1 + 5); /* over 4 and 1 tokens */
    world_step(w, 1.0 / 5);
    assert_close(w, world_p(w, 0, 0), -0.18, "ACC-01");
    world_free(w);
}
END_TEST

/* ---- clip-percentile ---- */

static void norm_step(world *w, double norm, double threshold, double scale)
{
    world_set_g(w, 0, 0);
    world_put(w, w->parameters.g, 0, 3, -norm);
    world_step(w, 1);
    ck_assert_double_eq(world_report(w, "clip-percentile.norm"), norm);
    ck_assert_double_eq_tol(world_report(w, "clip-percentile.threshold"), threshold, 1e-12);
    ck_assert_double_eq_tol(world_report(w, "clip-percentile.scale"), scale, 1e-12);
}

/* The median of the last three, this one's included; two updates of warm-up; a skipped update's norm is not kept. */
START_TEST(clip_percentile_keeps_the_last_norms)
{
    static const char *const settings[] = {"percentile", "50", "window", "3", "warmup", "2"};
    world *w = world_new(64, 2);
    world_vector(w, 10);
    world_arenas(w);
    world_link(w, "clip-percentile");
    for (size_t i = 0; i < 6; i += 2)
        ck_ok(tn_instance_set(w->links[0], w->registry, settings[i], settings[i + 1], &w->err), w->err);
    world_link(w, "sgd");
    world_chain(w);
    norm_step(w, 1, 1, 1);
    norm_step(w, 3, 2, 1);              /* 1 3: would clip, but it warms up */
    norm_step(w, 5, 3, 3 / (5 + 1e-6)); /* 1 3 5 */
    norm_step(w, 4, 4, 1);              /* 3 5 4: equal to the threshold */
    world_put(w, w->parameters.g, 0, 0, NAN);
    world_try_step(w, 1);
    ck_assert_int_eq(w->result.committed, 0);
    ck_assert_double_eq(world_state(w, "clip-percentile", "seen", -1, 0), 4);
    norm_step(w, 4, 4, 1);              /* 5 4 4 */
    norm_step(w, 2, 4, 1);              /* 4 4 2 */
    norm_step(w, 0, 2, 1);              /* 4 2 0 */
    norm_step(w, 9, 2, 2 / (9 + 1e-6)); /* 2 0 9 */
    norm_step(w, 1, 1, 1);              /* 0 9 1 */
    ck_assert_double_eq(world_state(w, "clip-percentile", "sorted", -1, 2), 9);
    world_free(w);
}
END_TEST

/* ---- centralize ---- */

START_TEST(centralize_takes_the_mean_of_rows_and_leaves_vectors)
{
    for (uint32_t real = 32; real <= 64; real += 32) {
        static const char *const settings[] = {"lr", "1", NULL};
        world *w = world_new(real, 2);
        world_slice(w, 3, (int64_t[]){40, 3, 91}, 0, -1);
        world_vector(w, 777);
        world_arenas(w);
        world_set_p(w, 0, 0);
        world_set_p(w, 1, 0);
        world_fill(w, w->parameters.g, 3);
        world_link(w, "centralize");
        world_link(w, "sgd");
        ck_ok(tn_instance_set(w->links[1], w->registry, settings[0], settings[1], &w->err), w->err);
        world_chain(w);
        world_step(w, 0.5);
        for (int64_t row = 0; row < 40; row++) {
            double sum = 0, found = 0;
            for (int64_t j = 0; j < 273; j++) {
                sum += 0.5 * world_get(w, w->parameters.g, 0, row * 273 + j);
                found += world_p(w, 0, row * 273 + j);
            }
            double first = sum / 273 - 0.5 * world_get(w, w->parameters.g, 0, row * 273);
            expect(fabs(found) < (real == 64 ? 1e-12 : 1e-4), "row %d sums to %g", (int)row, found);
            expect(fabs(world_p(w, 0, row * 273) - first) < 1e-6, "row %d begins with %g, needed %g", (int)row,
                   world_p(w, 0, row * 273), first);
        }
        for (int64_t j = 0; j < 777; j++)
            expect(world_p(w, 1, j) == -0.5 * world_get(w, w->parameters.g, 1, j), "element %d", (int)j);
        world_free(w);
    }
}
END_TEST

/* ---- cautious ---- */

/* Momentum that goes the other way for all elements: no step, but the decay, which is no part of it, is whole. */
START_TEST(cautious_leaves_decay_alone)
{
    static const char *const settings[] = {"lr", "0.1", "momentum", "0.9", "weight_decay", "0.5"};
    world *w = world_new(64, 1);
    world_vector(w, 4);
    world_arenas(w);
    world_set_p(w, 0, 1);
    world_link(w, "sgd");
    for (size_t i = 0; i < 6; i += 2)
        ck_ok(tn_instance_set(w->links[0], w->registry, settings[i], settings[i + 1], &w->err), w->err);
    world_link(w, "cautious");
    world_chain(w);
    world_set_g(w, 0, 1);
    world_step(w, 1);
    ck_assert_double_eq(world_p(w, 0, 0), 0.95 - 0.1);
    world_set_g(w, 0, -0.5);
    world_step(w, 1);
    ck_assert_double_eq(world_p(w, 0, 0), 0.95 * (0.95 - 0.1));
    ck_assert_double_eq_tol(world_state(w, "sgd", "momentum_buffer", 0, 0), 0.4, 1e-15);
    world_set_g(w, 0, -0.2);
    world_put(w, w->parameters.g, 0, 2, 0.25); /* one of four agrees: its step is four times as long */
    double before = world_p(w, 0, 2), buffer = 0.9 * 0.4 + 0.25;
    world_step(w, 1);
    ck_assert_double_eq_tol(world_p(w, 0, 2), 0.95 * before - 0.1 * 4 * buffer, 1e-15);
    ck_assert_double_eq(world_p(w, 0, 1), 0.95 * before);
    world_free(w);
}
END_TEST

/* ---- adafactor ---- */

/* Nothing but zeros: no NaN. Squares beyond f32: the second round sees it, and the step is skipped without a trace. */
START_TEST(adafactor_survives_zeros_and_skips_what_overflows)
{
    world *w = world_new(32, 1);
    world_slice(w, 2, (int64_t[]){5, 7}, 0, -1);
    world_vector(w, 6);
    world_arenas(w);
    world_fill(w, w->parameters.p, 1);
    world_link(w, "adafactor");
    world_chain(w);
    for (int step = 0; step < 200; step++) {
        world_set_g(w, 0, 0);
        world_set_g(w, 1, 0);
        world_step(w, 1);
    }
    for (int64_t j = 0; j < 35; j++)
        expect(world_p(w, 0, j) == (double)(float)world_noise(0, j, 1), "element %d moved", (int)j);
    uint64_t before = world_hash(w);
    world_put(w, w->parameters.g, 0, 3, 1e25);
    world_try_step(w, 1);
    ck_assert_int_eq(w->result.committed, 0);
    ck_assert(world_hash(w) == before);
    world_free(w);
}
END_TEST

/* ---- ema ---- */

static world *ema_world(uint32_t real, const char *decay, const char *warmup)
{
    static const char *const settings[] = {"lr", "1", NULL};
    world *w = scalar_world(real, 0.7, "sgd", settings);
    world_link(w, "ema", "decay", decay, "warmup", warmup);
    world_chain(w);
    return w;
}

START_TEST(ema_follows_its_formula)
{
    for (uint32_t real = 32; real <= 64; real += 32)
        for (int warmup = 0; warmup < 2; warmup++)
            for (double decay = 0.3; decay < 1; decay += 0.3) {
                char text[32];
                snprintf(text, sizeof text, "%.1f", decay);
                world *w = ema_world(real, text, warmup ? "true" : "false");
                double average = world_p(w, 0, 0);
                ck_assert_double_eq(world_state(w, "ema", "average", 0, 0), average);
                for (int t = 1; t <= 30; t++) {
                    scalar_step(w, 0.3 * t - 4);
                    double d = warmup ? fmin(decay, (1.0 + t) / (10.0 + t)) : decay;
                    average = d * average + (1 - d) * world_p(w, 0, 0);
                    double allowed = (real == 64 ? 1e-12 : 2e-6 * t) * 60;
                    ck_assert_double_eq_tol(world_state(w, "ema", "average", 0, 0), average, allowed);
                }
                world_free(w);
            }
}
END_TEST

START_TEST(ema_is_exact_at_its_ends)
{
    for (uint32_t real = 32; real <= 64; real += 32) {
        world *w = ema_world(real, "0", "false");
        scalar_step(w, 0.3);
        ck_assert(world_state(w, "ema", "average", 0, 0) == world_p(w, 0, 0));
        world_free(w);
        w = ema_world(real, "1", "false");
        double before = world_p(w, 0, 0);
        scalar_step(w, 0.3);
        ck_assert(world_state(w, "ema", "average", 0, 0) == before);
        world_free(w);
        w = ema_world(real, "0.999", "false");
        for (int i = 0; i < 100; i++)
            scalar_step(w, 0);
        ck_assert(world_state(w, "ema", "average", 0, 0) == world_p(w, 0, 0));
        world_free(w);
    }
}
END_TEST

/* ---- swa ---- */

START_TEST(swa_is_the_mean_of_every_periodth_p)
{
    static const char *const settings[] = {"lr", "1", NULL};
    for (uint32_t real = 32; real <= 64; real += 32) {
        world *w = scalar_world(real, 0.7, "sgd", settings);
        double sum = 0, count = 0;
        world_link(w, "swa", "from", "4", "period", "3");
        world_chain(w);
        for (int t = 1; t <= 20; t++) {
            scalar_step(w, 0.3 * t - 4);
            if (t >= 4 && (t - 4) % 3 == 0)
                sum += world_p(w, 0, 0), count++;
            double needed = count > 0 ? sum / count : world_p(w, 0, 0);
            ck_assert_double_eq_tol(world_state(w, "swa", "average", 0, 0), needed, (real == 64 ? 1e-13 : 1e-6) * 60);
        }
        ck_assert_double_eq(count, 6);
        world_free(w);
    }
}
END_TEST

/* ---- gradient noise ---- */

#define DRAWS 20000

static void noise_world(uint32_t real, int64_t attempts, double *first, double *second)
{
    static const int64_t n[1] = {DRAWS};
    world *w = world_new(real, 2);
    world_slice(w, 1, n, 0, -1);
    world_slice(w, 1, n, 0, -1);
    world_arenas(w);
    memset(w->parameters.p, 0, (size_t)w->parameters.elements * (real / 8));
    memset(w->parameters.g, 0, (size_t)w->parameters.elements * (real / 8));
    world_link(w, "gradient-noise", "eta", "0.25", "gamma", "1");
    world_link(w, "sgd", "lr", "1");
    world_chain(w);
    for (int64_t i = 0; i < attempts; i++)
        world_step(w, 1);
    for (int64_t j = 0; j < DRAWS; j++) {
        first[j] = world_p(w, 0, j);
        second[j] = world_p(w, 1, j);
    }
    world_free(w);
}

static double mean_product(const double *a, const double *b)
{
    double sum = 0;
    for (int64_t j = 0; j < DRAWS; j++)
        sum += a[j] * b[j];
    return sum / DRAWS;
}

/* Of variance eta / t^gamma; elements, parameters and steps draw apart. */
START_TEST(gradient_noise_is_normal_and_fades)
{
    static double one[2][DRAWS], two[2][DRAWS], shifted[DRAWS];
    const double sigma = 4 / sqrt(DRAWS);
    for (uint32_t real = 32; real <= 64; real += 32) {
        double third = 0, fourth = 0;
        noise_world(real, 1, one[0], one[1]);
        noise_world(real, 2, two[0], two[1]);
        for (int64_t j = 0; j < DRAWS; j++) {
            two[0][j] -= one[0][j];
            shifted[j] = one[0][(j + 1) % DRAWS];
            third += pow(one[0][j] / 0.5, 3) / DRAWS;
            fourth += pow(one[0][j] / 0.5, 4) / DRAWS;
        }
        ck_assert_double_eq_tol(mean_product(one[0], one[0]), 0.25, 0.25 * sqrt(2) * sigma);
        ck_assert_double_eq_tol(mean_product(two[0], two[0]), 0.125, 0.125 * sqrt(2) * sigma);
        ck_assert_double_eq_tol(mean_product(one[0], one[1]), 0, 0.25 * sigma);
        ck_assert_double_eq_tol(mean_product(one[0], two[0]), 0, 0.18 * sigma);
        ck_assert_double_eq_tol(mean_product(one[0], shifted), 0, 0.25 * sigma);
        ck_assert_double_eq_tol(third, 0, sqrt(15) * sigma);
        ck_assert_double_eq_tol(fourth, 3, sqrt(96) * sigma);
    }
}
END_TEST

static void add_loops(TCase *tests)
{
    tcase_add_test(tests, every_rule_has_a_vector);
    tcase_add_test(tests, rules_follow_their_golden_trajectories);
    tcase_add_test(tests, chains_follow_their_golden_trajectories);
    tcase_add_test(tests, threads_do_not_change_bits);
    tcase_add_test(tests, stopping_and_going_on_does_not_change_bits);
    tcase_add_test(tests, slices_do_not_change_bits);
    tcase_add_test(tests, absent_and_skipped_gradients_change_no_bit);
    tcase_add_test(tests, lamb_survives_a_gradient_that_stays_zero);
    tcase_add_test(tests, lamb_moves_a_tensor_that_starts_at_zero);
    tcase_add_test(tests, schedule_free_follows_the_other_record);
    tcase_add_test(tests, schedule_free_weighs_its_warm_up_and_keeps_decay);
    tcase_add_test(tests, schedule_free_has_the_same_bits_for_any_threads);
    tcase_add_test(tests, steps_allocate_nothing);
    tcase_add_test(tests, lr_0_moves_the_state_but_no_parameter);
}

static void add_cases(TCase *tests)
{
    tcase_add_loop_test(tests, listed_cases, 0, CASES);
    tcase_add_test(tests, opt_02_each_parameter_has_its_own_clock);
    tcase_add_test(tests, opt_04_the_clock_is_an_integer);
    tcase_add_test(tests, opt_05_huge_clocks_go_on);
    tcase_add_test(tests, opt_13_an_absent_gradient_is_not_zero);
    tcase_add_test(tests, opt_14_lr_0_stops_decay_but_not_the_moments);
    tcase_add_loop_test(tests, opt_22_values_out_of_range_are_refused_with_the_range, 0,
                        sizeof outside / sizeof *outside);
    tcase_add_test(tests, without_a_gradient_adamw_is_decay_alone);
    tcase_add_test(tests, sgd_plans_a_buffer_only_with_momentum);
    tcase_add_test(tests, sgd_follows_a_scheduled_momentum);
    tcase_add_test(tests, nesterov_needs_momentum_without_dampening);
    tcase_add_test(tests, clip_02_large_gradients_do_not_overflow);
    tcase_add_test(tests, clip_02_squares_beyond_f64_skip_the_step);
    tcase_add_test(tests, clip_04_boundaries);
    tcase_add_test(tests, clip_05_the_norm_does_not_depend_on_the_cut);
    tcase_add_test(tests, clipping_twice_changes_little_and_keeps_the_direction);
    tcase_add_test(tests, acc_05_the_mean_is_taken_before_the_norm);
    tcase_add_test(tests, acc_01_sums_are_divided_once);
    tcase_add_test(tests, clip_percentile_keeps_the_last_norms);
    tcase_add_test(tests, centralize_takes_the_mean_of_rows_and_leaves_vectors);
    tcase_add_test(tests, cautious_leaves_decay_alone);
    tcase_add_test(tests, adafactor_survives_zeros_and_skips_what_overflows);
    tcase_add_test(tests, ema_follows_its_formula);
    tcase_add_test(tests, ema_is_exact_at_its_ends);
    tcase_add_test(tests, swa_is_the_mean_of_every_periodth_p);
    tcase_add_test(tests, gradient_noise_is_normal_and_fades);
}

int main(void)
{
    Suite *suite = suite_create("rules");
    TCase *tests = tcase_create("rules");
    tcase_set_timeout(tests, 120);
    add_loops(tests);
    add_cases(tests);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
