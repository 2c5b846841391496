/* SPDX-License-Identifier: Apache-2.0
 *
 * It changes, by FAULT: 1 the umask, 2 the working directory, 3 the locale, 4 the environment, 5 a limit, 6 the open
 * files, 7 the thread's locale.
 */
#define BAD_NAME "load-process"
#include "bad.h"
#include <fcntl.h>
#include <locale.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#ifndef FAULT
#define FAULT 1
#endif
#ifndef REPAIRED
__attribute__((constructor)) static void at_load(void)
{
    struct rlimit limit = {64, 64};
    if (FAULT == 1)
        umask(0);
    else if (FAULT == 2 && chdir("/") != 0)
        abort();
    else if (FAULT == 3)
        setlocale(LC_ALL, "C.UTF-8");
    else if (FAULT == 4)
        setenv("TENON_TEST", "1", 1);
    else if (FAULT == 5)
        setrlimit(RLIMIT_NOFILE, &limit);
    else if (FAULT == 6 && open("/dev/null", O_RDONLY) < 0)
        abort();
    else if (FAULT == 7)
        uselocale(newlocale(LC_ALL_MASK, "C", NULL));
}
#endif
