/* SPDX-License-Identifier: Apache-2.0
 *
 * It takes a signal for itself, or blocks one (FAULT 2).
 */
#define BAD_NAME "load-signals"
#include "bad.h"
#include <signal.h>
__attribute__((constructor)) static void at_load(void)
{
#ifdef REPAIRED
#elif FAULT == 2
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
#else
    signal(SIGFPE, SIG_IGN);
#endif
}
