/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.c: the parameters' layout: checks, and the cuts at which work is handed to threads.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/update/internal.h"

static int32_t bad(const tn_parameters *parameters, int64_t i, tn_error *err, const char *what, int64_t found,
                   const char *needed)
{
    return tn_error_set(err, TN_E_INVALID, "parameter %" PRId64 " (%s): %s is %" PRId64 ", needed %s", i,
                        parameters->list[i].name, what, found, needed);
}

/* Elements of the logical tensor; -1 if its shape is none. */
static int64_t logical_elements(const tn_parameter *parameter)
{
    int64_t n = 1;
    if (parameter->ndim < 0 || parameter->ndim > TN_MAX_DIMS)
        return -1;
    for (int32_t j = 0; j < parameter->ndim; j++)
        if (parameter->shape[j] < 0 || __builtin_mul_overflow(n, parameter->shape[j], &n))
            return -1;
    return n;
}

static int32_t check_slice(const tn_parameters *parameters, int64_t i, tn_error *err)
{
    const tn_parameter *parameter = &parameters->list[i];
    int64_t whole = logical_elements(parameter), lo = parameter->lo, n = parameter->n;
    if (whole < 0)
        return bad(parameters, i, err, "the number of axes", parameter->ndim, "0 to 8, with extents of at least 0");
    if (lo < 0 || lo % TN_CHUNK)
        return bad(parameters, i, err, "lo", lo, "a multiple of the chunk, 4096");
    if (n < 0 || n > whole - lo)
        return bad(parameters, i, err, "n", n, "a slice of the shape's elements");
    if (n % TN_CHUNK && lo + n != whole)
        return bad(parameters, i, err, "n", n, "whole chunks of 4096 elements, or up to the end of the tensor");
    return TN_OK;
}

static int32_t check_place(const tn_parameters *parameters, int64_t i, int64_t end, tn_error *err)
{
    int64_t at = parameters->at[i], n = parameters->list[i].n;
    if (at < end || at % TN_ALIGN_ELEMENTS)
        return bad(parameters, i, err, "at", at, "a multiple of 64 behind the parameter before it");
    if (at + (n + TN_CHAIN_PAD - 1) / TN_CHAIN_PAD * TN_CHAIN_PAD > parameters->elements)
        return bad(parameters, i, err, "at", at, "an arena that holds it and its padding");
    return TN_OK;
}

static int by_name(const void *a, const void *b)
{
    const tn_parameter *x = *(const tn_parameter *const *)a, *y = *(const tn_parameter *const *)b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->lo > y->lo) - (x->lo < y->lo);
}

/* A tensor listed twice would be updated twice. */
static int32_t check_names(const tn_parameters *parameters, tn_error *err)
{
    size_t count = (size_t)parameters->count;
    const tn_parameter **sorted = tn_alloc(count, sizeof *sorted);
    int32_t status = TN_OK;
    if (!sorted)
        return tn_error_set(err, TN_E_MEMORY, "update: no memory to check %zu parameters", count);
    for (size_t i = 0; i < count; i++)
        sorted[i] = &parameters->list[i];
    qsort(sorted, count, sizeof *sorted, by_name);
    for (size_t i = 1; i < count && !status; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0 &&
            (sorted[i - 1]->lo == sorted[i]->lo || sorted[i - 1]->lo + sorted[i - 1]->n > sorted[i]->lo))
            status = tn_error_set(err, TN_E_INVALID,
                                  "parameter '%s' is listed twice, needed once; list a tied tensor under one name",
                                  sorted[i]->name);
    tn_free(sorted);
    return status;
}

int32_t tn_layout_check(const tn_parameters *parameters, tn_error *err)
{
    int64_t end = 0;
    if (parameters->real != 32 && parameters->real != 64)
        return tn_error_set(err, TN_E_INVALID, "parameters: the real type is %u, needed 32 or 64", parameters->real);
    for (int64_t i = 0; i < parameters->count; i++) {
        int32_t status = check_slice(parameters, i, err);
        if (!status)
            status = check_place(parameters, i, end, err);
        if (status)
            return status;
        end = parameters->at[i] + parameters->list[i].n;
    }
    return check_names(parameters, err);
}

/* Walks the elements and makes cuts; `cuts` NULL: only counts them. */
static int64_t make_cuts(const tn_parameters *parameters, int64_t stretch, tn_cut *cuts)
{
    int64_t count = 0, held = 0;
    for (int64_t i = 0; i < parameters->count; i++)
        for (int64_t at = 0, n = parameters->list[i].n, take; at < n; at += take) {
            take = (stretch - held + TN_CHUNK - 1) / TN_CHUNK * TN_CHUNK;
            take = take < n - at ? take : n - at;
            if (held == 0) {
                if (cuts)
                    cuts[count] = (tn_cut){i, at};
                count++;
            }
            held = held + take < stretch ? held + take : 0;
        }
    if (cuts)
        cuts[count] = (tn_cut){parameters->count, 0};
    return count;
}

int32_t tn_layout_cut(const tn_parameters *parameters, int64_t stretch, tn_cut **ret, int64_t *ret_count, tn_error *err)
{
    int64_t count = make_cuts(parameters, stretch, NULL);
    tn_cut *cuts = tn_alloc((size_t)count + 1, sizeof *cuts);
    if (!cuts)
        return tn_error_set(err, TN_E_MEMORY, "update: no memory for %" PRId64 " cuts", count + 1);
    make_cuts(parameters, stretch, cuts);
    *ret = cuts;
    *ret_count = count;
    return TN_OK;
}

void tn_layout_view(const tn_parameter *parameter, int64_t *ret_rows, int64_t *ret_columns)
{
    int64_t columns = 1;
    for (int32_t j = 1; j < parameter->ndim; j++)
        columns *= parameter->shape[j];
    *ret_rows = parameter->ndim < 2 ? 0 : parameter->shape[0];
    *ret_columns = parameter->ndim < 2 ? 0 : columns;
}

/* ---- bands ---- */

#define BAND_CHUNKS 16 /* of a band, at least, where the tensor has so many */
#define BAND_ROWS   8  /* so that the partial sums of the columns stay small beside the tensor */
#define BANDS       64 /* of a tensor, at most */

/* Chunks of each band of the whole tensor. */
static int64_t band_chunks(const tn_parameter *parameter)
{
    int64_t rows, columns, chunks = (logical_elements(parameter) + TN_CHUNK - 1) / TN_CHUNK, bands = BANDS;
    tn_layout_view(parameter, &rows, &columns);
    bands = chunks / BAND_CHUNKS < bands ? chunks / BAND_CHUNKS : bands;
    if (columns)
        bands = rows / BAND_ROWS < bands ? rows / BAND_ROWS : bands;
    return bands > 1 ? (chunks + bands - 1) / bands : chunks > 0 ? chunks : 1;
}

int64_t tn_layout_bands(const tn_parameter *parameter)
{
    int64_t size = band_chunks(parameter) * TN_CHUNK;
    return parameter->n ? (parameter->lo + parameter->n - 1) / size - parameter->lo / size + 1 : 0;
}

tn_part tn_layout_band(const tn_parameter *parameter, int64_t index)
{
    int64_t size = band_chunks(parameter) * TN_CHUNK, end = parameter->lo + parameter->n;
    int64_t from = (parameter->lo / size + index) * size, to = tn_smaller(from + size, end);
    from = from > parameter->lo ? from : parameter->lo;
    return (tn_part){.at = from - parameter->lo, .n = to - from};
}
