/* SPDX-License-Identifier: Apache-2.0
 *
 * environment.h: what a run ran on: the machine, the libraries, and each plugin file that was used, by its hash. It is
 * what one needs to make the same numbers again.
 */
#ifndef TENON_HOST_STORE_ENVIRONMENT_H
#define TENON_HOST_STORE_ENVIRONMENT_H

#include "host/plugin/registry.h"

/* What only the run knows; the rest is found out. */
typedef struct tn_environment {
    const char *version;        /* of tenon */
    tn_registry *registry;      /* whose loaded components are the ones used */
    const char *backend;        /* the backend's own line: library, version, flavour, core; NULL: none */
    int32_t threads, processes; /* of the run */
    int64_t attempt;            /* that it begins with */
} tn_environment;

/* Writes environment.json into the folder of a run that begins. Of one that goes on environment-N.json, N being its
 * attempt, with a warning in the log for each plugin, backend and processor that is another than in environment.json.
 * TN_E_IO, TN_E_MEMORY. [main] */
int32_t tn_environment_write(const tn_environment *environment, const char *folder, int32_t goes_on, const tn_log *log,
                             tn_error *err);

#endif
