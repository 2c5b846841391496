/* SPDX-License-Identifier: Apache-2.0
 *
 * Nothing is wrong with it.
 */
#define BAD_NAME "good-one"
#include "bad.h"
