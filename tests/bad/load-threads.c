/* SPDX-License-Identifier: Apache-2.0
 *
 * Its entry leaves a thread running; with the fault repaired it waits for its end.
 */
#define BAD_NAME "load-threads"
#include <pthread.h>
#include <unistd.h>
static void *work(void *unused)
{
#ifndef REPAIRED
    for (;;)
        pause();
#endif
    return unused;
}
#ifdef REPAIRED
#define END pthread_join(thread, NULL);
#else
#define END pthread_detach(thread);
#endif
#define BAD_BODY                                                                                                       \
    static pthread_t thread;                                                                                           \
    (void)err;                                                                                                         \
    if (!thread && pthread_create(&thread, NULL, work, NULL) == 0) {                                                   \
        END                                                                                                            \
    }                                                                                                                  \
    return &bad_plugin;
#include "bad.h"
