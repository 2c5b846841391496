/* SPDX-License-Identifier: Apache-2.0
 *
 * The checkpoints of a run: which are written, which stay, which one a run goes on from; and what is in its folder.
 */
#include <dirent.h>
#include <math.h>

#include <xxhash.h>

#include "host/base/memory.h"
#include "host/store/safetensors.h"
#include "tests/small_run.h"

#define RECORDS 512

/* One run and what is seen of it. */
typedef struct {
    tn_experiment *experiment;
    tn_trainer *trainer;
    tn_log log;
    char text[4096]; /* of the log: warnings */
    int64_t ask_at;  /* attempt whose record asks for `ask`; 0: none does */
    int32_t ask;
    int count; /* evaluations */
    int64_t attempts[RECORDS];
    double losses[RECORDS], accuracies[RECORDS];
} seen;

static int32_t see(void *user, const tn_record *record)
{
    seen *s = user;
    if (!strcmp(record->event, "eval")) {
        ck_assert_int_lt(s->count, RECORDS);
        s->attempts[s->count] = record->attempt;
        s->losses[s->count] = record->fields[0].value;
        s->accuracies[s->count++] = record->fields[1].value;
    }
    return record->attempt == s->ask_at && !strcmp(record->event, "train") ? s->ask : 0;
}

static void hear(void *user, int32_t level, const char *line)
{
    seen *s = user;
    size_t used = strlen(s->text);
    if (level >= TN_LOG_WARNING)
        snprintf(s->text + used, sizeof s->text - used, "%s\n", line);
}

static int32_t begin(seen *s, const char *const *overrides, const char *from, tn_error *err)
{
    size_t count = 0;
    while (overrides[count])
        count++;
    memset(s, 0, sizeof *s);
    s->log = (tn_log){hear, s};
    int32_t status = tn_experiment_read(registry, file, overrides, count, &s->experiment, err);
    tn_trainer_options options = {
        .registry = registry, .experiment = s->experiment, .log = &s->log, .observer = see, .user = s, .from = from};
    return status == TN_OK ? tn_trainer_open(&options, &s->trainer, err) : status;
}

static seen *open_in(const char *const *overrides, const char *folder)
{
    tn_error err = {0};
    seen *s = malloc(sizeof *s);
    ck_ok(begin(s, overrides, NULL, &err), err);
    if (folder) {
        ck_assert(mkdir(folder, 0700) == 0 || errno == EEXIST);
        ck_ok(tn_trainer_record_in(s->trainer, folder, &err), err);
    }
    return s;
}

static void close_all(seen *s)
{
    tn_trainer_close(s->trainer);
    tn_experiment_free(s->experiment);
    free(s);
}

/* From the newest checkpoint in `folder` that is whole. */
static seen *go_on(const char *const *overrides, const char *folder)
{
    tn_error err = {0};
    char *checkpoint;
    seen *s = open_in(overrides, NULL);
    ck_ok(tn_checkpoint_restore(s->trainer, folder, &checkpoint, &err), err);
    ck_ok(tn_trainer_continue_in(s->trainer, folder, checkpoint, &err), err);
    tn_free(checkpoint);
    return s;
}

static void run_to_end(seen *s)
{
    tn_error err = {0};
    ck_ok(tn_trainer_run(s->trainer, &err), err);
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The numbers of the checkpoints in a folder, ascending, as text: "3 6 9". Other files are named. */
static const char *files_in(const char *folder)
{
    static char text[4096];
    char path[2 * PATH_MAX];
    int64_t numbers[256];
    int count = 0;
    snprintf(path, sizeof path, "%s/checkpoints", folder);
    DIR *dir = opendir(path);
    ck_assert_msg(dir != NULL, "%s: %s", path, strerror(errno));
    text[0] = '\0';
    for (struct dirent *entry; (entry = readdir(dir));) {
        long long number;
        int length = 0;
        if (sscanf(entry->d_name, "attempt-%lld.safetensors%n", &number, &length) == 1 && !entry->d_name[length] &&
            length > 0)
            numbers[count++] = number;
        else if (entry->d_name[0] != '.' || strlen(entry->d_name) > 2)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s ", entry->d_name);
    }
    closedir(dir);
    qsort(numbers, (size_t)count, sizeof *numbers, ascending);
    for (int i = 0; i < count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld", i ? " " : "", (long long)numbers[i]);
    return text;
}

static const char *checkpoint_file(const char *folder, int attempt)
{
    static char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s/checkpoints/attempt-%09d.safetensors", folder, attempt);
    return path;
}

/* ---- which stay ---- */

/* CKP-02: by number, not by name. */
START_TEST(the_last_stay_by_number)
{
    static const struct {
        const char *keep, *steps, *every, *left;
    } cases[] = {
        {"checkpoint.keep=2", "train.steps=11", "checkpoint.every=1 steps", "10 11"},
        {"checkpoint.keep=1", "train.steps=100", "checkpoint.every=9 steps", "100"},
        {"checkpoint.keep=4", "train.steps=10", "checkpoint.every=3 steps", "3 6 9 10"},
        {"checkpoint.keep=0", "train.steps=10", "checkpoint.every=3 steps", "0 3 6 9 10"},
        {"checkpoint.keep=10", "train.steps=10000", "checkpoint.every=100 steps",
         "9100 9200 9300 9400 9500 9600 9700 9800 9900 10000"},
    };
    const char *const overrides[] = {cases[_i].keep,      cases[_i].steps,    cases[_i].every,
                                     "checkpoint.best=0", "eval=none",        "sinks=none",
                                     "data.batch=4",      "model.widths=[4]", NULL};
    seen *s = open_in(overrides, in_test("run"));
    run_to_end(s);
    ck_assert_str_eq(files_in(in_test("run")), cases[_i].left);
    close_all(s);
}
END_TEST

/* The numbers in `a` and in `best`, as text. */
static const char *join(const int64_t *a, int count)
{
    static char texts[4][256];
    static unsigned next;
    char *text = texts[next++ % 4];
    int64_t sorted[16];
    memcpy(sorted, a, (size_t)count * sizeof *a);
    qsort(sorted, (size_t)count, sizeof *sorted, ascending);
    text[0] = '\0';
    for (int i = 0; i < count; i++)
        if (i == 0 || sorted[i] != sorted[i - 1])
            snprintf(text + strlen(text), sizeof *texts - strlen(text), "%s%lld", i ? " " : "", (long long)sorted[i]);
    return text;
}

/* How many evaluations up to the `count`-th are better than the i-th; of equal ones the earlier is. */
static int better_than(const double *values, int sign, int count, int i)
{
    int better = 0;
    for (int j = 0; j < count; j++)
        better += sign * values[j] < sign * values[i] || (values[j] == values[i] && j < i);
    return better;
}

/* By a look at all evaluations: the two best, the last, and the one before it: 35, or one written behind it because it
 * was one of the best so far. */
static const char *expected(const seen *s, const double *values, int sign)
{
    int64_t list[4] = {40, 35};
    int found = 2;
    for (int i = 0; i < s->count; i++) {
        if (better_than(values, sign, s->count, i) < 2)
            list[found++] = s->attempts[i];
        if (s->attempts[i] > 35 && s->attempts[i] < 40 && better_than(values, sign, i + 1, i) < 2)
            list[1] = s->attempts[i];
    }
    ck_assert_int_eq(found, 4);
    return join(list, found);
}

/* So small a model that it does not only become better. Evaluations come more often than checkpoints: the best are
 * written when they are seen. */
#define UNSTEADY                                                                                                       \
    "model={use: mlp, widths: [2], regularizer: {use: dropout, p: 0.5}}", "update=[{use: adamw, as: rule, lr: 0.05}]", \
        "~train.epochs", "train.steps=40", "eval.every=3 steps", "checkpoint={every: 7 steps, keep: 2, best: 2"

static const char *const unsteady[2][8] = {{UNSTEADY "}"}, {UNSTEADY ", metric: accuracy, mode: max}"}};

START_TEST(the_best_stay)
{
    seen *s = open_in(unsteady[_i], in_test("run"));
    run_to_end(s);
    ck_assert_int_eq(s->count, 14);
    ck_assert_str_ne(expected(s, s->accuracies, -1), expected(s, s->accuracies, 1)); /* else this would show nothing */
    const char *wanted = _i ? expected(s, s->accuracies, -1) : expected(s, s->losses, 1);
    ck_assert_str_eq(files_in(in_test("run")), wanted);
    close_all(s);
}
END_TEST

/* Stopped and gone on with twice: the same files as of a run that never stopped, but for those of the stops, which
 * count among the last. */
START_TEST(the_best_are_known_after_a_stop)
{
    const char *const *overrides = unsteady[_i];
    char whole_files[256];
    tn_error err = {0};
    seen *whole = open_in(overrides, in_test("whole"));
    run_to_end(whole);
    snprintf(whole_files, sizeof whole_files, "%s", files_in(in_test("whole")));
    seen *s = open_in(overrides, in_test("run"));
    for (int64_t stop = 11; stop <= 34; stop += 23) {
        s->ask_at = stop;
        s->ask = TN_ASK_STOP;
        ck_assert_refused(tn_trainer_run(s->trainer, &err), TN_E_STOPPED, err, "stopped on request after",
                          stop == 11 ? "after 11 of 40" : "after 34 of 40");
        close_all(s);
        s = go_on(overrides, in_test("run"));
        ck_assert_int_eq(tn_trainer_attempt(s->trainer), stop);
    }
    run_to_end(s);
    ck_assert_str_eq(files_in(in_test("run")), whole_files);
    close_all(whole);
    close_all(s);
}
END_TEST

START_TEST(a_metric_that_is_not_there_is_refused)
{
    static const char *const unknown[] = {"checkpoint={metric: f1}", NULL}, *const unused[] = {
                                                                                "checkpoint={metric: f1, best: 0}",
                                                                                NULL};
    tn_error err = {0};
    seen s;
    ck_assert_refused(begin(&s, unknown, NULL, &err), TN_E_INVALID, err, "checkpoint.metric is 'f1'", "loss, accuracy");
    tn_experiment_free(s.experiment);
    ck_ok(begin(&s, unused, NULL, &err), err);
    tn_trainer_close(s.trainer);
    tn_experiment_free(s.experiment);
}
END_TEST

/* ---- which are written ---- */

START_TEST(one_can_be_asked_for)
{
    static const char *const cases[][4] = {{"checkpoint={every: 100 steps}"}, {"checkpoint=none"}};
    seen *s = open_in(cases[_i], in_test("run"));
    s->ask_at = 4;
    s->ask = TN_ASK_CHECKPOINT;
    run_to_end(s);
    ck_assert_int_eq(tn_trainer_attempt(s->trainer), 14);
    ck_assert_str_eq(files_in(in_test("run")), _i ? "4" : "4 7 14");
    close_all(s);
}
END_TEST

/* Without a folder nothing is written; with one, and none wanted, neither. */
START_TEST(none_is_none)
{
    tn_error err = {0};
    seen *s = open_in((const char *const[]){"checkpoint=none", NULL}, in_test("run"));
    s->ask_at = 3;
    s->ask = TN_ASK_STOP;
    ck_assert_refused(tn_trainer_run(s->trainer, &err), TN_E_STOPPED, err, "stopped on request after 3 of 14 updates",
                      "checkpoint: none");
    ck_assert_int_ne(access(in_test("run/checkpoints"), F_OK), 0);
    close_all(s);
    s = open_in((const char *const[]){NULL}, NULL);
    run_to_end(s);
    close_all(s);
}
END_TEST

/* ---- which one a run goes on from ---- */

static void damage(const char *path, int how)
{
    struct stat stat_;
    ck_assert_int_eq(stat(path, &stat_), 0);
    if (how == 0)
        ck_assert_int_eq(truncate(path, stat_.st_size / 2), 0);
    if (how == 1)
        ck_assert_int_eq(truncate(path, 0), 0);
    if (how == 2) { /* one bit of the last tensor */
        FILE *f = fopen(path, "r+b");
        ck_assert(fseek(f, -3, SEEK_END) == 0);
        int byte = fgetc(f);
        ck_assert(fseek(f, -3, SEEK_END) == 0 && fputc(byte ^ 0x10, f) != EOF && fclose(f) == 0);
    }
    if (how == 3)
        write_text(path, "this was a checkpoint once");
    if (how == 4) {
        ck_assert_int_eq(unlink(path), 0);
        ck_assert_int_eq(mkdir(path, 0700), 0);
    }
}
#define DAMAGES 5

static const char *const steps_of_3[] = {"checkpoint={every: 3 steps, best: 0}", "sinks=none", NULL};

static void assert_same_files(const char *a, const char *b)
{
    static char bytes[2][1 << 20];
    size_t sizes[2];
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(i ? b : a, "rb");
        ck_assert_msg(f != NULL, "%s: %s", i ? b : a, strerror(errno));
        sizes[i] = fread(bytes[i], 1, sizeof bytes[i], f);
        fclose(f);
    }
    ck_assert_uint_lt(sizes[0], sizeof bytes[0]);
    ck_assert_uint_eq(sizes[0], sizes[1]);
    ck_assert(!memcmp(bytes[0], bytes[1], sizes[0]));
}

/* The two newest are damaged: the third is taken, with a warning for each, and the end is what it would have been. */
START_TEST(a_damaged_one_is_passed_over)
{
    char *checkpoint;
    tn_error err = {0};
    seen *s = open_in(steps_of_3, in_test("run"));
    run_to_end(s);
    ck_ok(tn_trainer_save(s->trainer, in_test("whole"), &err), err);
    close_all(s);
    ck_assert_str_eq(files_in(in_test("run")), "9 12 14");
    damage(checkpoint_file(in_test("run"), 14), _i);
    damage(checkpoint_file(in_test("run"), 12), (_i + 1) % DAMAGES);
    s = open_in(steps_of_3, NULL);
    ck_ok(tn_checkpoint_restore(s->trainer, in_test("run"), &checkpoint, &err), err);
    ck_assert_str_eq(checkpoint, checkpoint_file(in_test("run"), 9));
    ck_assert_int_eq(tn_trainer_attempt(s->trainer), 9);
    for (int attempt = 12; attempt <= 14; attempt += 2)
        ck_assert_msg(strstr(s->text, checkpoint_file(in_test("run"), attempt)) != NULL, "%s", s->text);
    ck_assert_msg(strstr(s->text, "can not be used") != NULL, "%s", s->text);
    if (_i < DAMAGES - 2) { /* else a folder lies where a checkpoint is to be written */
        ck_ok(tn_trainer_continue_in(s->trainer, in_test("run"), checkpoint, &err), err);
        run_to_end(s);
        assert_same_files(checkpoint_file(in_test("run"), 14), in_test("whole"));
    }
    tn_free(checkpoint);
    close_all(s);
}
END_TEST

START_TEST(when_none_is_whole_it_is_said)
{
    char *checkpoint;
    tn_error err = {0};
    seen *s = open_in(steps_of_3, in_test("run"));
    run_to_end(s);
    close_all(s);
    for (int attempt = 9; attempt <= 12; attempt += 3)
        damage(checkpoint_file(in_test("run"), attempt), 0);
    damage(checkpoint_file(in_test("run"), 14), 2);
    s = open_in(steps_of_3, NULL);
    ck_assert_refused(tn_checkpoint_restore(s->trainer, in_test("run"), &checkpoint, &err), TN_E_DATA, err,
                      checkpoint_file(in_test("run"), 14), "checksum");
    ck_assert_msg(strstr(err.msg, "of the older checkpoints none can be used") != NULL, "%s", err.msg);
    ck_assert_refused(tn_checkpoint_restore(s->trainer, in_test("nowhere"), &checkpoint, &err), TN_E_NOT_FOUND, err,
                      in_test("nowhere"), "no checkpoint is there");
    close_all(s);
}
END_TEST

/* What is not damage is not passed over: an older one of another experiment is none of this one either. */
/* A component has gained a row since the checkpoint was written: it has its default there too. */
START_TEST(rows_of_later_have_their_defaults)
{
    seen *s = open_in(steps_of_3, in_test("run"));
    char *row = strstr(s->experiment->resolved, ", weight_decay: ");
    ck_assert_ptr_nonnull(row);
    char *rest = row + strcspn(row + 2, ",}") + 2;
    memmove(row, rest, strlen(rest) + 1);
    run_to_end(s);
    close_all(s);
    close_all(go_on(steps_of_3, in_test("run")));
}
END_TEST

START_TEST(another_experiment_ends_the_search)
{
    char *checkpoint;
    tn_error err = {0};
    seen *s = open_in(steps_of_3, in_test("run"));
    run_to_end(s);
    close_all(s);
    s = open_in((const char *const[]){steps_of_3[0], "train.seed=77", NULL}, NULL);
    ck_assert_refused(tn_checkpoint_restore(s->trainer, in_test("run"), &checkpoint, &err), TN_E_INVALID, err,
                      checkpoint_file(in_test("run"), 14), "seed: 77");
    ck_assert_str_eq(s->text, "");
    close_all(s);
}
END_TEST

/* What a killed process left half-written goes; files of attempts yet to come are not counted among the last. */
START_TEST(leftovers_do_no_harm)
{
    tn_error err = {0};
    char temporary[2 * PATH_MAX];
    static const char *const overrides[] = {"checkpoint={every: 3 steps, keep: 1, best: 0}", NULL};
    seen *s = open_in(overrides, in_test("run"));
    s->ask_at = 7;
    s->ask = TN_ASK_STOP;
    ck_assert_int_eq(tn_trainer_run(s->trainer, &err), TN_E_STOPPED);
    close_all(s);
    ck_assert_str_eq(files_in(in_test("run")), "7");
    snprintf(temporary, sizeof temporary, "%s/checkpoints/.attempt-000000009.safetensors.new", in_test("run"));
    write_text(temporary, "half");
    write_text(checkpoint_file(in_test("run"), 12), "not whole");
    write_text(checkpoint_file(in_test("run"), 2), "the process ended before it was removed");
    s = go_on(overrides, in_test("run"));
    ck_assert_str_eq(files_in(in_test("run")), "7 12");
    ck_assert_int_ne(access(temporary, F_OK), 0);
    s->ask_at = 8;
    s->ask = TN_ASK_STOP;
    ck_assert_int_eq(tn_trainer_run(s->trainer, &err), TN_E_STOPPED);
    close_all(s);
    ck_assert_str_eq(files_in(in_test("run")), "8 12");
    s = go_on(overrides, in_test("run"));
    ck_assert_int_eq(tn_trainer_attempt(s->trainer), 8);
    run_to_end(s);
    close_all(s);
    ck_assert_str_eq(files_in(in_test("run")), "14");
}
END_TEST

/* ---- whose state it is (CKP-08) ---- */

/* A copy of a checkpoint, its tensors in the order they have or (`turned`) the other way round, with another text
 * behind `key` and a seal that fits. */
static void copy_checkpoint(const char *from, const char *to, int turned, const char *key, const char *text)
{
    tn_error err = {0};
    tn_safetensors *f;
    static tn_safetensors_note list[512];
    static char seal[20];
    size_t count = 0, n;
    ck_ok(tn_safetensors_open(from, &f, &err), err);
    tn_safetensors_note note;
    uint64_t sum = 0;
    for (void *at = NULL; (at = tn_safetensors_next_note(f, at, &note));) {
        if (!strcmp(note.key, key))
            note.text = text;
        if (strcmp(note.key, "xxh3") != 0)
            list[count++] = note;
    }
    for (size_t i = 0; i < count; i++)
        sum += XXH3_64bits_withSeed(list[i].text, strlen(list[i].text), XXH3_64bits(list[i].key, strlen(list[i].key)));
    snprintf(seal, sizeof seal, "%016llx", (unsigned long long)sum);
    list[count++] = (tn_safetensors_note){"xxh3", seal};
    n = tn_safetensors_count(f);
    tn_tensor *tensors = calloc(n, sizeof *tensors);
    tn_safetensors_entry *entries = calloc(n, sizeof *entries);
    for (size_t i = 0; i < n; i++) {
        const tn_safetensors_info *info = tn_safetensors_at(f, i);
        void *data = malloc((size_t)info->bytes + 1);
        ck_ok(tn_safetensors_read(f, info, 0, info->bytes, data, &err), err);
        tensors[i] = (tn_tensor){
            .data = data, .ndim = info->ndim, .dtype = info->dtype, .shape = (int64_t *)(uintptr_t)info->shape};
        entries[turned ? n - 1 - i : i] = (tn_safetensors_entry){info->name, &tensors[i]};
    }
    ck_ok(tn_safetensors_write(to, entries, n, list, count, &err), err);
    for (size_t i = 0; i < n; i++)
        free(tensors[i].data);
    free(tensors);
    free(entries);
    tn_safetensors_close(f);
}

/* CKP-07: state goes by names. Momenta of parameters of one shape stand in the file in another order: each gets its
 * own, and the next update is the same. */
START_TEST(state_goes_by_name_not_by_place)
{
    static const char *const overrides[] = {"model={use: mlp, widths: [8, 8, 8]}", "sinks=none",
                                            "update=[{use: sgd, as: rule, momentum: 0.9}]", NULL};
    char saved[PATH_MAX], turned[PATH_MAX];
    tn_error err = {0};
    tn_safetensors *files[2];
    snprintf(saved, sizeof saved, "%s", in_test("saved"));
    snprintf(turned, sizeof turned, "%s", in_test("turned"));
    seen *s = open_in(overrides, NULL), *o = open_in(overrides, NULL);
    for (int i = 0; i < 3; i++)
        ck_ok(tn_trainer_step(s->trainer, &err), err);
    ck_ok(tn_trainer_save(s->trainer, saved, &err), err);
    copy_checkpoint(saved, turned, 1, "", NULL);
    ck_ok(tn_safetensors_open(saved, &files[0], &err), err);
    ck_ok(tn_safetensors_open(turned, &files[1], &err), err);
    ck_assert_str_ne(tn_safetensors_at(files[0], 0)->name, tn_safetensors_at(files[1], 0)->name);
    for (int i = 0; i < 2; i++)
        tn_safetensors_close(files[i]);
    ck_ok(tn_trainer_restore(o->trainer, turned, &err), err);
    ck_ok(tn_trainer_step(s->trainer, &err), err);
    ck_ok(tn_trainer_step(o->trainer, &err), err);
    ck_ok(tn_trainer_save(s->trainer, saved, &err), err);
    ck_ok(tn_trainer_save(o->trainer, turned, &err), err);
    assert_same_files(saved, turned);
    close_all(s);
    close_all(o);
}
END_TEST

START_TEST(state_of_another_plugin_is_refused)
{
    char saved[PATH_MAX], other[PATH_MAX], newer[PATH_MAX];
    tn_error err = {0};
    snprintf(saved, sizeof saved, "%s", in_test("saved"));
    snprintf(other, sizeof other, "%s", in_test("other"));
    snprintf(newer, sizeof newer, "%s", in_test("newer"));
    seen *s = open_in((const char *const[]){NULL}, NULL);
    ck_ok(tn_trainer_step(s->trainer, &err), err);
    ck_ok(tn_trainer_save(s->trainer, saved, &err), err);
    copy_checkpoint(saved, other, 0, "plugin/update.rule", "com.example.adamw 0.1.0");
    copy_checkpoint(saved, newer, 0, "plugin/update.rule", "org.tenon.adamw 0.2.0");
    ck_assert_refused(tn_trainer_restore(s->trainer, other, &err), TN_E_INVALID, err, other,
                      "the state of update.rule is of the plugin com.example.adamw 0.1.0, found is org.tenon.adamw");
    ck_assert_msg(strstr(err.msg, "train.from") != NULL, "%s", err.msg);
    ck_assert_str_eq(s->text, "");
    ck_ok(tn_trainer_restore(s->trainer, newer, &err), err);
    ck_assert_msg(strstr(s->text, "update.rule is of org.tenon.adamw 0.2.0, and goes on with version 0.1.0") != NULL,
                  "%s", s->text);
    close_all(s);
}
END_TEST

/* CKP-08: adam's state is none of sgd's, and none of a model with a layer more, a layer less, or other sizes; refused
 * before the first update with the names. The option for a fresh state takes the parameters alone. */
START_TEST(another_state_is_refused_and_a_fresh_one_can_be_had)
{
    static const struct {
        const char *overrides[3], *said;
        int32_t status;
    } cases[] = {
        {{"update.rule=sgd"}, "of the plugin org.tenon.adamw 0.1.0, found is org.tenon.sgd", TN_E_INVALID},
        {{"model.widths=[24]"}, "not known here: clocks/hidden.1", TN_E_DATA},
        {{"model.widths=[24, 12, 6]"}, "missing: clocks/hidden.2", TN_E_DATA},
        {{"model.widths=[24, 13]"}, "of another shape or type: parameters/head.weight", TN_E_DATA},
    };
    char saved[PATH_MAX];
    tn_error err = {0};
    snprintf(saved, sizeof saved, "%s", in_test("saved"));
    seen *s = open_in((const char *const[]){NULL}, NULL);
    ck_ok(tn_trainer_step(s->trainer, &err), err);
    ck_ok(tn_trainer_save(s->trainer, saved, &err), err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        seen *o = open_in(cases[i].overrides, NULL);
        char disguised[PATH_MAX];
        snprintf(disguised, sizeof disguised, "%s", in_test("disguised"));
        ck_assert_refused(tn_trainer_restore(o->trainer, saved, &err), TN_E_INVALID, err, saved, "another experiment");
        copy_checkpoint(saved, disguised, 0, "experiment",
                        o->experiment->resolved); /* so that names are all that is left */
        ck_assert_refused(tn_trainer_restore(o->trainer, disguised, &err), cases[i].status, err, disguised,
                          cases[i].said);
        close_all(o);
    }
    seen fresh;
    ck_ok(begin(&fresh, (const char *const[]){"update.rule=sgd", "precision=f64", NULL}, saved, &err), err);
    const tn_parameters *a = tn_graph_parameters(tn_trainer_graph(s->trainer)),
                        *b = tn_graph_parameters(tn_trainer_graph(fresh.trainer));
    for (int64_t i = 0; i < a->count; i++)
        for (int64_t k = 0; k < a->list[i].n; k++)
            expect(((float *)a->p)[a->at[i] + k] == ((double *)b->p)[b->at[i] + k], "%s[%d]", a->list[i].name, (int)k);
    ck_assert_int_eq(tn_trainer_attempt(fresh.trainer), 0);
    ck_ok(tn_trainer_step(fresh.trainer, &err), err);
    tn_trainer_close(fresh.trainer);
    tn_experiment_free(fresh.experiment);
    ck_assert_refused(begin(&fresh, cases[3].overrides, saved, &err), TN_E_DATA, err, "train.from",
                      "has the shape [12, 24], needed [13, 24]");
    tn_experiment_free(fresh.experiment);
    ck_assert_refused(begin(&fresh, cases[2].overrides, saved, &err), TN_E_DATA, err, "train.from",
                      "holds no tensor 'hidden.2.linear.weight'");
    tn_experiment_free(fresh.experiment);
    ck_assert_refused(begin(&fresh, cases[2].overrides, in_test("nowhere"), &err), TN_E_NOT_FOUND, err, "train.from",
                      "nowhere");
    tn_experiment_free(fresh.experiment);
    close_all(s);
}
END_TEST

/* Batch-norm's statistics come along; averages start at the parameters that were read. */
START_TEST(statistics_and_averages_start_from_the_file)
{
    static const char *const overrides[] = {"model.normalizer=batchnorm", "+update=ema", NULL};
    tn_error err = {0};
    tn_safetensors *f;
    seen *s = open_in(overrides, NULL), fresh;
    for (int i = 0; i < 5; i++)
        ck_ok(tn_trainer_step(s->trainer, &err), err);
    ck_ok(tn_trainer_save(s->trainer, in_test("saved"), &err), err);
    ck_ok(begin(&fresh, overrides, in_test("saved"), &err), err);
    ck_assert_str_eq(fresh.text, "");
    ck_ok(tn_trainer_save(fresh.trainer, in_test("fresh"), &err), err);
    ck_ok(tn_safetensors_open(in_test("fresh"), &f, &err), err);
    const tn_graph_buffer *a, *b;
    size_t count = tn_graph_buffers(tn_trainer_graph(s->trainer), &a);
    ck_assert_uint_eq(count, tn_graph_buffers(tn_trainer_graph(fresh.trainer), &b));
    ck_assert_uint_gt(count, 0);
    for (size_t i = 0; i < count; i++)
        ck_assert_mem_eq(a[i].tensor.data, b[i].tensor.data, (size_t)a[i].tensor.shape[0] * sizeof(float));
    const tn_parameters *p = tn_graph_parameters(tn_trainer_graph(s->trainer));
    float average[24 * 64];
    const tn_safetensors_info *info = tn_safetensors_find(f, "update/ema/average/hidden.0.linear.weight");
    ck_assert_int_eq(info->bytes, sizeof average);
    ck_ok(tn_safetensors_read(f, info, 0, info->bytes, average, &err), err);
    ck_assert_mem_eq(average, (float *)p->p + p->at[0], sizeof average);
    tn_safetensors_close(f);
    tn_trainer_close(fresh.trainer);
    tn_experiment_free(fresh.experiment);
    close_all(s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("checkpoints");
    TCase *tests = tcase_create("checkpoints");
    tcase_set_timeout(tests, 100);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, the_last_stay_by_number, 0, 5);
    tcase_add_loop_test(tests, the_best_stay, 0, 2);
    tcase_add_loop_test(tests, the_best_are_known_after_a_stop, 0, 2);
    tcase_add_test(tests, a_metric_that_is_not_there_is_refused);
    tcase_add_loop_test(tests, one_can_be_asked_for, 0, 2);
    tcase_add_test(tests, none_is_none);
    tcase_add_loop_test(tests, a_damaged_one_is_passed_over, 0, DAMAGES);
    tcase_add_test(tests, when_none_is_whole_it_is_said);
    tcase_add_test(tests, another_experiment_ends_the_search);
    tcase_add_test(tests, rows_of_later_have_their_defaults);
    tcase_add_test(tests, leftovers_do_no_harm);
    tcase_add_test(tests, state_goes_by_name_not_by_place);
    tcase_add_test(tests, state_of_another_plugin_is_refused);
    tcase_add_test(tests, another_state_is_refused_and_a_fresh_one_can_be_had);
    tcase_add_test(tests, statistics_and_averages_start_from_the_file);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
