/* SPDX-License-Identifier: Apache-2.0
 *
 * The chain's stage source: the gradient is taken again elsewhere, and the parameters come back bit by bit.
 */
#include "host/update/internal.h"
#include "tests/malloc_count.h"
#include "tests/update.h"

/* g = 2 p, as of the loss sum p^2; and what the other side saw and is told to do. */
typedef struct slope {
    world *w;
    int32_t calls, fail, bad, absent;
    double seen[2]; /* p of parameters 0 and 1 at their first element */
} slope;

static int32_t slope_gradient(void *user, double *ret_loss, tn_error *err)
{
    slope *s = user;
    world *w = s->w;
    s->calls++;
    for (int64_t i = 0; i < w->parameters.count; i++)
        for (int64_t j = 0; j < w->list[i].n; j++)
            world_put(w, w->parameters.g, i, j, 2 * world_p(w, i, j));
    s->seen[0] = world_p(w, 0, 0);
    s->seen[1] = world_p(w, 1, 0);
    if (s->bad)
        world_put(w, w->parameters.g, 1, 2, INFINITY);
    if (s->absent)
        w->present[0] = 0;
    *ret_loss = 0;
    return s->fail ? tn_error_set(err, TN_E_IO, "slope: told to fail") : TN_OK;
}

static tn_signals signals_of(slope *s) { return (tn_signals){.user = s, .gradient = slope_gradient}; }

static world *uphill(uint32_t real, int32_t threads, slope *s, tn_signals *signals)
{
    world *w = world_new(real, threads);
    world_vector(w, 70001);
    world_vector(w, 3);
    world_arenas(w);
    world_fill(w, w->parameters.p, 1);
    *s = (slope){.w = w};
    *signals = signals_of(s);
    w->signals = signals;
    world_link(w, "sam", "rho", "0.5");
    world_link(w, "clip-norm", "max_norm", "inf");
    world_link(w, "sgd", "lr", "1");
    world_link(w, "ema");
    return w;
}

static void first_gradient(world *w)
{
    for (int64_t i = 0; i < 2; i++)
        for (int64_t j = 0; j < w->list[i].n; j++)
            world_put(w, w->parameters.g, i, j, 2 * world_p(w, i, j));
}

START_TEST(the_gradient_is_of_elsewhere_and_p_comes_back)
{
    slope s;
    tn_signals signals;
    world *w = uphill(64, 2, &s, &signals);
    double squares = 0;
    world_chain(w);
    first_gradient(w);
    for (int64_t i = 0; i < 2; i++)
        for (int64_t j = 0; j < w->list[i].n; j++)
            squares += pow(0.25 * world_get(w, w->parameters.g, i, j), 2);
    double p = world_p(w, 0, 0), there = p + 0.5 * 0.25 * 2 * p / sqrt(squares);
    world_step(w, 0.25);
    ck_assert_int_eq(s.calls, 1);
    ck_assert_double_eq_tol(s.seen[0], there, 1e-15);
    ck_assert_double_eq_tol(world_report(w, "sam.norm"), sqrt(squares), 1e-9);
    ck_assert_double_eq(world_p(w, 0, 0), p - 0.25 * 2 * s.seen[0]);
    /* Links behind it see the new gradient only. */
    ck_assert(world_report(w, "clip-norm.norm") > world_report(w, "sam.norm"));
    world_free(w);
}
END_TEST

START_TEST(the_backup_counts_as_state)
{
    slope s;
    tn_signals signals;
    world *w = uphill(32, 1, &s, &signals);
    world_chain(w);
    ck_assert_int_eq(tn_chain_bytes(w->chain), 4 * (70016 + 64) + 280064 + 64); /* the average, and the backup */
    world_free(w);
}
END_TEST

/* p - d is not what p was: only the old bits are. */
START_TEST(what_fails_elsewhere_changes_no_bit)
{
    for (int32_t what = 0; what < 3; what++) {
        slope s;
        tn_signals signals;
        world *w = uphill(32, 1 + what, &s, &signals);
        world_chain(w);
        first_gradient(w);
        world_put(w, w->parameters.p, 0, 5, 1e-30);
        world_put(w, w->parameters.p, 0, 6, -0.0);
        uint64_t before = world_hash(w);
        s.bad = what == 0;
        s.fail = what == 1;
        if (what == 2)
            world_put(w, w->parameters.g, 0, 70000, NAN);
        int32_t status = tn_chain_step(w->chain, &(tn_step){.scale = 1, .attempt = 0}, &w->result, &w->err);
        ck_assert_int_eq(status, s.fail ? TN_E_IO : TN_OK);
        ck_assert_int_eq(s.calls, what < 2);
        ck_assert(s.fail || (!w->result.committed && w->result.bad_parameter == (what == 0)));
        ck_assert_msg(world_hash(w) == before, "case %d changed bits", (int)what);
        s.bad = s.fail = 0;
        first_gradient(w);
        world_step(w, 1);
        world_free(w);
    }
}
END_TEST

/* What has no gradient elsewhere is put back all the same, and is not stepped. */
START_TEST(presence_is_that_of_the_second_gradient)
{
    slope s;
    tn_signals signals;
    world *w = uphill(32, 2, &s, &signals);
    world_chain(w);
    first_gradient(w);
    float *p = malloc(70001 * sizeof *p);
    memcpy(p, w->parameters.p, 70001 * sizeof *p);
    s.absent = 1;
    world_step(w, 1);
    ck_assert_mem_eq(p, w->parameters.p, 70001 * sizeof *p);
    ck_assert(s.seen[0] != p[0]);
    ck_assert(tn_chain_clocks(w->chain)[0] == 0 && tn_chain_clocks(w->chain)[1] == 1);
    free(p);
    world_free(w);
}
END_TEST

START_TEST(a_source_may_be_on_some_parameters)
{
    static char *name = "p1";
    tn_selector some = {.names = &name, .name_count = 1};
    slope s;
    tn_signals signals;
    world *w = uphill(32, 1, &s, &signals);
    w->links[0]->on = &some;
    world_chain(w);
    first_gradient(w);
    double old[2] = {world_p(w, 0, 0), world_p(w, 1, 0)};
    world_step(w, 1);
    ck_assert(s.seen[0] == old[0] && s.seen[1] != old[1]);
    w->links[0]->on = NULL;
    world_free(w);
}
END_TEST

START_TEST(without_the_signal_it_is_refused)
{
    slope s;
    tn_signals signals;
    world *w = uphill(32, 1, &s, &signals);
    w->signals = NULL;
    ck_assert_refused(world_try_chain(w), TN_E_UNSUPPORTED, w->err, "update.sam", "\"gradient2\"");
    world_free(w);
}
END_TEST

START_TEST(threads_do_not_change_bits_and_steps_allocate_nothing)
{
    uint64_t hash[3];
    for (int32_t threads = 1; threads <= 3; threads++) {
        slope s;
        tn_signals signals;
        world *w = uphill(32, threads, &s, &signals);
        world_chain(w);
        first_gradient(w);
        world_step(w, 1);
        int64_t ours = tn_memory_count(), all = malloc_count();
        int32_t status = tn_chain_step(w->chain, &(tn_step){.scale = 1, .attempt = 1}, &w->result, &w->err);
        all = malloc_count() - all;
        ck_assert(!status && all == 0 && tn_memory_count() == ours);
        hash[threads - 1] = world_hash(w);
        world_free(w);
    }
    ck_assert(hash[0] == hash[1] && hash[0] == hash[2]);
}
END_TEST

/* Stored narrow, p comes back as it was stored, block scales and all. */
START_TEST(a_coded_parameter_comes_back)
{
    tn_codec table;
    tn_instance *instance;
    slope s;
    tn_signals signals;
    world *w = uphill(32, 2, &s, &signals);
    char *stored[2] = {calloc(70001, 2), calloc(64, 1)}, *before = malloc(80000);
    ck_ok(tn_instance_create(w->registry, "codec", "blockwise8", 32, "precision.p", NULL, 0, &instance, &w->err),
          w->err);
    ck_ok(tn_codec_open(w->registry, instance, &table, &w->p, &w->err), w->err);
    for (int64_t i = 0; i < 2; i++) {
        tn_operand p = tn_operand_stored(32, &w->p, 0, stored[i], NULL, 0, w->list[i].n, 0, NULL);
        for (int64_t at = 0; at < w->list[i].n; at += TN_CHUNK)
            tn_operand_write(&p, at, tn_smaller(TN_CHUNK, w->list[i].n - at), (float *)w->parameters.p + w->at[i] + at);
    }
    w->parameters.p_of = (void *const *)stored;
    world_chain(w);
    first_gradient(w);
    s.bad = 1;
    memcpy(before, stored[0], (size_t)tn_codec_bytes(&table, 32, 70001));
    world_try_step(w, 1);
    ck_assert(!w->result.committed && s.calls == 1);
    ck_assert_mem_eq(stored[0], before, (size_t)tn_codec_bytes(&table, 32, 70001));
    world_free(w);
    tn_instance_free(instance);
    free(stored[0]), free(stored[1]), free(before);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chain source");
    TCase *tests = tcase_create("chain source");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, the_gradient_is_of_elsewhere_and_p_comes_back);
    tcase_add_test(tests, the_backup_counts_as_state);
    tcase_add_test(tests, what_fails_elsewhere_changes_no_bit);
    tcase_add_test(tests, presence_is_that_of_the_second_gradient);
    tcase_add_test(tests, a_source_may_be_on_some_parameters);
    tcase_add_test(tests, without_the_signal_it_is_refused);
    tcase_add_test(tests, threads_do_not_change_bits_and_steps_allocate_nothing);
    tcase_add_test(tests, a_coded_parameter_comes_back);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
