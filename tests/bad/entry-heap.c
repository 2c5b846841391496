/* SPDX-License-Identifier: Apache-2.0
 *
 * Its record lies outside the file's own memory.
 */
#define BAD_NAME "entry-heap"
#include <stdlib.h>
#define BAD_BODY                                                                                                       \
    (void)err;                                                                                                         \
    static void *record;                                                                                               \
    if (!record)                                                                                                       \
        record = calloc(1, sizeof(tn_plugin));                                                                         \
    return (const tn_plugin *)record;
#include "bad.h"
