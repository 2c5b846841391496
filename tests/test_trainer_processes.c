/* SPDX-License-Identifier: Apache-2.0
 *
 * One run on two processes through shm: the same as one process to rounding, equal bits in both, and one end for all.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "host/tenon.h"
#include "host/train/internal.h"
#include "tests/small_run.h"

#define RANKS 2

/* What a rank leaves, in memory that all processes see. */
typedef struct {
    int32_t status, done;
    int64_t attempts, updates;
    double loss, eval_loss, accuracy, epoch;
    char message[1024], folder[PATH_MAX];
    char log[2048];
    float p[8192], output[2], mean[2][24]; /* of batch-norm's running means: of training, of the eval view */
} seat;

typedef struct {
    const char *overrides[12];
    size_t count;
    const char *own[RANKS]; /* an override of one rank alone; NULL: none */
    int stop_at;            /* rank 1 asks to stop after so many records; 0: never */
} plan;

static seat *seats;

static void setup_processes(void)
{
    setup();
    seats = mmap(NULL, RANKS * sizeof *seats, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(seats, MAP_FAILED);
}

static void teardown_processes(void)
{
    munmap(seats, RANKS * sizeof *seats);
    teardown();
}

static size_t overrides_of(const plan *plan, int rank, char collective[160], const char **ret)
{
    size_t count = plan->count;
    memcpy(ret, plan->overrides, count * sizeof *ret);
    snprintf(collective, 160, "parallel.collective={use: shm, name: trainer-%ld, ranks: 2, rank: %d, timeout: 10}",
             (long)getppid(), rank);
    ret[count++] = collective;
    if (plan->own[rank])
        ret[count++] = plan->own[rank];
    return count;
}

static int stop_after;

static int32_t watch_and_stop(void *user, const tn_record *record)
{
    outcome *o = user;
    watch(o, record);
    return stop_after > 0 && o->updates == stop_after;
}

static void keep(const outcome *o, seat *s)
{
    const tn_parameters *all = parameters(o);
    ck_assert_int_le(all->elements, 8192);
    for (int64_t i = 0; i < all->count; i++)
        memcpy(s->p + all->at[i], (float *)all->p + all->at[i], (size_t)all->list[i].n * sizeof(float));
    memcpy(s->output, tn_graph_output(tn_trainer_graph(o->trainer))->data, sizeof s->output);
    const tn_graph_buffer *buffers;
    if (tn_graph_buffers(tn_trainer_graph(o->trainer), &buffers)) {
        memcpy(s->mean[0], buffers[0].tensor.data, sizeof s->mean[0]);
        memcpy(s->mean[1], buffers[0].eval.data, sizeof s->mean[1]);
    }
    memcpy(s->log, o->log, sizeof s->log);
    s->attempts = tn_trainer_attempt(o->trainer);
    s->updates = o->updates;
    s->loss = o->loss;
    s->eval_loss = o->eval_loss;
    s->accuracy = o->accuracy;
    s->epoch = o->last_epoch;
}

static void run_rank(const plan *plan, int rank)
{
    seat *s = &seats[rank];
    char collective[160];
    const char *overrides[16];
    outcome o = {0};
    tn_error err = {0};
    tn_log log = {note, &o};
    size_t count = overrides_of(plan, rank, collective, overrides);
    stop_after = rank == 1 ? plan->stop_at : 0;
    s->status = tn_experiment_read(registry, file, overrides, count, &o.experiment, &err);
    tn_trainer_options options = {
        .registry = registry, .experiment = o.experiment, .log = &log, .observer = watch_and_stop, .user = &o};
    if (s->status == TN_OK)
        s->status = tn_trainer_open(&options, &o.trainer, &err);
    if (s->status == TN_OK)
        s->status = tn_trainer_run(o.trainer, &err);
    memcpy(s->message, err.msg, sizeof s->message);
    if (o.trainer)
        keep(&o, s);
    close_run(&o);
    s->done = 1;
}

typedef void rank_body(const plan *plan, int rank);

static void run_ranks(const plan *plan, rank_body *body)
{
    pid_t pids[RANKS];
    memset(seats, 0, RANKS * sizeof *seats);
    for (int rank = 0; rank < RANKS; rank++) {
        pids[rank] = fork();
        ck_assert_int_ge(pids[rank], 0);
        if (pids[rank] == 0) {
            body(plan, rank);
            _exit(0);
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        int status = 0;
        ck_assert_int_eq(waitpid(pids[rank], &status, 0), pids[rank]);
        ck_assert_msg(seats[rank].done == 1, "rank %d ended with %x", rank, status);
    }
}

static void check_ended_well(void)
{
    for (int rank = 0; rank < RANKS; rank++)
        ck_assert_msg(seats[rank].status == TN_OK, "rank %d: %s", rank, seats[rank].message);
    ck_assert_mem_eq(seats[0].p, seats[1].p, sizeof seats[0].p);
    ck_assert(seats[0].loss == seats[1].loss && seats[0].eval_loss == seats[1].eval_loss);
}

/* Parameters and losses as one process has them, within `limit`. 101 samples in batches of 16: the last has 5. */
static void check_as_one(plan plan, double limit)
{
    outcome one;
    run_ranks(&plan, run_rank);
    check_ended_well();
    run(&one, plan.overrides, plan.count);
    const tn_parameters *all = parameters(&one);
    for (int64_t i = 0; i < all->count; i++)
        for (int64_t j = all->at[i]; j < all->at[i] + all->list[i].n; j++)
            ck_assert_double_eq_tol(seats[0].p[j], ((float *)all->p)[j], limit);
    ck_assert_double_eq_tol(seats[0].loss, one.loss, limit);
    ck_assert_double_eq_tol(seats[0].eval_loss, one.eval_loss, limit);
    ck_assert_double_eq(seats[0].accuracy, one.accuracy);
    ck_assert_int_eq(seats[0].updates, one.updates);
    ck_assert_double_eq(seats[0].epoch, one.last_epoch);
    close_run(&one);
}

START_TEST(two_processes_equal_one)
{
    check_as_one((plan){.overrides = {"update.rule={use: sgd, lr: 0.1, momentum: 0.9}"}, .count = 1}, 1e-6);
    check_as_one(
        (plan){.overrides = {"update.rule={use: sgd, lr: 0.1}", "train.accumulate=3", "eval.batch=9"}, .count = 3},
        1e-6);
}
END_TEST

/* Links that look again look at both shares. */
START_TEST(signals_equal_one_process)
{
    check_as_one(
        (plan){.overrides = {"update=[{use: sam, rho: 0.1}, {use: sgd, as: rule, lr: 0.1}]", "train.accumulate=3"},
               .count = 2},
        1e-6);
    check_as_one((plan){.overrides = {"update={use: lbfgs}", "train.accumulate=3"}, .count = 2}, 1e-4);
    check_as_one((plan){.overrides = {"update={use: kfac, lr: 0.01, damping: 0.1, fisher: empirical, factor_every: 1, "
                                      "inverse_every: 1}",
                                      "model.normalizer=none", "train.accumulate=3"},
                        .count = 3},
                 1e-4);
}
END_TEST

/* One step that moves nothing, and the window again: loss and gradient over both shares, as at first. */
static void look_twice(const plan *plan, int rank)
{
    seat *s = &seats[rank];
    char collective[160];
    const char *overrides[16];
    outcome o = {0};
    tn_error err = {0};
    tn_log log;
    size_t count = overrides_of(plan, rank, collective, overrides);
    s->status = open_run(&o, &log, overrides, count, &err);
    if (s->status == TN_OK)
        s->status = tn_trainer_step(o.trainer, &err);
    if (s->status == TN_OK) {
        float *g = copy(parameters(&o)->g, parameters(&o));
        s->loss = o.loss;
        o.trainer->attempt = 0; /* as a link sees it, within the step */
        s->status = o.trainer->signals.gradient(o.trainer, &s->eval_loss, &err);
        s->updates = memcmp(g, parameters(&o)->g, (size_t)parameters(&o)->list[0].n * sizeof *g) == 0;
        tn_free(g);
    }
    memcpy(s->message, err.msg, sizeof s->message);
    close_run(&o);
    s->done = 1;
}

START_TEST(a_second_look_is_over_all_processes)
{
    plan plan = {.overrides = {"update.rule={use: sgd, lr: 0}", "train.accumulate=3", "model.regularizer=dropout"},
                 .count = 3};
    run_ranks(&plan, look_twice);
    for (int rank = 0; rank < RANKS; rank++) {
        ck_assert_msg(seats[rank].status == TN_OK, "%s", seats[rank].message);
        ck_assert_double_eq(seats[rank].eval_loss, seats[rank].loss);
        ck_assert_int_eq(seats[rank].updates, 1);
    }
}
END_TEST

/* Each draws for its own samples; both hold the same factors and take the same step. */
START_TEST(drawn_targets_lead_to_one_step)
{
    plan plan = {.overrides = {"update={use: kfac, lr: 0.05, damping: 0.03, factor_every: 1, inverse_every: 1}",
                               "model.normalizer=none", "train.epochs=4", "recompute=sqrt"},
                 .count = 4};
    run_ranks(&plan, run_rank);
    check_ended_well();
    ck_assert_double_ge(seats[0].accuracy, 0.9);
}
END_TEST

#define DRAWN                                                                                                          \
    "model.normalizer=none", "~eval",                                                                                  \
        "update={use: kfac, lr: 0, damping: 0.03, fisher: sampled, factor_every: 1, inverse_every: 1}"

/* The head's factor G = mean of dy dy^T, dy = softmax - target, after the step of one attempt alone. */
static int32_t drawn_factor(const char *const *overrides, size_t count, int64_t attempt, float ret[16])
{
    outcome o;
    tn_log log;
    tn_chain_slot slot;
    tn_error err = {0};
    int32_t status = open_run(&o, &log, overrides, count, &err);
    if (status == TN_OK) {
        o.trainer->attempt = attempt;
        status = tn_trainer_step(o.trainer, &err);
    }
    for (size_t i = 0; status == TN_OK && i < tn_chain_slot_count(tn_trainer_chain(o.trainer)); i++) {
        tn_chain_slot_at(tn_trainer_chain(o.trainer), i, &slot);
        if (!strcmp(slot.slot, "g") && slot.parameter >= 0 &&
            !strcmp(parameters(&o)->list[slot.parameter].name, "head.weight"))
            memcpy(ret, slot.data, 16 * sizeof *ret);
    }
    if (status != TN_OK)
        fprintf(stderr, "%s\n", err.msg);
    close_run(&o);
    return status;
}

static void draw_in_one(const char *window, int64_t attempt, float ret[16])
{
    memset(ret, 0, 16 * sizeof *ret);
    ck_assert_int_eq(drawn_factor((const char *[]){DRAWN, window, "data.batch=40"}, 5, attempt, ret), TN_OK);
    ck_assert_double_gt(ret[0], 0);
}

static void draw_as_rank(const plan *plan, int rank)
{
    char collective[160];
    const char *overrides[16];
    size_t count = overrides_of(plan, rank, collective, overrides);
    seats[rank].status = drawn_factor(overrides, count, 0, seats[rank].p);
    seats[rank].done = 1;
}

static double largest_of(const float *a, const float *b)
{
    double most = 0;
    for (int i = 0; i < 16; i++)
        most = fmax(most, fabs((double)a[i] - b[i]));
    return most;
}

/* All samples are the same, and parameters stay: factors can differ by the drawn targets alone. Two processes draw for
 * their shares what one draws for two micro-batches. */
START_TEST(attempts_micro_batches_and_processes_draw_other_targets)
{
    float first[16], again[16], later[16], two[16];
    plan plan = {.overrides = {DRAWN, "train.accumulate=1", "data.batch=80"}, .count = 5};
    small_set_of_equals(240);
    draw_in_one("train.accumulate=1", 0, first);
    draw_in_one("train.accumulate=1", 0, again);
    draw_in_one("train.accumulate=1", 1, later);
    draw_in_one("train.accumulate=2", 0, two);
    ck_assert_mem_eq(first, again, sizeof first);
    ck_assert_double_gt(largest_of(first, later), 1e-3);
    ck_assert_double_gt(largest_of(first, two), 1e-3);
    run_ranks(&plan, draw_as_rank);
    int owners = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        ck_assert_int_eq(seats[rank].status, TN_OK);
        if (seats[rank].p[0] == 0) /* another process has it */
            continue;
        owners++;
        ck_assert_double_le(largest_of(seats[rank].p, two), 1e-5);
    }
    ck_assert_int_eq(owners, 1);
}
END_TEST

/* Both skip, halve and go on together. */
START_TEST(an_overflow_is_everyones)
{
    plan plan = {
        .overrides = {"precision={storage: fp16, loss_scale: {use: dynamic, initial: 0x1p24}}", "~update.clip-norm"},
        .count = 2};
    run_ranks(&plan, run_rank);
    check_ended_well();
    ck_assert_int_gt(seats[0].attempts, seats[0].updates);
    ck_assert_int_gt(seats[0].updates, 0);
    ck_assert_int_eq(seats[0].updates, seats[1].updates);
}
END_TEST

/* Statistics over both processes: also the one sample of a share of 1, where the batch is of 2 or 3. */
START_TEST(joint_statistics_equal_one_process)
{
    check_as_one((plan){.overrides = {"update.rule={use: sgd, lr: 0.1}",
                                      "model.normalizer={use: batchnorm, sync: true}", "data.batch=14"},
                        .count = 3},
                 1e-5);
}
END_TEST

/* Statistics of each process's own: what is evaluated is one thing all the same. */
START_TEST(own_statistics_are_evaluated_as_one)
{
    plan plan = {.overrides = {"model.normalizer=batchnorm", "+update={use: ema, decay: 0.9}", "eval.refresh=3"},
                 .count = 3};
    run_ranks(&plan, run_rank);
    check_ended_well();
    ck_assert(isfinite(seats[0].eval_loss));
    ck_assert_mem_ne(seats[0].mean[0], seats[1].mean[0], sizeof seats[0].mean[0]);
    ck_assert_mem_eq(seats[0].mean[1], seats[1].mean[1], sizeof seats[0].mean[1]);
}
END_TEST

/* Processes with the same sample and the same parameters: only masks can differ, and they do. */
START_TEST(dropout_differs_between_processes)
{
    plan plan = {.overrides = {"model={use: mlp, widths: [24]}", "data.batch=2", "train.epochs=1", "~eval",
                               "model.regularizer=none"},
                 .count = 5};
    small_set_of_equals(6);
    run_ranks(&plan, run_rank);
    check_ended_well();
    ck_assert_mem_eq(seats[0].output, seats[1].output, sizeof seats[0].output);
    plan.overrides[4] = "model.regularizer={use: dropout, p: 0.5}";
    run_ranks(&plan, run_rank);
    check_ended_well();
    ck_assert_mem_ne(seats[0].output, seats[1].output, sizeof seats[0].output);
}
END_TEST

START_TEST(a_last_batch_too_small_for_all_is_left_out)
{
    plan plan = {.overrides = {"data.batch=20"}, .count = 1};
    run_ranks(&plan, run_rank);
    check_ended_well();
    ck_assert_int_eq(seats[0].updates, 10); /* 101 samples: 5 batches of 20, and one alone */
    ck_assert_ptr_nonnull(strstr(seats[1].log, "2 processes share it"));
    plan.overrides[0] = "data.batch=1";
    run_ranks(&plan, run_rank);
    for (int rank = 0; rank < RANKS; rank++) {
        ck_assert_int_eq(seats[rank].status, TN_E_INVALID);
        ck_assert_ptr_nonnull(strstr(seats[rank].message, "data.batch is 1 for 2 processes"));
    }
}
END_TEST

START_TEST(processes_must_run_the_same_experiment)
{
    plan plan = {.overrides = {"train.epochs=1"}, .count = 1, .own = {NULL, "update.rule.lr=0.5"}};
    run_ranks(&plan, run_rank);
    for (int rank = 0; rank < RANKS; rank++) {
        ck_assert_int_eq(seats[rank].status, TN_E_INVALID);
        ck_assert_ptr_nonnull(strstr(seats[rank].message, "runs another experiment"));
    }
}
END_TEST

START_TEST(one_stops_all)
{
    plan plan = {.overrides = {"train.epochs=50"}, .count = 1, .stop_at = 3};
    run_ranks(&plan, run_rank);
    for (int rank = 0; rank < RANKS; rank++) {
        ck_assert_msg(seats[rank].status == TN_E_STOPPED, "%s", seats[rank].message);
        ck_assert_int_eq(seats[rank].attempts, 3);
    }
    ck_assert_mem_eq(seats[0].p, seats[1].p, sizeof seats[0].p);
}
END_TEST

static void call_library(const plan *plan, int rank)
{
    seat *s = &seats[rank];
    char collective[160], runs[PATH_MAX + 16];
    const char *overrides[16];
    tenon *handle;
    char *folder = NULL;
    tn_error err = {0};
    size_t count = overrides_of(plan, rank, collective, overrides);
    snprintf(runs, sizeof runs, "%s/%s", test_directory, plan->stop_at ? "experiment.yaml" : "runs");
    tenon_run_options options = {.struct_size = sizeof options, .runs = runs};
    setenv("TENON_PLUGIN_PATH", getenv("TENON_TEST_GOOD"), 1);
    s->status = tenon_open(NULL, &handle, &err);
    if (s->status == TN_OK) {
        s->status = tenon_run(handle, file, overrides, count, &options, &folder, &err);
        snprintf(s->folder, sizeof s->folder, "%s", folder ? folder : "");
        tenon_free(folder);
        tenon_close(handle);
    }
    memcpy(s->message, err.msg, sizeof s->message);
    s->done = 1;
}

START_TEST(the_first_writes_the_folder)
{
    plan plan = {.overrides = {"train.epochs=1"}, .count = 1};
    run_ranks(&plan, call_library);
    for (int rank = 0; rank < RANKS; rank++)
        ck_assert_msg(seats[rank].status == TN_OK, "%s", seats[rank].message);
    ck_assert_str_ne(seats[0].folder, "");
    ck_assert_str_eq(seats[1].folder, "");
}
END_TEST

/* The first can make no folder; the other is told, and does not wait until time is out. */
START_TEST(what_one_fails_at_ends_all)
{
    plan plan = {.overrides = {"train.epochs=1"}, .count = 1, .stop_at = 1};
    run_ranks(&plan, call_library);
    ck_assert_int_eq(seats[0].status, TN_E_IO);
    ck_assert_int_eq(seats[1].status, TN_E_IO);
    ck_assert_str_eq(seats[1].message, "process 0 of 2 failed; its own message says why");
}
END_TEST

int main(void)
{
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    Suite *suite = suite_create("trainer_processes");
    TCase *tests = tcase_create("trainer_processes");
    tcase_set_timeout(tests, 300);
    tcase_add_checked_fixture(tests, setup_processes, teardown_processes);
    tcase_add_test(tests, two_processes_equal_one);
    tcase_add_test(tests, signals_equal_one_process);
    tcase_add_test(tests, a_second_look_is_over_all_processes);
    tcase_add_test(tests, drawn_targets_lead_to_one_step);
    tcase_add_test(tests, attempts_micro_batches_and_processes_draw_other_targets);
    tcase_add_test(tests, an_overflow_is_everyones);
    tcase_add_test(tests, joint_statistics_equal_one_process);
    tcase_add_test(tests, own_statistics_are_evaluated_as_one);
    tcase_add_test(tests, dropout_differs_between_processes);
    tcase_add_test(tests, a_last_batch_too_small_for_all_is_left_out);
    tcase_add_test(tests, processes_must_run_the_same_experiment);
    tcase_add_test(tests, one_stops_all);
    tcase_add_test(tests, the_first_writes_the_folder);
    tcase_add_test(tests, what_one_fails_at_ends_all);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
