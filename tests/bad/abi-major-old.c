/* SPDX-License-Identifier: Apache-2.0
 *
 * It was built for a major of the contract before the first.
 */
#define BAD_NAME "abi-major-old"
#include <tenon/plugin.h>
#undef TN_ABI_MAJOR
#define TN_ABI_MAJOR 0u
#include "bad.h"
