/* SPDX-License-Identifier: Apache-2.0
 *
 * The default of a hyper-parameter lies outside its range.
 */
#define BAD_NAME "default-outside"
#define BAD_TEXT                                                                                                       \
    "{\"hyper\":[{\"name\":\"lr\",\"type\":\"real\",\"default\":\"-1\",\"range\":\"[0, inf)\",\"doc\":\"\"},null]}"
#include "bad.h"
