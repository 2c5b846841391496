/* SPDX-License-Identifier: Apache-2.0
 *
 * handle.h: what a handle of tenon.h holds. For the files that implement it.
 */
#ifndef TENON_HOST_HANDLE_H
#define TENON_HOST_HANDLE_H

#include "host/plugin/registry.h"
#include "host/tenon.h"

struct tenon {
    tn_log log;
    tn_registry *registry;
};

#endif
