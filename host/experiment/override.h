/* SPDX-License-Identifier: Apache-2.0
 *
 * override.h: Hydra's overrides, applied to the YAML tree of an experiment. docs/experiment.md has the grammar.
 * Thread rule: as the tree.
 */
#ifndef TENON_HOST_EXPERIMENT_OVERRIDE_H
#define TENON_HOST_EXPERIMENT_OVERRIDE_H

#include "host/experiment/yaml.h"

/* The text of one override, which must outlive the tree; begins as {0}. */
typedef struct tn_override {
    tn_place_text text; /* of the value */
    char *label;        /* "override 'data.batch=32'" */
} tn_override;

/* Puts in the sinks where none are written and makes lists of single links and sinks, so that overrides can name and
 * extend them. */
int32_t tn_override_prepare(tn_yaml_tree *tree, tn_yaml *root, tn_error *err);

/* Applies one override, written "key=value", "+key=value" or "~key", to a prepared tree. Whether the key means
 * something is not checked here, but everything it puts into the tree has a place in the override. `source` is the
 * override's for the life of the tree. TN_E_INVALID, TN_E_MEMORY; the tree is then good for freeing only. */
int32_t tn_override_apply(tn_yaml_tree *tree, tn_yaml *root, const char *override, tn_override *source, tn_error *err);

/* Frees what the source owns. */
void tn_override_free(tn_override *source);

#endif
