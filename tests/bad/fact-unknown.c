/* SPDX-License-Identifier: Apache-2.0
 *
 * It states a fact that this host does not know.
 */
#define BAD_NAME "fact-unknown"
#define BAD_TEXT "{\"hyper\":[null],\"stage\":\"gradient\",\"teleports\":true}"
#include "bad.h"
