/* SPDX-License-Identifier: Apache-2.0
 *
 * Minimizers: the requests against plain arithmetic, what a step leaves when it ends badly, and the bundled ones on
 * functions whose gradient and Hessian are written here: against golden/minimizers.json, on quadratics and saddles, and
 * through a graph.
 */
#include "host/update/minimizer.h"

#include <math.h>
#include <stdio.h>

#include "host/base/memory.h"
#include "host/base/philox.h"
#include "host/graph/graph.h"
#include "tests/support.h"

#define SCALE 0.25 /* g holds the gradient divided by this */

/* ---- a world: parameters, a function, one minimizer ---- */

typedef struct world world;
struct world {
    tn_registry *registry;
    tn_pool *pool;
    tn_parameters parameters;
    tn_parameter list[3];
    int64_t at[3];
    uint8_t present[3];
    int64_t n; /* elements of all parameters */
    tn_signals signals;
    tn_chain_options options;
    tn_instance *instance;
    tn_minimizer_link *link;
    double report[4];
    int32_t committed;
    int64_t update, attempt;
    tn_error err;

    /* Of x, n numbers; hv NULL: not wanted. */
    double (*function)(const world *w, const double *x, double *g, const double *v, double *hv);
    double *x, *g, *v, *hv;
    int64_t calls, products;
    int64_t broken_from; /* evaluations from this one on have no finite loss; < 0: never */
};

static double number(const world *w, const void *arena, int64_t i)
{
    return w->parameters.real == 32 ? (double)((const float *)arena)[i] : ((const double *)arena)[i];
}

static void put(const world *w, void *arena, int64_t i, double value)
{
    if (w->parameters.real == 32)
        ((float *)arena)[i] = (float)value;
    else
        ((double *)arena)[i] = value;
}

/* Between an arena and the n numbers, without the padding. */
static void gather(const world *w, const void *arena, double *to)
{
    int64_t n = 0;
    for (int64_t k = 0; k < w->parameters.count; k++)
        for (int64_t i = 0; i < w->list[k].n; i++)
            to[n++] = number(w, arena, w->at[k] + i);
}

static void spread(const world *w, const double *from, double factor, void *arena)
{
    int64_t n = 0;
    for (int64_t k = 0; k < w->parameters.count; k++)
        for (int64_t i = 0; i < w->list[k].n; i++)
            put(w, arena, w->at[k] + i, factor * from[n++]);
}

static int32_t look(void *user, double *ret_loss, tn_error *err)
{
    world *w = user;
    (void)err;
    gather(w, w->parameters.p, w->x);
    *ret_loss = w->function(w, w->x, w->g, NULL, NULL);
    if (w->broken_from >= 0 && w->calls >= w->broken_from)
        *ret_loss = NAN;
    w->calls++;
    spread(w, w->g, 1 / SCALE, w->parameters.g);
    return TN_OK;
}

static int32_t multiply(void *user, const void *v, void *ret, tn_error *err)
{
    world *w = user;
    (void)err;
    gather(w, w->parameters.p, w->x);
    gather(w, v, w->v);
    w->function(w, w->x, w->g, w->v, w->hv);
    w->products++;
    spread(w, w->hv, 1, ret);
    return TN_OK;
}

/* Up to three parameters of these sizes. */
static world *world_new(uint32_t real, int32_t threads, int32_t count, const int64_t *sizes)
{
    static const char *const names[] = {"a", "b", "c"};
    world *w = tn_alloc(1, sizeof *w);
    ck_assert_ptr_nonnull(w);
    w->registry = test_registry("TENON_TEST_PLUGINS");
    ck_ok(tn_pool_create(threads, &w->pool, &w->err), w->err);
    w->parameters = (tn_parameters){.real = real, .count = count, .list = w->list, .at = w->at, .present = w->present};
    for (int32_t k = 0; k < count; k++) {
        w->list[k] = (tn_parameter){.struct_size = sizeof *w->list,
                                    .name = names[k],
                                    .layer = names[k],
                                    .ndim = 1,
                                    .shape = {sizes[k]},
                                    .n = sizes[k],
                                    .replicas = 1,
                                    .dtype = {TN_FLOAT, (uint8_t)real, 1}};
        w->present[k] = 1;
        w->at[k] = w->parameters.elements;
        w->parameters.elements += (sizes[k] + 63) / 64 * 64;
        w->n += sizes[k];
    }
    size_t bytes = (size_t)w->parameters.elements * (real / 8);
    w->parameters.p = tn_alloc_aligned(bytes);
    w->parameters.g = tn_alloc_aligned(bytes);
    memset(w->parameters.p, 0xFF, bytes); /* nan in the padding */
    memset(w->parameters.g, 0xFF, bytes);
    for (double **array[] = {&w->x, &w->g, &w->v, &w->hv}, i = 0; i < 4; i++)
        *array[(int)i] = tn_alloc((size_t)w->n, sizeof(double));
    w->broken_from = -1;
    w->signals = (tn_signals){.user = w, .gradient = look, .product = multiply};
    w->options = (tn_chain_options){
        .registry = w->registry, .parameters = &w->parameters, .pool = w->pool, .seed = 7, .signals = &w->signals};
    return w;
}

static void world_free(world *w)
{
    tn_minimizer_close(w->link);
    tn_instance_free(w->instance);
    tn_pool_destroy(w->pool);
    tn_registry_close(w->registry);
    void *const owned[] = {w->parameters.p, w->parameters.g, w->x, w->g, w->v, w->hv, w};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        tn_free(owned[i]);
}

static int32_t try_rule(world *w, const char *rule, const tn_setting *settings, size_t count)
{
    ck_ok(tn_instance_create(w->registry, "optimizer", rule, w->parameters.real, "update.rule", settings, count,
                             &w->instance, &w->err),
          w->err);
    ck_assert(tn_is_minimizer(w->instance));
    return tn_minimizer_open(&w->options, w->instance, &w->link, &w->err);
}

static void use_rule(world *w, const char *rule, const tn_setting *settings, size_t count)
{
    ck_ok(try_rule(w, rule, settings, count), w->err);
}

/* From a gradient as training computes it: not counted among the calls. */
static int32_t try_step(world *w)
{
    double loss = 0;
    int64_t calls = w->calls, broken = w->broken_from;
    tn_clock clock = {sizeof clock, 0, w->update + 1, w->update, w->attempt, NULL};
    w->broken_from = -1;
    look(w, &loss, NULL);
    w->calls = calls;
    w->broken_from = broken;
    const tn_step step = {.scale = SCALE, .loss = loss, .attempt = w->attempt++};
    int32_t status = tn_minimizer_step(w->link, &step, &clock, w->report, &w->committed, &w->err);
    w->update += status == TN_OK && w->committed;
    return status;
}

static double step(world *w)
{
    ck_ok(try_step(w), w->err);
    ck_assert_msg(w->committed, "rejected");
    gather(w, w->parameters.p, w->x);
    return w->function(w, w->x, w->g, NULL, NULL);
}

/* Of everything that a skipped step must leave: p, persistent slots, memory. */
static uint64_t hash(const world *w)
{
    uint64_t hash = 0xCBF29CE484222325u;
    size_t real = w->parameters.real / 8;
    for (size_t j = 0; j < tn_minimizer_slot_count(w->link) + (size_t)w->parameters.count; j++) {
        tn_chain_slot slot = {0};
        if (j >= (size_t)w->parameters.count)
            tn_minimizer_slot_at(w->link, j - (size_t)w->parameters.count, &slot);
        else
            slot = (tn_chain_slot){.data = (char *)w->parameters.p + (size_t)w->at[j] * real,
                                   .bytes = w->list[j].n * (int64_t)real,
                                   .persistent = 1};
        for (int64_t i = 0; slot.persistent && i < slot.bytes; i++)
            hash = (hash ^ ((const unsigned char *)slot.data)[i]) * 0x100000001B3u;
    }
    return hash;
}

/* ---- functions ---- */

static double rosenbrock(const world *w, const double *x, double *g, const double *v, double *hv)
{
    double f = 0;
    for (int64_t i = 0; i < w->n; i++) {
        g[i] = 0;
        if (hv)
            hv[i] = 0;
    }
    for (int64_t i = 0; i + 1 < w->n; i++) {
        double a = x[i + 1] - x[i] * x[i], b = 1 - x[i];
        f += 100 * a * a + b * b;
        g[i + 1] += 200 * a;
        g[i] += -400 * a * x[i] - 2 * b;
        if (hv) {
            hv[i + 1] += 200 * (v[i + 1] - 2 * x[i] * v[i]);
            hv[i] += -400 * (x[i] * (v[i + 1] - 2 * x[i] * v[i]) + a * v[i]) + 2 * v[i];
        }
    }
    return f;
}

/* Element i of a diagonal Hessian, between 1 and 8 and apart from each other; and where its minimum is. */
static double weight(int64_t i) { return 1 + 7 * fmod((double)i * 0.61803398875, 1); }
static double centre(int64_t i) { return sin((double)(i + 1)); }

/* A diagonal part and one that couples all: 0.5 (sum of x)^2. */
static double quadratic(const world *w, const double *x, double *g, const double *v, double *hv)
{
    double f = 0, sum = 0, v_sum = 0;
    for (int64_t i = 0; i < w->n; i++) {
        double d = x[i] - centre(i);
        sum += d;
        v_sum += v ? v[i] : 0;
        g[i] = weight(i) * d;
        f += 0.5 * weight(i) * d * d;
        if (hv)
            hv[i] = weight(i) * v[i];
    }
    for (int64_t i = 0; i < w->n; i++) {
        g[i] += sum;
        if (hv)
            hv[i] += v_sum;
    }
    return f + 0.5 * sum * sum;
}

/* x^2 - y^2 */
static double saddle(const world *w, const double *x, double *g, const double *v, double *hv)
{
    (void)w;
    for (int i = 0; i < 2; i++) {
        g[i] = (i ? -2 : 2) * x[i];
        if (hv)
            hv[i] = (i ? -2 : 2) * v[i];
    }
    return x[0] * x[0] - x[1] * x[1];
}

static void start_at(world *w, double (*function)(const world *, const double *, double *, const double *, double *),
                     double first, double second)
{
    double *x = w->x;
    for (int64_t i = 0; i < w->n; i++)
        x[i] = i % 2 ? second : first;
    spread(w, x, 1, w->parameters.p);
    w->function = function;
}

/* ---- trajectories ---- */

static void follow(const json_t *c)
{
    static const int64_t two[] = {1, 1}, ten[] = {3, 0, 7};
    const char *name, *rule = json_string_value(json_object_get(c, "rule"));
    const json_t *start = json_object_get(c, "start"), *path = json_object_get(c, "path");
    tn_setting settings[8];
    size_t count = 0, n = json_array_size(start);
    json_t *value;
    json_object_foreach(json_object_get(c, "settings"), name, value) {
        settings[count++] = (tn_setting){name, json_string_value(value)};
    }
    world *w = world_new(64, 1, n == 2 ? 2 : 3, n == 2 ? two : ten);
    double worst = 0;
    for (size_t i = 0; i < n; i++)
        w->x[i] = json_number_value(json_array_get(start, i));
    spread(w, w->x, 1, w->parameters.p);
    w->function = rosenbrock;
    use_rule(w, rule, settings, count);
    for (size_t k = 0; k < json_array_size(path); k++) {
        step(w);
        for (size_t i = 0; i < n; i++) {
            double wanted = json_number_value(json_array_get(json_array_get(path, k), i));
            worst = fmax(worst, fabs(w->x[i] - wanted));
            ck_assert_msg(fabs(w->x[i] - wanted) < 1e-8, "%s, step %zu: x[%zu] is %.15g, needed %.15g", rule, k, i,
                          w->x[i], wanted);
        }
    }
    ck_assert_int_gt(w->calls, 0);
    world_free(w);
}

START_TEST(trajectories_as_in_an_independent_script)
{
    json_t *cases = test_golden("minimizers.json", NULL);
    ck_assert_uint_ge(json_array_size(cases), 11);
    for (size_t i = 0; i < json_array_size(cases); i++)
        follow(json_array_get(cases, i));
    json_decref(cases);
}
END_TEST

static void check_minimum(world *w, double tolerance)
{
    for (int64_t i = 0; i < w->n; i++)
        ck_assert_double_eq_tol(w->x[i], centre(i), tolerance);
}

START_TEST(newton_ends_a_quadratic_in_one_step)
{
    static const int64_t sizes[] = {3, 7};
    static const struct {
        const char *rule, *name, *value;
    } cases[] = {{"newton-cg", "forcing", "1e-12"}, {"saddle-free-newton", "damping", "0"}};
    for (int k = 0; k < 2; k++) {
        world *w = world_new(64, 2, 2, sizes);
        start_at(w, quadratic, 3, -2);
        const tn_setting setting = {cases[k].name, cases[k].value};
        use_rule(w, cases[k].rule, &setting, 1);
        ck_assert_double_lt(step(w), 1e-20);
        check_minimum(w, 1e-10);
        ck_assert_double_eq(w->report[0], 1);
        ck_assert_int_le(w->products, 10);
        world_free(w);
    }
}
END_TEST

START_TEST(lbfgs_ends_a_quadratic_in_few)
{
    static const int64_t sizes[] = {3, 7};
    static const tn_setting many = {"iterations", "40"};
    world *w = world_new(64, 1, 2, sizes);
    start_at(w, quadratic, 3, -2);
    use_rule(w, "lbfgs", &many, 1);
    ck_assert_double_lt(step(w), 1e-18); /* one update of up to 40 iterations */
    check_minimum(w, 1e-8);
    world_free(w);
    w = world_new(64, 1, 2, sizes);
    start_at(w, quadratic, 3, -2);
    use_rule(w, "lbfgs", NULL, 0);
    for (int k = 0; k < 39; k++)
        step(w);
    ck_assert_double_lt(step(w), 1e-18);
    check_minimum(w, 1e-8);
    world_free(w);
}
END_TEST

/* Newton's own step goes to the saddle point; with absolute curvature y doubles while x goes to 0. */
START_TEST(saddles_attract_newton_only)
{
    static const int64_t two[] = {2};
    static const tn_setting pure[] = {{"negative_curvature", "ignore"}, {"searches", "0"}, {"forcing", "0"}},
                            undamped[] = {{"damping", "0"}};
    world *w = world_new(64, 1, 1, two);
    start_at(w, saddle, 1, 0.125);
    use_rule(w, "newton-cg", pure, 3);
    step(w);
    ck_assert_double_eq_tol(w->x[0], 0, 1e-14);
    ck_assert_double_eq_tol(w->x[1], 0, 1e-14);
    world_free(w);

    w = world_new(64, 1, 1, two);
    start_at(w, saddle, 1, 0.125);
    use_rule(w, "saddle-free-newton", undamped, 1);
    for (double y = 0.25; y <= 2; y *= 2) {
        step(w);
        ck_assert_double_eq_tol(w->x[0], 0, 1e-12);
        ck_assert_double_eq_tol(w->x[1], y, 1e-12);
        ck_assert_double_eq(w->report[1], 1); /* one negative eigenvalue */
    }
    world_free(w);

    w = world_new(64, 1, 1, two); /* stopping at negative curvature leads away too */
    start_at(w, saddle, 1, 0.125);
    use_rule(w, "newton-cg", NULL, 0);
    double before = 1;
    for (int k = 0; k < 6; k++) {
        double after = step(w);
        ck_assert_double_lt(after, before);
        before = after;
    }
    ck_assert_double_gt(fabs(w->x[1]), 0.5);
    world_free(w);
}
END_TEST

/* ---- steps that end badly ---- */

static const struct {
    const char *rule;
    tn_setting setting;
} rules[] = {{"lbfgs", {"history", "3"}}, {"newton-cg", {"damping", "0.5"}}, {"saddle-free-newton", {"vectors", "4"}}};

START_TEST(a_loss_that_is_not_finite_is_taken_back)
{
    static const int64_t sizes[] = {3, 7};
    for (int k = 0; k < 3; k++)
        for (uint32_t real = 32; real <= 64; real += 32) {
            world *w = world_new(real, 2, 2, sizes);
            start_at(w, rosenbrock, -1.2, 1);
            use_rule(w, rules[k].rule, &rules[k].setting, 1);
            for (int i = 0; i < 5; i++)
                step(w);
            uint64_t before = hash(w);
            w->broken_from = w->calls; /* every look ahead fails */
            ck_ok(try_step(w), w->err);
            ck_assert_int_eq(w->committed, 0);
            ck_assert_uint_eq(hash(w), before);
            int64_t looks = w->calls - w->broken_from;
            ck_assert_int_gt(looks, 0);
            w->broken_from = -1;
            double loss = w->function(w, w->x, w->g, NULL, NULL);
            ck_assert_double_lt(step(w), loss);
            ck_assert(hash(w) != before);
            world_free(w);
        }
}
END_TEST

/* The first look of a search fails, later ones do not: then a shorter step is taken. */
static double wall(const world *w, const double *x, double *g, const double *v, double *hv)
{
    double f = quadratic(w, x, g, v, hv);
    return x[0] > 4 ? f : NAN; /* the minimum lies at centre(0) < 4 */
}

START_TEST(searches_go_round_what_is_not_finite)
{
    static const int64_t sizes[] = {3, 7};
    for (int k = 0; k < 3; k++) {
        world *w = world_new(64, 1, 2, sizes);
        start_at(w, wall, 5, 5);
        use_rule(w, rules[k].rule, &rules[k].setting, 1);
        double before = wall(w, w->x, w->g, NULL, NULL), after = 0;
        for (int i = 0; i < 2; i++)
            after = step(w);
        ck_assert(isfinite(after));
        ck_assert_double_lt(after, before);
        world_free(w);
    }
}
END_TEST

START_TEST(a_step_from_what_is_not_finite_is_skipped)
{
    static const int64_t sizes[] = {3, 7};
    for (int k = 0; k < 3; k++)
        for (int loss = 0; loss < 2; loss++) {
            world *w = world_new(32, 1, 2, sizes);
            start_at(w, rosenbrock, -1.2, 1);
            use_rule(w, rules[k].rule, &rules[k].setting, 1);
            step(w);
            uint64_t before = hash(w);
            int64_t calls = w->calls;
            tn_clock clock = {sizeof clock, 0, 2, 1, 1, NULL};
            if (!loss)
                put(w, w->parameters.g, w->at[1] + 6, INFINITY);
            const tn_step bad = {.scale = SCALE, .loss = loss ? NAN : 1};
            ck_ok(tn_minimizer_step(w->link, &bad, &clock, w->report, &w->committed, &w->err), w->err);
            ck_assert_int_eq(w->committed, 0);
            ck_assert_uint_eq(hash(w), before);
            ck_assert_int_eq(w->calls, calls);
            world_free(w);
        }
}
END_TEST

static int32_t no_gradient(void *user, double *ret_loss, tn_error *err)
{
    (void)user;
    (void)ret_loss;
    err->code = TN_E_IO;
    snprintf(err->msg, sizeof err->msg, "the line is dead");
    return TN_E_IO;
}

START_TEST(a_signal_that_fails_ends_the_step)
{
    static const int64_t sizes[] = {3, 7};
    world *w = world_new(64, 1, 2, sizes);
    start_at(w, rosenbrock, -1.2, 1);
    use_rule(w, "lbfgs", NULL, 0);
    step(w);
    uint64_t before = hash(w);
    w->signals.gradient = no_gradient;
    ck_assert_int_eq(try_step(w), TN_E_IO);
    ck_assert_msg(strstr(w->err.msg, "update.rule") && strstr(w->err.msg, "the line is dead"), "%s", w->err.msg);
    ck_assert_uint_eq(hash(w), before);
    w->signals.gradient = look;
    step(w);
    world_free(w);
}
END_TEST

/* Near a minimum no step is better as far as numbers tell: the update commits, with p as it was. */
START_TEST(a_minimum_is_no_failure)
{
    static const int64_t sizes[] = {3, 7};
    for (int k = 0; k < 3; k++) {
        world *w = world_new(32, 1, 2, sizes);
        start_at(w, quadratic, 3, -2);
        use_rule(w, rules[k].rule, &rules[k].setting, 1);
        for (int i = 0; i < 60; i++)
            step(w);
        ck_assert_double_lt(step(w), 1e-9);
        check_minimum(w, 1e-4);
        world_free(w);
    }
}
END_TEST

/* Its gradient points the wrong way: no step lowers the loss. */
static double liar(const world *w, const double *x, double *g, const double *v, double *hv)
{
    double f = quadratic(w, x, g, v, hv);
    for (int64_t i = 0; i < w->n; i++)
        g[i] = -g[i];
    return f;
}

START_TEST(where_no_step_is_better_p_keeps_its_bits)
{
    static const int64_t sizes[] = {3, 7};
    for (int k = 0; k < 3; k++) {
        double before[10];
        world *w = world_new(64, 1, 2, sizes);
        start_at(w, liar, 3, -2);
        memcpy(before, w->x, sizeof before);
        use_rule(w, rules[k].rule, &rules[k].setting, 1);
        step(w);
        ck_assert_int_gt(w->calls, 1);
        ck_assert_mem_eq(before, w->x, sizeof before);
        ck_assert_double_eq(w->report[0], 0);
        world_free(w);
    }
}
END_TEST

/* ---- plugins that are wrong ---- */

START_TEST(wrong_requests_are_refused)
{
    static const struct {
        const char *fault, *words;
    } cases[] = {{"endless", "10000 requests"}, {"kind", "the kind 99"},
                 {"vector_a", "a vector a 4"},  {"vector_b", "a vector b -1"},
                 {"to_g", "the vector to 1"},   {"to_far", "the vector to 4"},
                 {"count", "count 129"},        {"unannounced", "does not say that it asks for products"}};
    static const int64_t sizes[] = {3, 7};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tn_setting fault = {"fault", cases[i].fault};
        world *w = world_new(64, 1, 2, sizes);
        start_at(w, rosenbrock, -1.2, 1);
        use_rule(w, "minimizer-wrong", &fault, 1);
        uint64_t before = hash(w);
        int32_t status = try_step(w);
        ck_assert_msg(status == TN_E_PLUGIN && strstr(w->err.msg, cases[i].words) && strstr(w->err.msg, "update.rule"),
                      "%s: %d: %s", cases[i].fault, status, w->err.msg);
        ck_assert_uint_eq(hash(w), before); /* it had moved p, and counted in memory */
        world_free(w);
    }
}
END_TEST

START_TEST(wrong_plans_are_refused)
{
    static const char *const cases[][2] = {{"twins", "two slots of one name"},
                                           {"shape", "another shape"},
                                           {"init", "zero, one, parameter"},
                                           {"flag", "does not know"},
                                           {"memory", "memory outside"},
                                           {"careless", "does not know"},
                                           {"null", "is NULL"},
                                           {"name", "letters, digits"},
                                           {"silent", "without a message"}};
    static const int64_t sizes[] = {3, 7};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tn_setting fault = {"fault", cases[i][0]};
        world *w = world_new(64, 1, 2, sizes);
        int32_t status = try_rule(w, "minimizer-wrong", &fault, 1);
        ck_assert_msg(status == (i < 8 ? TN_E_PLUGIN : TN_E_INVALID) && strstr(w->err.msg, cases[i][1]), "%s: %d: %s",
                      cases[i][0], status, w->err.msg);
        world_free(w);
    }
}
END_TEST

START_TEST(a_plan_may_not_grow)
{
    static const int64_t sizes[] = {3, 7};
    world *w = world_new(64, 1, 2, sizes);
    use_rule(w, "minimizer-wrong", NULL, 0);
    double *lr = tn_instance_real(w->instance, tn_instance_row(w->instance, "lr"));
    ck_ok(tn_minimizer_check_plan(w->link, &w->err), w->err);
    *lr = 2;
    ck_assert_int_eq(tn_minimizer_check_plan(w->link, &w->err), TN_E_INVALID);
    ck_assert_msg(strstr(w->err.msg, "'more'"), "%s", w->err.msg);
    world_free(w);
}
END_TEST

/* ---- what it can not be used with ---- */

static void refused(world *w, const char *rule, int32_t wanted, const char *words)
{
    int32_t status = try_rule(w, rule, NULL, 0);
    ck_assert_msg(status == wanted && strstr(w->err.msg, words), "%s: %d: %s", words, status, w->err.msg);
    world_free(w);
}

START_TEST(what_is_not_driven_is_refused)
{
    static const int64_t sizes[] = {3, 8192};
    world *w = world_new(64, 1, 2, sizes);
    w->list[1].n = 4096;
    refused(w, "lbfgs", TN_E_UNSUPPORTED, "sharded parameters are not driven");
    w = world_new(64, 1, 2, sizes);
    w->options.signals = NULL;
    refused(w, "lbfgs", TN_E_UNSUPPORTED, "further gradients");
    w = world_new(64, 1, 2, sizes);
    w->signals.product = NULL;
    refused(w, "newton-cg", TN_E_UNSUPPORTED, "Hessian products");
    w = world_new(64, 1, 2, sizes);
    tn_codec codec = {.struct_size = sizeof codec};
    w->options.state.table = &codec;
    refused(w, "lbfgs", TN_E_UNSUPPORTED, "storage in another type is not driven");
    w = world_new(64, 1, 2, sizes);
    void *arrays[2] = {0};
    w->parameters.p_of = arrays;
    refused(w, "lbfgs", TN_E_UNSUPPORTED, "scattered arrays are not driven");
}
END_TEST

START_TEST(every_parameter_needs_a_gradient)
{
    static const int64_t sizes[] = {3, 7};
    world *w = world_new(64, 1, 2, sizes);
    start_at(w, rosenbrock, -1.2, 1);
    use_rule(w, "lbfgs", NULL, 0);
    w->present[1] = 0;
    ck_assert_int_eq(try_step(w), TN_E_INVALID);
    ck_assert_msg(strstr(w->err.msg, "parameter 'b' has no gradient"), "%s", w->err.msg);
    world_free(w);
}
END_TEST

START_TEST(every_failed_allocation_is_an_error)
{
    static const int64_t sizes[] = {3, 7};
    world *w = world_new(64, 1, 2, sizes);
    use_rule(w, "newton-cg", NULL, 0);
    tn_minimizer_close(w->link);
    w->link = NULL;
    int64_t failures = 0;
    for (int32_t status = TN_E_MEMORY; status != TN_OK; failures += status != TN_OK) {
        tn_memory_fail_at(failures);
        status = tn_minimizer_open(&w->options, w->instance, &w->link, &w->err);
        tn_memory_fail_at(-1);
        ck_assert_msg(status == TN_OK || status == TN_E_MEMORY, "%s", w->err.msg);
    }
    ck_assert_int_ge(failures, 20);
    world_free(w);
}
END_TEST

/* ---- bits ---- */

static const int64_t large[] = {70001, 5, 131072};

static world *large_world(int k, int32_t threads)
{
    world *w = world_new(32, threads, 3, large);
    start_at(w, quadratic, 3, -2);
    use_rule(w, rules[k].rule, &rules[k].setting, 1);
    return w;
}

START_TEST(threads_change_no_bit)
{
    for (int k = 0; k < 3; k++) {
        uint64_t first = 0;
        for (int32_t threads = 1; threads <= 3; threads++) {
            world *w = large_world(k, threads);
            step(w);
            int64_t before = tn_memory_count();
            step(w);
            step(w);
            ck_assert_int_eq(tn_memory_count(), before); /* no allocation in steady state */
            first = threads == 1 ? hash(w) : first;
            ck_assert_uint_eq(hash(w), first);
            world_free(w);
        }
    }
}
END_TEST

/* What the slots list is all that the next step needs. */
START_TEST(state_can_be_moved)
{
    static const int64_t sizes[] = {3, 7};
    for (int k = 0; k < 3; k++) {
        world *w[2];
        for (int i = 0; i < 2; i++) {
            w[i] = world_new(64, 1, 2, sizes);
            start_at(w[i], rosenbrock, -1.2, 1);
            use_rule(w[i], rules[k].rule, &rules[k].setting, 1);
        }
        for (int i = 0; i < 6; i++)
            step(w[0]);
        memcpy(w[1]->parameters.p, w[0]->parameters.p, (size_t)w[0]->parameters.elements * sizeof(double));
        size_t slots = tn_minimizer_slot_count(w[0]->link);
        for (size_t j = 0; j < slots; j++) {
            tn_chain_slot from, to;
            tn_minimizer_slot_at(w[0]->link, j, &from);
            tn_minimizer_slot_at(w[1]->link, j, &to);
            ck_assert_str_eq(from.slot, to.slot);
            ck_assert_int_eq(from.bytes, to.bytes);
            if (from.persistent)
                memcpy(to.data, from.data, (size_t)from.bytes);
            else
                memset(to.data, 0xFF, (size_t)to.bytes);
        }
        for (int i = 0; i < 4; i++)
            ck_assert_double_eq(step(w[0]), step(w[1]));
        ck_assert_uint_eq(hash(w[0]), hash(w[1]));
        world_free(w[0]);
        world_free(w[1]);
    }
}
END_TEST

/* ---- in a chain ---- */

static const tn_chain_slot *slot_of(tn_chain *chain, const char *link, const char *name, tn_chain_slot *ret)
{
    for (size_t j = 0; j < tn_chain_slot_count(chain); j++) {
        tn_chain_slot_at(chain, j, ret);
        if (strcmp(ret->link, link) == 0 && strcmp(ret->slot, name) == 0)
            return ret;
    }
    ck_abort_msg("no slot %s.%s", link, name);
}

static int32_t make_chain(world *w, tn_instance **links, const char *const *names, tn_chain **ret)
{
    for (size_t i = 0; i < 2; i++) {
        char path[32];
        snprintf(path, sizeof path, "update.%s", names[i]);
        ck_ok(tn_instance_create(w->registry, NULL, names[i], w->parameters.real, path, NULL, 0, &links[i], &w->err),
              w->err);
    }
    tn_chain_options options = w->options;
    options.links = links;
    options.link_count = 2;
    return tn_chain_create(&options, ret, &w->err);
}

static void chain_step(world *w, tn_chain *chain, tn_step_result *ret)
{
    double loss;
    look(w, &loss, NULL);
    const tn_step step = {.scale = SCALE, .loss = loss, .attempt = w->attempt++};
    ck_ok(tn_chain_step(chain, &step, ret, &w->err), w->err);
}

/* An average follows what the rule commits and nothing else; the state is listed with the chain's. */
START_TEST(averages_follow_what_is_committed)
{
    static const char *const names[] = {"lbfgs", "ema"};
    static const int64_t sizes[] = {3, 7};
    world *w = world_new(64, 1, 2, sizes);
    tn_instance *links[2];
    tn_chain *chain = NULL;
    tn_step_result result;
    tn_chain_slot average, memory;
    start_at(w, rosenbrock, -1.2, 1);
    ck_ok(make_chain(w, links, names, &chain), w->err);
    for (int i = 0; i < 3; i++) {
        chain_step(w, chain, &result);
        ck_assert_int_eq(result.committed, 1);
    }
    ck_assert_int_eq(*tn_chain_update(chain), 3);
    ck_assert_int_eq(tn_chain_clocks(chain)[1], 3);
    slot_of(chain, "lbfgs", "memory", &memory);
    ck_assert_int_eq(memory.parameter, -1);
    ck_assert_int_eq(memory.bits, 64);
    slot_of(chain, "ema", "average", &average);
    double before = *(double *)average.data, p = *(double *)w->parameters.p;
    ck_assert(before != -1.2 && p != -1.2 && before != p);
    w->broken_from = w->calls + 1; /* this step's gradient is good, what it looks at is not */
    chain_step(w, chain, &result);
    ck_assert_int_eq(result.committed, 0);
    ck_assert_str_eq(result.rejected, "lbfgs");
    ck_assert_int_eq(result.bad_parameter, -1);
    ck_assert_int_eq(*tn_chain_update(chain), 3);
    ck_assert(*(double *)average.data == before && *(double *)w->parameters.p == p);
    tn_chain_destroy(chain);
    tn_instance_free(links[0]);
    tn_instance_free(links[1]);
    world_free(w);
}
END_TEST

START_TEST(other_links_are_refused)
{
    static const char *const names[] = {"clip-norm", "lbfgs"};
    static const int64_t sizes[] = {3, 7};
    world *w = world_new(64, 1, 2, sizes);
    tn_instance *links[2];
    tn_chain *chain = NULL;
    ck_assert_int_eq(make_chain(w, links, names, &chain), TN_E_INVALID);
    ck_assert_msg(strstr(w->err.msg, "remove update.clip-norm"), "%s", w->err.msg);
    tn_instance_free(links[0]);
    tn_instance_free(links[1]);
    world_free(w);
}
END_TEST

/* ---- through a graph ---- */

typedef struct {
    tn_graph *graph;
    int64_t n, micro;
    double count;
} graph_window;

/* Two micro-batches of n samples, one after the other in the input. */
static int32_t graph_look(graph_window *g, double *ret_loss, const void *v, void *ret, tn_error *err)
{
    tn_exact sums[TN_SUMS_MAX] = {0};
    int32_t status = TN_OK;
    for (int64_t micro = 0; micro < 2 && !status; micro++) {
        tn_random_normal(11, (uint64_t)micro, 0, g->n * 7, 0, 1, 64, tn_graph_input(g->graph));
        for (int64_t i = 0; i < g->n; i++)
            ((int32_t *)tn_graph_target(g->graph))[i] = (int32_t)((i * i + micro) % 3);
        tn_graph_run run = {.n = g->n,
                            .flags = TN_TRAIN | TN_FREEZE | (micro ? TN_ACCUMULATE : 0),
                            .micro = micro,
                            .seed = v ? 1 / g->count : 1 / (SCALE * g->count)};
        status = v ? tn_graph_product(g->graph, &run, v, ret, err) : tn_graph_run_batch(g->graph, &run, sums, err);
    }
    if (!v)
        *ret_loss = tn_exact_value(&sums[TN_SUM_LOSS]) / tn_exact_value(&sums[TN_SUM_COUNT]);
    return status;
}

static int32_t graph_gradient(void *user, double *ret_loss, tn_error *err)
{
    return graph_look(user, ret_loss, NULL, NULL, err);
}

static int32_t graph_product(void *user, const void *v, void *ret, tn_error *err)
{
    return graph_look(user, NULL, v, ret, err);
}

static double norm_of(const tn_parameters *all)
{
    double sum = 0;
    for (int64_t k = 0; k < all->count; k++)
        for (int64_t i = 0; i < all->list[k].n; i++)
            sum += SCALE * SCALE * ((double *)all->g)[all->at[k] + i] * ((double *)all->g)[all->at[k] + i];
    return sqrt(sum);
}

typedef struct {
    tn_registry *registry;
    tn_pool *pool;
    tn_backend backend;
    tn_instance *model, *loss, *rule;
    graph_window window;
    tn_minimizer_link *link;
    tn_signals signals;
} graph_world;

static void graph_open(graph_world *w, const char *widths, const char *rule, const tn_setting *setting)
{
    const tn_setting settings[] = {{"widths", widths}, {"normalizer", "layernorm"}, {"activation", "tanh"}};
    static const tn_setting smoothing = {"smoothing", "0.1"};
    static const int64_t shape[] = {7};
    tn_error err = {0};
    const tn_entry_info *entry;
    *w = (graph_world){.registry = test_registry(NULL), .window = {.n = 20, .count = 40}};
    ck_ok(tn_pool_create(2, &w->pool, &err), err);
    ck_ok(tn_registry_find(w->registry, "backend", "reference", NULL, 0, &entry, &err), err);
    ck_ok(tn_registry_load(w->registry, entry, &w->backend, sizeof w->backend, &err), err);
    ck_ok(tn_instance_create(w->registry, "model", "mlp", 64, "model", settings, 3, &w->model, &err), err);
    ck_ok(tn_instance_create(w->registry, "loss", "cross-entropy", 64, "loss", &smoothing, 1, &w->loss, &err), err);
    ck_ok(tn_instance_create(w->registry, "optimizer", rule, 64, "update.rule", setting, 1, &w->rule, &err), err);
    tn_graph_options options = {.registry = w->registry,
                                .model = w->model,
                                .loss = w->loss,
                                .real = 64,
                                .batch = 20,
                                .ndim = 1,
                                .shape = shape,
                                .classes = 3,
                                .backend = &w->backend,
                                .pool = w->pool,
                                .seed = 3};
    ck_ok(tn_graph_create(&options, &w->window.graph, &err), err);
    ck_ok(tn_graph_offers_tangents(w->window.graph, &err), err);
    w->signals = (tn_signals){.user = &w->window, .gradient = graph_gradient, .product = graph_product};
    tn_chain_options chain = {.registry = w->registry,
                              .parameters = tn_graph_parameters(w->window.graph),
                              .pool = w->pool,
                              .signals = &w->signals};
    ck_ok(tn_minimizer_open(&chain, w->rule, &w->link, &err), err);
}

static void graph_close(graph_world *w)
{
    tn_minimizer_close(w->link);
    tn_graph_destroy(w->window.graph);
    tn_instance_free(w->model);
    tn_instance_free(w->loss);
    tn_instance_free(w->rule);
    tn_pool_destroy(w->pool);
    tn_registry_close(w->registry);
}

/* Loss and |g| after so many updates, none of which may raise the loss. */
static void train(const char *widths, const char *rule, const tn_setting *setting, int steps, double *ret_loss,
                  double *ret_norm)
{
    graph_world w;
    tn_error err = {0};
    double last = INFINITY, report[4];
    graph_open(&w, widths, rule, setting);
    for (int i = 0; i <= steps; i++, last = *ret_loss) {
        tn_clock clock = {sizeof clock, 0, i + 1, i, i, NULL};
        int32_t committed = 0;
        ck_ok(graph_gradient(&w.window, ret_loss, &err), err);
        *ret_norm = norm_of(tn_graph_parameters(w.window.graph));
        ck_assert_msg(*ret_loss <= last + 1e-14, "%s, step %d: the loss rises from %.17g to %.17g", rule, i, last,
                      *ret_loss);
        const tn_step step = {.scale = SCALE, .loss = *ret_loss, .attempt = i};
        ck_ok(tn_minimizer_step(w.link, &step, &clock, report, &committed, &err), err);
        ck_assert_int_eq(committed, 1);
    }
    graph_close(&w);
}

/* Softmax regression: convex, but a shift of all logits changes nothing, so the Hessian is singular. */
START_TEST(a_convex_model_is_trained_to_its_minimum)
{
    static const struct {
        tn_setting setting;
        int steps;
    } cases[] = {{{"history", "20"}, 60}, {{"forcing", "1e-3"}, 9}, {{"damping", "0"}, 12}};
    double loss[3], norm;
    for (int k = 0; k < 3; k++) {
        train("[]", rules[k].rule, &cases[k].setting, cases[k].steps, &loss[k], &norm);
        ck_assert_msg(norm < 1e-7, "%s: |g| is %g", rules[k].rule, norm);
        ck_assert_double_eq_tol(loss[k], loss[0], 1e-12);
    }
}
END_TEST

START_TEST(a_perceptron_is_trained)
{
    static const struct {
        tn_setting setting;
        int steps;
        double loss;
    } cases[] = {{{"history", "20"}, 100, 0.31}, {{"damping", "1e-2"}, 60, 0.6}, {{"vectors", "24"}, 30, 0.4}};
    double loss, norm;
    for (int k = 0; k < 3; k++) {
        train("[8, 6]", rules[k].rule, &cases[k].setting, cases[k].steps, &loss, &norm);
        ck_assert_msg(loss < cases[k].loss, "%s: the loss is %g, |g| %g", rules[k].rule, loss, norm);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("minimizer");
    TCase *rules_case = tcase_create("rules"), *host = tcase_create("host");
    tcase_set_timeout(rules_case, 60);
    tcase_set_timeout(host, 60);
    tcase_add_test(rules_case, trajectories_as_in_an_independent_script);
    tcase_add_test(rules_case, newton_ends_a_quadratic_in_one_step);
    tcase_add_test(rules_case, lbfgs_ends_a_quadratic_in_few);
    tcase_add_test(rules_case, saddles_attract_newton_only);
    tcase_add_test(rules_case, searches_go_round_what_is_not_finite);
    tcase_add_test(rules_case, a_minimum_is_no_failure);
    tcase_add_test(rules_case, where_no_step_is_better_p_keeps_its_bits);
    tcase_add_test(rules_case, a_convex_model_is_trained_to_its_minimum);
    tcase_add_test(rules_case, a_perceptron_is_trained);
    tcase_add_test(host, a_loss_that_is_not_finite_is_taken_back);
    tcase_add_test(host, a_step_from_what_is_not_finite_is_skipped);
    tcase_add_test(host, a_signal_that_fails_ends_the_step);
    tcase_add_test(host, wrong_requests_are_refused);
    tcase_add_test(host, wrong_plans_are_refused);
    tcase_add_test(host, a_plan_may_not_grow);
    tcase_add_test(host, what_is_not_driven_is_refused);
    tcase_add_test(host, every_parameter_needs_a_gradient);
    tcase_add_test(host, every_failed_allocation_is_an_error);
    tcase_add_test(host, threads_change_no_bit);
    tcase_add_test(host, state_can_be_moved);
    tcase_add_test(host, averages_follow_what_is_committed);
    tcase_add_test(host, other_links_are_refused);
    suite_add_tcase(suite, rules_case);
    suite_add_tcase(suite, host);
    return test_main(suite);
}
