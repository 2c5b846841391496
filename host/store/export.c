/* SPDX-License-Identifier: Apache-2.0
 *
 * export.c: the parameters of a run for other programs.
 */
#include "host/store/export.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <xxhash.h>

#include "host/base/memory.h"
#include "host/base/text.h"
#include "host/experiment/experiment.h"
#include "host/store/safetensors.h"
#include "host/train/trainer.h"
#include "host/update/operand.h"

#define FORMAT "tenon.parameters/0.1"

/* A tensor on its way: `data` is owned. */
typedef struct {
    const char *name; /* of the checkpoint's own */
    tn_tensor tensor;
    int64_t shape[TN_MAX_DIMS];
    void *data;
} moved;

typedef struct {
    const tn_export_options *options;
    const char *path; /* of the checkpoint */
    tn_safetensors *file;
    tn_experiment *experiment; /* NULL: not needed */
    char *view;                /* "update/ema/average/"; NULL: parameters as they are */
    tn_codec codec;
    tn_codec_use codec_use; /* of parameters that stand there as bytes */
    moved *list;
    size_t count, room;
    int64_t elements;
} export;

static int32_t no_memory(tn_error *err) { return tn_error_set(err, TN_E_MEMORY, "no memory for an export"); }

/* What follows the prefix, or NULL. */
static const char *after(const char *name, const char *prefix)
{
    size_t length = strlen(prefix);
    return strncmp(name, prefix, length) ? NULL : name + length;
}

/* ---- what the experiment says ---- */

static int has_prefix(const tn_safetensors *file, const char *prefix)
{
    size_t i = 0, count = tn_safetensors_count(file);
    while (i < count && !after(tn_safetensors_at(file, i)->name, prefix))
        i++;
    return i < count;
}

/* The last link that keeps a view of any parameter, as the chain takes it. */
static int32_t find_view(export *x, tn_error *err)
{
    const tn_experiment *e = x->experiment;
    for (size_t i = e->update_count; i-- > 0 && !x->options->train;) {
        const char *slot = tn_fact_text(e->update[i]->info->facts, "view", NULL);
        char *prefix = slot ? tn_format("update/%s/%s/", e->update[i]->handle, slot) : NULL;
        if (slot && !prefix)
            return no_memory(err);
        if (prefix && has_prefix(x->file, prefix)) {
            x->view = prefix;
            return TN_OK;
        }
        tn_free(prefix);
    }
    return TN_OK;
}

static int32_t read_experiment(export *x, tn_error *err)
{
    const char *text = tn_safetensors_note_of(x->file, "experiment");
    int32_t status =
        tn_experiment_parse(x->options->registry, x->path, text, strlen(text), NULL, 0, &x->experiment, err);
    if (status == TN_OK)
        status = find_view(x, err);
    if (status == TN_OK && x->experiment->storage && !x->experiment->master)
        status = tn_codec_open(x->options->registry, x->experiment->storage, &x->codec, &x->codec_use, err);
    return status;
}

/* ---- one tensor ---- */

static int32_t check(const export *x, const tn_safetensors_info *info, const void *data, tn_error *err)
{
    char found[20], *key = tn_format("xxh3/%s", info->name);
    const char *saved = key ? tn_safetensors_note_of(x->file, key) : NULL;
    tn_free(key);
    if (!key)
        return no_memory(err);
    snprintf(found, sizeof found, "%016" PRIx64, XXH3_64bits(data, (size_t)info->bytes));
    if (saved && strcmp(saved, found) == 0)
        return TN_OK;
    return tn_error_set(err, TN_E_DATA, "%s: tensor '%s' has the checksum %s, needed %s; the file is damaged", x->path,
                        info->name, found, saved ? saved : "one");
}

static int32_t load(const export *x, const tn_safetensors_info *info, void **ret, tn_error *err)
{
    void *data = tn_alloc((size_t)info->bytes + 1, 1);
    int32_t status = data ? tn_safetensors_read(x->file, info, 0, info->bytes, data, err) : no_memory(err);
    if (status == TN_OK)
        status = check(x, info, data, err);
    if (status == TN_OK)
        *ret = data;
    else
        tn_free(data);
    return status;
}

/* "[24, 64]"; -1 for what is none. */
static int32_t read_shape(const char *text, int64_t *ret, int64_t *ret_elements)
{
    int32_t ndim = 0;
    char *end = (char *)text + (*text == '[');
    *ret_elements = 1;
    while (*text == '[' && *end != ']' && ndim < TN_MAX_DIMS) {
        ret[ndim] = strtoll(end, &end, 10);
        if (ret[ndim] < 0 || (*end != ',' && *end != ']') || (*end == ',' && end[1] != ' ') ||
            __builtin_mul_overflow(*ret_elements, ret[ndim], ret_elements))
            return -1;
        ndim++;
        end += *end == ',' ? 2 : 0;
    }
    return strcmp(end, "]") == 0 ? ndim : -1;
}

/* What a codec stored becomes elements of the real type again. */
static int32_t decode(const export *x, const tn_safetensors_info *info, moved *to, tn_error *err)
{
    static const tn_context context = {sizeof(tn_context), 0, 0, 0, 0, NULL};
    uint32_t real = x->experiment->real;
    int64_t n = 0;
    char *key = tn_format("shape/%s", to->name);
    const char *shape = key ? tn_safetensors_note_of(x->file, key) : NULL;
    tn_free(key);
    to->tensor.ndim = shape && x->codec_use.table ? read_shape(shape, to->shape, &n) : -1;
    if (to->tensor.ndim < 0 || n > info->bytes * 8 || tn_codec_bytes(&x->codec, real, n) != info->bytes)
        return tn_error_set(err, TN_E_DATA, "%s: tensor '%s' is %" PRId64 " bytes of a codec, its shape is %s", x->path,
                            info->name, info->bytes, shape ? shape : "not noted");
    void *data = tn_alloc_aligned((size_t)n * (real / 8) + 64);
    if (!data)
        return no_memory(err);
    tn_operand stored = tn_operand_stored(real, &x->codec_use, 0, to->data, NULL, 0, n, 0, &context);
    tn_operand_read(&stored, 0, n, data);
    tn_free(to->data);
    to->data = data;
    to->tensor.dtype = (tn_dtype){TN_FLOAT, (uint8_t)real, 1};
    return TN_OK;
}

static int32_t take(export *x, const tn_safetensors_info *info, const char *name, tn_error *err)
{
    if (tn_grow(&x->list, &x->room, x->count, sizeof *x->list) != TN_OK)
        return no_memory(err);
    moved *to = &x->list[x->count];
    *to = (moved){.name = name, .tensor = {.device = {TN_CPU, 0}, .ndim = info->ndim, .dtype = info->dtype}};
    memcpy(to->shape, info->shape, sizeof to->shape);
    int32_t status = load(x, info, &to->data, err);
    if (status != TN_OK)
        return status;
    x->count++;
    return info->dtype.code == TN_FLOAT ? TN_OK : decode(x, info, to, err);
}

/* ---- all of them ---- */

/* The view's tensor where there is one; parameters that its link is not on are evaluated as they are. */
static int32_t take_parameter(export *x, const tn_safetensors_info *info, const char *name, tn_error *err)
{
    char *key = x->view ? tn_format("%s%s", x->view, name) : NULL;
    const tn_safetensors_info *seen = key ? tn_safetensors_find(x->file, key) : NULL;
    tn_free(key);
    if (x->view && !key)
        return no_memory(err);
    return take(x, seen ? seen : info, name, err);
}

static int64_t counter(const export *x, const char *name)
{
    int64_t value = -1;
    tn_error ignored;
    const tn_safetensors_info *info = tn_safetensors_find(x->file, name);
    if (!info || info->bytes != 8 || tn_safetensors_read(x->file, info, 0, 8, &value, &ignored) != TN_OK)
        return -1;
    return value;
}

/* Statistics of the view's own are those of the last evaluation. */
static const char *buffers_of(const export *x)
{
    int64_t evaluated = counter(x, "run/evaluated_at");
    if (!x->view || x->experiment->eval_refresh == 0 || evaluated < 0)
        return "buffers/train/";
    if (evaluated != counter(x, "run/attempt"))
        tn_log_write(x->options->log, TN_LOG_WARNING,
                     "%s: the running statistics of the averaged parameters are those of the evaluation at attempt "
                     "%" PRId64,
                     x->path, evaluated);
    return "buffers/eval/";
}

static int32_t take_all(export *x, tn_error *err)
{
    int32_t status = TN_OK;
    const char *buffers = NULL;
    for (size_t i = 0; i < tn_safetensors_count(x->file) && status == TN_OK; i++) {
        const tn_safetensors_info *info = tn_safetensors_at(x->file, i);
        const char *parameter = after(info->name, "parameters/"), *buffer = after(info->name, "buffers/");
        if (buffer && !buffers)
            buffers = buffers_of(x);
        if (parameter)
            status = take_parameter(x, info, parameter, err);
        else if (buffer && (buffer = after(info->name, buffers)))
            status = take(x, info, buffer, err);
    }
    return status;
}

/* ---- the file ---- */

static int32_t write(export *x, const char *file, tn_error *err)
{
    char attempt[24], updates[24];
    tn_safetensors_entry *entries = tn_alloc(x->count + 1, sizeof *entries);
    if (!entries)
        return no_memory(err);
    for (size_t i = 0; i < x->count; i++) {
        int64_t elements = 1;
        x->list[i].tensor.data = x->list[i].data;
        x->list[i].tensor.shape = x->list[i].shape;
        entries[i] = (tn_safetensors_entry){x->list[i].name, &x->list[i].tensor};
        for (int32_t a = 0; a < x->list[i].tensor.ndim; a++)
            elements *= x->list[i].shape[a];
        x->elements += elements;
    }
    snprintf(attempt, sizeof attempt, "%" PRId64, counter(x, "run/attempt"));
    snprintf(updates, sizeof updates, "%" PRId64, counter(x, "run/update"));
    const tn_safetensors_note notes[] = {{"format", FORMAT},
                                         {"tenon", x->options->version},
                                         {"view", x->view ? "eval" : "train"},
                                         {"attempt", attempt},
                                         {"updates", updates},
                                         {"experiment", tn_safetensors_note_of(x->file, "experiment")}};
    int32_t status = tn_safetensors_write(file, entries, x->count, notes, sizeof notes / sizeof *notes, err);
    tn_free(entries);
    return status;
}

static int32_t refuse_same(const char *path, const char *file, tn_error *err)
{
    struct stat a, b;
    if (stat(path, &a) != 0 || stat(file, &b) != 0 || a.st_dev != b.st_dev || a.st_ino != b.st_ino)
        return TN_OK;
    return tn_error_set(err, TN_E_INVALID, "%s: is the checkpoint itself; name another file to write", file);
}

/* Where the file goes, through links, so that a link stays one; it takes the place of a file or of nothing. */
static int32_t find_place(const char *file, char **ret, tn_error *err)
{
    struct stat found;
    char real[PATH_MAX];
    int there = stat(file, &found) == 0;
    if (!*file)
        return tn_error_set(err, TN_E_INVALID, "the file to write has an empty name; give one");
    if (there && S_ISDIR(found.st_mode))
        return tn_error_set(err, TN_E_INVALID, "%s: is a folder; name a file to write, such as %s/model.safetensors",
                            file, file);
    if (there && !S_ISREG(found.st_mode))
        return tn_error_set(err, TN_E_INVALID,
                            "%s: is no regular file, and a regular one would take its place; name "
                            "another file to write",
                            file);
    if (there && !realpath(file, real))
        return tn_error_set(err, TN_E_IO, "%s: can not follow: %s", file, strerror(errno));
    *ret = tn_strdup(there ? real : file);
    return *ret ? TN_OK : no_memory(err);
}

static int32_t convert(export *x, const char *file, tn_error *err)
{
    char *place = NULL;
    int32_t status = find_place(file, &place, err);
    if (status == TN_OK)
        status = tn_safetensors_open(x->path, &x->file, err);
    if (status == TN_OK)
        status = tn_checkpoint_check_format(x->file, x->path, err);
    if (status == TN_OK)
        status = read_experiment(x, err);
    if (status == TN_OK)
        status = take_all(x, err);
    if (status == TN_OK)
        status = refuse_same(x->path, file, err);
    if (status == TN_OK)
        status = write(x, place, err);
    tn_free(place);
    return status;
}

static void release(export *x)
{
    for (size_t i = 0; i < x->count; i++)
        tn_free(x->list[i].data);
    tn_free(x->list);
    tn_free(x->view);
    tn_experiment_free(x->experiment);
    tn_safetensors_close(x->file);
}

static int32_t export_one(const tn_export_options *options, const char *path, const char *file, tn_exported *ret,
                          tn_error *err)
{
    export x = {.options = options, .path = path};
    int32_t status = convert(&x, file, err);
    if (status == TN_OK) {
        *ret = (tn_exported){.file = tn_strdup(file),
                             .checkpoint = tn_strdup(path),
                             .averaged = x.view != NULL,
                             .attempt = counter(&x, "run/attempt"),
                             .updates = counter(&x, "run/update"),
                             .tensors = (int64_t)x.count,
                             .elements = x.elements};
        if (!ret->file || !ret->checkpoint) {
            tn_exported_free(ret);
            status = no_memory(err);
        }
    }
    release(&x);
    return status;
}

/* The newest that can be used; of a folder without, what the first one failed with. */
static int32_t export_newest(const tn_export_options *options, const char *file, tn_exported *ret, tn_error *err)
{
    tn_error newest = {0};
    int64_t number = INT64_MAX;
    for (;;) {
        char *path = NULL;
        tn_error why = {0};
        int32_t status = tn_checkpoint_before(options->run, number, &number, &path, err);
        if (status != TN_OK)
            return status;
        if (!path && newest.code)
            return tn_error_set(err, newest.code, "%s", newest.msg);
        if (!path)
            return tn_checkpoint_last(options->run, &path, err); /* which says that there is none */
        status = export_one(options, path, file, ret, &why);
        tn_free(path);
        if (status == TN_OK)
            return status;
        if (status != TN_E_DATA)
            return tn_error_set(err, status, "%s", why.msg);
        tn_log_write(options->log, TN_LOG_WARNING, "a checkpoint can not be used: %s", why.msg);
        newest = newest.code ? newest : why;
    }
}

int32_t tn_export(const tn_export_options *options, tn_exported *ret, tn_error *err)
{
    struct stat found;
    if (stat(options->run, &found) != 0)
        return tn_error_set(err, TN_E_NOT_FOUND, "%s: %s; needed the folder of a run, or a checkpoint", options->run,
                            strerror(errno));
    int is_file = !S_ISDIR(found.st_mode);
    if (is_file && !options->file)
        return tn_error_set(err, TN_E_INVALID, "%s: is a file; name the one to write behind it", options->run);
    char *file = options->file ? tn_strdup(options->file) : tn_format("%s/model.safetensors", options->run);
    if (!file)
        return no_memory(err);
    int32_t status =
        is_file ? export_one(options, options->run, file, ret, err) : export_newest(options, file, ret, err);
    tn_free(file);
    return status;
}

void tn_exported_free(tn_exported *exported)
{
    tn_free(exported->file);
    tn_free(exported->checkpoint);
    *exported = (tn_exported){0};
}
