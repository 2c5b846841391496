/* SPDX-License-Identifier: Apache-2.0
 *
 * It was built for another draft of the interface.
 */
#define BAD_NAME      "draft-old"
#define BAD_INTERFACE "tenon.optimizer/0.0"
#include "bad.h"
