/* SPDX-License-Identifier: Apache-2.0
 *
 * It calls a function that nobody has.
 */
#define BAD_NAME "undefined-symbol"
int tenon_test_nobody_has_this(void);
#define BAD_BODY                                                                                                       \
    (void)err;                                                                                                         \
    return tenon_test_nobody_has_this() ? &bad_plugin : (const tn_plugin *)0;
#include "bad.h"
