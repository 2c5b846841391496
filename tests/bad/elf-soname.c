/* SPDX-License-Identifier: Apache-2.0
 *
 * It has the soname of a library that the host uses.
 */
#define BAD_NAME "elf-soname"
#include "bad.h"
