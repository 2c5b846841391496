/* SPDX-License-Identifier: Apache-2.0
 *
 * Does not come back from being loaded.
 */
#define BAD_NAME "sleep-at-load"
#include <unistd.h>

#include "bad.h"

__attribute__((constructor)) static void at_load(void)
{
    for (;;)
        pause();
}
