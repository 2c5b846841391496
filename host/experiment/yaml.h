/* SPDX-License-Identifier: Apache-2.0
 *
 * yaml.h: YAML text -> a tree whose every value knows its place. Scalars stay text: what they mean is up to the rows
 * that read them. The only user of libfyaml.
 *
 * Aliases and merge keys (<<) are expanded while reading. Refused: text that is not UTF-8 or has control characters,
 * more than one document, tags, keys that are not scalars, a key given twice ('_' and '-' being the same letter), an
 * alias within what it names, and more than TN_YAML_DEPTH levels, TN_YAML_NODES values or TN_YAML_KEYS keys of one
 * mapping.
 *
 * Thread rule: one tree is used by one thread at a time.
 */
#ifndef TENON_HOST_EXPERIMENT_YAML_H
#define TENON_HOST_EXPERIMENT_YAML_H

#include "host/experiment/place.h"

#define TN_YAML_DEPTH 64
#define TN_YAML_NODES 65536
#define TN_YAML_KEYS  256

#define TN_YAML_SCALAR   0
#define TN_YAML_SEQUENCE 1
#define TN_YAML_MAPPING  2

typedef struct tn_yaml tn_yaml;
struct tn_yaml {
    int32_t kind;      /* TN_YAML_* */
    int32_t quoted;    /* scalar: in quotes or a block, so text and never a number */
    const char *value; /* scalar: UTF-8; "" for nothing */
    tn_place place;
    const char *key; /* of an entry of a mapping, else NULL */
    tn_place key_place;
    tn_yaml *first, *last; /* entries of a mapping, elements of a sequence */
    tn_yaml *next;
    size_t count; /* of entries or elements */
};

/* Owns the values of a tree, also those that are no longer part of it. Begins as {0}. */
typedef struct tn_yaml_tree {
    void *blocks;
    size_t nodes;
} tn_yaml_tree;

/* Frees everything that was made in the tree. */
void tn_yaml_free(tn_yaml_tree *tree);

/* The value of a text; an empty scalar if it holds none. It lives as long as the tree. TN_E_INVALID with the place,
 * TN_E_MEMORY. */
int32_t tn_yaml_parse(tn_yaml_tree *tree, const tn_place_text *text, tn_yaml **ret, tn_error *err);

/* A new value without a parent. `value` is copied; NULL for a sequence or mapping. TN_E_MEMORY, TN_E_INVALID. */
int32_t tn_yaml_new(tn_yaml_tree *tree, int32_t kind, const char *value, tn_place place, tn_yaml **ret, tn_error *err);

/* The entry of that key ('_' and '-' equal), or NULL, also if `mapping` is NULL or no mapping. */
tn_yaml *tn_yaml_get(const tn_yaml *mapping, const char *key);

/* Appends an element, which must be in no list. */
void tn_yaml_append(tn_yaml *sequence, tn_yaml *element);

/* Sets an entry; an older one of that key leaves the tree and the new one takes its position. `key` is copied. */
int32_t tn_yaml_put(tn_yaml_tree *tree, tn_yaml *mapping, const char *key, tn_place key_place, tn_yaml *entry,
                    tn_error *err);

/* Puts `with`, which must be in no list, where `child` is; it takes over the key. With NULL the child is only taken
 * out. */
void tn_yaml_replace(tn_yaml *parent, tn_yaml *child, tn_yaml *with);

#endif
