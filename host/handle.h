/* SPDX-License-Identifier: Apache-2.0
 *
 * handle.h: what a handle of tenon.h holds. For the files that implement it.
 */
#ifndef TENON_HOST_HANDLE_H
#define TENON_HOST_HANDLE_H

#include "host/base/text.h"
#include "host/plugin/registry.h"
#include "host/tenon.h"

struct tenon {
    tn_log log;
    tn_registry *registry;
};

/* With `status` TN_OK hands the text over as *ret, which the caller of the API frees with tenon_free; else, or if that
 * fails, *ret stays. Frees `text` either way. Returns `status` or TN_E_MEMORY. [any] */
int32_t tn_handle_give(tn_text *text, int32_t status, char **ret, tn_error *err);

/* The resolved experiment in the folder of a run, freed with tn_free. TN_E_NOT_FOUND where that is none; TN_E_MEMORY.
 * [any] */
int32_t tn_handle_experiment_of(const char *folder, char **ret, tn_error *err);

#endif
