/* SPDX-License-Identifier: Apache-2.0
 *
 * What is multiplied by zero learns nothing.
 */
#ifndef REPAIRED
#define MODEL_BETWEEN(builder, node)                                                                                   \
    if (node >= 0) {                                                                                                   \
        const tn_setting all = {"p", "1"};                                                                             \
        node = builder->layer(builder->host, "regularizer", "dropout", "none", &all, 1, &node, 1);                     \
    }
#endif
#include "model.h"
