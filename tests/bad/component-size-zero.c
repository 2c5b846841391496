/* SPDX-License-Identifier: Apache-2.0
 *
 * Its component record says a size of 0.
 */
#define BAD_NAME           "component-size-zero"
#define BAD_COMPONENT_SIZE 0
#include "bad.h"
