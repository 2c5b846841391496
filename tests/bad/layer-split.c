/* SPDX-License-Identifier: Apache-2.0
 *
 * A form's note says that y of a part is whole, and it is a sum that is owed.
 */
#ifndef REPAIRED
#define LINEAR_ROW_Y "whole"
#endif
#include "linear.h"
