/* SPDX-License-Identifier: Apache-2.0
 *
 * file.h: for fuzz targets whose subject opens files by name: files in memory.
 */
#ifndef TENON_TESTS_FUZZ_FILE_H
#define TENON_TESTS_FUZZ_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define FUZZ_FILES 4

/* Makes `data` the whole of file `which`, from 0; returns its name, which never changes. */
static inline const char *fuzz_file(int which, const void *data, size_t size)
{
    static struct {
        int fd;
        char path[32];
    } files[FUZZ_FILES];
    if (!files[which].path[0]) {
        files[which].fd = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(files[which].path, sizeof files[which].path, "/proc/self/fd/%d", files[which].fd);
    }
    if (ftruncate(files[which].fd, 0) != 0 || pwrite(files[which].fd, data, size, 0) != (ssize_t)size)
        abort();
    return files[which].path;
}

#endif
