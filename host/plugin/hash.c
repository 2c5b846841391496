/* SPDX-License-Identifier: Apache-2.0
 *
 * hash.c: what tells one build of a file from another.
 */
#include "host/plugin/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY /* the hash's state lies in memory of ours */
#include <xxhash.h>

#include "host/base/memory.h"

#define BUFFER_BYTES ((size_t)1 << 16)

static int32_t read_through(int fd, const char *path, XXH3_state_t *state, char *buffer, tn_error *err)
{
    ssize_t got;
    XXH3_128bits_reset(state);
    while ((got = read(fd, buffer, BUFFER_BYTES)) != 0) {
        if (got > 0)
            XXH3_128bits_update(state, buffer, (size_t)got);
        else if (errno != EINTR)
            return tn_error_set(err, TN_E_IO, "%s: can not read: %s", path, strerror(errno));
    }
    return TN_OK;
}

int32_t tn_hash_file(const char *path, char ret[TN_HASH_TEXT], tn_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return tn_error_set(err, TN_E_IO, "%s: can not read: %s", path, strerror(errno));
    XXH3_state_t *state = tn_alloc_aligned(sizeof *state);
    char *buffer = tn_alloc(BUFFER_BYTES, 1);
    int32_t status = state && buffer ? read_through(fd, path, state, buffer, err)
                                     : tn_error_set(err, TN_E_MEMORY, "%s: no memory to read it", path);
    if (status == TN_OK) {
        XXH128_hash_t hash = XXH3_128bits_digest(state);
        snprintf(ret, TN_HASH_TEXT, "%016" PRIx64 "%016" PRIx64, hash.high64, hash.low64);
    }
    close(fd);
    tn_free(state);
    tn_free(buffer);
    return status;
}
