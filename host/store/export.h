/* SPDX-License-Identifier: Apache-2.0
 *
 * export.h: the parameters of a run for other programs: a safetensors file with plain names, made from a checkpoint.
 */
#ifndef TENON_HOST_STORE_EXPORT_H
#define TENON_HOST_STORE_EXPORT_H

#include "host/base/log.h"
#include "host/plugin/registry.h"

typedef struct tn_export_options {
    tn_registry *registry; /* to read the run's experiment by: which slot is the eval view, which codec stores */
    const tn_log *log;
    const char *version; /* of tenon, for the metadata */
    const char *run;     /* folder of a run, or a checkpoint */
    const char *file;    /* to write; NULL: model.safetensors in the run's folder */
    int32_t train;       /* 1: the parameters as they are; 0: their view for evaluation where a link keeps one */
} tn_export_options;

typedef struct tn_exported {
    char *file, *checkpoint; /* freed by tn_exported_free */
    int32_t averaged;        /* 1: the eval view */
    int64_t attempt, updates, tensors, elements;
} tn_exported;

/* Writes it, whole or not at all, from the newest checkpoint that is whole, with a warning for each that is not. In the
 * real type of the run. Metadata: format, tenon, view, attempt, updates, experiment. TN_E_NOT_FOUND without a
 * checkpoint, TN_E_DATA without a whole one, TN_E_INVALID, TN_E_PLUGIN, TN_E_IO, TN_E_MEMORY. [main] */
int32_t tn_export(const tn_export_options *options, tn_exported *ret, tn_error *err);
void tn_exported_free(tn_exported *exported);

#endif
