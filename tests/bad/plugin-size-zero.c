/* SPDX-License-Identifier: Apache-2.0
 *
 * Its record says a size of 0.
 */
#define BAD_NAME        "plugin-size-zero"
#define BAD_PLUGIN_SIZE 0
#include "bad.h"
