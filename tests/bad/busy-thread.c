/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts a thread that never ends and leaves a handler for the end of the process: it must stay mapped.
 */
#define BAD_NAME "busy-thread"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static void *busy(void *counter)
{
    for (;;) {
        ++*(volatile long *)counter;
        usleep(100);
    }
    return NULL;
}
static void at_end(void) {}
#define BAD_BODY                                                                                                       \
    static pthread_t thread;                                                                                           \
    static long counter;                                                                                               \
    (void)err;                                                                                                         \
    if (!thread) {                                                                                                     \
        pthread_create(&thread, NULL, busy, &counter);                                                                 \
        pthread_detach(thread);                                                                                        \
        atexit(at_end);                                                                                                \
    }                                                                                                                  \
    return &bad_plugin;
#include "bad.h"
