/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoints.c: the checkpoints of a run in its folder: which are written, which stay, which one a run goes on from.
 * The first process decides and names files, the others are told.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/store/safetensors.h"
#include "host/train/internal.h"

#define FOLDER    "checkpoints"
#define PREFIX    "attempt-"
#define SUFFIX    ".safetensors"
#define NAME_ROOM 64 /* bytes behind the folder's path, rank and all */

/* ---- names ---- */

/* The number in a checkpoint's name; -1 for another file. */
static int64_t number_of(const char *name)
{
    char *end;
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || name[strlen(PREFIX)] < '0' || name[strlen(PREFIX)] > '9')
        return -1;
    errno = 0;
    int64_t number = strtoll(name + strlen(PREFIX), &end, 10);
    return errno == 0 && strcmp(end, SUFFIX) == 0 ? number : -1;
}

/* RUN/checkpoints; TN_E_IO where a checkpoint's path would not fit. */
static int32_t folder_path(const char *folder, char ret[PATH_MAX], tn_error *err)
{
    int size = snprintf(ret, PATH_MAX, "%s/" FOLDER, folder);
    return size < PATH_MAX - NAME_ROOM ? TN_OK : tn_error_set(err, TN_E_IO, "%s: too long a path", folder);
}

static void checkpoint_path(const char *folder, int64_t attempt, char ret[PATH_MAX])
{
    snprintf(ret, PATH_MAX, "%.*s/" FOLDER "/" PREFIX "%09" PRId64 SUFFIX, PATH_MAX - NAME_ROOM, folder, attempt);
}

/* Calls `look` with the name of each file in RUN/checkpoints; none where that is missing. */
static int32_t look_through(const char *folder, void (*look)(void *arg, const char *folder, const char *name),
                            void *arg, tn_error *err)
{
    char path[PATH_MAX];
    int32_t status = folder_path(folder, path, err);
    DIR *dir = status == TN_OK ? opendir(path) : NULL;
    if (status == TN_OK && !dir && errno != ENOENT)
        return tn_error_set(err, TN_E_IO, "%s: can not read: %s", path, strerror(errno));
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        look(arg, path, entry->d_name);
    if (dir)
        closedir(dir);
    return status;
}

/* ---- which one is the last ---- */

/* The file of the largest number below `below`. */
typedef struct {
    int64_t below, number; /* -1: none */
    char *path;
    int32_t failed;
} search;

static void find_last(void *arg, const char *folder, const char *name)
{
    search *s = arg;
    int64_t number = number_of(name);
    if (number <= s->number || number >= s->below)
        return;
    s->number = number;
    tn_free(s->path);
    s->path = tn_format("%s/%s", folder, name);
    s->failed |= !s->path;
}

int32_t tn_checkpoint_before(const char *folder, int64_t below, int64_t *ret_number, char **ret, tn_error *err)
{
    search s = {.below = below, .number = -1};
    int32_t status = look_through(folder, find_last, &s, err);
    if (status == TN_OK && s.failed)
        status = tn_error_set(err, TN_E_MEMORY, "no memory for a path");
    if (status != TN_OK) {
        tn_free(s.path);
        return status;
    }
    *ret_number = s.number;
    *ret = s.path;
    return TN_OK;
}

static int32_t none_there(const char *folder, tn_error *err)
{
    return tn_error_set(err, TN_E_NOT_FOUND,
                        "%s/" FOLDER ": no checkpoint is there; runs write them with checkpoint: {every: 1 epoch}",
                        folder);
}

int32_t tn_checkpoint_last(const char *folder, char **ret, tn_error *err)
{
    int64_t number;
    char *path;
    int32_t status = tn_checkpoint_before(folder, INT64_MAX, &number, &path, err);
    if (status == TN_OK && !path)
        return none_there(folder, err);
    if (status == TN_OK)
        *ret = path;
    return status;
}

/* ---- which stay ---- */

/* Where the experiment's metric stands among the values of an evaluation. */
static size_t metric_index(const tn_trainer *t)
{
    size_t i = 0;
    while (i < t->metric_count && strcmp(t->e->checkpoint_metric, "loss") != 0 &&
           strcmp(t->e->checkpoint_metric, t->metrics[i]) != 0)
        i++;
    return strcmp(t->e->checkpoint_metric, "loss") == 0 ? 0 : i + 1;
}

int32_t tn_checkpoints_check_metric(const tn_trainer *t, tn_error *err)
{
    if (!t->e->checkpoint_metric || !t->e->eval_split || t->e->checkpoint_best == 0 ||
        metric_index(t) <= t->metric_count)
        return TN_OK;
    tn_text known = {0};
    tn_text_add(&known, "loss");
    for (size_t i = 0; i < t->metric_count; i++)
        tn_text_addf(&known, ", %s", t->metrics[i]);
    tn_error_set(err, TN_E_INVALID, "checkpoint.metric is '%s', which evaluations do not have; they have %s",
                 t->e->checkpoint_metric, tn_text_string(&known));
    tn_text_free(&known);
    return TN_E_INVALID;
}

/* The value by which the state now is judged: smaller is better; NaN without an evaluation of it. */
static double score_now(const tn_trainer *t)
{
    if (!t->e->eval_split || !t->e->checkpoint_metric || t->evaluated_at != t->attempt)
        return NAN;
    double value = t->eval_values[metric_index(t)];
    return t->e->checkpoint_mode ? -value : value;
}

/* How many of the others are better; of equal ones the earlier is. */
static int64_t rank_of(const tn_trainer *t, int64_t attempt, double score)
{
    int64_t rank = isnan(score) ? INT64_MAX : 0;
    for (size_t i = 0; i < t->kept_count && rank < INT64_MAX; i++)
        rank += t->kept[i].score < score || (t->kept[i].score == score && t->kept[i].attempt < attempt);
    return rank;
}

int32_t tn_checkpoint_is_best(const tn_trainer *t)
{
    return t->folder && rank_of(t, t->attempt, score_now(t)) < t->e->checkpoint_best;
}

/* Of several processes each has files; the first one's goes first, so what it leaves is never taken for a whole. */
static void remove_files(const tn_trainer *t, int64_t attempt)
{
    char path[PATH_MAX];
    checkpoint_path(t->folder, attempt, path);
    size_t length = strlen(path);
    if (unlink(path) != 0 && errno != ENOENT)
        tn_log_write(t->options.log, TN_LOG_WARNING, "%s: can not remove: %s", path, strerror(errno));
    for (int32_t rank = 1; rank < tn_comm_size(t->comm); rank++) {
        snprintf(path + length, sizeof path - length, ".rank-%d", rank);
        unlink(path);
    }
}

static int stays(const tn_trainer *t, size_t index)
{
    const tn_kept *k = &t->kept[index];
    int64_t newer = (int64_t)(t->kept_count - 1 - index);
    return t->e->checkpoint_keep == 0 || newer < t->e->checkpoint_keep ||
           rank_of(t, k->attempt, k->score) < t->e->checkpoint_best;
}

/* Removes what need not stay. The list is in the order of attempts. */
static void prune(tn_trainer *t)
{
    size_t left = 0, count = t->kept_count;
    for (size_t i = 0; i < count; i++)
        t->kept[i].stays = stays(t, i);
    for (size_t i = 0; i < count; i++) {
        if (t->kept[i].stays)
            t->kept[left++] = t->kept[i];
        else
            remove_files(t, t->kept[i].attempt);
    }
    t->kept_count = left;
}

static int by_attempt(const void *a, const void *b)
{
    const tn_kept *x = a, *y = b;
    return (x->attempt > y->attempt) - (x->attempt < y->attempt);
}

/* Takes a file into the list, or its new score. */
static int32_t keep(tn_trainer *t, int64_t attempt, double score, tn_error *err)
{
    const tn_kept now = {attempt, score, 1};
    tn_kept *found = t->kept_count ? bsearch(&now, t->kept, t->kept_count, sizeof now, by_attempt) : NULL;
    if (found) {
        found->score = score;
        return TN_OK;
    }
    if (tn_grow(&t->kept, &t->kept_room, t->kept_count, sizeof *t->kept) != TN_OK)
        return tn_error_set(err, TN_E_MEMORY, "no memory for the list of checkpoints");
    t->kept[t->kept_count++] = now;
    qsort(t->kept, t->kept_count, sizeof now, by_attempt);
    return TN_OK;
}

/* ---- writing ---- */

/* *ret is empty where there is no folder. */
static int32_t name_file(tn_trainer *t, char ret[PATH_MAX], tn_error *err)
{
    ret[0] = '\0';
    if (tn_comm_rank(t->comm) != 0 || !t->folder)
        return TN_OK;
    int32_t status = folder_path(t->folder, ret, err);
    if (status == TN_OK && mkdir(ret, 0777) != 0 && errno != EEXIST)
        status = tn_error_set(err, TN_E_IO, "%s: can not make the folder: %s", ret, strerror(errno));
    checkpoint_path(t->folder, t->attempt, ret);
    return status;
}

int32_t tn_checkpoint_write(tn_trainer *t, tn_error *err)
{
    char path[PATH_MAX];
    t->save = 0;
    int32_t status = tn_trainer_agree(t, name_file(t, path, err), err);
    if (status == TN_OK)
        status = tn_comm_broadcast(t->comm, path, sizeof path, 0, err);
    if (status != TN_OK || !*path)
        return status;
    status = tn_trainer_save(t, path, err);
    if (status == TN_OK && tn_comm_rank(t->comm) == 0)
        status = keep(t, t->attempt, score_now(t), err);
    status = tn_trainer_agree(t, status, err);
    if (status == TN_OK && tn_comm_rank(t->comm) == 0)
        prune(t);
    return status;
}

/* ---- going on ---- */

/* A word of the state in a file; 0 where there is none. */
static double number_in(const tn_safetensors *file, const char *name, int64_t index, int integer)
{
    const tn_safetensors_info *info = tn_safetensors_find(file, name);
    union {
        int64_t integer;
        double real;
    } word = {0};
    tn_error ignored;
    if (!info || info->dtype.bits != 64 || tn_safetensors_read(file, info, 8 * index, 8, &word, &ignored) != TN_OK)
        return NAN;
    return integer ? (double)word.integer : word.real;
}

/* The score of the state in a file; NaN where it can not be told, as in one that is damaged. TN_E_MEMORY. */
static int32_t score_in(const tn_trainer *t, const char *path, double *ret, tn_error *err)
{
    tn_safetensors *file;
    *ret = NAN;
    if (!t->e->eval_split || !t->e->checkpoint_metric)
        return TN_OK;
    int32_t status = tn_safetensors_open(path, &file, err);
    if (status != TN_OK)
        return status == TN_E_MEMORY ? status : TN_OK;
    double value = number_in(file, "run/evaluation", (int64_t)metric_index(t), 0);
    if (number_in(file, "run/evaluated_at", 0, 1) == number_in(file, "run/attempt", 0, 1))
        *ret = t->e->checkpoint_mode ? -value : value;
    tn_safetensors_close(file);
    return TN_OK;
}

typedef struct {
    tn_trainer *t;
    int32_t status;
    tn_error *err;
} listing;

/* Files of attempts that this run has yet to make are not its own: it will write them again. What a killed process
 * began to write goes. */
static void list_file(void *arg, const char *folder, const char *name)
{
    listing *l = arg;
    char path[PATH_MAX];
    int64_t number = number_of(name);
    size_t length = strlen(name);
    snprintf(path, sizeof path, "%.*s/%.255s", PATH_MAX - 300, folder, name);
    double score;
    if (number >= 0 && number <= l->t->attempt && l->status == TN_OK)
        l->status = score_in(l->t, path, &score, l->err);
    if (number >= 0 && number <= l->t->attempt && l->status == TN_OK)
        l->status = keep(l->t, number, score, l->err);
    if (strncmp(name, "." PREFIX, strlen("." PREFIX)) == 0 && length > 4 && strcmp(name + length - 4, ".new") == 0)
        unlink(path);
}

static int32_t length_of(const tn_safetensors *file, const tn_instance *sink, int64_t *ret, tn_error *err)
{
    char *key = tn_format("sink/%s", sink->path), *end = NULL;
    const char *text = key ? tn_safetensors_note_of(file, key) : NULL;
    errno = 0;
    *ret = text ? strtoll(text, &end, 10) : -1;
    int32_t status = key ? TN_OK : tn_error_set(err, TN_E_MEMORY, "no memory for a path");
    if (text && (errno || *end || *ret < 0))
        status =
            tn_error_set(err, TN_E_DATA, "checkpoint: the length of %s is \"%s\", needed a count of bytes", key, text);
    tn_free(key);
    return status;
}

static int32_t lengths_of(const tn_trainer *t, const char *checkpoint, int64_t *ret, tn_error *err)
{
    tn_safetensors *file;
    int32_t status = tn_safetensors_open(checkpoint, &file, err);
    if (status != TN_OK)
        return status;
    for (size_t i = 0; i < t->e->sink_count && status == TN_OK; i++)
        status = length_of(file, t->e->sinks[i], &ret[i], err);
    tn_safetensors_close(file);
    return status;
}

int32_t tn_trainer_continue_in(tn_trainer *t, const char *folder, const char *checkpoint, tn_error *err)
{
    listing l = {t, TN_OK, err};
    int64_t *lengths = tn_alloc(t->e->sink_count + 1, sizeof *lengths);
    t->folder = tn_strdup(folder);
    int32_t status = lengths && t->folder ? TN_OK : tn_error_set(err, TN_E_MEMORY, "no memory for a path");
    if (status == TN_OK)
        status = lengths_of(t, checkpoint, lengths, err);
    if (status == TN_OK)
        status = look_through(folder, list_file, &l, err);
    if (status == TN_OK)
        status = l.status;
    if (status == TN_OK)
        prune(t); /* the process may have ended between writing one and removing another */
    if (status == TN_OK)
        status = tn_record_open(t, folder, lengths, err);
    tn_free(lengths);
    return status;
}

/* Is this a failure of the file, so that an older one may do? */
static int is_damage(int32_t status) { return status == TN_E_DATA || status == TN_E_IO || status == TN_E_NOT_FOUND; }

/* What the first process has found out while it looks for a whole checkpoint. */
typedef struct {
    int64_t below; /* the number tried last */
    int32_t tried, done;
    tn_error newest; /* what the newest has, or what ended the search */
} attempts;

/* Chooses what all try next: empty for an end. */
static int32_t choose(const tn_trainer *t, const char *folder, attempts *a, char ret[PATH_MAX], tn_error *err)
{
    char *path = NULL;
    ret[0] = '\0';
    if (tn_comm_rank(t->comm) != 0 || a->done)
        return TN_OK;
    int32_t status = tn_checkpoint_before(folder, a->below, &a->below, &path, err);
    if (status == TN_OK && path && strlen(path) >= PATH_MAX)
        status = tn_error_set(err, TN_E_IO, "%s: too long a path", folder);
    if (status == TN_OK && path)
        strcpy(ret, path);
    tn_free(path);
    return status;
}

/* Hears what came of it. */
static void judge(const tn_trainer *t, attempts *a, int32_t status, const tn_error *why)
{
    a->done = status == TN_OK || !is_damage(status);
    if (a->tried++ == 0 || a->done)
        a->newest = *why;
    if (!a->done && tn_comm_rank(t->comm) == 0)
        tn_log_write(t->options.log, TN_LOG_WARNING, "a checkpoint can not be used: %s", why->msg);
}

static int32_t none_whole(const attempts *a, const char *folder, tn_error *err)
{
    if (a->tried == 0)
        return none_there(folder, err);
    return tn_error_set(err, a->newest.code, "%.800s%s", a->newest.msg,
                        a->tried > 1 ? "; of the older checkpoints none can be used" : "");
}

typedef int32_t restoring(tn_trainer *t, const char *path, tn_error *err);

/* The newest that is whole, by `restore`. */
static int32_t restore_newest(tn_trainer *t, const char *folder, restoring *restore, char **ret, tn_error *err)
{
    attempts a = {.below = INT64_MAX};
    char path[PATH_MAX];
    for (int32_t status = TN_E_DATA; status != TN_OK;) {
        status = tn_trainer_agree(t, choose(t, folder, &a, path, err), err);
        if (status == TN_OK)
            status = tn_comm_broadcast(t->comm, path, sizeof path, 0, err);
        if (status != TN_OK)
            return status;
        if (!*path)
            return none_whole(&a, folder, err);
        tn_error why = {0};
        status = restore(t, path, &why);
        judge(t, &a, status, &why);
    }
    *ret = tn_strdup(path);
    return *ret ? TN_OK : tn_error_set(err, TN_E_MEMORY, "no memory for a path");
}

int32_t tn_checkpoint_restore(tn_trainer *t, const char *folder, char **ret, tn_error *err)
{
    return restore_newest(t, folder, tn_trainer_restore, ret, err);
}

int32_t tn_checkpoint_load(tn_trainer *t, const char *folder, char **ret, tn_error *err)
{
    return restore_newest(t, folder, tn_trainer_load, ret, err);
}
