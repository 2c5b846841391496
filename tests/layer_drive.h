/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_drive.h: runs one layer by itself, as a strict host would: it records the plan, lends exactly what the contract
 * promises (NULL for what is not kept, NaN where nothing is promised, guard zones around all), cuts calls into pieces
 * in descending order and adds up partial gradients. Any failure of the harness itself aborts the test (libcheck).
 */
#ifndef TENON_TESTS_LAYER_DRIVE_H
#define TENON_TESTS_LAYER_DRIVE_H

#include <tenon/tangent.h>

#include "host/plugin/info.h"

#define DRIVE_PORTS 4 /* inputs, parameters, buffers or saved tensors at most */

typedef struct drive_tensor {
    tn_tensor view; /* contiguous; data inside `block`, 64-byte aligned */
    int64_t shape[TN_MAX_DIMS], strides[TN_MAX_DIMS];
    unsigned char *block;
    size_t bytes; /* of the data */
} drive_tensor;

/* All fields may be read and the numbers in tensors changed between calls. Tensors may not be moved. */
typedef struct drive {
    const tn_layer *layer;
    const tn_component_info *info;
    const void *hyper;
    uint32_t real;
    tn_context context;
    int64_t refresh; /* of further forward calls */

    int32_t inputs, parameters, buffers, saveds;
    drive_tensor x[DRIVE_PORTS], dx[DRIVE_PORTS], y, dy;
    drive_tensor parameter[DRIVE_PORTS], gradient[DRIVE_PORTS], buffer[DRIVE_PORTS], saved[DRIVE_PORTS];
    tn_weight weight[DRIVE_PORTS]; /* name and shape are not kept */
    char parameter_name[DRIVE_PORTS][32], buffer_name[DRIVE_PORTS][32];
    drive_tensor workspace; /* of bytes */
} drive;

/* Infers for `inputs` equal inputs of that shape and allocates: x, parameters and dy random, buffers at their start,
 * all else NaN. On a refusal returns its status with `err` filled and *ret empty. The caller frees with drive_free. */
int32_t drive_create(const tn_layer *layer, const tn_component_info *info, const void *hyper, int32_t inputs,
                     int32_t ndim, const int64_t *shape, drive *ret, tn_error *err);
/* Accepts an empty drive. */
void drive_free(drive *d);

/* From now on the batch has n rows, at most the planned number. */
void drive_batch(drive *d, int64_t n);

/* One call, cut into pieces of `extent` on the declared axis (0: one piece; for elements a multiple of 64). y, and in
 * training what is saved, are NaN before. `in_place`: y is x. */
void drive_forward(drive *d, uint32_t flags, int64_t extent, int in_place);

/* As above. dx is NaN before where TN_WANT_DX is set and lent as NULL where not; gradients without TN_ACCUMULATE are
 * NaN before. What is not kept is lent as NULL. `in_place`: dx is dy, which is lost. */
void drive_backward(drive *d, uint32_t flags, int64_t extent, int in_place);

/* Derivatives along a direction (tangent.h). x, parameter and dy are the direction, which the caller may change. */
typedef struct drive_along {
    drive_tensor x[DRIVE_PORTS], dx[DRIVE_PORTS], parameter[DRIVE_PORTS], gradient[DRIVE_PORTS], y, dy;
} drive_along;

/* A random direction for a drive. The caller frees it with drive_along_free. */
void drive_along_create(const drive *d, drive_along *ret);
void drive_along_free(drive_along *a);
/* After drive_forward: y~, NaN before. `zero_x`: x~ is lent as NULL. After that backward: dx~ and the gradients~, as
 * drive_backward does dx and gradients, x and y lent with data. */
void drive_tangent_forward(drive *d, drive_along *a, uint32_t flags, int64_t extent, int zero_x);
void drive_tangent_backward(drive *d, drive_along *a, uint32_t flags, int64_t extent, int zero_x);

/* Aborts the test if a byte outside a tensor changed since its creation. */
void drive_check_guards(const drive *d);

/* A tensor by itself, within guard zones; NaN. The caller frees it with drive_unmake. */
void drive_make(drive_tensor *t, tn_dtype dtype, int32_t ndim, const int64_t *shape);
void drive_unmake(drive_tensor *t);
void drive_check_guard(const drive_tensor *t, const char *what);

/* Numbers of real or int32 tensors. */
int64_t drive_elements(const drive_tensor *t);
double drive_get(const drive_tensor *t, int64_t i);
void drive_set(drive_tensor *t, int64_t i, double value);
/* Uniform in [lo, hi), from `key`. */
void drive_randomise(drive_tensor *t, uint64_t key, double lo, double hi);

/* What the note says: "rows" and so on; 1 if backward is lent that. */
const char *drive_axis(const drive *d);
int drive_keeps(const drive *d, const char *what);

#endif
