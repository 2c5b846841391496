/* SPDX-License-Identifier: Apache-2.0
 *
 * Linked with -z execstack; with FAULT 2 without a word about the stack.
 */
#define BAD_NAME "elf-executable-stack"
#include "bad.h"
