/* SPDX-License-Identifier: Apache-2.0
 *
 * parameters.h: the parameters of a run and their arenas. One layout serves p, g and every like-shaped slot: parameter
 * i starts at element at[i], a multiple of TN_ALIGN_ELEMENTS, and the gap after its last element is padding that nobody
 * reads.
 */
#ifndef TENON_HOST_UPDATE_PARAMETERS_H
#define TENON_HOST_UPDATE_PARAMETERS_H

#include <tenon/optimizer.h>

#define TN_ALIGN_ELEMENTS 64

typedef struct tn_parameters {
    uint32_t real; /* 32 or 64 */
    int64_t count;
    tn_parameter *list; /* list[i].n elements are held here */
    int64_t *at;
    int64_t elements; /* of an arena, padding included */
    void *p;          /* elements of the real type, 64-byte aligned */
    void *g;
    /* Instead of the arenas p and g, where each parameter's slice begins: a caller's arrays, of any alignment, without
     * padding, as the codecs of tn_chain_options say. NULL: the arenas. at[] still lays out the slots. */
    void *const *p_of;
    void *const *g_of;
    uint8_t *present; /* per parameter: 1 if this step's gradient exists */
} tn_parameters;

#endif
