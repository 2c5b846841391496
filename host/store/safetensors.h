/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors.h: named tensors in a file, in the format of Hugging Face's safetensors 0.4: eight bytes of header length
 * N, N bytes of JSON {"__metadata__": {text: text}, name: {"dtype", "shape", "data_offsets": [begin, end]}}, then the
 * data, row-major and little-endian, without holes.
 *
 * Files are not trusted: whatever a header says is checked against the file before any of it is used.
 */
#ifndef TENON_HOST_STORE_SAFETENSORS_H
#define TENON_HOST_STORE_SAFETENSORS_H

#include "host/base/error.h"

#define TN_SAFETENSORS_HEADER_MAX ((int64_t)100 << 20) /* bytes, as in the format's own reader */

/* A tensor to be written: of any strides (NULL: row-major) and offset, up to TN_MAX_DIMS axes, of type U8 to U64, I8 to
 * I64, F16, BF16, F32 or F64, one lane. */
typedef struct tn_safetensors_entry {
    const char *name; /* UTF-8; unique; not "__metadata__" */
    const tn_tensor *tensor;
} tn_safetensors_entry;

typedef struct tn_safetensors_note {
    const char *key, *text; /* UTF-8; keys are unique */
} tn_safetensors_note;

/* Writes a file whole or not at all (newfile.h). The data begins at a multiple of 64 bytes and each tensor at one of
 * its type's size: those of larger types come first, else the order is kept. TN_E_INVALID for a type, a name or a key
 * that can not be written, TN_E_IO, TN_E_MEMORY. Everything is borrowed for the call. [main] */
int32_t tn_safetensors_write(const char *path, const tn_safetensors_entry *entries, size_t count,
                             const tn_safetensors_note *notes, size_t note_count, tn_error *err);

typedef struct tn_safetensors tn_safetensors;

/* One tensor of a file; lives as long as the open file. */
typedef struct tn_safetensors_info {
    const char *name;
    tn_dtype dtype;
    int32_t ndim;
    int64_t shape[TN_MAX_DIMS];
    int64_t begin, bytes; /* in the file */
} tn_safetensors_info;

/* Opens a file and reads its header. TN_E_DATA, naming file and field, for one that is truncated, has a header beyond
 * the file or TN_SAFETENSORS_HEADER_MAX, an unknown type, a shape that its bytes do not fit, tensors that overlap,
 * leave holes or lie outside, or a name twice; TN_E_NOT_FOUND, TN_E_IO, TN_E_MEMORY. The caller closes it. [main] */
int32_t tn_safetensors_open(const char *path, tn_safetensors **ret, tn_error *err);
/* Accepts NULL. */
void tn_safetensors_close(tn_safetensors *file);

size_t tn_safetensors_count(const tn_safetensors *file);
/* In the order of their data. */
const tn_safetensors_info *tn_safetensors_at(const tn_safetensors *file, size_t index);
/* NULL where there is none of that name. */
const tn_safetensors_info *tn_safetensors_find(const tn_safetensors *file, const char *name);
/* A text of the metadata, or NULL; lives as long as the open file. */
const char *tn_safetensors_note_of(const tn_safetensors *file, const char *key);
/* Goes through the metadata in the file's order: `at` is NULL for the first, then what the last call gave, which is
 * NULL behind the last one. */
void *tn_safetensors_next_note(const tn_safetensors *file, void *at, tn_safetensors_note *ret);
/* The path that it was opened with; lives as long as the open file. */
const char *tn_safetensors_path(const tn_safetensors *file);

/* Bytes [at, at + count) of a tensor's data into `to`. TN_E_DATA where the file has become shorter, TN_E_IO. [any] */
int32_t tn_safetensors_read(const tn_safetensors *file, const tn_safetensors_info *info, int64_t at, int64_t count,
                            void *to, tn_error *err);

/* "F32"; NULL for a type that the format does not have. */
const char *tn_safetensors_type(tn_dtype dtype);

#endif
