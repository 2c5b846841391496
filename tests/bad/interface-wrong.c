/* SPDX-License-Identifier: Apache-2.0
 *
 * Its table is of an interface that does not serve its kind.
 */
#define BAD_NAME      "interface-wrong"
#define BAD_INTERFACE "tenon.sink/0.2"
#include "bad.h"
