/* SPDX-License-Identifier: Apache-2.0
 *
 * It needs a newer host of the same major.
 */
#define BAD_NAME "abi-minor-new"
#include <tenon/sdk.h>
#undef TN_ABI_TARGET
#define TN_ABI_TARGET 77u
#include "bad.h"
