/* SPDX-License-Identifier: Apache-2.0
 *
 * Two layers have one name.
 */
#ifndef REPAIRED
#define MODEL_HEAD "first"
#endif
#include "model.h"
