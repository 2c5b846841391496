/* SPDX-License-Identifier: Apache-2.0
 *
 * Linked with -z execstack.
 */
#define BAD_NAME "elf-executable-stack"
#include "bad.h"
