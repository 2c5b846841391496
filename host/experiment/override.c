/* SPDX-License-Identifier: Apache-2.0
 *
 * override.c: Hydra's overrides, applied to the YAML tree of an experiment.
 */
#include "host/experiment/override.h"

#include <stdio.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/base/number.h"
#include "host/base/text.h"
#include "host/experiment/build.h"

typedef struct editor {
    tn_yaml_tree *tree;
    tn_yaml *root;
    tn_place place; /* of the override */
    tn_error *err;
} editor;

/* Replaces the entry of that key by a list of it. */
static int32_t make_list(tn_yaml_tree *tree, tn_yaml *root, const char *key, tn_error *err)
{
    tn_yaml *entry = tn_yaml_get(root, key), *list;
    if (!entry || entry->kind == TN_YAML_SEQUENCE)
        return TN_OK;
    int32_t status = tn_yaml_new(tree, TN_YAML_SEQUENCE, NULL, entry->place, &list, err);
    if (status)
        return status;
    tn_yaml_replace(root, entry, list);
    if (!(entry->kind == TN_YAML_SCALAR && strcmp(entry->value, "none") == 0))
        tn_yaml_append(list, entry);
    return TN_OK;
}

/* What an override left as one element is a list again. */
static int32_t make_lists(tn_yaml_tree *tree, tn_yaml *root, tn_error *err)
{
    int32_t status = make_list(tree, root, "update", err);
    return status ? status : make_list(tree, root, "sinks", err);
}

/* The sinks of an experiment that names none. */
static int32_t put_sinks(tn_yaml_tree *tree, tn_yaml *root, tn_place file, tn_error *err)
{
    static const char *const names[] = {"jsonl", "csv"};
    tn_yaml *list, *sink;
    int32_t status = tn_yaml_new(tree, TN_YAML_SEQUENCE, NULL, file, &list, err);
    for (size_t i = 0; i < sizeof names / sizeof *names && !status; i++) {
        status = tn_yaml_new(tree, TN_YAML_SCALAR, names[i], file, &sink, err);
        if (!status)
            tn_yaml_append(list, sink);
    }
    return status ? status : tn_yaml_put(tree, root, "sinks", file, list, err);
}

int32_t tn_override_prepare(tn_yaml_tree *tree, tn_yaml *root, tn_error *err)
{
    int32_t status = TN_OK;
    tn_place file = {root->place.text, TN_WHOLE};
    if (!tn_yaml_get(root, "sinks"))
        status = put_sinks(tree, root, file, err);
    return status ? status : make_lists(tree, root, err);
}

/* ---- finding ---- */

/* What overrides call an element of a list: its `as`, else its component's name; NULL if it has none. */
static const char *element_name(const tn_yaml *element)
{
    const tn_yaml *as = tn_yaml_get(element, "as"), *use = tn_yaml_get(element, "use");
    const tn_yaml *name = as ? as : use ? use : element;
    return name->kind == TN_YAML_SCALAR ? tn_build_short_name(name->value) : NULL;
}

/* Does `path` begin with `word` as a whole? Then what follows it, past the '.'. */
static const char *after(const char *path, const char *word)
{
    size_t length = strlen(word);
    if (strlen(path) < length || (path[length] && path[length] != '.'))
        return NULL;
    for (size_t i = 0; i < length; i++)
        if (path[i] != word[i] && !((path[i] == '-' || path[i] == '_') && (word[i] == '-' || word[i] == '_')))
            return NULL;
    return path + length + (path[length] == '.');
}

/* The entry or element that `path` begins with, the longest if keys contain points; NULL if none. */
static tn_yaml *find(const tn_yaml *parent, const char *path, const char **rest)
{
    tn_yaml *found = NULL;
    size_t index = 0;
    for (tn_yaml *child = parent->first; child; child = child->next, index++) {
        char number[24];
        const char *name = parent->kind == TN_YAML_MAPPING ? child->key : element_name(child);
        const char *left = name ? after(path, name) : NULL;
        if (!left && parent->kind == TN_YAML_SEQUENCE) {
            snprintf(number, sizeof number, "%zu", index);
            left = after(path, number);
        }
        if (left && (!found || left > *rest)) {
            found = child;
            *rest = left;
        }
    }
    return found;
}

static int32_t not_found(const editor *e, const tn_yaml *parent, const char *path)
{
    const char *known[TN_KNOWN_MAX];
    size_t n = 0;
    for (const tn_yaml *child = parent->first; child && n < TN_KNOWN_MAX; child = child->next) {
        const char *name = parent->kind == TN_YAML_MAPPING ? child->key : element_name(child);
        if (name)
            known[n++] = name;
    }
    char *word = tn_strndup(path, strcspn(path, "."));
    if (!word)
        return tn_place_no_memory(e->err);
    int32_t status =
        tn_place_unknown(e->err, TN_E_INVALID, e->place, word, known, n, "'%s' is not there%s", word,
                         parent->kind == TN_YAML_SEQUENCE ? "; a list's elements go by name or by index" : "");
    tn_free(word);
    return status;
}

/* ---- changing ---- */

/* A mapping in the place of `child`: {use: NAME} of a bare name, empty of none. */
static int32_t make_mapping(const editor *e, tn_yaml *parent, tn_yaml *child, tn_yaml **ret)
{
    tn_yaml *mapping;
    int32_t status = tn_yaml_new(e->tree, TN_YAML_MAPPING, NULL, e->place, &mapping, e->err);
    if (status)
        return status;
    tn_yaml_replace(parent, child, mapping);
    *ret = mapping;
    return strcmp(child->value, "none") ? tn_yaml_put(e->tree, mapping, "use", child->place, child, e->err) : TN_OK;
}

static int32_t keep_key(const editor *e, tn_yaml *kept, tn_yaml **value)
{
    tn_yaml *mapping = *value;
    if ((mapping->kind == TN_YAML_MAPPING && tn_yaml_get(mapping, kept->key)) || mapping->kind == TN_YAML_SEQUENCE)
        return TN_OK;
    int32_t status = TN_OK;
    if (mapping->kind == TN_YAML_SCALAR) {
        status = tn_yaml_new(e->tree, TN_YAML_MAPPING, NULL, (*value)->place, &mapping, e->err);
        if (!status)
            status = tn_yaml_put(e->tree, mapping, "use", (*value)->place, *value, e->err);
    }
    if (!status)
        status = tn_yaml_put(e->tree, mapping, kept->key, kept->key_place, kept, e->err);
    if (!status)
        *value = mapping;
    return status;
}

#define KEPT_MAX 2

/* A swapped component keeps the keys that are not its own but its place's. */
static int32_t keep_keys(const editor *e, const tn_yaml *old, const char *const keys[KEPT_MAX], tn_yaml **value)
{
    tn_yaml *kept[KEPT_MAX];
    int32_t status = TN_OK;
    for (int i = 0; i < KEPT_MAX; i++) /* all, before any leaves the old list */
        kept[i] = keys[i] ? tn_yaml_get(old, keys[i]) : NULL;
    for (int i = 0; i < KEPT_MAX && !status; i++)
        if (kept[i])
            status = keep_key(e, kept[i], value);
    return status;
}

/* train.steps and train.epochs exclude each other: an override of one drops what the file says of the other. */
static void drop_rival(const editor *e, tn_yaml *parent, const char *key)
{
    const char *rival = tn_name_equal(key, "steps") ? "epochs" : tn_name_equal(key, "epochs") ? "steps" : NULL;
    tn_yaml *other = rival && parent == tn_yaml_get(e->root, "train") ? tn_yaml_get(parent, rival) : NULL;
    if (other && other->key_place.text->is_file)
        tn_yaml_replace(parent, other, NULL);
}

static void append_all(tn_yaml *list, tn_yaml *value)
{
    if (value->kind != TN_YAML_SEQUENCE) {
        tn_yaml_append(list, value);
        return;
    }
    for (tn_yaml *element = value->first, *next; element; element = next) {
        next = element->next;
        tn_yaml_append(list, element);
    }
}

static int32_t replace(const editor *e, tn_yaml *parent, tn_yaml *child, tn_yaml *value)
{
    int32_t status = TN_OK;
    if (parent == tn_yaml_get(e->root, "update"))
        status = keep_keys(e, child, (const char *const[KEPT_MAX]){"as", "on"}, &value);
    else if (child == tn_yaml_get(e->root, "data"))
        status = keep_keys(e, child, (const char *const[KEPT_MAX]){"batch"}, &value);
    if (status)
        return status;
    tn_yaml_replace(parent, child, value);
    value->key_place = e->place;
    return TN_OK;
}

/* Sets what `path` names below `parent`. `add`: '+', so lists grow. */
static int32_t set(const editor *e, tn_yaml *parent, const char *path, tn_yaml *value, int add)
{
    const char *rest;
    tn_yaml *child = find(parent, path, &rest);
    if (child && !*rest) {
        if (!add || child->kind != TN_YAML_SEQUENCE)
            return replace(e, parent, child, value);
        append_all(child, value);
        return TN_OK;
    }
    if (!child && parent->kind == TN_YAML_SEQUENCE)
        return not_found(e, parent, path);
    int32_t status = TN_OK;
    if (child) {
        if (child->kind == TN_YAML_SCALAR)
            status = make_mapping(e, parent, child, &child);
        return status ? status : set(e, child, rest, value, add);
    }
    if (parent == tn_yaml_get(e->root, "schedule") || !strchr(path, '.')) {
        drop_rival(e, parent, path);
        return tn_yaml_put(e->tree, parent, path, e->place, value, e->err);
    }
    char *key = tn_strndup(path, strcspn(path, "."));
    status = key ? tn_yaml_new(e->tree, TN_YAML_MAPPING, NULL, e->place, &child, e->err) : tn_place_no_memory(e->err);
    if (!status)
        status = tn_yaml_put(e->tree, parent, key, e->place, child, e->err);
    tn_free(key);
    return status ? status : set(e, child, strchr(path, '.') + 1, value, add);
}

static int32_t take_out(const editor *e, tn_yaml *parent, const char *path)
{
    const char *rest;
    tn_yaml *child = find(parent, path, &rest);
    if (!child || (*rest && child->kind == TN_YAML_SCALAR))
        return not_found(e, child ? child : parent, child ? rest : path);
    if (*rest)
        return take_out(e, child, rest);
    tn_yaml_replace(parent, child, NULL);
    return TN_OK;
}

/* ---- reading ---- */

static int32_t malformed(const editor *e)
{
    return tn_place_error(e->err, TN_E_INVALID, e->place,
                          "needed key=value, +key=value or ~key, a key being names or indices with '.' between them");
}

/* Levels of names in a path; 0 if it is none. */
static int levels(const char *path)
{
    int count = 1;
    for (const char *c = path; *c; c++)
        if (*c == '.')
            count++;
    size_t length = strlen(path);
    return !length || path[0] == '.' || path[length - 1] == '.' || strstr(path, "..") ? 0 : count;
}

static int32_t change(const editor *e, const char *path, char what, const tn_place_text *text)
{
    if (!levels(path) || levels(path) > TN_YAML_DEPTH)
        return malformed(e);
    if (what == '~')
        return take_out(e, e->root, path);
    tn_yaml *value;
    int32_t status = tn_yaml_parse(e->tree, text, &value, e->err);
    if (!status)
        status = set(e, e->root, path, value, what == '+');
    return status ? status : make_lists(e->tree, e->root, e->err);
}

int32_t tn_override_apply(tn_yaml_tree *tree, tn_yaml *root, const char *override, tn_override *source, tn_error *err)
{
    source->label = tn_format("override '%s'", override);
    if (!source->label)
        return tn_place_no_memory(err);
    size_t sign = *override == '+' || *override == '~', key_end = strcspn(override, "=");
    int is_delete = *override == '~', has_value = override[key_end] == '=';
    const char *value = override + key_end + has_value;
    source->text = (tn_place_text){source->label, value, strlen(value), 0};
    editor e = {tree, root, {&source->text, 0}, err};
    if (is_delete == has_value || key_end < sign)
        return malformed(&e);
    char *path = tn_strndup(override + sign, key_end - sign);
    if (!path)
        return tn_place_no_memory(err);
    int32_t status = change(&e, path, *override, &source->text);
    tn_free(path);
    return status;
}

void tn_override_free(tn_override *source)
{
    tn_free(source->label);
    *source = (tn_override){0};
}
