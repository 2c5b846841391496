/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a run: killed in the middle and gone on with, bit for bit; refusals; damage; folders.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "host/base/memory.h"
#include "host/store/safetensors.h"
#include "tests/small_run.h"

/* ---- one life of a run ---- */

#define RECORDS 256
#define FIELDS  24

/* A record without its time. */
typedef struct {
    char event[8];
    int64_t update, attempt;
    double epoch;
    int32_t count;
    uint64_t values[FIELDS];
} seen;

typedef struct {
    tn_experiment *experiment;
    tn_trainer *trainer;
    seen records[RECORDS];
    int32_t count;
    int64_t die_at; /* attempt after whose record the process kills itself; 0: never */
    tn_log log;
    int32_t skips, clipped, rates; /* updates skipped, clipped by percentile; changes of rule.lr */
    double rate;
} life;

static int32_t see(void *user, const tn_record *record)
{
    life *l = user;
    ck_assert_int_lt(l->count, RECORDS);
    ck_assert_int_le(record->field_count, FIELDS);
    seen *s = &l->records[l->count++];
    *s = (seen){
        .update = record->update, .attempt = record->attempt, .epoch = record->epoch, .count = record->field_count};
    snprintf(s->event, sizeof s->event, "%s", record->event);
    l->skips += !strcmp(record->event, "skip");
    for (int32_t i = 0; i < record->field_count; i++) {
        double value = record->fields[i].value;
        s->values[i] = bits_of(value);
        l->clipped += !strcmp(record->fields[i].name, "clip-percentile.scale") && value < 1;
        if (!strcmp(record->fields[i].name, "rule.lr")) {
            l->rates += value != l->rate;
            l->rate = value;
        }
    }
    if (l->die_at && record->attempt == l->die_at)
        kill(getpid(), SIGKILL);
    return 0;
}

static int32_t begin(life *l, const char *const *overrides, tn_error *err)
{
    size_t count = 0;
    memset(l, 0, sizeof *l);
    while (overrides[count])
        count++;
    int32_t status = tn_experiment_read(registry, file, overrides, count, &l->experiment, err);
    tn_trainer_options options = {
        .registry = registry, .experiment = l->experiment, .log = &l->log, .observer = see, .user = l};
    return status == TN_OK ? tn_trainer_open(&options, &l->trainer, err) : status;
}

static void end(life *l)
{
    tn_trainer_close(l->trainer);
    tn_experiment_free(l->experiment);
}

static life *born(const char *const *overrides)
{
    tn_error err = {0};
    life *l = malloc(sizeof *l);
    ck_ok(begin(l, overrides, &err), err);
    return l;
}

static void buried(life *l)
{
    end(l);
    free(l);
}

static void steps(life *l, int count)
{
    tn_error err = {0};
    for (int i = 0; i < count; i++)
        ck_ok(tn_trainer_step(l->trainer, &err), err);
}

static char *file_text(const char *path, size_t *ret_size)
{
    FILE *in = fopen(path, "rb");
    ck_assert_msg(in != NULL, "%s: %s", path, strerror(errno));
    char *text = malloc(1 << 22);
    *ret_size = fread(text, 1, (1 << 22) - 1, in);
    text[*ret_size] = '\0';
    fclose(in);
    return text;
}

/* All state of both, by way of files that must have the same bytes. */
static void assert_same_state(life *a, life *b, const char *what)
{
    tn_error err = {0};
    size_t sizes[2];
    ck_ok(tn_trainer_save(a->trainer, in_test("a"), &err), err);
    ck_ok(tn_trainer_save(b->trainer, in_test("b"), &err), err);
    char *texts[] = {file_text(in_test("a"), &sizes[0]), file_text(in_test("b"), &sizes[1])};
    ck_assert_msg(sizes[0] == sizes[1] && !memcmp(texts[0], texts[1], sizes[0]), "%s: the state differs", what);
    free(texts[0]);
    free(texts[1]);
}

/* ---- killed, and gone on with ---- */

/* Every kind of state: of schedulers, rules, rounds, averages, buffers, masks, codecs, the loss scale. */
static const char *const runs[][8] = {
    {"train.epochs=3"},
    {"update=[{use: clip-percentile, percentile: 50, window: 6}, {use: adamw, as: rule, lr: 0.03}, {use: ema}]",
     "schedule={rule.lr: {use: plateau, patience: 0, factor: 0.5, threshold: 0.05}}",
     "model.regularizer={use: dropout, p: 0.2}", "eval.view=eval", "train.accumulate=2", "train.epochs=5"},
    {"update=[{use: centralize}, {use: adafactor, as: rule, lr: 0.01, scale_parameter: true, beta1: 0.8}, "
     "{use: cautious}, {use: ema, warmup: true}]",
     "model.normalizer=batchnorm", "model.regularizer=dropout", "eval.refresh=2", "eval.view=eval"},
    {"update=[{use: sam, adaptive: true, rho: 0.5}, {use: clip-percentile, warmup: 3}, {use: lion, as: rule, lr: "
     "0.003}]",
     "model.regularizer=dropout", "train.accumulate=3", "train.epochs=6"},
    {"precision={storage: fp16, loss_scale: {use: dynamic, initial: 0x1p30, interval: 4}}", "model.regularizer=dropout",
     "schedule={rule.lr: {use: plateau, patience: 1, mode: max, metric: accuracy}}"},
    {"precision={storage: {use: bf16, rounding: stochastic}, master: false, state: blockwise8}",
     "update=[{use: clip-norm}, {use: adamw, as: rule, lr: 0.01}, {use: schedule-free}]", "eval.view=eval"},
    {"model.normalizer=batchnorm", "update.rule=lamb"},
    {"update=[{use: lbfgs, as: rule}]", "train.epochs=3"},
    {"update=[{use: kfac, as: rule, on: {axes: 2}, lr: 0.02}, {use: adamw, as: rest}]", "model.regularizer=dropout"},
    {"precision=f64", "update=[{use: muon, as: rule, lr: 0.02, on: {axes: 2}}, {use: adamw, as: rest, lr: 0.01}]"},
};
#define RUNS (sizeof runs / sizeof *runs)

/* What every run has, and `more`. */
static const char *const *with(const char *const *more, const char *threads)
{
    static const char *all[4][20];
    static unsigned next;
    const char **list = all[next++ % 4];
    size_t n = 0;
    list[n++] = "eval.every=2 steps";
    list[n++] = "checkpoint={every: 3 steps, keep: 0}";
    list[n++] = threads;
    for (; more && *more; more++)
        list[n++] = *more;
    list[n] = NULL;
    return list;
}

static pid_t live_and_die(const char *const *overrides, const char *folder, int64_t die_at)
{
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child > 0)
        return child;
    static life l;
    tn_error err = {0};
    l.die_at = 0;
    int32_t status = begin(&l, overrides, &err);
    l.die_at = die_at;
    if (status == TN_OK)
        status = tn_trainer_record_in(l.trainer, folder, &err);
    if (status == TN_OK)
        status = tn_trainer_run(l.trainer, &err);
    fprintf(stderr, "lived on: %s\n", status ? err.msg : "to its end");
    _exit(1);
}

/* Leaves out "time", which differs, and the record of the start. */
static char *metrics(const char *folder)
{
    char path[2 * PATH_MAX];
    size_t size, used = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    char *text = file_text(path, &size), *to = malloc(size + 1);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *record = json_loads(line, 0, NULL);
        ck_assert_msg(record != NULL, "%s: %s", path, line);
        json_object_del(record, "time");
        char *kept = json_dumps(record, JSON_COMPACT | JSON_PRESERVE_ORDER);
        used += (size_t)sprintf(to + used, "%s\n", kept);
        free(kept);
        json_decref(record);
    }
    free(text);
    return to;
}

static void make_folder(const char *path) { ck_assert_int_eq(mkdir(path, 0700), 0); }

/* Lives from the checkpoint on and leaves the records of the whole run. */
static void check_resumed(const life *whole, const life *resumed, const char *what, int64_t from)
{
    int32_t first = whole->count - resumed->count;
    ck_assert_int_gt(first, 0);
    ck_assert_int_le(whole->records[first - 1].attempt, from);
    ck_assert_int_gt(whole->records[first].attempt, from);
    for (int32_t i = 0; i < resumed->count; i++)
        expect(!memcmp(&whole->records[first + i], &resumed->records[i], sizeof(seen)),
               "%s: record %d (%s of attempt %d) differs", what, i, resumed->records[i].event,
               (int)resumed->records[i].attempt);
}

/* Where the sinks' files end differs by the digits of times: compare without them. */
static void check_last(const char *const *more, const char *folder, int64_t attempts, const char *what)
{
    tn_error err = {0};
    char *last;
    life *plain = born(with(more, "train.threads=1"));
    ck_ok(tn_trainer_run(plain->trainer, &err), err);
    ck_ok(tn_checkpoint_last(folder, &last, &err), err);
    life *copy = born(with(more, "train.threads=1"));
    ck_ok(tn_trainer_restore(copy->trainer, last, &err), err);
    ck_assert_int_eq(tn_trainer_attempt(copy->trainer), attempts);
    assert_same_state(plain, copy, what);
    tn_free(last);
    buried(plain);
    buried(copy);
}

/* One run in one go on one thread, and one that is killed in attempt `die_at` of so many threads and goes on with
 * others. */
static void check_killed(const char *const *more, const char *const threads[2], life *whole, int64_t die_at,
                         const char *what)
{
    tn_error err = {0};
    char whole_folder[2 * PATH_MAX], killed_folder[2 * PATH_MAX], *checkpoint;
    int status;
    snprintf(whole_folder, sizeof whole_folder, "%s", in_test("whole"));
    snprintf(killed_folder, sizeof killed_folder, "%s", in_test("killed"));
    make_folder(whole_folder);
    make_folder(killed_folder);
    ck_ok(tn_trainer_record_in(whole->trainer, whole_folder, &err), err);
    ck_ok(tn_trainer_run(whole->trainer, &err), err);
    pid_t child = live_and_die(with(more, threads[0]), killed_folder, die_at);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    ck_ok(tn_checkpoint_last(killed_folder, &checkpoint, &err), err);

    life *resumed = born(with(more, threads[1]));
    ck_ok(tn_trainer_restore(resumed->trainer, checkpoint, &err), err);
    int64_t from = tn_trainer_attempt(resumed->trainer); /* a third one, or one whose evaluation was the best so far */
    ck_assert(from >= (die_at - 1) / 3 * 3 && from < die_at);
    ck_ok(tn_trainer_continue_in(resumed->trainer, killed_folder, checkpoint, &err), err);
    ck_ok(tn_trainer_run(resumed->trainer, &err), err);
    check_resumed(whole, resumed, what, from);
    char *a = metrics(whole_folder), *b = metrics(killed_folder);
    ck_assert_str_eq(a, b);
    free(a);
    free(b);
    check_last(more, killed_folder, tn_trainer_attempt(whole->trainer), what);
    tn_free(checkpoint);
    buried(resumed);
}

START_TEST(a_killed_run_goes_on_bit_for_bit)
{
    char what[16];
    snprintf(what, sizeof what, "run %d", _i);
    life *whole = born(with(runs[_i], "train.threads=1"));
    int64_t attempts = tn_trainer_horizon(whole->trainer), die_at = attempts > 8 ? 8 : 5;
    ck_assert_int_gt(attempts, die_at);
    check_killed(runs[_i], (const char *const[]){"train.threads=2", "train.threads=2"}, whole, die_at, what);
    ck_assert(_i != 1 || (whole->clipped > 2 && whole->rates > 2));
    ck_assert(_i != 4 || whole->skips > 2);
    buried(whole);
}
END_TEST

/* ---- any experiment ---- */

#define EXPERIMENTS 8

/* Choices are a function of the experiment's number. */
typedef struct {
    uint64_t number, drawn;
} dice;

static size_t roll(dice *d, size_t sides)
{
    uint64_t key = d->number * 0x9E3779B97F4A7C15u + ++d->drawn * 0xD1B54A32D192ED03u;
    key = (key ^ (key >> 32)) * 0xBF58476D1CE4E5B9u;
    key = (key ^ (key >> 29)) * 0x94D049BB133111EBu;
    return (size_t)((key ^ (key >> 32)) % sides);
}

#define CHOOSE(d, list) (list)[roll(d, sizeof(list) / sizeof *(list))]

/* A minimizer does the whole step, but for an average of stage after. */
static const char *const wrappers[] = {"", "", "{use: sam, rho: 0.1}, ", "{use: sam, adaptive: true, rho: 0.5}, "};
static const char *const clips[] = {"", "{use: clip-norm}, ", "{use: clip-percentile, warmup: 3}, ",
                                    "{use: centralize}, ", "{use: clip-percentile, percentile: 50, window: 6}, "};
static const char *const rules[] = {
    "{use: adamw, as: rule, lr: 0.01}",
    "{use: adam-l2, as: rule, lr: 0.01, l2: 0.001}",
    "{use: sgd, as: rule, lr: 0.1, momentum: 0.9}",
    "{use: lion, as: rule, lr: 0.003}",
    "{use: lamb, as: rule}",
    "{use: sm3, as: rule, lr: 0.1}",
    "{use: adafactor, as: rule, lr: 0.01, scale_parameter: true, beta1: 0.8}",
    "{use: muon, as: rule, lr: 0.02, on: {axes: 2}}, {use: adamw, as: rest}",
    "{use: kfac, as: rule, on: {axes: 2}, lr: 0.02, damping: 0.1, factor_every: 2, inverse_every: 4}, {use: sgd, as: "
    "rest}",
};
static const char *const minimizers[] = {"{use: lbfgs, as: rule}", "{use: newton-cg, as: rule, damping: 0.1}"};
static const char *const averages[] = {"", ", {use: ema, decay: 0.9}", ", {use: ema, warmup: true}",
                                       ", {use: schedule-free}"};
static const char *const normalizers[] = {"model.normalizer=none", "model.normalizer=layernorm",
                                          "model.normalizer=batchnorm"};
static const char *const precisions[] = {
    "precision=f32",
    "precision=f64",
    "precision={storage: bf16}",
    "precision={storage: {use: bf16, rounding: stochastic}, master: false}",
    "precision={storage: fp16, loss_scale: {use: dynamic, initial: 0x1p20, interval: 4}}",
    "precision={state: blockwise8}",
    "precision={state: {use: fp16, rounding: stochastic}}",
    "precision={storage: bf16, state: {use: bf16, rounding: stochastic}}",
};
static const char *const recomputes[] = {"recompute=none", "recompute=sqrt", "recompute={use: every, nodes: 2}"};
static const char *const schedules[] = {
    "schedule={}", "schedule={rule.lr: {use: cosine}}",
    "schedule={rule.lr: {use: plateau, patience: 0, factor: 0.5, threshold: 0.05}}"};
static const char *const regularizers[] = {"model.regularizer=none", "model.regularizer={use: dropout, p: 0.2}"};
static const char *const windows[] = {"train.accumulate=1", "train.accumulate=2", "train.accumulate=3"};
static const char *const refreshes[] = {"eval.refresh=0", "eval.refresh=2"};
static const char *const thread_counts[] = {"train.threads=1", "train.threads=2", "train.threads=3"};

/* Fills more[] up to a NULL. */
static void choose_experiment(dice *d, char update[512], const char *more[16])
{
    int minimizer = roll(d, 6) == 0;
    size_t n = 0;
    const char *wrapper = CHOOSE(d, wrappers), *clip = CHOOSE(d, clips), *rule = CHOOSE(d, rules);
    const char *average = CHOOSE(d, averages);
    if (minimizer) {
        wrapper = clip = "";
        rule = CHOOSE(d, minimizers);
        average = averages[roll(d, 3)];
    }
    snprintf(update, 512, "update=[%s%s%s%s]", wrapper, clip, rule, average);
    more[n++] = update;
    more[n++] = "train.epochs=4";
    more[n++] = CHOOSE(d, normalizers);
    more[n++] = minimizer ? precisions[roll(d, 2)] : CHOOSE(d, precisions);
    more[n++] = minimizer ? recomputes[0] : CHOOSE(d, recomputes);
    more[n++] = minimizer ? schedules[0] : CHOOSE(d, schedules);
    more[n++] = CHOOSE(d, regularizers);
    more[n++] = CHOOSE(d, windows);
    more[n++] = CHOOSE(d, refreshes);
    more[n] = NULL;
}

/* Killed in any attempt, gone on with on another number of threads. TENON_TEST_EXPERIMENT=n runs the n-th alone,
 * TENON_TEST_EXPERIMENTS=n the first n. */
START_TEST(any_killed_experiment_goes_on_bit_for_bit)
{
    const char *one = getenv("TENON_TEST_EXPERIMENT"), *more[16];
    dice d = {one ? (uint64_t)atoll(one) : (uint64_t)_i, 0};
    char update[512], what[1024];
    size_t used = (size_t)snprintf(what, sizeof what, "experiment %d:", (int)d.number), first = roll(&d, 3);
    const char *const threads[] = {thread_counts[first], thread_counts[(first + 1 + roll(&d, 2)) % 3]};
    choose_experiment(&d, update, more);
    for (const char **at = more; *at && used < sizeof what; at++)
        used += (size_t)snprintf(what + used, sizeof what - used, " '%s'", *at);
    life *whole = born(with(more, "train.threads=1"));
    int64_t attempts = tn_trainer_horizon(whole->trainer), die_at = 4 + (int64_t)roll(&d, (size_t)attempts - 4);
    if (one)
        fprintf(stderr, "%s, killed at %d of %d, %s\n", what, (int)die_at, (int)attempts, threads[1]);
    check_killed(more, threads, whole, die_at, what);
    buried(whole);
}
END_TEST

static int experiment_count(void)
{
    const char *count = getenv("TENON_TEST_EXPERIMENTS");
    return getenv("TENON_TEST_EXPERIMENT") ? 1 : count ? atoi(count) : EXPERIMENTS;
}

/* Saved at any attempt, gone on in another trainer: the same state after each later step. */
START_TEST(every_attempt_can_be_saved)
{
    tn_error err = {0};
    const char *const *overrides = with(runs[1], "train.threads=1");
    life *one = born(overrides);
    for (int step = 0; step < 6; step++) {
        life *other = born(overrides);
        ck_ok(tn_trainer_save(one->trainer, in_test("now"), &err), err);
        ck_ok(tn_trainer_restore(other->trainer, in_test("now"), &err), err);
        steps(one, 1);
        steps(other, 1);
        assert_same_state(one, other, "a step after it");
        buried(other);
    }
    buried(one);
}
END_TEST

/* The same, into a trainer that has gone elsewhere meanwhile. */
START_TEST(going_back_is_possible)
{
    tn_error err = {0};
    const char *const *overrides = with(runs[2], "train.threads=1");
    life *one = born(overrides), *other = born(overrides);
    steps(one, 2);
    ck_ok(tn_trainer_save(one->trainer, in_test("now"), &err), err);
    steps(one, 6);
    ck_ok(tn_trainer_evaluate(one->trainer, &err), err);
    ck_ok(tn_trainer_restore(one->trainer, in_test("now"), &err), err);
    ck_ok(tn_trainer_restore(other->trainer, in_test("now"), &err), err);
    steps(one, 4);
    steps(other, 4);
    ck_ok(tn_trainer_evaluate(one->trainer, &err), err);
    ck_ok(tn_trainer_evaluate(other->trainer, &err), err);
    assert_same_state(one, other, "four steps after it");
    buried(one);
    buried(other);
}
END_TEST

/* Rewrites a checkpoint: leaves out the tensor `without`, renames it to `as`, or gives it the shape [1, n]. */
static void rewrite(const char *from, const char *to, const char *without, const char *as, int reshape)
{
    tn_error err = {0};
    tn_safetensors *saved;
    ck_ok(tn_safetensors_open(from, &saved, &err), err);
    size_t n = tn_safetensors_count(saved), notes = 0, count = 0;
    tn_tensor *tensors = calloc(n, sizeof *tensors);
    tn_safetensors_entry *entries = calloc(n, sizeof *entries);
    tn_safetensors_note note[512];
    int64_t(*shapes)[TN_MAX_DIMS] = calloc(n, sizeof *shapes);
    for (void *at = NULL; (at = tn_safetensors_next_note(saved, at, &note[notes])); notes++)
        ck_assert_uint_lt(notes, 511);
    for (size_t i = 0; i < n; i++) {
        const tn_safetensors_info *info = tn_safetensors_at(saved, i);
        int hit = strcmp(info->name, without) == 0;
        void *data = malloc((size_t)info->bytes + 1);
        ck_ok(tn_safetensors_read(saved, info, 0, info->bytes, data, &err), err);
        memcpy(shapes[i], info->shape, sizeof shapes[i]);
        tensors[i] = (tn_tensor){.data = data, .ndim = info->ndim, .dtype = info->dtype, .shape = shapes[i]};
        if (hit && reshape) {
            shapes[i][0] = 1;
            shapes[i][1] = info->bytes / (info->dtype.bits / 8);
            tensors[i].ndim = 2;
        }
        if (!hit || as || reshape)
            entries[count++] = (tn_safetensors_entry){hit && as ? as : info->name, &tensors[i]};
    }
    ck_ok(tn_safetensors_write(to, entries, count, note, notes, &err), err);
    for (size_t i = 0; i < n; i++)
        free(tensors[i].data);
    tn_safetensors_close(saved);
    free(tensors);
    free(entries);
    free(shapes);
}

/* ---- two processes ---- */

#define RANKS 2
#define PAIR                                                                                                           \
    "model.normalizer=batchnorm",                                                                                      \
        "update=[{use: muon, as: rule, on: {axes: 2}}, {use: adafactor, as: rest, lr: 0.01}]",                         \
        "checkpoint={every: 3 steps, keep: 0}"

/* One of two processes: to the end of the run, from a checkpoint if one is named; then its state goes to `to`. */
static int32_t live_as(int rank, const char *from, const char *folder, const char *to, tn_error *err)
{
    static life l;
    char collective[160];
    const char *overrides[] = {PAIR, collective, NULL};
    snprintf(collective, sizeof collective, "parallel.collective={use: shm, name: state-%ld, ranks: 2, rank: %d}",
             (long)getppid(), rank);
    int32_t status = begin(&l, overrides, err);
    if (status == TN_OK && from)
        status = tn_trainer_restore(l.trainer, from, err);
    if (status == TN_OK && folder && rank == 0)
        status = tn_trainer_record_in(l.trainer, folder, err);
    if (status == TN_OK)
        status = tn_trainer_run(l.trainer, err);
    return status == TN_OK ? tn_trainer_save(l.trainer, to, err) : status;
}

static void live_together(const char *from, const char *folder, const char *to)
{
    pid_t ranks[RANKS];
    for (int rank = 0; rank < RANKS; rank++) {
        ranks[rank] = fork();
        ck_assert_int_ge(ranks[rank], 0);
        if (ranks[rank] == 0) {
            tn_error err = {0};
            int32_t status = live_as(rank, from, folder, to, &err);
            if (status != TN_OK)
                fprintf(stderr, "rank %d: %s\n", rank, err.msg);
            _exit(status != TN_OK);
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        int status;
        ck_assert_int_eq(waitpid(ranks[rank], &status, 0), ranks[rank]);
        ck_assert_int_eq(status, 0);
    }
}

/* The tensors and checksums of two files are the same; where the sinks' files end may differ. */
static void assert_same_tensors(const char *a, const char *b)
{
    tn_error err = {0};
    tn_safetensors *files[2];
    ck_ok(tn_safetensors_open(a, &files[0], &err), err);
    ck_ok(tn_safetensors_open(b, &files[1], &err), err);
    ck_assert_uint_eq(tn_safetensors_count(files[0]), tn_safetensors_count(files[1]));
    for (size_t i = 0; i < tn_safetensors_count(files[0]); i++) {
        char key[256];
        snprintf(key, sizeof key, "xxh3/%s", tn_safetensors_at(files[0], i)->name);
        const char *x = tn_safetensors_note_of(files[0], key), *y = tn_safetensors_note_of(files[1], key);
        ck_assert_msg(x && y && !strcmp(x, y), "%s and %s: %s differs", a, b, key);
    }
    tn_safetensors_close(files[0]);
    tn_safetensors_close(files[1]);
}

START_TEST(two_processes_go_on_bit_for_bit)
{
    tn_error err = {0};
    make_folder(in_test("run"));
    live_together(NULL, in_test("run"), in_test("whole"));
    live_together(in_test("run/checkpoints/attempt-000000006.safetensors"), NULL, in_test("rest"));
    assert_same_tensors(in_test("whole"), in_test("rest"));
    assert_same_tensors(in_test("whole.rank-1"), in_test("rest.rank-1"));
    assert_same_tensors(in_test("whole"), in_test("run/checkpoints/attempt-000000014.safetensors"));
    life *l = born((const char *const[]){NULL});
    ck_assert_refused(tn_trainer_restore(l->trainer, in_test("whole"), &err), TN_E_INVALID, err, in_test("whole"),
                      "2 processes");
    buried(l);
}
END_TEST

/* Each of two processes restores from `from`; what they say. */
typedef struct {
    int32_t status[RANKS];
    char message[RANKS][1024];
} answers;

static void restore_as(int rank, const char *from, answers *to)
{
    static life l;
    tn_error err = {0};
    char collective[160];
    snprintf(collective, sizeof collective, "parallel.collective={use: shm, name: state-%ld, ranks: 2, rank: %d}",
             (long)getppid(), rank);
    int32_t status = begin(&l, (const char *const[]){PAIR, collective, NULL}, &err);
    if (status == TN_OK)
        status = tn_trainer_restore(l.trainer, from, &err);
    to->status[rank] = status;
    snprintf(to->message[rank], sizeof to->message[rank], "%s", status ? err.msg : "");
    end(&l);
}

static void restore_together(const char *from, answers *to)
{
    pid_t ranks[RANKS];
    memset(to, 0, sizeof *to);
    for (int rank = 0; rank < RANKS; rank++)
        if ((ranks[rank] = fork()) == 0) {
            restore_as(rank, from, to);
            _exit(0);
        }
    for (int rank = 0; rank < RANKS; rank++) {
        int status;
        ck_assert_int_eq(waitpid(ranks[rank], &status, 0), ranks[rank]);
        ck_assert_int_eq(status, 0);
    }
}

/* The second process says this of its own file, the first one that the second failed. */
static void refused_by_second(const char *from, const char *part, answers *a)
{
    char own[2 * PATH_MAX + 16];
    snprintf(own, sizeof own, "%s.rank-1: ", from);
    restore_together(from, a);
    ck_assert_msg(a->status[1] == TN_E_DATA && !strncmp(a->message[1], own, strlen(own)) && strstr(a->message[1], part),
                  "%s", a->message[1]);
    ck_assert_msg(a->status[0] == TN_E_DATA && strstr(a->message[0], "process 1 of 2"), "%s", a->message[0]);
}

static void copy_file(const char *from, const char *to)
{
    size_t size;
    char *bytes = file_text(from, &size);
    write_bytes(to, bytes, size);
    free(bytes);
}

/* A process's file is told by its name, and must be what the name says: its own, of this attempt, undamaged. */
START_TEST(files_of_processes_are_not_mixed)
{
    char first[2 * PATH_MAX], last[2 * PATH_MAX], own[2 * PATH_MAX + 16], keep[2 * PATH_MAX];
    size_t size;
    answers *a = mmap(NULL, sizeof *a, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(a, MAP_FAILED);
    make_folder(in_test("run"));
    live_together(NULL, in_test("run"), in_test("whole"));
    snprintf(first, sizeof first, "%s", in_test("run/checkpoints/attempt-000000006.safetensors"));
    snprintf(last, sizeof last, "%s", in_test("run/checkpoints/attempt-000000014.safetensors"));
    snprintf(keep, sizeof keep, "%s", in_test("kept"));
    snprintf(own, sizeof own, "%s.rank-1", last);
    copy_file(own, keep);
    restore_together(last, a);
    ck_assert_msg(!a->status[0] && !a->status[1], "%s; %s", a->message[0], a->message[1]);

    copy_file(last, own);
    refused_by_second(last, "process 0 at attempt 14, needed that of process 1 at attempt 14", a);
    snprintf(own, sizeof own, "%s.rank-1", first);
    copy_file(own, in_test("run/checkpoints/attempt-000000014.safetensors.rank-1"));
    refused_by_second(last, "process 1 at attempt 6, needed that of process 1 at attempt 14", a);

    snprintf(own, sizeof own, "%s.rank-1", last);
    char *bytes = file_text(keep, &size);
    bytes[size - 3] ^= 4;
    write_bytes(own, bytes, size);
    refused_by_second(last, "tensor '", a);
    bytes[size - 3] ^= 4;
    write_bytes(own, bytes, size - 8);
    refused_by_second(last, "", a);
    rewrite(keep, own, "buffers/train/hidden.0.norm.running_mean", "other", 0);
    refused_by_second(last, "missing: buffers/train/hidden.0.norm.running_mean; not known here: other", a);
    copy_file(keep, own);

    copy_file(keep, in_test("swapped"));
    copy_file(keep, in_test("swapped.rank-1"));
    restore_together(in_test("swapped"), a);
    ck_assert_msg(a->status[0] == TN_E_DATA &&
                      !strncmp(a->message[0], in_test("swapped"), strlen(in_test("swapped"))) &&
                      strstr(a->message[0], ": is the file of process 1"),
                  "%s", a->message[0]);
    restore_together(last, a);
    ck_assert_msg(!a->status[0] && !a->status[1], "%s; %s", a->message[0], a->message[1]);
    free(bytes);
    munmap(a, sizeof *a);
}
END_TEST

/* ---- what is in it ---- */

START_TEST(a_checkpoint_is_keyed_by_names)
{
    static const char *const names[] = {"parameters/%s", "clocks/%s", "update/rule/m/%s", "update/rule/v/%s",
                                        "update/ema/average/%s"};
    tn_error err = {0};
    tn_safetensors *saved;
    life *l = born(with(runs[1], "train.threads=1"));
    steps(l, 3);
    ck_ok(tn_trainer_save(l->trainer, in_test("now"), &err), err);
    ck_ok(tn_safetensors_open(in_test("now"), &saved, &err), err);
    const tn_parameters *all = tn_graph_parameters(tn_trainer_graph(l->trainer));
    for (int64_t i = 0; i < all->count; i++)
        for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
            char name[256];
            snprintf(name, sizeof name, names[n], all->list[i].name);
            const tn_safetensors_info *info = tn_safetensors_find(saved, name);
            ck_assert_msg(info != NULL, "no %s", name);
            if (n != 1)
                ck_assert(info->dtype.bits == 32 && info->ndim == all->list[i].ndim &&
                          !memcmp(info->shape, all->list[i].shape, (size_t)info->ndim * 8));
        }
    int64_t attempt = 0;
    ck_ok(tn_safetensors_read(saved, tn_safetensors_find(saved, "run/attempt"), 0, 8, &attempt, &err), err);
    ck_assert_int_eq(attempt, 3);
    ck_assert_int_eq(tn_safetensors_find(saved, "update/clip-percentile/recent")->shape[0], 6);
    ck_assert_int_eq(tn_safetensors_find(saved, "schedules/rule.lr/0")->shape[0], 5);
    tn_safetensors_close(saved);
    buried(l);
}
END_TEST

static int64_t integer_in(const char *path, const char *name)
{
    tn_error err = {0};
    tn_safetensors *saved;
    int64_t value = 0;
    ck_ok(tn_safetensors_open(path, &saved, &err), err);
    const tn_safetensors_info *info = tn_safetensors_find(saved, name);
    ck_assert_msg(info && info->bytes == 8, "no %s", name);
    ck_ok(tn_safetensors_read(saved, info, 0, 8, &value, &err), err);
    tn_safetensors_close(saved);
    return value;
}

static double real_in(const char *path, const char *name) { return from_bits((uint64_t)integer_in(path, name)); }

/* fp16 with a scale that overflows and can not fall: no update yet, and the count towards divergence goes on where it
 * was. */
START_TEST(counters_are_kept)
{
    static const char *const stuck[8] = {
        "precision={storage: fp16, loss_scale: {use: dynamic, initial: 0x1p30, minimum: 0x1p30}}"};
    tn_error err = {0};
    life *l = born(with(stuck, "train.threads=1")), *other = born(with(stuck, "train.threads=1"));
    steps(l, 3);
    ck_assert_int_eq(l->skips, 3);
    ck_ok(tn_trainer_evaluate(l->trainer, &err), err);
    ck_ok(tn_trainer_save(l->trainer, in_test("now"), &err), err);
    ck_ok(tn_trainer_restore(other->trainer, in_test("now"), &err), err);
    ck_ok(tn_trainer_save(other->trainer, in_test("again"), &err), err);
    for (int i = 0; i < 2; i++) {
        const char *path = in_test(i ? "again" : "now");
        ck_assert_int_eq(integer_in(path, "run/attempt"), 3);
        ck_assert_int_eq(integer_in(path, "run/update"), 0);
        ck_assert_int_eq(integer_in(path, "run/skipped"), 3);
        ck_assert_int_eq(integer_in(path, "run/bad"), 3);
        ck_assert_int_eq(integer_in(path, "run/evaluated_at"), 3);
        ck_assert_double_eq(real_in(path, "run/samples"), 48);
        ck_assert_double_eq(real_in(path, "run/tokens"), 48);
        ck_assert_double_gt(real_in(path, "run/eval_loss"), 0);
        real_in(path, "run/loss");
    }
    buried(l);
    buried(other);
}
END_TEST

/* Without masters the checkpoint holds what the codec made; whoever looks at the parameters then sees them at once. */
START_TEST(stored_parameters_are_seen_at_once)
{
    tn_error err = {0};
    life *l = born(with(runs[5], "train.threads=1")), *other = born(with(runs[5], "train.threads=1"));
    steps(l, 3);
    ck_ok(tn_trainer_save(l->trainer, in_test("now"), &err), err);
    ck_ok(tn_trainer_restore(l->trainer, in_test("now"), &err), err);
    ck_ok(tn_trainer_restore(other->trainer, in_test("now"), &err), err);
    const tn_parameters *a = tn_graph_parameters(tn_trainer_graph(l->trainer)),
                        *b = tn_graph_parameters(tn_trainer_graph(other->trainer));
    for (int64_t i = 0; i < a->count; i++)
        ck_assert_mem_eq((float *)a->p + a->at[i], (float *)b->p + b->at[i], (size_t)a->list[i].n * sizeof(float));
    buried(l);
    buried(other);
}
END_TEST

/* ---- refusals ---- */

static void refused(life *l, const char *path, int32_t code, const char *part)
{
    tn_error err = {0};
    ck_ok(tn_trainer_save(l->trainer, in_test("before"), &err), err);
    ck_assert_refused(tn_trainer_restore(l->trainer, path, &err), code, err, path, part);
    size_t sizes[2];
    ck_ok(tn_trainer_save(l->trainer, in_test("after"), &err), err);
    char *before = file_text(in_test("before"), &sizes[0]), *after = file_text(in_test("after"), &sizes[1]);
    ck_assert(sizes[0] == sizes[1] && !memcmp(before, after, sizes[0]));
    free(before);
    free(after);
}

START_TEST(another_experiment_is_refused_with_words)
{
    static const struct {
        const char *overrides[4], *part;
    } others[] = {
        {{"train.seed=5"}, "seed: 4"},
        {{"update.rule.lr=0.02"}, "lr: 0.02"},
        {{"train.epochs=3"}, "epochs: 3"},
        {{"update.rule=sgd"}, "sgd"},
        {{"update=[{use: adamw, as: rule, lr: 1e-2}]"}, "clip-norm"},
        {{"model.widths=[24, 13]"}, "[24, 13]"},
        {{"model.normalizer=none"}, "normalizer: none"},
        {{"schedule={rule.lr: {use: cosine}}"}, "schedule"},
        {{"precision=f64"}, "precision: f64"},
        {{"data.batch=15"}, "batch: 15"},
    };
    tn_error err = {0};
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s", in_test("saved"));
    life *l = born((const char *const[]){NULL});
    steps(l, 2);
    ck_ok(tn_trainer_save(l->trainer, path, &err), err);
    buried(l);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        l = born(others[i].overrides);
        refused(l, path, TN_E_INVALID, "another experiment");
        refused(l, path, TN_E_INVALID, others[i].part);
        buried(l);
    }
}
END_TEST

START_TEST(what_decides_no_bit_may_differ)
{
    tn_error err = {0};
    life *l = born((const char *const[]){"train.threads=1", NULL});
    steps(l, 2);
    ck_ok(tn_trainer_save(l->trainer, in_test("saved"), &err), err);
    life *other =
        born((const char *const[]){"name=other", "train.threads=3", "sinks=none", "checkpoint={every: 1 epoch}", NULL});
    ck_ok(tn_trainer_restore(other->trainer, in_test("saved"), &err), err);
    ck_assert_int_eq(tn_trainer_attempt(other->trainer), 2);
    buried(l);
    buried(other);
}
END_TEST

/* CKP-08: names are listed. */
START_TEST(other_tensors_are_refused_by_name)
{
    tn_error err = {0};
    char saved[2 * PATH_MAX], path[2 * PATH_MAX];
    const char *name = "update/rule/m/hidden.0.linear.weight";
    snprintf(saved, sizeof saved, "%s", in_test("saved"));
    snprintf(path, sizeof path, "%s", in_test("changed"));
    life *l = born((const char *const[]){NULL});
    steps(l, 2);
    ck_ok(tn_trainer_save(l->trainer, saved, &err), err);
    rewrite(saved, path, name, name, 0);
    ck_ok(tn_trainer_restore(l->trainer, path, &err), err);
    rewrite(saved, path, name, NULL, 0);
    refused(l, path, TN_E_DATA, "missing: update/rule/m/hidden.0.linear.weight");
    rewrite(saved, path, name, "update/rule/n/x", 0);
    refused(l, path, TN_E_DATA, "not known here: update/rule/n/x");
    rewrite(saved, path, "run/loss", NULL, 1);
    refused(l, path, TN_E_DATA, "another shape or type: run/loss");
    buried(l);
}
END_TEST

/* A checkpoint that ends anywhere: each 4 KiB, and all of the last. The state stays. */
START_TEST(a_cut_checkpoint_is_refused_wherever_it_ends)
{
    tn_error err = {0};
    char path[2 * PATH_MAX];
    size_t size;
    snprintf(path, sizeof path, "%s", in_test("cut"));
    life *l = born((const char *const[]){"model.widths=[64, 48]", NULL});
    steps(l, 2);
    ck_ok(tn_trainer_save(l->trainer, path, &err), err);
    char *bytes = file_text(path, &size);
    ck_assert_uint_gt(size, 20 * 4096);
    for (size_t end = 0; end < size; end += 4096) {
        write_bytes(path, bytes, end);
        ck_assert_refused(tn_trainer_restore(l->trainer, path, &err), TN_E_DATA, err, path, "");
    }
    for (size_t end = size - 64; end < size; end++) {
        write_bytes(path, bytes, end);
        ck_assert_refused(tn_trainer_restore(l->trainer, path, &err), TN_E_DATA, err, path, "");
    }
    write_bytes(path, bytes, size / 2);
    refused(l, path, TN_E_DATA, "");
    write_bytes(path, bytes, size);
    ck_ok(tn_trainer_restore(l->trainer, path, &err), err);
    free(bytes);
    buried(l);
}
END_TEST

/* The header of a real checkpoint with one word of it exchanged by another of the same length. */
START_TEST(a_header_that_lies_is_refused)
{
    static const struct {
        const char *from, *to, *part;
    } lies[] = {
        {"\"F32\",\"shape\":[24,64]", "\"I32\",\"shape\":[24,64]", "of another shape or type: parameters/hidden.0"},
        {"\"F32\",\"shape\":[24,64]", "\"F32\",\"shape\":[64,24]", "of another shape or type: parameters/hidden.0"},
        {"\"F32\",\"shape\":[24,64]", "\"F64\",\"shape\":[24,64]", "do not fit dtype and shape"},
        {"\"F32\",\"shape\":[24,64]", "\"C64\",\"shape\":[24,64]", "its dtype is none of"},
        {"\"F32\",\"shape\":[24,64]", "\"F32\",\"shape\":[24,65]", "do not fit dtype and shape"},
        {"\"F32\",\"shape\":[24,64]", "\"F32\",\"shape\":[-4,64]", "no integer from 0 on"},
        {"\"parameters/head.bias\"", "\"parameters/dead.bias\"", "missing: parameters/head.bias"},
        {"\"data_offsets\":[8,16]", "\"data_offsets\":[0,08]", "header"},
        {"\"data_offsets\":[8,16]", "\"data_offsets\":[0,16]", "do not fit"},
        {"\"data_offsets\":[8,16]", "\"data_offsets\":[7,15]", "overlaps"},
        {"\"data_offsets\":[8,16]", "\"data_offsets\":[9,17]", "hole"},
        {"\"attempt\":\"2\"", "\"attempt\":\"3\"", "its metadata has the checksum"},
    };
    tn_error err = {0};
    char path[2 * PATH_MAX];
    size_t size;
    snprintf(path, sizeof path, "%s", in_test("lying"));
    life *l = born((const char *const[]){NULL});
    steps(l, 2);
    ck_ok(tn_trainer_save(l->trainer, path, &err), err);
    char *bytes = file_text(path, &size);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        size_t length = strlen(lies[i].from);
        char *at = memmem(bytes, size, lies[i].from, length);
        ck_assert_msg(at && length == strlen(lies[i].to), "%s is not there", lies[i].from);
        memcpy(at, lies[i].to, length);
        write_bytes(path, bytes, size);
        ck_assert_refused(tn_trainer_restore(l->trainer, path, &err), TN_E_DATA, err, path, lies[i].part);
        memcpy(at, lies[i].from, length);
    }
    free(bytes);
    buried(l);
}
END_TEST

START_TEST(damage_is_refused)
{
    tn_error err = {0};
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s", in_test("damaged"));
    life *l = born((const char *const[]){NULL});
    steps(l, 2);
    ck_ok(tn_trainer_save(l->trainer, path, &err), err);
    size_t size;
    char *bytes = file_text(path, &size);
    bytes[size - 70] ^= 4;
    write_bytes(path, bytes, size);
    refused(l, path, TN_E_DATA, "checksum");
    bytes[size - 70] ^= 4;
    write_bytes(path, bytes, size);
    ck_ok(tn_trainer_restore(l->trainer, path, &err), err);
    write_bytes(path, bytes, size - 1);
    refused(l, path, TN_E_DATA, "");
    free(bytes);
    ck_ok(tn_safetensors_write(path, NULL, 0, NULL, 0, &err), err);
    refused(l, path, TN_E_DATA, "no checkpoint");
    refused(l, in_test("nowhere"), TN_E_NOT_FOUND, "");
    buried(l);
}
END_TEST

/* Puts `to` where the file has `from`, which it has once. */
static void edit(const char *path, const char *from, const char *to)
{
    size_t size, length = strlen(from);
    char *bytes = file_text(path, &size), *found = memmem(bytes, size, from, length);
    ck_assert_msg(found != NULL, "%s has no %s", path, from);
    ck_assert_ptr_null(memmem(found + 1, size - (size_t)(found + 1 - bytes), from, length));
    ck_assert_uint_eq(length, strlen(to));
    memcpy(found, to, length);
    write_bytes(path, bytes, size);
    free(bytes);
}

/* Whatever the metadata say is under one checksum: experiment, lengths of sinks' files, attempt, and that checksum. */
START_TEST(damaged_metadata_is_refused)
{
    char path[2 * PATH_MAX], text[64], other[64];
    tn_error err = {0};
    tn_safetensors *saved;
    snprintf(path, sizeof path, "%s", in_test("damaged"));
    make_folder(in_test("run"));
    life *l = born(with(NULL, "train.threads=1"));
    ck_ok(tn_trainer_record_in(l->trainer, in_test("run"), &err), err);
    steps(l, 2);
    ck_ok(tn_trainer_save(l->trainer, path, &err), err);
    ck_ok(tn_safetensors_open(path, &saved, &err), err);
    const char *length = tn_safetensors_note_of(saved, "sink/sinks.jsonl");
    ck_assert_msg(length && strlen(length) > 1, "no length of metrics.jsonl");
    snprintf(text, sizeof text, "\"sink/sinks.jsonl\":\"%s\"", length);
    snprintf(other, sizeof other, "%s", text);
    other[strlen(other) - 2] ^= 1;
    const char *const edits[][2] = {
        {text, other}, {"\"attempt\":\"2\"", "\"attempt\":\"3\""}, {"seed: 4", "seed: 5"}, {"\"xxh3\":", "\"xxh2\":"}};
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        edit(path, edits[i][0], edits[i][1]);
        refused(l, path, TN_E_DATA, "metadata has the checksum");
        edit(path, edits[i][1], edits[i][0]);
        ck_ok(tn_trainer_restore(l->trainer, path, &err), err);
    }
    tn_safetensors_close(saved);
    buried(l);
}
END_TEST

/* ---- files ---- */

/* CKP-01: killed at any moment while it saves over one name, there is a whole file. */
START_TEST(a_kill_while_saving_leaves_a_whole_file)
{
    tn_error err = {0};
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s", in_test("one"));
    life *l = born((const char *const[]){NULL});
    ck_ok(tn_trainer_save(l->trainer, path, &err), err);
    for (int i = 0; i < 60; i++) {
        pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0)
            for (;;)
                if (tn_trainer_save(l->trainer, path, &err) != TN_OK)
                    _exit(1);
        usleep((useconds_t)(random_bits() % 9000));
        kill(child, SIGKILL);
        int status;
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert(WIFSIGNALED(status));
        ck_ok(tn_trainer_restore(l->trainer, path, &err), err);
    }
    buried(l);
}
END_TEST

/* CKP-02, and what is no checkpoint. */
START_TEST(the_last_checkpoint_has_the_largest_number)
{
    static const char *const names[] = {"attempt-000000009.safetensors",
                                        "attempt-10.safetensors",
                                        "attempt-000000002.safetensors",
                                        ".attempt-000000099.safetensors.new",
                                        "attempt-000000100.safetensors.rank-1",
                                        "attempt-x.safetensors",
                                        "attempt-+77.safetensors",
                                        "attempt-99999999999999999999.safetensors"};
    tn_error err = {0};
    char *path, name[2 * PATH_MAX];
    ck_assert_refused(tn_checkpoint_last(test_directory, &path, &err), TN_E_NOT_FOUND, err, test_directory,
                      "checkpoint");
    make_folder(in_test("checkpoints"));
    ck_assert_refused(tn_checkpoint_last(test_directory, &path, &err), TN_E_NOT_FOUND, err, test_directory,
                      "checkpoint");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "%s/checkpoints/%s", test_directory, names[i]);
        write_text(name, "");
    }
    ck_ok(tn_checkpoint_last(test_directory, &path, &err), err);
    ck_assert_str_eq(strrchr(path, '/') + 1, "attempt-10.safetensors");
    tn_free(path);
}
END_TEST

START_TEST(a_sink_that_was_cut_is_refused)
{
    tn_error err = {0};
    char metrics_path[2 * PATH_MAX], *checkpoint;
    make_folder(in_test("run"));
    life *l = born(with(NULL, "train.threads=1"));
    ck_ok(tn_trainer_record_in(l->trainer, in_test("run"), &err), err);
    ck_ok(tn_trainer_run(l->trainer, &err), err);
    buried(l);
    snprintf(metrics_path, sizeof metrics_path, "%s/metrics.jsonl", in_test("run"));
    ck_assert_int_eq(truncate(metrics_path, 100), 0);
    ck_ok(tn_checkpoint_last(in_test("run"), &checkpoint, &err), err);
    l = born(with(NULL, "train.threads=1"));
    ck_ok(tn_trainer_restore(l->trainer, checkpoint, &err), err);
    ck_assert_refused(tn_trainer_continue_in(l->trainer, in_test("run"), checkpoint, &err), TN_E_DATA, err,
                      "sink jsonl", "100 bytes");
    tn_free(checkpoint);
    buried(l);
}
END_TEST

START_TEST(every_failed_allocation_is_an_error)
{
    tn_error err = {0};
    life *l = born(with(runs[1], "train.threads=1"));
    steps(l, 1);
    int64_t total = tn_memory_count();
    ck_ok(tn_trainer_save(l->trainer, in_test("m"), &err), err);
    total = tn_memory_count() - total;
    for (int64_t nth = 0; nth < total; nth++) {
        tn_memory_fail_at(nth);
        int32_t status = tn_trainer_save(l->trainer, in_test("m"), &err);
        tn_memory_fail_at(-1);
        ck_assert_msg(status == TN_E_MEMORY || status == TN_E_IO, "%d of %d: %s", (int)nth, (int)total,
                      status ? err.msg : "no error");
    }
    total = tn_memory_count();
    ck_ok(tn_trainer_restore(l->trainer, in_test("m"), &err), err);
    total = tn_memory_count() - total;
    for (int64_t nth = 0; nth < total; nth++) {
        tn_memory_fail_at(nth);
        int32_t status = tn_trainer_restore(l->trainer, in_test("m"), &err);
        tn_memory_fail_at(-1);
        ck_assert_msg(status == TN_E_MEMORY, "%d of %d: %s", (int)nth, (int)total, status ? err.msg : "no error");
    }
    buried(l);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("state");
    TCase *tests = tcase_create("state");
    tcase_set_timeout(tests, 100);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, a_killed_run_goes_on_bit_for_bit, 0, RUNS);
    tcase_add_loop_test(tests, any_killed_experiment_goes_on_bit_for_bit, 0, experiment_count());
    tcase_add_test(tests, every_attempt_can_be_saved);
    tcase_add_test(tests, going_back_is_possible);
    tcase_add_test(tests, two_processes_go_on_bit_for_bit);
    tcase_add_test(tests, files_of_processes_are_not_mixed);
    tcase_add_test(tests, a_checkpoint_is_keyed_by_names);
    tcase_add_test(tests, counters_are_kept);
    tcase_add_test(tests, stored_parameters_are_seen_at_once);
    tcase_add_test(tests, another_experiment_is_refused_with_words);
    tcase_add_test(tests, what_decides_no_bit_may_differ);
    tcase_add_test(tests, other_tensors_are_refused_by_name);
    tcase_add_test(tests, a_cut_checkpoint_is_refused_wherever_it_ends);
    tcase_add_test(tests, a_header_that_lies_is_refused);
    tcase_add_test(tests, damage_is_refused);
    tcase_add_test(tests, damaged_metadata_is_refused);
    tcase_add_test(tests, a_kill_while_saving_leaves_a_whole_file);
    tcase_add_test(tests, the_last_checkpoint_has_the_largest_number);
    tcase_add_test(tests, a_sink_that_was_cut_is_refused);
    tcase_add_test(tests, every_failed_allocation_is_an_error);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
