/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors.c: named tensors in a file.
 */
#include "host/store/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/base/memory.h"
#include "host/base/text.h"
#include "host/store/newfile.h"

#define METADATA   "__metadata__"
#define DATA_ALIGN 64

static const struct {
    const char *name;
    tn_dtype dtype;
} types[] = {
    {"F64", {TN_FLOAT, 64, 1}}, {"F32", {TN_FLOAT, 32, 1}}, {"F16", {TN_FLOAT, 16, 1}}, {"BF16", {TN_BFLOAT, 16, 1}},
    {"I64", {TN_INT, 64, 1}},   {"I32", {TN_INT, 32, 1}},   {"I16", {TN_INT, 16, 1}},   {"I8", {TN_INT, 8, 1}},
    {"U64", {TN_UINT, 64, 1}},  {"U32", {TN_UINT, 32, 1}},  {"U16", {TN_UINT, 16, 1}},  {"U8", {TN_UINT, 8, 1}},
};
#define TYPES (sizeof types / sizeof *types)

const char *tn_safetensors_type(tn_dtype dtype)
{
    for (size_t i = 0; i < TYPES; i++)
        if (memcmp(&types[i].dtype, &dtype, sizeof dtype) == 0)
            return types[i].name;
    return NULL;
}

/* Elements of a shape times `bytes`; -1 for one that can not be. */
static int64_t shape_bytes(const int64_t *shape, int32_t ndim, int64_t bytes)
{
    for (int32_t i = 0; i < ndim; i++)
        if (shape[i] < 0 || __builtin_mul_overflow(bytes, shape[i], &bytes))
            return -1;
    return bytes;
}

/* ---- writing ---- */

/* Sorted for the file: larger types first, else the caller's order. */
typedef struct {
    const tn_safetensors_entry *entry;
    size_t order;
    int64_t bytes;
} placed;

static int by_size(const void *a, const void *b)
{
    const placed *x = a, *y = b;
    int sizes = y->entry->tensor->dtype.bits - x->entry->tensor->dtype.bits;
    return sizes ? sizes : (x->order > y->order) - (x->order < y->order);
}

static int32_t place(const char *path, const tn_safetensors_entry *entries, size_t count, placed *list, tn_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const tn_tensor *tensor = entries[i].tensor;
        int fits = tensor->ndim >= 0 && tensor->ndim <= TN_MAX_DIMS && tn_safetensors_type(tensor->dtype);
        list[i] =
            (placed){&entries[i], i, fits ? shape_bytes(tensor->shape, tensor->ndim, tensor->dtype.bits / 8) : -1};
        if (list[i].bytes < 0)
            return tn_error_set(
                err, TN_E_INVALID,
                "%s: tensor '%s': a type of code %d with %d bits and %d lanes, or a shape of %d axes, "
                "can not be stored; needed U8 to U64, I8 to I64, F16, BF16, F32 or F64, at most %d axes",
                path, entries[i].name, tensor->dtype.code, tensor->dtype.bits, tensor->dtype.lanes, tensor->ndim,
                TN_MAX_DIMS);
    }
    qsort(list, count, sizeof *list, by_size);
    return TN_OK;
}

/* NULL: no memory. */
static json_t *entry_json(const tn_tensor *tensor, int64_t begin, int64_t bytes)
{
    json_t *shape = json_array();
    int failed = !shape;
    for (int32_t i = 0; i < tensor->ndim && !failed; i++)
        failed = json_array_append_new(shape, json_integer(tensor->shape[i])) != 0;
    if (failed) {
        json_decref(shape);
        return NULL;
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", tn_safetensors_type(tensor->dtype), "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)(begin + bytes));
}

static int32_t not_text(const char *path, const char *what, const char *name, tn_error *err)
{
    return tn_error_set(err, TN_E_INVALID, "%s: %s '%s' stands there twice, is reserved or no UTF-8", path, what, name);
}

static int32_t no_header_memory(const char *path, tn_error *err)
{
    return tn_error_set(err, TN_E_MEMORY, "%s: no memory for the header", path);
}

static int32_t build_header(const char *path, const placed *list, size_t count, const tn_safetensors_note *notes,
                            size_t note_count, json_t *root, tn_error *err)
{
    json_t *metadata = json_object(), *entry;
    int64_t at = 0;
    if (json_object_set_new(root, METADATA, metadata) != 0)
        return no_header_memory(path, err);
    for (size_t i = 0; i < note_count; i++)
        if (json_object_get(metadata, notes[i].key) ||
            json_object_set_new(metadata, notes[i].key, json_string(notes[i].text)) != 0)
            return not_text(path, "the note", notes[i].key, err);
    for (size_t i = 0; i < count; at += list[i++].bytes) {
        if (!(entry = entry_json(list[i].entry->tensor, at, list[i].bytes)))
            return no_header_memory(path, err);
        if (json_object_get(root, list[i].entry->name)) {
            json_decref(entry);
            return not_text(path, "tensor", list[i].entry->name, err);
        }
        if (json_object_set_new(root, list[i].entry->name, entry) != 0)
            return not_text(path, "tensor", list[i].entry->name, err);
    }
    return TN_OK;
}

/* Eight bytes of length and the header, padded with blanks. */
static int32_t write_header(tn_newfile *file, const json_t *root, tn_error *err)
{
    static const char blanks[DATA_ALIGN] = "                                                               ";
    char *text = json_dumps(root, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (!text)
        return no_header_memory(file->path, err);
    size_t bytes = strlen(text), padding = (DATA_ALIGN - (8 + bytes) % DATA_ALIGN) % DATA_ALIGN;
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)(bytes + padding) >> 8 * i);
    int32_t status = tn_newfile_write(file, length, sizeof length, err);
    if (status == TN_OK)
        status = tn_newfile_write(file, text, bytes, err);
    if (status == TN_OK)
        status = tn_newfile_write(file, blanks, padding, err);
    free(text);
    return status;
}

static int is_row_major(const tn_tensor *tensor)
{
    int64_t stride = 1;
    for (int32_t i = tensor->ndim - 1; tensor->strides && i >= 0; stride *= tensor->shape[i--])
        if (tensor->shape[i] != 1 && tensor->strides[i] != stride)
            return 0;
    return 1;
}

/* The elements in row-major order, a buffer at a time. */
static int32_t write_strided(tn_newfile *file, const tn_tensor *tensor, const char *data, int64_t elements,
                             tn_error *err)
{
    char buffer[8192];
    int64_t index[TN_MAX_DIMS] = {0}, size = tensor->dtype.bits / 8, offset = 0, used = 0;
    int32_t status = TN_OK;
    for (int64_t i = 0; i < elements && status == TN_OK; i++) {
        memcpy(buffer + used, data + offset * size, (size_t)size);
        used += size;
        if (used + size > (int64_t)sizeof buffer || i + 1 == elements) {
            status = tn_newfile_write(file, buffer, (size_t)used, err);
            used = 0;
        }
        for (int32_t axis = tensor->ndim - 1; axis >= 0; axis--) {
            offset += tensor->strides[axis];
            if (++index[axis] < tensor->shape[axis])
                break;
            offset -= tensor->strides[axis] * tensor->shape[axis];
            index[axis] = 0;
        }
    }
    return status;
}

static int32_t write_data(tn_newfile *file, const placed *list, size_t count, tn_error *err)
{
    int32_t status = TN_OK;
    for (size_t i = 0; i < count && status == TN_OK; i++) {
        const tn_tensor *tensor = list[i].entry->tensor;
        const char *data = list[i].bytes ? (const char *)tensor->data + tensor->byte_offset : NULL;
        if (list[i].bytes == 0 || is_row_major(tensor))
            status = tn_newfile_write(file, data, (size_t)list[i].bytes, err);
        else
            status = write_strided(file, tensor, data, list[i].bytes / (tensor->dtype.bits / 8), err);
    }
    return status;
}

static int32_t write_file(const char *path, const placed *list, size_t count, const json_t *root, tn_error *err)
{
    tn_newfile file;
    int32_t status = tn_newfile_open(path, &file, err);
    if (status == TN_OK)
        status = write_header(&file, root, err);
    if (status == TN_OK)
        status = write_data(&file, list, count, err);
    return tn_newfile_close(&file, status, err);
}

int32_t tn_safetensors_write(const char *path, const tn_safetensors_entry *entries, size_t count,
                             const tn_safetensors_note *notes, size_t note_count, tn_error *err)
{
    placed *list = tn_alloc(count + 1, sizeof *list);
    json_t *root = json_object();
    int32_t status = list && root ? TN_OK : tn_error_set(err, TN_E_MEMORY, "%s: no memory for the header", path);
    if (status == TN_OK)
        status = place(path, entries, count, list, err);
    if (status == TN_OK)
        status = build_header(path, list, count, notes, note_count, root, err);
    if (status == TN_OK)
        status = write_file(path, list, count, root, err);
    json_decref(root);
    tn_free(list);
    return status;
}

/* ---- reading ---- */

struct tn_safetensors {
    char *path;
    int fd;
    json_t *root; /* names and metadata point into it */
    int64_t data; /* where the data begins */
    int64_t size; /* of the data */
    tn_safetensors_info *list;
    size_t count;
    const tn_safetensors_info **by_name; /* [count] */
};

static int32_t bad(const tn_safetensors *file, tn_error *err, const char *what)
{
    return tn_error_set(err, TN_E_DATA, "%s: %s; it is damaged or no safetensors file", file->path, what);
}

static int32_t bad_tensor(const tn_safetensors *file, const char *name, tn_error *err, const char *what)
{
    return tn_error_set(err, TN_E_DATA, "%s: tensor '%.200s': %s; the file is damaged", file->path, name, what);
}

/* Bytes [at, at + count) of the file. */
static int32_t read_at(const tn_safetensors *file, int64_t at, int64_t count, void *to, tn_error *err)
{
    for (char *here = to; count > 0;) {
        ssize_t done = pread(file->fd, here, (size_t)(count < 1 << 30 ? count : 1 << 30), (off_t)at);
        if (done < 0 && errno != EINTR)
            return tn_error_set(err, TN_E_IO, "%s: can not read: %s", file->path, strerror(errno));
        if (done == 0)
            return tn_error_set(err, TN_E_DATA, "%s: ends at byte %" PRId64 ", before its data does", file->path, at);
        if (done > 0) {
            here += done;
            at += done;
            count -= done;
        }
    }
    return TN_OK;
}

static int32_t open_file(const char *path, tn_safetensors *file, tn_error *err)
{
    struct stat stat;
    if (!(file->path = tn_strdup(path)))
        return tn_error_set(err, TN_E_MEMORY, "no memory for a path");
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0 || fstat(file->fd, &stat) != 0)
        return tn_error_set(err, errno == ENOENT ? TN_E_NOT_FOUND : TN_E_IO, "%s: can not read: %s", path,
                            strerror(errno));
    if (!S_ISREG(stat.st_mode))
        return tn_error_set(err, TN_E_DATA, "%s: is no regular file", path);
    file->size = stat.st_size;
    return TN_OK;
}

/* The header's text as JSON; data and size are those of the data afterwards. */
static int32_t read_header(tn_safetensors *file, tn_error *err)
{
    unsigned char length[8];
    uint64_t bytes = 0;
    json_error_t error;
    if (file->size < 8)
        return bad(file, err, "it is shorter than the 8 bytes of a header's length");
    int32_t status = read_at(file, 0, 8, length, err);
    for (int i = 0; i < 8; i++)
        bytes |= (uint64_t)length[i] << 8 * i;
    if (status != TN_OK)
        return status;
    if (bytes > (uint64_t)TN_SAFETENSORS_HEADER_MAX || (int64_t)bytes > file->size - 8)
        return tn_error_set(err, TN_E_DATA,
                            "%s: says its header has %" PRIu64 " bytes, needed at most 100 MiB and what is there, "
                            "%" PRId64 "; it is cut short, damaged or no safetensors file",
                            file->path, bytes, file->size - 8);
    char *text = tn_alloc((size_t)bytes + 1, 1);
    if (!text)
        return tn_error_set(err, TN_E_MEMORY, "%s: no memory for its header", file->path);
    status = read_at(file, 8, (int64_t)bytes, text, err);
    if (status == TN_OK && !(file->root = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES, &error)))
        status =
            !error.text[0] /* the parser says nothing when it is out of memory */
                ? no_header_memory(file->path, err)
                : tn_error_set(err, TN_E_DATA, "%s: header: %s at byte %d; the file is damaged or no safetensors file",
                               file->path, error.text, error.position);
    tn_free(text);
    file->data = 8 + (int64_t)bytes;
    file->size -= file->data;
    return status == TN_OK && !json_is_object(file->root) ? bad(file, err, "its header is no JSON object") : status;
}

static int32_t read_metadata(const tn_safetensors *file, tn_error *err)
{
    const char *key;
    json_t *value, *metadata = json_object_get(file->root, METADATA);
    if (metadata && !json_is_object(metadata))
        return bad(file, err, "its " METADATA " is no JSON object");
    json_object_foreach(metadata, key, value)
        if (!json_is_string(value))
            return bad(file, err, "its " METADATA " holds what is no text");
    return TN_OK;
}

static int32_t read_shape(const tn_safetensors *file, const json_t *shape, tn_safetensors_info *info, tn_error *err)
{
    size_t axes = json_array_size(shape);
    if (!json_is_array(shape) || axes > TN_MAX_DIMS)
        return bad_tensor(file, info->name, err, "its shape is no list of at most 8 extents");
    info->ndim = (int32_t)axes;
    for (size_t i = 0; i < axes; i++) {
        const json_t *extent = json_array_get(shape, i);
        info->shape[i] = json_is_integer(extent) ? json_integer_value(extent) : -1;
        if (info->shape[i] < 0)
            return bad_tensor(file, info->name, err, "an extent of its shape is no integer from 0 on");
    }
    return TN_OK;
}

static int32_t read_type(const tn_safetensors *file, const json_t *type, tn_safetensors_info *info, tn_error *err)
{
    for (size_t i = 0; i < TYPES && json_is_string(type); i++)
        if (strcmp(types[i].name, json_string_value(type)) == 0) {
            info->dtype = types[i].dtype;
            return TN_OK;
        }
    return bad_tensor(file, info->name, err,
                      "its dtype is none of F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8");
}

static int32_t read_offsets(const tn_safetensors *file, const json_t *offsets, tn_safetensors_info *info, tn_error *err)
{
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return bad_tensor(file, info->name, err, "its data_offsets are no two integers");
    int64_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || end < begin || end > file->size)
        return bad_tensor(file, info->name, err, "its data_offsets do not lie within the file, which may be cut short");
    if (shape_bytes(info->shape, info->ndim, info->dtype.bits / 8) != end - begin)
        return bad_tensor(file, info->name, err, "its data_offsets do not fit dtype and shape");
    info->begin = file->data + begin;
    info->bytes = end - begin;
    return TN_OK;
}

static int32_t read_info(const tn_safetensors *file, const char *name, const json_t *object, tn_safetensors_info *info,
                         tn_error *err)
{
    info->name = name;
    if (!json_is_object(object) || json_object_size(object) != 3)
        return bad_tensor(file, name, err, "needed are dtype, shape and data_offsets, and nothing else");
    int32_t status = read_type(file, json_object_get(object, "dtype"), info, err);
    if (status == TN_OK)
        status = read_shape(file, json_object_get(object, "shape"), info, err);
    return status == TN_OK ? read_offsets(file, json_object_get(object, "data_offsets"), info, err) : status;
}

static int by_place(const void *a, const void *b)
{
    const tn_safetensors_info *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? -1 : 1) : strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const tn_safetensors_info *const *)a)->name, (*(const tn_safetensors_info *const *)b)->name);
}

/* Overlaps and holes, once the list is in the order of the data. */
static int32_t check_cover(const tn_safetensors *file, tn_error *err)
{
    int64_t at = file->data;
    for (size_t i = 0; i < file->count; at += file->list[i++].bytes)
        if (file->list[i].begin != at)
            return bad_tensor(file, file->list[i].name, err,
                              file->list[i].begin < at ? "its data overlaps another's"
                                                       : "there is a hole before its data");
    if (at != file->data + file->size)
        return tn_error_set(err, TN_E_DATA, "%s: %" PRId64 " bytes behind the last tensor; the file is damaged",
                            file->path, file->data + file->size - at);
    return TN_OK;
}

static int32_t read_infos(tn_safetensors *file, tn_error *err)
{
    const char *name;
    json_t *object;
    size_t room = json_object_size(file->root);
    int32_t status = TN_OK;
    file->list = tn_alloc(room + 1, sizeof *file->list);
    file->by_name = tn_alloc(room + 1, sizeof *file->by_name);
    if (!file->list || !file->by_name)
        return tn_error_set(err, TN_E_MEMORY, "%s: no memory for its header", file->path);
    json_object_foreach(file->root, name, object)
        if (status == TN_OK && strcmp(name, METADATA) != 0)
            status = read_info(file, name, object, &file->list[file->count++], err);
    if (status != TN_OK)
        return status;
    qsort(file->list, file->count, sizeof *file->list, by_place);
    for (size_t i = 0; i < file->count; i++)
        file->by_name[i] = &file->list[i];
    qsort(file->by_name, file->count, sizeof *file->by_name, by_name);
    return check_cover(file, err);
}

/* Names come from the file: whatever moves a terminal's cursor or ends a line becomes '?'. */
static void clean_message(tn_error *err)
{
    for (char *c = err ? err->msg : NULL; c && *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F)
            *c = '?';
}

int32_t tn_safetensors_open(const char *path, tn_safetensors **ret, tn_error *err)
{
    tn_safetensors *file = tn_alloc(1, sizeof *file);
    if (!file)
        return tn_error_set(err, TN_E_MEMORY, "%s: no memory to read it", path);
    file->fd = -1;
    int32_t status = open_file(path, file, err);
    if (status == TN_OK)
        status = read_header(file, err);
    if (status == TN_OK)
        status = read_metadata(file, err);
    if (status == TN_OK)
        status = read_infos(file, err);
    if (status == TN_OK) {
        *ret = file;
    } else {
        clean_message(err);
        tn_safetensors_close(file);
    }
    return status;
}

void tn_safetensors_close(tn_safetensors *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    json_decref(file->root);
    tn_free(file->path);
    tn_free(file->list);
    tn_free(file->by_name);
    tn_free(file);
}

size_t tn_safetensors_count(const tn_safetensors *file) { return file->count; }

const tn_safetensors_info *tn_safetensors_at(const tn_safetensors *file, size_t index) { return &file->list[index]; }

const tn_safetensors_info *tn_safetensors_find(const tn_safetensors *file, const char *name)
{
    const tn_safetensors_info key = {.name = name}, *at = &key;
    const tn_safetensors_info **found = bsearch(&at, file->by_name, file->count, sizeof *file->by_name, by_name);
    return found ? *found : NULL;
}

const char *tn_safetensors_note_of(const tn_safetensors *file, const char *key)
{
    return json_string_value(json_object_get(json_object_get(file->root, METADATA), key));
}

void *tn_safetensors_next_note(const tn_safetensors *file, void *at, tn_safetensors_note *ret)
{
    json_t *metadata = json_object_get(file->root, METADATA);
    at = at ? json_object_iter_next(metadata, at) : json_object_iter(metadata);
    if (at)
        *ret = (tn_safetensors_note){json_object_iter_key(at), json_string_value(json_object_iter_value(at))};
    return at;
}

const char *tn_safetensors_path(const tn_safetensors *file) { return file->path; }

int32_t tn_safetensors_read(const tn_safetensors *file, const tn_safetensors_info *info, int64_t at, int64_t count,
                            void *to, tn_error *err)
{
    if (at < 0 || count < 0 || at > info->bytes || count > info->bytes - at)
        return tn_error_set(err, TN_E_INVALID,
                            "%s: tensor '%s': asked for %" PRId64 " bytes from byte %" PRId64 " on of %" PRId64,
                            file->path, info->name, count, at, info->bytes);
    return read_at(file, info->begin + at, count, to, err);
}
