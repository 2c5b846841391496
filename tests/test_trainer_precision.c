/* SPDX-License-Identifier: Apache-2.0
 *
 * Storage of parameters with and without a master, and loss scales.
 */
#include "host/base/memory.h"
#include "host/train/internal.h"
#include "tests/small_run.h"

/* To nearest, ties to even, of finite numbers. */
static float to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The gradient of a step is that of parameters rounded by hand; the masters have bits that bf16 has not. */
START_TEST(layers_see_rounded_masters)
{
    outcome o;
    tn_log log;
    tn_exact sums[TN_SUMS_MAX] = {0};
    tn_error err = {0};
    open_small(&o, &log, (const char *[]){"precision={storage: bf16}", "model.regularizer=dropout"}, 2);
    tn_parameters *all = tn_graph_parameters(tn_trainer_graph(o.trainer));
    step(&o);
    float *rounded = copy(all->p, all);
    int64_t narrow = 0, some = 0;
    for (int64_t i = 0; i < all->count; i++)
        for (int64_t j = all->at[i]; j < all->at[i] + all->list[i].n; j++) {
            rounded[j] = to_bf16(rounded[j]);
            narrow += rounded[j] == ((float *)all->p)[j];
            some++;
        }
    ck_assert_int_lt(narrow, some / 10);
    step(&o);
    float *gradient = copy(all->g, all);
    tn_graph_run again = {.n = 16, .flags = TN_TRAIN, .attempt = 1, .update = 1, .seed = 1.0 / 16, .p = rounded};
    ck_ok(tn_graph_run_batch(tn_trainer_graph(o.trainer), &again, sums, &err), err);
    for (int64_t i = 0; i < all->count; i++)
        ck_assert_mem_eq(gradient + all->at[i], (float *)all->g + all->at[i],
                         (size_t)all->list[i].n * sizeof *gradient);
    tn_free(gradient);
    tn_free(rounded);
    close_run(&o);
}
END_TEST

/* What layers see of a parameter, once it was shown. */
static const float *seen_of(const outcome *o, int64_t i)
{
    const tn_parameters *all = parameters(o);
    const float *seen =
        o->trainer->precision.seen && o->experiment->master ? (void *)o->trainer->precision.seen : all->p;
    return seen + all->at[i];
}

/* Two parameters of one shape and the same numbers: what layers see of them was drawn apart, in each attempt anew. */
START_TEST(parameters_are_rounded_by_draws_of_their_own)
{
    static const char *const formats[] = {"bf16", "fp16"};
    for (int k = 0; k < 4; k++) {
        outcome o;
        tn_log log;
        char precision[96];
        snprintf(precision, sizeof precision, "precision={storage: {use: %s, rounding: stochastic}, master: %s}",
                 formats[k / 2], k % 2 ? "true" : "false");
        open_small(
            &o, &log,
            (const char *[]){precision, "model.widths=[64, 64]", "model.normalizer=none", "update={use: sgd, lr: 0}"},
            4);
        tn_parameters *all = tn_graph_parameters(tn_trainer_graph(o.trainer));
        float first[64 * 64] = {0};
        for (int64_t i = 0; i < all->count; i++)
            for (int64_t j = 0; j < all->list[i].n; j++)
                ((float *)all->p)[all->at[i] + j] = 0.1f;
        for (o.trainer->attempt = 0; o.trainer->attempt < 2; o.trainer->attempt++) {
            int64_t apart = 0, anew = 0;
            tn_precision_store(o.trainer);
            tn_precision_show(o.trainer, NULL);
            ck_assert_str_eq(all->list[0].name, "hidden.0.linear.weight");
            ck_assert_str_eq(all->list[2].name, "hidden.1.linear.weight");
            const float *a = seen_of(&o, 0), *b = seen_of(&o, 2);
            for (int j = 0; j < 64 * 64; j++) {
                apart += a[j] != b[j];
                anew += a[j] != first[j];
            }
            ck_assert_int_gt(apart, 1024);
            ck_assert(o.trainer->attempt == 0 || anew > 1024);
            memcpy(first, a, sizeof first);
            for (int64_t j = 0; j < 64 * 64; j++)
                ((float *)all->p)[all->at[0] + j] = ((float *)all->p)[all->at[2] + j] = 0.1f;
        }
        close_run(&o);
    }
}
END_TEST

/* PRC-04: steps below half a unit in the last place of bf16 are lost without a master, and add up with one. */
START_TEST(small_steps_need_masters)
{
    for (int master = 0; master < 2; master++) {
        outcome o;
        tn_log log;
        const char *precision = master ? "precision={storage: bf16}" : "precision={storage: bf16, master: false}";
        open_small(&o, &log, (const char *[]){precision, "update.rule={use: sgd, lr: 1e-5}"}, 2);
        tn_parameters *all = tn_graph_parameters(tn_trainer_graph(o.trainer));
        float *before = copy(all->p, all);
        for (int i = 0; i < 6; i++)
            step(&o);
        ck_assert_int_eq(o.updates, 6);
        int64_t moved = 0, some = 0;
        for (int64_t i = 0; i < all->count; i++)
            for (int64_t j = all->at[i]; j < all->at[i] + all->list[i].n; j++) {
                float now = ((float *)all->p)[j];
                if (!master)
                    ck_assert(now == to_bf16(now));
                if (fabsf(before[j]) > 0.02) {
                    some++;
                    moved += now != before[j];
                }
            }
        ck_assert_int_gt(some, 1000);
        if (master)
            ck_assert_int_gt(moved, some / 2);
        else
            ck_assert_int_eq(moved, 0);
        tn_free(before);
        close_run(&o);
    }
}
END_TEST

static void check_learns(const char *const *overrides, size_t count)
{
    const char *all[8] = {"train.epochs=12"};
    outcome o;
    memcpy(all + 1, overrides, count * sizeof *all);
    run(&o, all, count + 1);
    ck_assert_msg(o.accuracy >= 0.9, "%s: accuracy %g", overrides[0], o.accuracy);
    close_run(&o);
}

START_TEST(runs_in_narrow_storage_learn)
{
    check_learns((const char *[]){"precision={storage: bf16}"}, 1);
    check_learns((const char *[]){"precision={storage: bf16, master: false}"}, 1);
    check_learns((const char *[]){"precision={storage: bf16, state: blockwise8}"}, 1);
    check_learns((const char *[]){"precision={storage: fp16, loss_scale: dynamic}"}, 1);
    check_learns((const char *[]){"precision={storage: bf16, master: false}", "+update={use: ema, decay: 0.9}"}, 2);
}
END_TEST

/* Powers of two come out of every sum again: bit for bit what a run without a scale does. */
START_TEST(a_scale_is_divided_out)
{
    outcome plain, scaled;
    run(&plain, (const char *[]){"model.regularizer=dropout"}, 1);
    run(&scaled, (const char *[]){"model.regularizer=dropout", "precision.loss_scale={use: constant, value: 1024}"}, 2);
    assert_same_bits(&plain, &scaled);
    ck_assert(plain.loss == scaled.loss);
    ck_assert_int_eq(scaled.scales, scaled.updates);
    ck_assert_double_eq(scaled.scale[0], 1024);
    ck_assert_int_eq(plain.scales, 0);
    close_run(&plain);
    close_run(&scaled);
}
END_TEST

typedef struct {
    size_t count;
    char *bytes[64];
    float *p;
} state;

static state take_state(const outcome *o)
{
    const tn_chain *chain = tn_trainer_chain(o->trainer);
    state s = {.count = tn_chain_slot_count(chain), .p = copy(parameters(o)->p, parameters(o))};
    ck_assert_uint_gt(s.count, 0);
    ck_assert_uint_le(s.count, 64);
    for (size_t i = 0; i < s.count; i++) {
        tn_chain_slot slot;
        tn_chain_slot_at(chain, i, &slot);
        s.bytes[i] = tn_alloc((size_t)slot.bytes + 1, 1);
        memcpy(s.bytes[i], slot.data, (size_t)slot.bytes);
    }
    return s;
}

/* 1: no bit changed. */
static int compare_state(state *s, const outcome *o)
{
    const tn_parameters *all = parameters(o);
    int same = 1;
    for (int64_t i = 0; i < all->count; i++)
        same &= !memcmp(s->p + all->at[i], (float *)all->p + all->at[i], (size_t)all->list[i].n * sizeof *s->p);
    for (size_t i = 0; i < s->count; i++) {
        tn_chain_slot slot;
        tn_chain_slot_at(tn_trainer_chain(o->trainer), i, &slot);
        same &= !memcmp(s->bytes[i], slot.data, (size_t)slot.bytes);
        tn_free(s->bytes[i]);
    }
    tn_free(s->p);
    return same;
}

/* A scale too large for fp16: its updates are skipped and change no bit, each halves it, until one commits. No link
 * reads gradients first here: the scale alone has them checked. */
START_TEST(overflow_skips_and_halves)
{
    outcome o;
    tn_log log;
    open_small(&o, &log,
               (const char *[]){"~update.clip-norm", "+update={use: ema}",
                                "precision={storage: fp16, loss_scale: {use: dynamic, initial: 0x1p26, interval: 4}}"},
               3);
    int attempts = 0;
    for (int64_t skips = 0; o.updates == 0 && attempts < 20; attempts++, skips = o.skips) {
        state before = take_state(&o);
        step(&o);
        int64_t clock = tn_chain_clocks(tn_trainer_chain(o.trainer))[0];
        ck_assert_int_eq(compare_state(&before, &o), o.skips > skips);
        ck_assert_int_eq(clock, o.updates);
        ck_assert_double_eq(o.scale[attempts], 0x1p26 / exp2(attempts));
        ck_assert_int_eq(tn_trainer_attempt(o.trainer), attempts + 1);
    }
    ck_assert_int_gt(o.skips, 2);
    ck_assert_int_eq(o.updates, 1);
    double first = o.scale[o.scales - 1];
    for (int i = 0; i < 4; i++)
        step(&o);
    ck_assert_int_eq(o.updates + o.skips, attempts + 4);
    ck_assert_double_eq(o.scale[attempts + 2], first); /* the first and three more */
    ck_assert_double_eq(o.scale[attempts + 3], 2 * first);
    close_run(&o);
}
END_TEST

/* No link and no check sees the NaN: lion's sign hides it, but its momentum would keep it for ever. */
START_TEST(a_loss_that_is_not_finite_changes_nothing)
{
    for (int scaled = 0; scaled < 2; scaled++) {
        outcome o;
        tn_log log;
        open_small(&o, &log,
                   (const char *[]){"update=[lion]", "train.check_finite=false",
                                    scaled ? "precision={loss_scale: {use: dynamic, initial: 1024}}" : "precision=f32"},
                   3);
        step(&o);
        const tn_parameters *all = parameters(&o);
        float *first = (float *)all->p + all->at[0], good = *first;
        *first = INFINITY;
        state before = take_state(&o);
        step(&o);
        ck_assert_int_eq(o.skips, 1);
        ck_assert(compare_state(&before, &o));
        ck_assert_int_eq(tn_chain_clocks(tn_trainer_chain(o.trainer))[0], 1);
        ck_assert_ptr_nonnull(strstr(o.log, "update skipped at attempt 2: the loss is not finite"));
        *first = good;
        step(&o);
        ck_assert_int_eq(o.updates, 2);
        if (scaled)
            ck_assert(o.scale[1] == 1024 && o.scale[2] == 512);
        close_run(&o);
    }
}
END_TEST

/* Fewer attempts than a diverging run is given, none of which commits. */
START_TEST(a_run_without_an_update_fails)
{
    outcome o;
    tn_log log;
    tn_error err = {0};
    open_small(
        &o, &log,
        (const char *[]){"precision={storage: fp16, loss_scale: {use: constant, value: 0x1p60}}", "train.steps=20"}, 2);
    ck_assert_int_eq(tn_trainer_run(o.trainer, &err), TN_E_NUMERIC);
    ck_assert_msg(strstr(err.msg, "no update was made") && strstr(err.msg, "20 attempts") &&
                      strstr(err.msg, "is not finite"),
                  "%s", err.msg);
    ck_assert_int_eq(o.skips, 20);
    close_run(&o);
}
END_TEST

/* ---- loss scales that are wrong ---- */

static void use_wrong_scales(void)
{
    tn_registry_close(registry);
    registry = test_registry("TENON_TEST_PLUGINS");
}

START_TEST(scales_that_can_not_be_divided_out_are_refused)
{
    const char *const faults[][2] = {
        {"nan", "nan"}, {"inf", "inf"}, {"zero", " 0,"}, {"negative", "-2"}, {"three", "3"}};
    use_wrong_scales();
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        outcome o;
        tn_log log;
        tn_error err = {0};
        char precision[96];
        snprintf(precision, sizeof precision, "precision={loss_scale: {use: scale-wrong, fault: %s}}", faults[i][0]);
        open_small(&o, &log, (const char *[]){precision}, 1);
        step(&o); /* the first is good */
        ck_assert_int_eq(tn_trainer_step(o.trainer, &err), TN_E_PLUGIN);
        ck_assert_msg(strstr(err.msg, "scale-wrong gives the loss scale") && strstr(err.msg, faults[i][1]) &&
                          strstr(err.msg, "precision.loss_scale"),
                      "%s", err.msg);
        close_run(&o);
    }
}
END_TEST

START_TEST(scales_with_other_slots_than_named_are_refused)
{
    const char *const names[] = {"scale-more", "scale-less", "scale-below"};
    use_wrong_scales();
    for (int i = 0; i < 3; i++) {
        outcome o;
        tn_log log;
        tn_error err = {0};
        char precision[96];
        snprintf(precision, sizeof precision, "precision={loss_scale: %s}", names[i]);
        ck_assert_int_eq(open_run(&o, &log, (const char *[]){precision}, 1, &err), TN_E_PLUGIN);
        ck_assert_msg(strstr(err.msg, names[i]) && strstr(err.msg, "slots"), "%s", err.msg);
        close_run(&o);
    }
}
END_TEST

/* More overflows than a diverging run is given: while the scale falls, it is on its way. At its least it is not. */
START_TEST(a_scale_may_fall_for_long)
{
    outcome o;
    tn_log log;
    tn_error err = {0};
    run(&o,
        (const char *[]){"precision={storage: fp16, loss_scale: {use: dynamic, initial: 0x1p60}}", "train.epochs=8"},
        2);
    ck_assert_int_gt(o.skips, 30);
    ck_assert_int_gt(o.updates, 10);
    close_run(&o);
    open_small(&o, &log,
               (const char *[]){"precision={storage: fp16, loss_scale: {use: dynamic, initial: 0x1p60, minimum: "
                                "0x1p58}}",
                                "train.epochs=8"},
               2);
    ck_assert_int_eq(tn_trainer_run(o.trainer, &err), TN_E_NUMERIC);
    ck_assert_int_eq(o.skips, 2 + 25);
    close_run(&o);
}
END_TEST

/* The factor is the scale's that was in use, not the one that comes after: in f32, growing each time, the run is still
 * the plain one. */
START_TEST(a_scale_divides_what_it_multiplied)
{
    outcome plain, scaled;
    run(&plain, NULL, 0);
    run(&scaled, (const char *[]){"precision.loss_scale={use: dynamic, initial: 1, interval: 1}"}, 1);
    assert_same_bits(&plain, &scaled);
    for (int i = 0; i < scaled.scales; i++)
        ck_assert_double_eq(scaled.scale[i], exp2(i));
    close_run(&plain);
    close_run(&scaled);
}
END_TEST

START_TEST(threads_change_no_bit_of_stored_parameters)
{
    for (int master = 0; master < 2; master++) {
        outcome one, more;
        const char *precision = master ? "precision={storage: bf16}" : "precision={storage: bf16, master: false}";
        run(&one, (const char *[]){precision, "model.widths=[300, 150]"}, 2);
        run(&more, (const char *[]){precision, "model.widths=[300, 150]", "train.threads=3"}, 3);
        assert_same_bits(&one, &more);
        close_run(&one);
        close_run(&more);
    }
}
END_TEST

int main(void)
{
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    Suite *suite = suite_create("trainer_precision");
    TCase *tests = tcase_create("trainer_precision");
    tcase_set_timeout(tests, 300);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, layers_see_rounded_masters);
    tcase_add_test(tests, parameters_are_rounded_by_draws_of_their_own);
    tcase_add_test(tests, small_steps_need_masters);
    tcase_add_test(tests, runs_in_narrow_storage_learn);
    tcase_add_test(tests, a_scale_is_divided_out);
    tcase_add_test(tests, a_scale_divides_what_it_multiplied);
    tcase_add_test(tests, overflow_skips_and_halves);
    tcase_add_test(tests, a_scale_may_fall_for_long);
    tcase_add_test(tests, a_loss_that_is_not_finite_changes_nothing);
    tcase_add_test(tests, a_run_without_an_update_fails);
    tcase_add_test(tests, scales_that_can_not_be_divided_out_are_refused);
    tcase_add_test(tests, scales_with_other_slots_than_named_are_refused);
    tcase_add_test(tests, threads_change_no_bit_of_stored_parameters);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
