/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix.h: what the tests of matrix rules share: golden values in and out of a world, linear layers, taps, products.
 */
#ifndef TENON_TESTS_MATRIX_H
#define TENON_TESTS_MATRIX_H

#include "host/base/compute.h"
#include "tests/component.h"
#include "tests/update.h"

/* ---- products ---- */

typedef struct products {
    tn_instance *library;
    tn_backend backend;
    tn_compute_host host;
    tn_compute compute;
} products;

static inline void products_open(products *c, tn_pool *pool)
{
    c->library = component_open("backend", "reference", 0, &c->backend, sizeof c->backend);
    c->host = (tn_compute_host){.backend = &c->backend, .pool = pool};
    c->compute = tn_compute_open(&c->host);
}

/* ---- golden values ---- */

static inline double number(const json_t *list, size_t i) { return json_real_value(json_array_get(list, i)); }

static inline void put_all(world *w, void *arena, int64_t i, const json_t *list)
{
    ck_assert_int_eq((int64_t)json_array_size(list), w->list[i].n);
    for (int64_t j = 0; j < w->list[i].n; j++)
        world_put(w, arena, i, j, number(list, (size_t)j));
}

static inline void expect_all(const world *w, const void *arena, int64_t i, const json_t *right, double allowed,
                              const char *what)
{
    for (int64_t j = 0; j < w->list[i].n; j++) {
        double found = world_get(w, arena, i, j), needed = number(right, (size_t)j);
        expect(fabs(found - needed) <= allowed, "%s f%u, parameter %d, element %d: %.17g, needed %.17g", what,
               w->parameters.real, (int)i, (int)j, found, needed);
    }
}

/* ---- linear layers ---- */

static inline void add_linear(world *w, const char *layer, int64_t rows, int64_t columns)
{
    const int64_t shape[] = {rows, columns};
    world_slice(w, 2, shape, 0, -1);
    w->list[w->parameters.count - 1].layer = layer;
    world_slice(w, 1, shape, 0, -1);
    w->list[w->parameters.count - 1].layer = layer;
    w->list[w->parameters.count - 1].role = TN_ROLE_BIAS;
}

static inline void put_pair(world *w, void *arena, int64_t weight, const json_t *pair)
{
    put_all(w, arena, weight, json_object_get(pair, "w"));
    put_all(w, arena, weight + 1, json_object_get(pair, "b"));
}

static inline void expect_pair(const world *w, int64_t weight, const json_t *pair, double allowed)
{
    expect_all(w, w->parameters.p, weight, json_object_get(pair, "w"), allowed, "kfac");
    expect_all(w, w->parameters.p, weight + 1, json_object_get(pair, "b"), allowed, "kfac");
}

typedef void tap_sink(void *user, int64_t weight, const tn_tensor *x, const tn_tensor *dy, double seed);

/* Rows lo to lo + n of golden taps, as one micro-batch whose gradients carry `seed`. */
static inline void golden_tap(const world *w, int64_t weight, const json_t *taps, int64_t lo, int64_t n, double seed,
                              tap_sink *sink, void *user)
{
    const tn_parameter *p = &w->list[weight];
    int64_t extents[2][2] = {{n, p->shape[1]}, {n, p->shape[0]}}, strides[2][2];
    _Alignas(64) double data[2][64];
    tn_tensor t[2];
    for (int k = 0; k < 2; k++) {
        const json_t *list = json_object_get(taps, k ? "dy" : "x");
        int64_t columns = extents[k][1];
        for (int64_t i = 0; i < n * columns; i++) {
            double value = number(list, (size_t)(lo * columns + i)) * (k ? seed : 1);
            if (w->parameters.real == 64)
                data[k][i] = value;
            else
                ((float *)data[k])[i] = (float)value;
        }
        strides[k][0] = columns;
        strides[k][1] = 1;
        t[k] = (tn_tensor){.data = data[k],
                           .device = {TN_CPU, 0},
                           .ndim = 2,
                           .dtype = {TN_FLOAT, (uint8_t)w->parameters.real, 1},
                           .shape = extents[k],
                           .strides = strides[k]};
    }
    sink(user, weight, &t[0], &t[1], seed);
}

#endif
