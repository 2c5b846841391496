/* SPDX-License-Identifier: Apache-2.0
 *
 * Called again, its entry returns a copy of the record, or nothing (FAULT 2), or has changed it (FAULT 3).
 */
#define BAD_NAME "load-entry-twice"
#ifdef REPAIRED
#define BAD_BODY                                                                                                       \
    (void)err;                                                                                                         \
    return &bad_plugin;
#elif FAULT == 2
#define BAD_BODY                                                                                                       \
    static int calls;                                                                                                  \
    (void)err;                                                                                                         \
    return calls++ ? NULL : &bad_plugin;
#elif FAULT == 3
#define BAD_TABLE &changing
#define BAD_BODY                                                                                                       \
    (void)err;                                                                                                         \
    changing.constants_bytes += 8;                                                                                     \
    return &bad_plugin;
#include <tenon/optimizer.h>
static tn_optimizer changing;
#else
#define BAD_BODY                                                                                                       \
    static tn_plugin again;                                                                                            \
    static int calls;                                                                                                  \
    (void)err;                                                                                                         \
    again = bad_plugin;                                                                                                \
    return calls++ ? &again : &bad_plugin;
#endif
#include "bad.h"
#if FAULT == 3 && !defined REPAIRED
static tn_optimizer changing = {.struct_size = sizeof(tn_optimizer), .scale = bad_scale};
#endif
