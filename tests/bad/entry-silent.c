/* SPDX-License-Identifier: Apache-2.0
 *
 * Its entry gives NULL and no error.
 */
#define BAD_NAME "entry-silent"
#define BAD_BODY                                                                                                       \
    (void)err;                                                                                                         \
    return (const tn_plugin *)0;
#include "bad.h"
