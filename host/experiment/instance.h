/* SPDX-License-Identifier: Apache-2.0
 *
 * instance.h: a component as an experiment uses it: its file and facts, the hyper-parameter struct its calls receive,
 * and the components it contains.
 */
#ifndef TENON_HOST_EXPERIMENT_INSTANCE_H
#define TENON_HOST_EXPERIMENT_INSTANCE_H

#include <tenon/model.h>
#include <tenon/parameter.h>

#include "host/plugin/registry.h"

/* `on:` of a link: the parameters that all given conditions admit. Patterns are globs ('*', '?') of whole names. */
typedef struct tn_selector {
    uint32_t roles; /* bit 1 << TN_ROLE_*; 0: any */
    char **names;   /* of parameters: "hidden.*.weight" */
    size_t name_count;
    int32_t least_axes, most_axes; /* `axes: 2`, `axes: [2, 4]`; most 0: any */
} tn_selector;

typedef struct tn_instance tn_instance;
struct tn_instance {
    const tn_entry_info *entry;    /* of the registry */
    const tn_component_info *info; /* of the registry: the parsed note */
    char *path;                    /* place in the experiment, stable: "update.adamw", "model.normalizer" */
    char *handle;                  /* `as:` or the component's name: what overrides and schedules call it */
    void *hyper;                   /* the struct of plugin.h, laid out by info->rows[i].offset */
    size_t hyper_size;
    tn_instance **children; /* values of `component` rows; a row's value is an index here, or -1 */
    size_t child_count;
    uint32_t real;              /* 32 or 64, as asked for */
    int32_t kind_given;         /* 1: named with its kind, "average/ema" */
    tn_selector *on;            /* of a link; NULL: all parameters, of a rule those that no other rule has */
    struct tn_foreign *foreign; /* of a component ffi, once it was loaded; owned */
};

/* 1 if the selector admits the parameter; NULL admits all. */
int tn_selector_admits(const tn_selector *on, const tn_parameter *parameter);

/* An instance from settings given as text, the rest at the rows' defaults. kind may be NULL (any kind). `real` is
 * 32 or 64. Values are checked against type and range; an unknown name is TN_E_NOT_FOUND or TN_E_INVALID with the
 * nearest one. The caller frees it with tn_instance_free. Nothing is loaded. [main] */
int32_t tn_instance_create(tn_registry *registry, const char *kind, const char *name, uint32_t real, const char *path,
                           const tn_setting *settings, size_t setting_count, tn_instance **ret, tn_error *err);
/* Accepts NULL. */
void tn_instance_free(tn_instance *instance);

/* tn_registry_load, and of a component ffi the function that its settings name, once. [load] */
int32_t tn_instance_load(const tn_instance *instance, tn_registry *registry, void *table, size_t table_size,
                         tn_error *err);

/* One row from text, as an experiment writes it. Unchanged on failure. [main] */
int32_t tn_instance_set(tn_instance *instance, tn_registry *registry, const char *row, const char *text, tn_error *err);
/* The row of that name ('_' and '-' equal), or NULL. */
const tn_row *tn_instance_row(const tn_instance *instance, const char *name);
/* A `real` or `fixed` row's place in the hyper struct. */
double *tn_instance_real(const tn_instance *instance, const tn_row *row);
/* 0 if a component of 32 bits would make 0 or inf of the value. */
int tn_instance_fits(const tn_instance *instance, double value);
/* An `integer`, `flag` or `choice` row's value. */
int64_t tn_instance_integer(const tn_instance *instance, const tn_row *row);

#endif
