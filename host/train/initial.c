/* SPDX-License-Identifier: Apache-2.0
 *
 * initial.c: parameters that a run starts with, from a file: a checkpoint of another run, or any safetensors file with
 * tensors of the parameters' names. The update's state is fresh.
 */
#include <string.h>

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/store/safetensors.h"
#include "host/train/internal.h"

/* A parameter or a buffer, and where it lies, row-major in the real type. */
typedef struct {
    const char *name, *prefix; /* in a checkpoint it is called prefix/name */
    void *data;
    uint32_t bits;
    int32_t ndim;
    const int64_t *shape;
    int64_t elements;
} target;

static const tn_safetensors_info *find(const tn_safetensors *file, const target *at, tn_error *err)
{
    char *name = tn_format("%s/%s", at->prefix, at->name);
    if (!name) {
        tn_error_set(err, TN_E_MEMORY, "no memory for a name");
        return NULL;
    }
    const tn_safetensors_info *info = tn_safetensors_find(file, name);
    tn_free(name);
    return info ? info : tn_safetensors_find(file, at->name);
}

static int32_t check_fit(const char *path, const target *at, const tn_safetensors_info *info, tn_error *err)
{
    if (info->dtype.code != TN_FLOAT || (info->dtype.bits != 32 && info->dtype.bits != 64))
        return tn_error_set(err, TN_E_DATA, "%s: tensor '%s' is of type %s, needed F32 or F64", path, info->name,
                            tn_safetensors_type(info->dtype));
    if (info->ndim == at->ndim && !memcmp(info->shape, at->shape, (size_t)at->ndim * sizeof *at->shape))
        return TN_OK;
    tn_text text = {0};
    for (int32_t i = 0; i < info->ndim; i++)
        tn_text_addf(&text, "%s%lld", i ? ", " : "", (long long)info->shape[i]);
    tn_text_add(&text, "], needed [");
    for (int32_t i = 0; i < at->ndim; i++)
        tn_text_addf(&text, "%s%lld", i ? ", " : "", (long long)at->shape[i]);
    tn_error_set(err, TN_E_DATA, "%s: tensor '%s' has the shape [%s]: it is of another model", path, info->name,
                 tn_text_string(&text));
    tn_text_free(&text);
    return TN_E_DATA;
}

/* Fills `at`, between F32 and F64 with rounding. */
static int32_t take(const tn_safetensors *file, const tn_safetensors_info *info, const target *at, tn_error *err)
{
    if (info->dtype.bits == at->bits)
        return tn_safetensors_read(file, info, 0, info->bytes, at->data, err);
    void *from = tn_alloc((size_t)info->bytes + 1, 1);
    int32_t status = from ? tn_safetensors_read(file, info, 0, info->bytes, from, err)
                          : tn_error_set(err, TN_E_MEMORY, "no memory for tensor '%s'", info->name);
    for (int64_t i = 0; i < at->elements && status == TN_OK; i++) {
        if (at->bits == 64)
            ((double *)at->data)[i] = ((float *)from)[i];
        else
            ((float *)at->data)[i] = (float)((double *)from)[i];
    }
    tn_free(from);
    return status;
}

static int32_t take_parameters(tn_trainer *t, const tn_safetensors *file, const char *path, tn_error *err)
{
    const tn_parameters *all = tn_graph_parameters(t->graph);
    int32_t status = TN_OK;
    for (int64_t i = 0; i < all->count && status == TN_OK; i++) {
        const tn_parameter *p = &all->list[i];
        const target at = {p->name,  "parameters", (char *)all->p + all->at[i] * (all->real / 8), all->real, p->ndim,
                           p->shape, p->n};
        const tn_safetensors_info *info = find(file, &at, err);
        if (!info)
            return tn_error_set(err, TN_E_DATA, "%s: holds no tensor '%s': it is of another model", path, p->name);
        status = check_fit(path, &at, info, err);
        if (status == TN_OK)
            status = take(file, info, &at, err);
    }
    return status;
}

/* Statistics of layers, as far as the file has them. */
static int32_t take_buffers(tn_trainer *t, const tn_safetensors *file, const char *path, tn_error *err)
{
    const tn_graph_buffer *buffers;
    size_t count = tn_graph_buffers(t->graph, &buffers);
    int32_t status = TN_OK;
    for (size_t i = 0; i < count && status == TN_OK; i++) {
        const tn_tensor *b = &buffers[i].tensor;
        target at = {buffers[i].name, "buffers/train", b->data, b->dtype.bits, b->ndim, b->shape, 1};
        for (int32_t axis = 0; axis < b->ndim; axis++)
            at.elements *= b->shape[axis];
        const tn_safetensors_info *info = find(file, &at, err);
        if (!info)
            tn_log_write(t->options.log, TN_LOG_WARNING, "%s: holds no '%s'; it starts as in a new run", path, at.name);
        else if ((status = check_fit(path, &at, info, err)) == TN_OK)
            status = take(file, info, &at, err);
    }
    return status;
}

int32_t tn_initial_load(tn_trainer *t, const char *path, tn_error *err)
{
    tn_safetensors *file;
    int32_t status = tn_safetensors_open(path, &file, err);
    if (status != TN_OK)
        return tn_error_wrap(err, status, "train.from");
    status = take_parameters(t, file, path, err);
    if (status == TN_OK)
        status = take_buffers(t, file, path, err);
    tn_safetensors_close(file);
    return status == TN_OK ? TN_OK : tn_error_wrap(err, status, "train.from");
}
