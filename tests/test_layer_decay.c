/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/transform/layer-decay.c: which layer a parameter is of, and what becomes of its step.
 */
#include "tests/update.h"

typedef struct {
    const char *name;
    int32_t role;
    int above; /* layers over it, of 12 */
} placed;

static const placed all[] = {
    {"embed.weight", TN_ROLE_EMBEDDING, 13},
    {"hidden.0.linear.weight", TN_ROLE_WEIGHT, 12},
    {"hidden.0.linear.bias", TN_ROLE_BIAS, 12},
    {"encoder.blocks.5.norm1.weight", TN_ROLE_NORM, 7},
    {"blocks.11.mlp.fc2.weight", TN_ROLE_WEIGHT, 1},
    {"blocks.7.conv.2.weight", TN_ROLE_WEIGHT, 5},
    {"norm.weight", TN_ROLE_NORM, 0},
    {"head.weight", TN_ROLE_HEAD, 0},
    {"heads.3.weight", TN_ROLE_HEAD, 0},
    {"layer4x.1a.weight", TN_ROLE_WEIGHT, 0},
    {"embed.3.weight", TN_ROLE_EMBEDDING, 13},
    {"4", TN_ROLE_OTHER, 8},
};
enum { COUNT = sizeof all / sizeof *all };

static world *world_of(uint32_t real, const char *decay)
{
    world *w = world_new(real, 1);
    for (int i = 0; i < COUNT; i++) {
        world_vector(w, 5 + 4096 * (i == 1));
        w->list[i].name = all[i].name;
        w->list[i].role = all[i].role;
    }
    world_arenas(w);
    world_fill(w, w->parameters.p, 1);
    world_fill(w, w->parameters.g, 2);
    world_link(w, "sgd", "lr", "0.25");
    if (decay)
        world_link(w, "layer-decay", "decay", decay);
    world_chain(w);
    return w;
}

/* After one update p has moved by that of its rate times decay^above. */
START_TEST(steps_are_smaller_in_lower_layers)
{
    uint32_t real = _i ? 64 : 32;
    world *w = world_of(real, "0.75");
    world_step(w, 1);
    for (int i = 0; i < COUNT; i++)
        for (int64_t j = 0; j < w->list[i].n; j++) {
            double moved = -0.25 * pow(0.75, all[i].above) * world_noise(i, j, 2), p = world_noise(i, j, 1);
            ck_assert_msg(fabs(world_p(w, i, j) - p - moved) < (_i ? 1e-15 : 2e-7), "%s: %g, not %g", all[i].name,
                          world_p(w, i, j) - p, moved);
        }
    world_free(w);
}
END_TEST

START_TEST(a_decay_of_one_changes_no_bit)
{
    world *with = world_of(32, "1"), *without = world_of(32, NULL);
    world_step(with, 1);
    world_step(without, 1);
    ck_assert_mem_eq(with->parameters.p, without->parameters.p, 5 * sizeof(float));
    for (int i = 0; i < COUNT; i++)
        for (int64_t j = 0; j < with->list[i].n; j++)
            ck_assert(world_p(with, i, j) == world_p(without, i, j));
    world_free(with);
    world_free(without);
}
END_TEST

START_TEST(more_layers_than_told_are_refused)
{
    world *w = world_new(32, 1);
    world_vector(w, 5);
    w->list[0].name = "hidden.3.weight";
    world_arenas(w);
    world_link(w, "sgd");
    world_link(w, "layer-decay", "layers", "3");
    ck_assert_int_eq(world_try_chain(w), TN_E_INVALID);
    ck_assert_ptr_nonnull(strstr(w->err.msg, "'hidden.3.weight': its layer is 3, counted from 0, but 'layers' is 3"));
    world_free(w);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("layer-decay");
    TCase *tcase = tcase_create("layer-decay");
    tcase_add_loop_test(tcase, steps_are_smaller_in_lower_layers, 0, 2);
    tcase_add_test(tcase, a_decay_of_one_changes_no_bit);
    tcase_add_test(tcase, more_layers_than_told_are_refused);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
