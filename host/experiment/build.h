/* SPDX-License-Identifier: Apache-2.0
 *
 * build.h: from a value of the YAML tree to an instance. Inside host/experiment only.
 */
#ifndef TENON_HOST_EXPERIMENT_BUILD_H
#define TENON_HOST_EXPERIMENT_BUILD_H

#include "host/base/text.h"
#include "host/experiment/instance.h"
#include "host/experiment/yaml.h"

/* What may stand at a place of an experiment. */
typedef struct tn_seat {
    const char *const *kinds;     /* ends in NULL; NULL: any kind */
    const char *const *host_keys; /* keys beside the component's rows, read by someone else; ends in NULL */
    const char *default_name;     /* where none is written; NULL: one must be */
} tn_seat;

typedef struct tn_build {
    tn_registry *registry;
    uint32_t real; /* 32 or 64 */
    int depth;     /* components round this one */
    tn_error *err;
} tn_build;

/* The name that a value gives: a scalar, or the entry `use` of a mapping; the seat's default if the value is NULL or
 * does not say. A kind before it ("average/ema") is part of it. `place` is for errors where there is no value. The name
 * lives as long as the tree. */
int32_t tn_build_name(const tn_build *build, const tn_seat *seat, const tn_yaml *node, tn_place place,
                      const char **ret);

/* Without the kind. */
const char *tn_build_short_name(const char *name);

/* An instance from a value (NULL: the seat's default), rows that it does not give at their defaults. `handle` NULL: the
 * component's name. The caller frees it. */
int32_t tn_build_instance(const tn_build *build, const tn_seat *seat, const tn_yaml *node, tn_place place,
                          const char *path, const char *handle, tn_instance **ret);

/* Refuses every entry of a mapping whose key is none of the `n` known ones. `owner` as in value.h. */
int32_t tn_build_check_keys(const tn_yaml *mapping, const char *const *known, size_t n, const char *owner,
                            tn_error *err);
#define TN_KNOWN_MAX 160 /* as many names are remembered for messages */

/* `on:` of a link; *ret is NULL for `none`. The caller frees it with tn_selector_free, which accepts NULL. */
int32_t tn_selector_read(const tn_yaml *node, tn_selector **ret, tn_error *err);
void tn_selector_free(tn_selector *on);
/* Adds it as YAML that reads back the same. */
void tn_selector_print(const tn_selector *on, tn_text *text);

#endif
