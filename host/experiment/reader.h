/* SPDX-License-Identifier: Apache-2.0
 *
 * reader.h: an experiment while its sections are read. Inside host/experiment only; everything [main]. What was made
 * before a failure is in the experiment.
 */
#ifndef TENON_HOST_EXPERIMENT_READER_H
#define TENON_HOST_EXPERIMENT_READER_H

#include "host/experiment/build.h"
#include "host/experiment/experiment.h"
#include "host/experiment/override.h"
#include "host/plugin/info.h"

/* Values of the host's own keys: rows as components have them. Without default_text: 0. */
typedef struct tn_own {
    char *name, *split, *every, *metric, *from;
    int64_t real, master, batch, steps, accumulate, seed, threads, check_finite, noise_scale, eval_batch, refresh, view;
    int64_t keep, best, mode;
    double epochs;
} tn_own;

#define TN_OWN_ROW(name_, type_, default_, range_, field)                                                              \
    .name = name_, .type = TN_TYPE_##type_, .default_text = default_, .range_text = range_,                            \
    .offset = offsetof(tn_own, field), .size = sizeof(((tn_own *)0)->field)

#define TN_COUNT(array) (sizeof(array) / sizeof *(array))
#define TN_KINDS(...)                                                                                                  \
    (const char *const[]) { __VA_ARGS__, NULL }

typedef struct tn_reader {
    tn_build build;
    tn_place_text text;
    tn_yaml_tree tree;
    tn_yaml *root;
    tn_override *overrides;
    size_t override_count;
    tn_own own;
    tn_experiment *e;
    tn_error *err;
} tn_reader;

/* ---- experiment.c ---- */

/* What an experiment's first level may hold; ends in NULL. */
extern const char *const tn_reader_sections[15];

/* 1 for the scalar `none`. */
int tn_reader_is_none(const tn_yaml *node);
/* The place of the file as a whole. */
tn_place tn_reader_whole(const tn_reader *r);
/* A key of the host from a mapping; its default if the mapping does not give it. */
int32_t tn_reader_own(tn_reader *r, const tn_yaml *mapping, const tn_row *row, const char *owner);
/* "OWNER takes a mapping; found ...". */
int32_t tn_reader_needs_mapping(const tn_reader *r, const tn_yaml *section, const char *owner);
/* A component of that kind, the entry `key` of `parent`; *ret stays where there is none, or `none`. */
int32_t tn_reader_optional(tn_reader *r, const tn_yaml *parent, const char *key, const char *path, const char *kind,
                           tn_instance **ret);
/* "there is no section ...". */
int32_t tn_reader_missing(const tn_reader *r, const char *section);

/* ---- update.c ---- */

/* The links of `update`. */
int32_t tn_reader_update(tn_reader *r);

/* ---- precision.c ---- */

/* `precision`, which is read first: it says in which real type components are built. */
int32_t tn_reader_precision(tn_reader *r);

#endif
