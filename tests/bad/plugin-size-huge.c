/* SPDX-License-Identifier: Apache-2.0
 *
 * Its record says a size that leaves the file's memory.
 */
#define BAD_NAME        "plugin-size-huge"
#define BAD_PLUGIN_SIZE 0xfffffff8u
#include "bad.h"
