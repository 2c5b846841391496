/* SPDX-License-Identifier: Apache-2.0
 *
 * The update chain: what it refuses, what it promises to links, and that only the arithmetic decides the bits.
 */
#include "host/update/internal.h"
#include "tests/malloc_count.h"
#include "tests/update.h"

static tn_registry *with_test_links(void)
{
    static tn_registry *registry;
    static const char *const files[] = {"links.so", "links-f64.so", "links-refused.so"};
    tn_error err;
    if (registry)
        return registry;
    registry = test_plugins();
    for (size_t i = 0; i < 3; i++)
        ck_ok(tn_registry_add_file(registry, test_path("TENON_TEST_PLUGINS", files[i]), &err), err);
    return registry;
}

static world *new_world(uint32_t real, int32_t threads)
{
    with_test_links();
    return world_new(real, threads);
}

/* A world with one vector of 3 elements, filled. */
static world *small_world(void)
{
    world *w = new_world(64, 1);
    world_vector(w, 3);
    world_arenas(w);
    world_set_p(w, 0, 1);
    world_set_g(w, 0, 0.5);
    return w;
}

#define assert_refused(w, code_, ...)                                                                                  \
    do {                                                                                                               \
        const char *const words[] = {__VA_ARGS__};                                                                     \
        ck_assert_int_eq(world_try_chain(w), code_);                                                                   \
        ck_assert_int_eq((w)->err.code, code_);                                                                        \
        for (size_t i_ = 0; i_ < sizeof words / sizeof *words; i_++)                                                   \
            ck_assert_msg(strstr((w)->err.msg, words[i_]) != NULL, "'%s' is not in: %s", words[i_], (w)->err.msg);     \
        ck_assert_ptr_null((w)->chain);                                                                                \
        world_free(w);                                                                                                 \
    } while (0)

/* ---- refusals ---- */

START_TEST(the_order_of_stages_is_checked)
{
    world *w = small_world();
    world_link(w, "ema");
    world_link(w, "adamw");
    assert_refused(w, TN_E_INVALID, "update.adamw", "update.ema", "gradient, rule, update");
    w = small_world();
    world_link(w, "adamw");
    world_link(w, "clip-norm");
    assert_refused(w, TN_E_INVALID, "update.clip-norm", "update.adamw");
}
END_TEST

START_TEST(a_chain_has_one_rule)
{
    world *w = small_world();
    world_link(w, "clip-norm");
    assert_refused(w, TN_E_INVALID, "no link is a rule");
    w = small_world();
    world_link(w, "adamw");
    world_link(w, "sgd");
    assert_refused(w, TN_E_INVALID, "update.adamw", "update.sgd", "exactly one");
    w = small_world();
    assert_refused(w, TN_E_INVALID, "no link is a rule");
}
END_TEST

START_TEST(handles_are_unique)
{
    world *w = small_world();
    world_link(w, "clip-norm");
    world_link(w, "clip-norm");
    world_link(w, "adamw");
    assert_refused(w, TN_E_INVALID, "'clip-norm'", "as:");
}
END_TEST

static const struct {
    const char *link, *word;
    int32_t code;
} refused[] = {
    {"bad-source", "signal \"gradient2\"", TN_E_UNSUPPORTED},
    {"bad-matrix", "tn_matrix", TN_E_PLUGIN},
    {"bad-slot", "shape \"scalar\"", TN_E_PLUGIN},
    {"bad-signal", "signal \"gradient2\"", TN_E_UNSUPPORTED},
    {"bad-keep", "keep outside", TN_E_PLUGIN},
    {"bad-round", "no partial", TN_E_PLUGIN},
};

START_TEST(what_is_not_driven_is_refused)
{
    world *w = new_world(32, 1);
    char path[64];
    world_vector(w, 3);
    world_arenas(w);
    world_link(w, refused[_i].link);
    int32_t is_rule = strcmp(json_string_value(json_object_get(w->links[0]->info->facts, "stage")), "rule") == 0;
    if (!is_rule)
        world_link(w, "sgd");
    snprintf(path, sizeof path, "update.%s", refused[_i].link);
    assert_refused(w, refused[_i].code, path, refused[_i].word);
}
END_TEST

START_TEST(a_link_of_another_real_type_is_refused)
{
    world *w = small_world();
    world_link(w, "adamw");
    w->parameters.real = 32;
    assert_refused(w, TN_E_INVALID, "update.adamw", "64-bit", "32 bits");
}
END_TEST

START_TEST(a_component_of_another_kind_is_refused)
{
    world *w = small_world();
    world_link(w, "relu");
    assert_refused(w, TN_E_INVALID, "update.relu", "tenon.layer", "tenon.optimizer");
}
END_TEST

static world *two_parameters(void)
{
    int64_t shape = 3 * TN_CHUNK;
    world *w = new_world(32, 1);
    world_slice(w, 1, &shape, TN_CHUNK, TN_CHUNK);
    world_vector(w, 10);
    world_arenas(w);
    world_link(w, "sgd");
    return w;
}

START_TEST(the_layout_is_checked)
{
    world *w = two_parameters();
    w->list[0].lo = 64;
    assert_refused(w, TN_E_INVALID, "p0", "lo is 64");
    w = two_parameters();
    w->list[0].n = 100;
    assert_refused(w, TN_E_INVALID, "p0", "n is 100", "whole chunks");
    w = two_parameters();
    w->list[1].n = 11;
    assert_refused(w, TN_E_INVALID, "p1", "n is 11");
    w = two_parameters();
    w->list[1].shape[0] = -1;
    assert_refused(w, TN_E_INVALID, "p1", "axes");
    w = two_parameters();
    w->at[1] = 64;
    assert_refused(w, TN_E_INVALID, "p1", "at is 64");
    w = two_parameters();
    w->at[1] += 16;
    assert_refused(w, TN_E_INVALID, "p1", "multiple of 64");
    w = two_parameters();
    w->parameters.elements = TN_CHUNK + 15;
    assert_refused(w, TN_E_INVALID, "p1", "padding");
    w = two_parameters();
    w->parameters.real = 16;
    assert_refused(w, TN_E_INVALID, "real type is 16");
}
END_TEST

START_TEST(opt_19_a_tensor_listed_twice_is_refused)
{
    world *w = new_world(32, 1);
    world_vector(w, 1);
    world_vector(w, 1);
    world_arenas(w);
    world_link(w, "sgd");
    w->list[1].name = "p0";
    assert_refused(w, TN_E_INVALID, "'p0'", "twice");
}
END_TEST

START_TEST(every_failing_allocation_is_reported)
{
    int32_t status = TN_E_MEMORY, failures = 0;
    world *w = new_world(32, 2);
    world_vector(w, 5000);
    world_vector(w, 7);
    world_arenas(w);
    world_fill(w, w->parameters.p, 1);
    world_fill(w, w->parameters.g, 2);
    world_link(w, "clip-norm");
    world_link(w, "center");
    world_link(w, "adamw");
    world_link(w, "double-step");
    world_link(w, "ema");
    world_chain(w); /* what the registry allocates for the first load is there then */
    tn_chain_destroy(w->chain);
    for (; status; failures++) {
        w->chain = NULL;
        tn_memory_fail_at(failures);
        status = world_try_chain(w);
        tn_memory_fail_at(-1);
        ck_assert_msg(!status || status == TN_E_MEMORY, "%s", w->err.msg);
        ck_assert(status == TN_OK || w->chain == NULL);
    }
    ck_assert_int_gt(failures, 30);
    world_step(w, 1);
    world_free(w);
}
END_TEST

START_TEST(arguments_of_a_step_are_checked)
{
    world *w = small_world();
    world_link(w, "sgd");
    world_chain(w);
    uint64_t before = world_hash(w);
    ck_assert_int_eq(tn_chain_step(w->chain, &(tn_step){.scale = NAN, .attempt = 0}, &w->result, &w->err),
                     TN_E_NUMERIC);
    ck_assert_int_eq(tn_chain_step(w->chain, &(tn_step){.scale = INFINITY, .attempt = 0}, &w->result, NULL),
                     TN_E_NUMERIC);
    w->parameters.g = (char *)w->parameters.g + 8;
    ck_assert_int_eq(tn_chain_step(w->chain, &(tn_step){.scale = 1, .attempt = 0}, &w->result, &w->err), TN_E_INVALID);
    w->parameters.g = (char *)w->parameters.g - 8;
    ck_assert(world_hash(w) == before);
    world_free(w);
}
END_TEST

/* ---- what links are promised ---- */

START_TEST(scales_multiply_and_go_into_the_next_read)
{
    world *w = small_world();
    world_link(w, "fixed-scale", "factor", "-4");
    world_link(w, "center");
    world_link(w, "sgd", "lr", "1");
    world_chain(w);
    for (int64_t i = 0; i < 3; i++)
        world_put(w, w->parameters.g, 0, i, (double)i);
    world_step(w, 0.5); /* the gradient is -2 * {0, 1, 2}, centered {2, 0, -2} */
    ck_assert_double_eq(world_p(w, 0, 0), 1 - 2);
    ck_assert_double_eq(world_p(w, 0, 1), 1);
    ck_assert_double_eq(world_p(w, 0, 2), 1 + 2);
    world_free(w);
}
END_TEST

START_TEST(update_links_change_the_step_and_the_decay)
{
    world *w = small_world();
    world_link(w, "sgd", "lr", "1", "weight_decay", "0.5");
    world_link(w, "double-step");
    world_chain(w);
    tn_chain_slot slot = world_slot(w, "double-step", "calls", 0);
    ck_assert_int_eq(slot.persistent, 0);
    ck_assert_int_eq(slot.elements, 3);
    ck_assert_double_eq(world_state(w, "double-step", "calls", 0, 2), 1);
    world_step(w, 1);
    ck_assert_double_eq(world_p(w, 0, 0), 0.5 * 0.5 * 1 + 2 * -0.5);
    ck_assert_double_eq(world_state(w, "double-step", "calls", 0, 2), 2);
    world_free(w);
}
END_TEST

START_TEST(after_links_see_the_new_parameter)
{
    for (uint32_t real = 32; real <= 64; real += 32) {
        world *w = new_world(real, 2);
        const int64_t sizes[] = {1, 7, 0, 15, 16, 17, 5000, 200001};
        for (size_t i = 0; i < 8; i++)
            world_vector(w, sizes[i]);
        world_arenas(w);
        world_fill(w, w->parameters.p, 1);
        world_fill(w, w->parameters.g, 2);
        world_link(w, "sgd", "lr", "0.1");
        world_link(w, "copy-after");
        world_chain(w);
        world_step(w, 1);
        for (int64_t i = 0; i < 8; i++) {
            ck_assert_int_eq(world_slot(w, "copy-after", "copy", i).elements, sizes[i]);
            const void *copy = world_slot(w, "copy-after", "copy", i).data,
                       *wrong = world_slot(w, "copy-after", "wrong", i).data;
            for (int64_t j = 0; j < sizes[i]; j++)
                expect(world_at(w, copy, j) == world_p(w, i, j) && world_at(w, wrong, j) == 0, "element %d", (int)j);
        }
        world_free(w);
    }
}
END_TEST

START_TEST(plans_may_differ_by_parameter)
{
    const int64_t shape[] = {2, 3};
    world *w = new_world(64, 1);
    world_slice(w, 2, shape, 0, -1);
    world_vector(w, 4);
    world_arenas(w);
    world_fill(w, w->parameters.p, 1);
    world_set_g(w, 0, 0.25);
    world_set_g(w, 1, 0.25);
    world_link(w, "picky");
    world_chain(w);
    ck_assert_uint_eq(tn_chain_slot_count(w->chain), 3);
    double before = world_p(w, 1, 3);
    ck_assert_double_eq(world_state(w, "picky", "all", 1, 3), before);
    world_step(w, 2);
    ck_assert_double_eq(world_p(w, 1, 3), before - 0.5);
    ck_assert_double_eq(world_state(w, "picky", "all", 1, 3), before + 1);
    ck_assert_double_eq(world_state(w, "picky", "matrix", 0, 5), 1);
    ck_assert_int_eq(tn_chain_bytes(w->chain), (64 + 128) * 8); /* only where it has them */
    world_free(w);
}
END_TEST

START_TEST(a_failing_plan_names_the_parameter)
{
    const int64_t shape[] = {2, 3, 4};
    world *w = new_world(64, 1);
    world_vector(w, 4);
    world_slice(w, 3, shape, 0, -1);
    world_arenas(w);
    world_link(w, "picky");
    assert_refused(w, TN_E_UNSUPPORTED, "update.picky", "'p1'", "3 axes");
}
END_TEST

START_TEST(hyper_parameters_are_read_at_each_step)
{
    world *w = small_world();
    world_link(w, "sgd", "lr", "1");
    world_chain(w);
    world_step(w, 1);
    *tn_instance_real(w->links[0], tn_instance_row(w->links[0], "lr")) = 0.125;
    world_step(w, 1);
    ck_assert_double_eq(world_p(w, 0, 0), 1 - 0.5 - 0.0625);
    world_free(w);
}
END_TEST

START_TEST(the_view_is_the_last_one_declared_or_p)
{
    world *w = small_world();
    world_link(w, "sgd", "lr", "1");
    world_chain(w);
    ck_assert_ptr_eq(tn_chain_view(w->chain), w->parameters.p);
    world_free(w);
    w = small_world();
    world_link(w, "sgd", "lr", "1");
    world_link(w, "ema", "decay", "0.75");
    world_chain(w);
    world_step(w, 1);
    ck_assert_double_eq(world_get(w, tn_chain_view(w->chain), 0, 1), 0.75 * 1 + 0.25 * 0.5);
    ck_assert_int_eq((uintptr_t)tn_chain_view(w->chain) % 64, 0);
    world_free(w);
}
END_TEST

START_TEST(rounds_see_what_the_round_before_found)
{
    world *w = new_world(64, 2);
    world_vector(w, 100000);
    world_vector(w, 0);
    world_vector(w, 3);
    world_arenas(w);
    world_fill(w, w->parameters.p, 1);
    for (int64_t i = 0; i < 3; i++)
        for (int64_t j = 0; j < w->list[i].n; j++)
            world_put(w, w->parameters.g, i, j, (double)(j % 2));
    world_put(w, w->parameters.g, 2, 0, 1);
    world_link(w, "fixed-scale", "factor", "2");
    world_link(w, "measure");
    world_link(w, "sgd");
    world_chain(w);
    ck_assert(isnan(world_report(w, "measure.mean")) && isnan(world_report(w, "measure.variance")));
    world_step(w, 3); /* values 0 and 6, of the first 50002 + of each half */
    double n = 100003, ones = 50002, mean = 6 * ones / n;
    ck_assert_double_eq_tol(world_report(w, "measure.mean"), mean, 1e-12);
    ck_assert_double_eq_tol(world_report(w, "measure.variance"), 36 * ones / n - mean * mean, 1e-10);
    world_step(w, 3);
    ck_assert_double_eq_tol(world_report(w, "measure.variance"), 36 * ones / n - mean * mean, 1e-10);
    world_free(w);
}
END_TEST

START_TEST(tensor_rounds_keep_tensors_apart)
{
    world *w = new_world(64, 2);
    world_vector(w, 70000);
    world_vector(w, 0);
    world_vector(w, 5);
    world_vector(w, 9000);
    world_arenas(w);
    for (int64_t i = 0; i < 4; i++)
        world_set_p(w, i, 0);
    for (int64_t i = 0; i < 4; i++)
        for (int64_t j = 0; j < w->list[i].n; j++)
            world_put(w, w->parameters.g, i, j, (double)(100 * i + (j & 1 ? 1 : -1)));
    world_put(w, w->parameters.g, 2, 4, 200); /* an odd number of elements: mean 200 */
    w->present[3] = 0;
    world_link(w, "center");
    world_link(w, "sgd", "lr", "1");
    world_chain(w);
    world_step(w, 1);
    ck_assert_double_eq(world_p(w, 0, 69999), -1);
    ck_assert_double_eq(world_p(w, 2, 0), 1);
    ck_assert_double_eq(world_p(w, 2, 4), 0);
    ck_assert_double_eq(world_p(w, 3, 8999), 0);
    world_free(w);
}
END_TEST

/* ---- clocks and presence ---- */

START_TEST(absent_gradients_change_nothing)
{
    world *w = new_world(32, 2);
    world_vector(w, 5000);
    world_vector(w, 100);
    world_arenas(w);
    world_fill(w, w->parameters.p, 1);
    world_fill(w, w->parameters.g, 2);
    world_link(w, "clip-norm");
    world_link(w, "adamw");
    world_link(w, "ema");
    world_chain(w);
    world_step(w, 1);
    float p[100], m[100], average[100];
    memcpy(p, (float *)w->parameters.p + w->at[1], sizeof p);
    memcpy(m, world_slot(w, "adamw", "m", 1).data, sizeof m);
    memcpy(average, world_slot(w, "ema", "average", 1).data, sizeof average);
    world_set_g(w, 1, NAN); /* absent: nobody looks */
    w->present[1] = 0;
    world_step(w, 1);
    ck_assert_mem_eq(p, (float *)w->parameters.p + w->at[1], sizeof p);
    ck_assert_mem_eq(m, world_slot(w, "adamw", "m", 1).data, sizeof m);
    ck_assert_mem_eq(average, world_slot(w, "ema", "average", 1).data, sizeof average);
    ck_assert_int_eq(tn_chain_clocks(w->chain)[0], 2);
    ck_assert_int_eq(tn_chain_clocks(w->chain)[1], 1);
    ck_assert_int_eq(*tn_chain_update(w->chain), 2);
    world_free(w);
}
END_TEST

START_TEST(without_any_gradient_a_step_is_empty)
{
    world *w = small_world();
    world_link(w, "clip-norm");
    world_link(w, "adamw");
    w->check_finite = 1;
    world_chain(w);
    w->present[0] = 0;
    world_step(w, 1);
    ck_assert_double_eq(world_p(w, 0, 0), 1);
    ck_assert_int_eq(tn_chain_clocks(w->chain)[0], 0);
    ck_assert_int_eq(*tn_chain_update(w->chain), 1);
    ck_assert(world_report(w, "clip-norm.norm") == 0 || isnan(world_report(w, "clip-norm.norm")));
    world_free(w);
    w = new_world(32, 2);
    world_arenas(w);
    world_link(w, "clip-norm");
    world_link(w, "adamw");
    world_chain(w);
    world_step(w, 1);
    ck_assert_int_eq(*tn_chain_update(w->chain), 1);
    world_free(w);
}
END_TEST

/* ---- the vote ---- */

static void assert_skipped(world *w, int64_t bad)
{
    uint64_t before = world_hash(w);
    world_try_step(w, 1);
    ck_assert_int_eq(w->result.committed, 0);
    ck_assert_int_eq(w->result.bad_parameter, bad);
    ck_assert_msg(world_hash(w) == before, "a skipped step changed bits");
}

static world *three_vectors(int32_t threads, int32_t clip, int32_t check)
{
    world *w = new_world(32, threads);
    world_vector(w, 70000);
    world_vector(w, 33);
    world_vector(w, 5000);
    world_arenas(w);
    world_fill(w, w->parameters.p, 1);
    world_fill(w, w->parameters.g, 2);
    if (clip)
        world_link(w, "clip-norm");
    world_link(w, "adamw");
    world_link(w, "ema");
    w->check_finite = check;
    world_chain(w);
    world_step(w, 1);
    return w;
}

START_TEST(clip_01_a_step_with_bad_gradients_changes_no_bit)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int32_t clip = 0; clip < 2; clip++)
        for (int32_t threads = 1; threads <= 3; threads++)
            for (size_t i = 0; i < 3; i++) {
                world *w = three_vectors(threads, clip, !clip);
                double good = world_get(w, w->parameters.g, 1, 32);
                world_put(w, w->parameters.g, 1, 32, bad[i]);
                assert_skipped(w, 1);
                world_put(w, w->parameters.g, 2, 0, bad[i]);
                world_put(w, w->parameters.g, 0, 69999, bad[i]);
                assert_skipped(w, 0);
                w->present[0] = 0;
                assert_skipped(w, 1);
                w->present[1] = 0;
                assert_skipped(w, 2);
                w->present[0] = w->present[1] = 1;
                world_put(w, w->parameters.g, 0, 69999, 0.5);
                world_put(w, w->parameters.g, 1, 32, good);
                world_put(w, w->parameters.g, 2, 0, 0.5);
                world_step(w, 1);
                ck_assert_int_eq(tn_chain_clocks(w->chain)[2], 2);
                world_free(w);
            }
}
END_TEST

START_TEST(reports_of_a_skipped_step_are_nan)
{
    world *w = three_vectors(2, 1, 0);
    ck_assert(world_report(w, "clip-norm.norm") > 1);
    world_put(w, w->parameters.g, 1, 3, NAN);
    assert_skipped(w, 1);
    ck_assert(isnan(world_report(w, "clip-norm.norm")) && isnan(world_report(w, "clip-norm.scale")));
    world_free(w);
}
END_TEST

START_TEST(without_a_check_a_bad_gradient_goes_through)
{
    world *w = three_vectors(1, 0, 0);
    world_put(w, w->parameters.g, 1, 3, NAN);
    world_step(w, 1);
    ck_assert(isnan(world_p(w, 1, 3)));
    ck_assert(isfinite(world_p(w, 1, 4)));
    world_free(w);
}
END_TEST

/* ---- the same bits ---- */

START_TEST(work_is_cut_on_chunks_into_long_stretches)
{
    world *w = new_world(32, 1);
    tn_cut *cuts;
    int64_t count, held = 0;
    const int64_t sizes[] = {0, 70000, 300, 0, 10 * TN_CHUNK, 9000, 200000, 1};
    for (size_t i = 0; i < 8; i++)
        world_vector(w, sizes[i]);
    ck_assert_int_eq(tn_layout_cut(&w->parameters, 5 * TN_CHUNK, &cuts, &count, &w->err), TN_OK);
    for (int64_t c = 0; c < count; c++, held = 0) {
        ck_assert_int_eq(cuts[c].at % TN_CHUNK, 0);
        for (int64_t i = cuts[c].parameter; i <= cuts[c + 1].parameter && i < 8; i++)
            held +=
                (i == cuts[c + 1].parameter ? cuts[c + 1].at : sizes[i]) - (i == cuts[c].parameter ? cuts[c].at : 0);
        ck_assert(held >= 5 * TN_CHUNK || (c == count - 1 && held > 0));
        ck_assert_int_lt(held, 6 * TN_CHUNK);
    }
    ck_assert(cuts[0].parameter == 1 && cuts[0].at == 0 && cuts[count].parameter == 8 && cuts[count].at == 0);
    tn_free(cuts);
    world_free(w);
}
END_TEST

static uint64_t long_chain(uint32_t real, int32_t threads)
{
    const int64_t matrix[] = {300, 700}, scalar[] = {0};
    world *w = new_world(real, threads);
    world_slice(w, 2, matrix, 0, -1);
    world_slice(w, 0, scalar, 0, -1);
    world_vector(w, 0);
    world_vector(w, 65536);
    for (int i = 0; i < 40; i++)
        world_vector(w, 4099 - 100 * i);
    world_arenas(w);
    world_fill(w, w->parameters.p, 1);
    world_link(w, "clip-norm");
    world_link(w, "center");
    world_link(w, "noise");
    world_link(w, "adamw");
    world_link(w, "double-step");
    world_link(w, "ema");
    world_chain(w);
    for (uint64_t step = 0; step < 4; step++) {
        world_fill(w, w->parameters.g, 2 + step);
        w->present[step] = 0;
        world_step(w, 0.5);
        w->present[step] = 1;
    }
    ck_assert(isfinite(world_p(w, 0, 12345)));
    uint64_t hash = world_hash(w);
    world_free(w);
    return hash;
}

START_TEST(threads_do_not_change_bits)
{
    for (uint32_t real = 32; real <= 64; real += 32) {
        uint64_t one = long_chain(real, 1);
        ck_assert(one == long_chain(real, 2));
        ck_assert(one == long_chain(real, 3));
    }
}
END_TEST

/* One tensor as a whole and as slices of itself in another order: the same p, the same norm. */
START_TEST(slices_do_not_change_bits)
{
    const int64_t n = 20 * TN_CHUNK + 777, cuts[] = {7 * TN_CHUNK, n, 0, 6 * TN_CHUNK, 6 * TN_CHUNK, 7 * TN_CHUNK};
    world *whole = new_world(32, 1), *sliced = new_world(32, 2), *both[] = {whole, sliced};
    world_vector(whole, n);
    for (size_t i = 0; i < 6; i += 2) {
        world_slice(sliced, 1, &n, cuts[i], cuts[i + 1] - cuts[i]);
        sliced->list[i / 2].name = "p0";
    }
    for (size_t b = 0; b < 2; b++) {
        world *w = both[b];
        world_arenas(w);
        for (int64_t i = 0; i < w->parameters.count; i++)
            for (int64_t j = 0; j < w->list[i].n; j++) {
                world_put(w, w->parameters.p, i, j, world_noise(0, w->list[i].lo + j, 1));
                world_put(w, w->parameters.g, i, j, world_noise(0, w->list[i].lo + j, 2));
            }
        world_link(w, "clip-norm");
        world_link(w, "noise");
        world_link(w, "adamw");
        world_chain(w);
        world_step(w, 1);
        world_step(w, 1);
    }
    ck_assert(world_report(whole, "clip-norm.norm") == world_report(sliced, "clip-norm.norm"));
    for (int64_t i = 0; i < 3; i++)
        ck_assert_mem_eq((float *)sliced->parameters.p + sliced->at[i],
                         (float *)whole->parameters.p + sliced->list[i].lo, (size_t)sliced->list[i].n * sizeof(float));
    world_free(whole);
    world_free(sliced);
}
END_TEST

static world *noise_world(uint64_t seed)
{
    world *w = small_world();
    w->seed = seed;
    world_set_g(w, 0, 0);
    world_link(w, "noise");
    world_link(w, "sgd", "lr", "1");
    world_chain(w);
    world_step(w, 1);
    return w;
}

START_TEST(noise_differs_by_seed_element_and_attempt)
{
    world *w = noise_world(1), *other_seed = noise_world(2);
    ck_assert(world_p(w, 0, 0) != world_p(other_seed, 0, 0));
    world_free(other_seed);
    double first = 1 - world_p(w, 0, 0), other = 1 - world_p(w, 0, 1);
    world_set_p(w, 0, 1);
    world_step(w, 1);
    ck_assert(first != 1 - world_p(w, 0, 0) && first != other);
    w->attempt = 0;
    world_set_p(w, 0, 1);
    world_step(w, 1);
    ck_assert(first == 1 - world_p(w, 0, 0));
    world_free(w);
}
END_TEST

START_TEST(steps_allocate_nothing)
{
    world *w = three_vectors(2, 1, 0);
    world *plain = three_vectors(1, 0, 1);
    int32_t status = TN_OK, skipped = 0;
    int64_t ours = tn_memory_count(), all = malloc_count();
    for (int i = 0; i < 3; i++) {
        status |= tn_chain_step(w->chain, &(tn_step){.scale = 1, .attempt = i}, &w->result, &w->err);
        status |= tn_chain_step(plain->chain, &(tn_step){.scale = 1, .attempt = i}, &plain->result, &plain->err);
        skipped += !w->result.committed;
        ((float *)w->parameters.g)[3] = i == 0 ? NAN : 1;
    }
    all = malloc_count() - all;
    ck_assert_int_eq(tn_memory_count(), ours);
    ck_assert_int_eq(all, 0);
    ck_assert(status == TN_OK && skipped == 1);
    world_free(w);
    world_free(plain);
}
END_TEST

/* ---- kernels ---- */

#define CHECK_ADD(type, real)                                                                                          \
    do {                                                                                                               \
        type p[37], d[37], old[37];                                                                                    \
        for (int i = 0; i < 37; i++) {                                                                                 \
            old[i] = p[i] = (type)world_noise(0, i, 1);                                                                \
            d[i] = i % 3 ? (type)world_noise(0, i, 2) : (type)0;                                                       \
        }                                                                                                              \
        old[0] = p[0] = (type)-0.0;                                                                                    \
        old[3] = p[3] = (type)INFINITY;                                                                                \
        d[4] = (type)NAN;                                                                                              \
        tn_kernel_add(real, p, d, keep, 37);                                                                           \
        for (int i = 0; i < 37; i++) {                                                                                 \
            type right = keep == 1 ? d[i] == 0 ? old[i] : old[i] + d[i] : (type)keep * old[i] + d[i];                  \
            ck_assert(memcmp(&p[i], &right, sizeof right) == 0 || (isnan(p[i]) && isnan(right)));                      \
        }                                                                                                              \
    } while (0)

START_TEST(add_is_keep_times_p_plus_d)
{
    for (double keep = 1; keep > 0.3; keep -= 0.3) {
        CHECK_ADD(float, 32);
        CHECK_ADD(double, 64);
    }
}
END_TEST

START_TEST(finite_finds_each_bad_element)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    for (int n = 0; n < 40; n++) {
        float f[40];
        double d[40];
        for (int i = 0; i < 40; i++)
            f[i] = (float)(d[i] = i % 2 ? 3e38 : i % 3 ? -1e-40 : 0);
        f[n] = (float)(d[n] = NAN); /* just behind the end */
        ck_assert(tn_kernel_finite(32, f, n) && tn_kernel_finite(64, d, n));
        for (int at = 0; at < n; at++)
            for (int b = 0; b < 3; b++) {
                float kept_f = f[at];
                double kept_d = d[at];
                f[at] = (float)(d[at] = bad[b]);
                ck_assert(!tn_kernel_finite(32, f, n) && !tn_kernel_finite(64, d, n));
                f[at] = kept_f;
                d[at] = kept_d;
            }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chain");
    TCase *tests = tcase_create("chain");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, the_order_of_stages_is_checked);
    tcase_add_test(tests, a_chain_has_one_rule);
    tcase_add_test(tests, handles_are_unique);
    tcase_add_loop_test(tests, what_is_not_driven_is_refused, 0, sizeof refused / sizeof *refused);
    tcase_add_test(tests, a_link_of_another_real_type_is_refused);
    tcase_add_test(tests, a_component_of_another_kind_is_refused);
    tcase_add_test(tests, the_layout_is_checked);
    tcase_add_test(tests, opt_19_a_tensor_listed_twice_is_refused);
    tcase_add_test(tests, every_failing_allocation_is_reported);
    tcase_add_test(tests, arguments_of_a_step_are_checked);
    tcase_add_test(tests, scales_multiply_and_go_into_the_next_read);
    tcase_add_test(tests, update_links_change_the_step_and_the_decay);
    tcase_add_test(tests, after_links_see_the_new_parameter);
    tcase_add_test(tests, plans_may_differ_by_parameter);
    tcase_add_test(tests, a_failing_plan_names_the_parameter);
    tcase_add_test(tests, hyper_parameters_are_read_at_each_step);
    tcase_add_test(tests, the_view_is_the_last_one_declared_or_p);
    tcase_add_test(tests, rounds_see_what_the_round_before_found);
    tcase_add_test(tests, tensor_rounds_keep_tensors_apart);
    tcase_add_test(tests, absent_gradients_change_nothing);
    tcase_add_test(tests, without_any_gradient_a_step_is_empty);
    tcase_add_test(tests, clip_01_a_step_with_bad_gradients_changes_no_bit);
    tcase_add_test(tests, reports_of_a_skipped_step_are_nan);
    tcase_add_test(tests, without_a_check_a_bad_gradient_goes_through);
    tcase_add_test(tests, work_is_cut_on_chunks_into_long_stretches);
    tcase_add_test(tests, threads_do_not_change_bits);
    tcase_add_test(tests, slices_do_not_change_bits);
    tcase_add_test(tests, noise_differs_by_seed_element_and_attempt);
    tcase_add_test(tests, steps_allocate_nothing);
    tcase_add_test(tests, add_is_keep_times_p_plus_d);
    tcase_add_test(tests, finite_finds_each_bad_element);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
