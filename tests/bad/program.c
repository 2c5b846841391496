/* SPDX-License-Identifier: Apache-2.0
 *
 * A program with the notes of a plugin: built as a position-independent one and as one at a fixed address.
 */
#define BAD_NAME "program"
#include "bad.h"
int main(void) { return tenon_plugin_v1(0) ? 0 : 1; }
