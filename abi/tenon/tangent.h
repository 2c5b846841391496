/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/tangent.h: derivatives along a direction, for products with the Hessian (Pearlmutter 1994, "Fast exact
 * multiplication by the Hessian"). Of a quantity q, q~ is its derivative while the parameters move along a direction;
 * the host carries q~ beside q through forward and backward.
 *
 * Both functions see the layer's call as forward and backward saw it, on the layer's own axis, after it was made: x, y
 * and saved tensors hold what forward left. Nothing is in place. They must reproduce what the same random numbers gave,
 * and allow other pieces as forward and backward do. Axis rows: `gradient` is the piece's partial.
 */
#ifndef TENON_TANGENT_H
#define TENON_TANGENT_H

#include <tenon/layer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn_tangent_call {
    uint32_t struct_size;
    uint32_t reserved;
    const tn_layer_call *call;  /* in backward: dx and gradient without data */
    const tn_tensor *x;         /* x~; data NULL: zero */
    const tn_tensor *parameter; /* the direction */
    const tn_tensor *y;         /* y~: forward sets it; backward reads it */
    const tn_tensor *dy;        /* dy~, backward */
    const tn_tensor *dx;        /* dx~, to be set; data NULL: not wanted */
    const tn_tensor *gradient;  /* of the parameter gradients, to be set; TN_ACCUMULATE as in tn_layer_call */
} tn_tangent_call;
TN_AT(tn_tangent_call, call, 8);
TN_AT(tn_tangent_call, dx, 48);
TN_SIZE(tn_tangent_call, 64);

/* What tn_layer.tangents points to. */
typedef struct tn_layer_tangents {
    uint32_t struct_size;
    uint32_t reserved;
    void (*forward)(const tn_tangent_call *call);  /* y~ from x~ and the direction [piece] */
    void (*backward)(const tn_tangent_call *call); /* dx~ and gradient~ from x~, the direction and dy~ [piece] */
} tn_layer_tangents;
TN_SIZE(tn_layer_tangents, 24);

#ifdef __cplusplus
}
#endif
#endif
