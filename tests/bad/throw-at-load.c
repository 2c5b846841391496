/* SPDX-License-Identifier: Apache-2.0
 *
 * The record of throw-at-load.cpp.
 */
#define BAD_NAME "throw-at-load"
#include "bad.h"
