/* SPDX-License-Identifier: Apache-2.0
 *
 * It calls what no library that it is linked to has: the program happens to have it loaded, or nobody has it (FAULT 2).
 */
#define BAD_NAME "elf-undefined-symbols"
#ifdef REPAIRED
#define BAD_BODY                                                                                                       \
    (void)err;                                                                                                         \
    return &bad_plugin;
#elif FAULT == 2
int tenon_test_nobody_has_this(void);
#define BAD_BODY                                                                                                       \
    (void)err;                                                                                                         \
    return tenon_test_nobody_has_this() ? NULL : &bad_plugin;
#else
void *json_true(void);
#define BAD_BODY                                                                                                       \
    (void)err;                                                                                                         \
    return json_true() ? &bad_plugin : NULL;
#endif
#include "bad.h"
