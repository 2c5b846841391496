/* SPDX-License-Identifier: Apache-2.0
 *
 * It was built for the next major of the contract.
 */
#define BAD_NAME "abi-major-new"
#include <tenon/plugin.h>
#undef TN_ABI_MAJOR
#define TN_ABI_MAJOR 2u
#include "bad.h"
