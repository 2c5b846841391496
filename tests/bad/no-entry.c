/* SPDX-License-Identifier: Apache-2.0
 *
 * It exports a function of another name.
 */
#define BAD_NAME  "no-entry"
#define BAD_ENTRY tenon_plugin_v0
#include "bad.h"
