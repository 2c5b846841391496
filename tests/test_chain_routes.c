/* SPDX-License-Identifier: Apache-2.0
 *
 * The chain's routes: which parameters each link is on, and what its state then costs.
 */
#include "host/update/internal.h"
#include "tests/update.h"

/* Two matrices and two vectors, p0 to p3. */
static world *four(int32_t threads)
{
    const int64_t first[] = {70, 1000}, second[] = {3, 5};
    world *w = world_new(32, threads);
    world_slice(w, 2, first, 0, -1);
    world_vector(w, 1000);
    world_slice(w, 2, second, 0, -1);
    world_vector(w, 3);
    w->list[1].role = w->list[3].role = TN_ROLE_BIAS;
    world_arenas(w);
    world_fill(w, w->parameters.p, 1);
    world_fill(w, w->parameters.g, 2);
    return w;
}

static tn_selector matrices = {.least_axes = 2, .most_axes = 8};
static tn_selector biases = {.roles = 1u << TN_ROLE_BIAS};

static void on(world *w, tn_selector *selector) { w->links[w->link_count - 1]->on = selector; }

/* The instances do not own the tests' selectors. */
static void end(world *w)
{
    for (size_t i = 0; i < w->link_count; i++)
        w->links[i]->on = NULL;
    world_free(w);
}

static void refuse(world *w, const char *const *words)
{
    ck_assert_int_eq(world_try_chain(w), TN_E_INVALID);
    for (; *words; words++)
        ck_assert_msg(strstr(w->err.msg, *words) != NULL, "'%s' is not in: %s", *words, w->err.msg);
    end(w);
}
#define assert_refused(w, ...) refuse(w, (const char *const[]){__VA_ARGS__, NULL})

START_TEST(a_parameter_on_two_rules_is_refused)
{
    static char *name = "p2";
    tn_selector one = {.names = &name, .name_count = 1};
    world *w = four(1);
    world_link(w, "adamw");
    on(w, &matrices);
    world_link(w, "sgd");
    on(w, &one);
    world_link(w, "lion");
    assert_refused(w, "'p2'", "update.adamw", "update.sgd", "narrow");
}
END_TEST

START_TEST(a_parameter_without_a_rule_is_refused)
{
    world *w = four(1);
    world_link(w, "adamw");
    on(w, &matrices);
    assert_refused(w, "'p1'", "no rule", "without `on:`");
}
END_TEST

START_TEST(two_rules_for_the_rest_are_refused)
{
    world *w = four(1);
    world_link(w, "adamw");
    world_link(w, "lion");
    on(w, &matrices);
    world_link(w, "sgd");
    assert_refused(w, "update.adamw", "update.sgd", "both");
}
END_TEST

START_TEST(a_route_to_nothing_is_refused)
{
    static char *name = "q*";
    tn_selector none = {.names = &name, .name_count = 1};
    world *w = four(1);
    world_link(w, "clip-norm");
    on(w, &none);
    world_link(w, "sgd");
    assert_refused(w, "update.clip-norm", "`on:`", "'p0'");
}
END_TEST

START_TEST(a_rule_that_is_left_nothing_is_refused)
{
    static char *name = "*";
    tn_selector all = {.names = &name, .name_count = 1};
    world *w = four(1);
    world_link(w, "adamw");
    on(w, &all);
    world_link(w, "sgd");
    assert_refused(w, "update.sgd", "`on:` leave it none of the 4 parameters");
}
END_TEST

/* Of a rule that goes on as if its slot had not been refused. */
START_TEST(slots_without_a_good_name_are_refused)
{
    const char *const faults[][2] = {{"null", "NULL"},     {"unnamed", "a name"}, {"empty", "a name"},
                                     {"space", "letters"}, {"slash", "letters"},  {"letter", "letters"},
                                     {"none", NULL}};
    tn_error err = {0};
    ck_ok(tn_registry_add_file(test_plugins(), test_path("TENON_TEST_PLUGINS", "slot-wrong.so"), &err), err);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        world *w = four(1);
        world_link(w, "slot-wrong", "fault", faults[i][0]);
        int32_t status = world_try_chain(w);
        ck_assert_int_eq(status, faults[i][1] ? TN_E_PLUGIN : TN_OK);
        ck_assert_msg(!status || (strstr(w->err.msg, "update.slot-wrong: plan for parameter 'p0'") &&
                                  strstr(w->err.msg, faults[i][1])),
                      "%s", w->err.msg);
        if (!status)
            world_slot(w, "slot-wrong", "A-z_0.9", 0);
        world_free(w);
    }
}
END_TEST

START_TEST(writers_must_be_apart)
{
    world *w = four(1);
    world_link(w, "sgd");
    world_link(w, "schedule-free");
    on(w, &matrices);
    world_link(w, "schedule-free");
    w->links[2]->handle[0] = 'z';
    assert_refused(w, "'p0'", "update.schedule-free", "both write");
    w = four(1);
    world_link(w, "sgd");
    world_link(w, "schedule-free");
    on(w, &matrices);
    world_link(w, "schedule-free");
    w->links[2]->handle[0] = 'z';
    on(w, &biases);
    world_chain(w);
    world_step(w, 1);
    end(w);
}
END_TEST

/* Each parameter does as in a chain of its own rule. */
START_TEST(each_parameter_follows_its_rule)
{
    world *routed = four(2), *adam = four(1), *plain = four(1), *both[] = {adam, plain};
    world_link(routed, "adamw");
    on(routed, &matrices);
    world_link(routed, "sgd", "momentum", "0.9");
    world_link(adam, "adamw");
    world_link(plain, "sgd", "momentum", "0.9");
    world_chain(routed);
    world_chain(adam);
    world_chain(plain);
    for (int step = 0; step < 3; step++) {
        world_step(routed, 1);
        world_step(adam, 1);
        world_step(plain, 1);
    }
    for (int64_t i = 0; i < 4; i++)
        ck_assert_mem_eq((float *)routed->parameters.p + routed->at[i],
                         (float *)both[i % 2]->parameters.p + routed->at[i], (size_t)routed->list[i].n * sizeof(float));
    ck_assert_uint_eq(tn_chain_slot_count(routed->chain), 2 * 2 + 2);
    ck_assert_int_eq(tn_chain_bytes(routed->chain),
                     tn_chain_bytes(adam->chain) / routed->parameters.elements * (70016 + 64) +
                         tn_chain_bytes(plain->chain) / routed->parameters.elements * (1024 + 64));
    end(routed);
    end(adam);
    end(plain);
}
END_TEST

/* A sum over the model is over the parameters that the link is on, and so is what it does. */
START_TEST(a_round_sums_what_the_link_is_on)
{
    world *w = four(2);
    double squares = 0;
    world_link(w, "clip-norm", "max_norm", "0.5");
    on(w, &biases);
    world_link(w, "sgd", "lr", "1");
    world_chain(w);
    for (int64_t i = 1; i < 4; i += 2)
        for (int64_t j = 0; j < w->list[i].n; j++)
            squares += pow(world_get(w, w->parameters.g, i, j), 2);
    double p0 = world_p(w, 0, 7), p1 = world_p(w, 1, 7);
    world_step(w, 1);
    ck_assert_double_eq_tol(world_report(w, "clip-norm.norm"), sqrt(squares), 1e-9);
    ck_assert_double_eq_tol(world_p(w, 0, 7), p0 - world_get(w, w->parameters.g, 0, 7), 1e-6);
    ck_assert_double_eq_tol(world_p(w, 1, 7), p1 - world_get(w, w->parameters.g, 1, 7) * 0.5 / sqrt(squares), 1e-6);
    world_put(w, w->parameters.g, 3, 0, NAN);
    world_try_step(w, 1);
    ck_assert(!w->result.committed && w->result.bad_parameter == 3);
    end(w);
}
END_TEST

/* With all of its parameters absent a link has no clock, and its fold is not called. */
START_TEST(a_link_whose_parameters_are_absent_rests)
{
    world *w = four(1);
    world_link(w, "clip-norm");
    on(w, &biases);
    world_link(w, "sgd");
    world_chain(w);
    w->present[1] = w->present[3] = 0;
    world_step(w, 1);
    ck_assert(isnan(world_report(w, "clip-norm.norm")));
    end(w);
}
END_TEST

/* What an average is not on is evaluated as it is. */
START_TEST(a_view_of_some_parameters_shows_the_others_as_they_are)
{
    world *w = four(1);
    world_link(w, "sgd", "lr", "1");
    world_link(w, "ema", "decay", "0.75");
    on(w, &matrices);
    world_chain(w);
    float old = (float)world_p(w, 0, 9);
    world_step(w, 1);
    const void *view = tn_chain_view(w->chain);
    ck_assert_ptr_ne(view, w->parameters.p);
    ck_assert_double_eq_tol(world_get(w, view, 0, 9), 0.75 * old + 0.25 * world_p(w, 0, 9), 1e-6);
    ck_assert_double_eq(world_get(w, view, 1, 999), world_p(w, 1, 999));
    ck_assert_double_eq(world_get(w, view, 3, 2), world_p(w, 3, 2));
    end(w);
}
END_TEST

START_TEST(threads_do_not_change_bits_of_routes)
{
    uint64_t hash[3];
    for (int32_t threads = 1; threads <= 3; threads++) {
        world *w = four(threads);
        world_link(w, "clip-norm", "max_norm", "0.1");
        on(w, &biases);
        world_link(w, "adafactor");
        on(w, &matrices);
        world_link(w, "lamb");
        world_link(w, "cautious");
        on(w, &matrices);
        world_link(w, "ema");
        world_chain(w);
        world_step(w, 1);
        w->present[threads % 2] = 1;
        world_step(w, 1);
        hash[threads - 1] = world_hash(w);
        end(w);
    }
    ck_assert(hash[0] == hash[1] && hash[0] == hash[2]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chain routes");
    TCase *tests = tcase_create("chain routes");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_parameter_on_two_rules_is_refused);
    tcase_add_test(tests, a_parameter_without_a_rule_is_refused);
    tcase_add_test(tests, two_rules_for_the_rest_are_refused);
    tcase_add_test(tests, a_route_to_nothing_is_refused);
    tcase_add_test(tests, a_rule_that_is_left_nothing_is_refused);
    tcase_add_test(tests, slots_without_a_good_name_are_refused);
    tcase_add_test(tests, writers_must_be_apart);
    tcase_add_test(tests, each_parameter_follows_its_rule);
    tcase_add_test(tests, a_round_sums_what_the_link_is_on);
    tcase_add_test(tests, a_link_whose_parameters_are_absent_rests);
    tcase_add_test(tests, a_view_of_some_parameters_shows_the_others_as_they_are);
    tcase_add_test(tests, threads_do_not_change_bits_of_routes);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
