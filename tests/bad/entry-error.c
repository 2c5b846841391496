/* SPDX-License-Identifier: Apache-2.0
 *
 * Its entry gives an error.
 */
#define BAD_NAME "entry-error"
#define BAD_BODY return tn_fail(err, TN_E_UNSUPPORTED, "%s", "no licence server"), (const tn_plugin *)0;
#include "bad.h"
