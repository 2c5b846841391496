/* SPDX-License-Identifier: Apache-2.0
 *
 * yaml.c: YAML text -> a tree whose every value knows its place. Built from libfyaml's events, so that limits hold
 * while reading and no alias is ever followed twice for nothing.
 */
#include "host/experiment/yaml.h"

#include <libfyaml.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/base/text.h"

#define ANCHORS_MAX 256

/* ---- the tree ---- */

typedef struct block block;
struct block {
    block *next;
    alignas(max_align_t) char bytes[];
};

/* Memory that lives as long as the tree. */
static void *keep(tn_yaml_tree *tree, size_t size)
{
    block *b = tn_alloc(1, sizeof *b + size);
    if (!b)
        return NULL;
    b->next = tree->blocks;
    tree->blocks = b;
    return b->bytes;
}

static int32_t keep_text(tn_yaml_tree *tree, const char *bytes, size_t size, const char **ret, tn_error *err)
{
    char *copy = keep(tree, size + 1);
    if (!copy)
        return tn_place_no_memory(err);
    memcpy(copy, bytes, size);
    *ret = copy;
    return TN_OK;
}

void tn_yaml_free(tn_yaml_tree *tree)
{
    for (block *b = tree->blocks, *next; b; b = next) {
        next = b->next;
        tn_free(b);
    }
    *tree = (tn_yaml_tree){0};
}

int32_t tn_yaml_new(tn_yaml_tree *tree, int32_t kind, const char *value, tn_place place, tn_yaml **ret, tn_error *err)
{
    if (tree->nodes >= TN_YAML_NODES)
        return tn_place_error(err, TN_E_INVALID, place, "more than %d values; aliases count each time", TN_YAML_NODES);
    tn_yaml *node = keep(tree, sizeof *node);
    if (!node)
        return tn_place_no_memory(err);
    *node = (tn_yaml){.kind = kind, .place = place};
    if (value && keep_text(tree, value, strlen(value), &node->value, err))
        return TN_E_MEMORY;
    tree->nodes++;
    *ret = node;
    return TN_OK;
}

tn_yaml *tn_yaml_get(const tn_yaml *mapping, const char *key)
{
    if (!mapping || mapping->kind != TN_YAML_MAPPING)
        return NULL;
    for (tn_yaml *entry = mapping->first; entry; entry = entry->next)
        if (tn_name_equal(entry->key, key))
            return entry;
    return NULL;
}

void tn_yaml_append(tn_yaml *parent, tn_yaml *child)
{
    *(parent->last ? &parent->last->next : &parent->first) = child;
    parent->last = child;
    child->next = NULL;
    parent->count++;
}

void tn_yaml_replace(tn_yaml *parent, tn_yaml *child, tn_yaml *with)
{
    tn_yaml **link = &parent->first, *before = NULL;
    for (; *link != child; link = &before->next)
        before = *link;
    if (with) {
        with->key = child->key;
        with->key_place = child->key_place;
        with->next = child->next;
    }
    *link = with ? with : child->next;
    if (parent->last == child)
        parent->last = with ? with : before;
    parent->count -= !with;
    child->next = NULL;
}

int32_t tn_yaml_put(tn_yaml_tree *tree, tn_yaml *mapping, const char *key, tn_place key_place, tn_yaml *entry,
                    tn_error *err)
{
    tn_yaml *old = tn_yaml_get(mapping, key);
    if (!old && keep_text(tree, key, strlen(key), &entry->key, err))
        return TN_E_MEMORY;
    if (old)
        tn_yaml_replace(mapping, old, entry);
    else
        tn_yaml_append(mapping, entry);
    entry->key_place = key_place;
    return TN_OK;
}

/* ---- the text ---- */

/* libfyaml stops without a word where the text is not UTF-8, so this comes first. */
static int32_t check_text(const tn_place_text *text, tn_error *err)
{
    for (size_t at = 0, step; at < text->size; at += step) {
        step = tn_place_character(text->bytes + at, text->size - at);
        if (step)
            continue;
        unsigned char found = (unsigned char)text->bytes[at];
        return tn_place_error(err, TN_E_INVALID, (tn_place){text, at}, "0x%02X is %s; an experiment is YAML in UTF-8",
                              found, found < 0x80 ? "a control character" : "not UTF-8");
    }
    return TN_OK;
}

/* ---- events -> tree ---- */

typedef struct anchor {
    const char *name;
    const tn_yaml *node; /* NULL while it is being read */
} anchor;

typedef struct parser {
    tn_yaml_tree *tree;
    const tn_place_text *text;
    struct fy_diag *diag;
    struct fy_parser *fy;
    struct fy_event *event;
    tn_place place; /* of the last token that had one */
    anchor anchors[ANCHORS_MAX];
    size_t anchor_count;
    tn_error *err;
} parser;

static int32_t syntax_error(parser *p)
{
    void *iterator = NULL;
    const struct fy_diag_error *error = fy_diag_errors_iterate(p->diag, &iterator);
    if (!error)
        return tn_place_error(p->err, TN_E_INVALID, p->place, "not valid YAML 1.2, from here on or in a directive");
    size_t line = error->line > 0 ? (size_t)error->line - 1 : 0,
           column = error->column > 0 ? (size_t)error->column - 1 : 0;
    return tn_place_error(p->err, TN_E_INVALID, tn_place_find(p->text, line, column), "not valid YAML: %s", error->msg);
}

static void note_place(parser *p, struct fy_token *token)
{
    const struct fy_mark *mark = token ? fy_token_start_mark(token) : NULL;
    if (mark)
        p->place = (tn_place){p->text, mark->input_pos};
}

/* The next event into p->event. */
static int32_t next(parser *p)
{
    fy_parser_event_free(p->fy, p->event);
    p->event = fy_parser_parse(p->fy);
    return p->event ? TN_OK : syntax_error(p);
}

static int32_t set_anchor(parser *p, struct fy_token *token, anchor **ret)
{
    *ret = NULL;
    if (!token)
        return TN_OK;
    if (p->anchor_count == ANCHORS_MAX)
        return tn_place_error(p->err, TN_E_INVALID, p->place, "more than %d anchors", ANCHORS_MAX);
    size_t size;
    const char *name = fy_token_get_text(token, &size);
    anchor *a = &p->anchors[p->anchor_count];
    int32_t status = keep_text(p->tree, name ? name : "", name ? size : 0, &a->name, p->err);
    if (status)
        return status;
    a->node = NULL;
    p->anchor_count++;
    *ret = a;
    return TN_OK;
}

/* A copy of `node`, whose place in the tree is `depth` levels down. */
static int32_t copy(parser *p, const tn_yaml *node, int depth, tn_yaml **ret)
{
    if (depth > TN_YAML_DEPTH)
        return tn_place_error(p->err, TN_E_INVALID, node->place, "more than %d levels deep", TN_YAML_DEPTH);
    tn_yaml *made = NULL;
    int32_t status = tn_yaml_new(p->tree, node->kind, NULL, node->place, &made, p->err);
    if (status)
        return status;
    made->quoted = node->quoted;
    made->value = node->value;
    made->key = node->key;
    made->key_place = node->key_place;
    for (const tn_yaml *child = node->first; child; child = child->next) {
        tn_yaml *child_copy = NULL;
        status = copy(p, child, depth + 1, &child_copy);
        if (status)
            return status;
        tn_yaml_append(made, child_copy);
    }
    *ret = made;
    return TN_OK;
}

static int32_t parse_alias(parser *p, int depth, tn_yaml **ret)
{
    size_t size;
    const char *name = fy_token_get_text(p->event->alias.anchor, &size);
    note_place(p, p->event->alias.anchor);
    for (size_t i = p->anchor_count; name && i-- > 0;) {
        const anchor *a = &p->anchors[i];
        if (strlen(a->name) != size || memcmp(a->name, name, size))
            continue;
        if (!a->node)
            return tn_place_error(p->err, TN_E_INVALID, p->place, "the alias *%s is within what it names", a->name);
        return copy(p, a->node, depth, ret);
    }
    return tn_place_error(p->err, TN_E_INVALID, p->place, "the alias *%.*s has no anchor before it",
                          name ? (int)size : 0, name ? name : "");
}

static int32_t parse_scalar(parser *p, tn_yaml *node)
{
    struct fy_token *token = p->event->scalar.value;
    size_t size = 0;
    const char *value = token ? fy_token_get_text(token, &size) : "";
    node->quoted = token && fy_token_scalar_style(token) != FYSS_PLAIN;
    if (!value)
        return tn_place_no_memory(p->err);
    if (memchr(value, 0, size))
        return tn_place_error(p->err, TN_E_INVALID, p->place, "text with a NUL character");
    return keep_text(p->tree, value, size, &node->value, p->err);
}

static int32_t parse_node(parser *p, int depth, tn_yaml **ret);

static int32_t too_many_keys(parser *p, tn_place place)
{
    return tn_place_error(p->err, TN_E_INVALID, place, "more than %d keys in one mapping", TN_YAML_KEYS);
}

/* Adds the entries of `from` that `mapping` does not have. */
static int32_t merge_one(parser *p, tn_yaml *mapping, const tn_yaml *from, int depth)
{
    if (from->kind != TN_YAML_MAPPING)
        return tn_place_error(p->err, TN_E_INVALID, from->place, "<< takes a mapping or a list of mappings");
    for (const tn_yaml *entry = from->first; entry; entry = entry->next) {
        tn_yaml *made;
        if (tn_yaml_get(mapping, entry->key))
            continue;
        if (mapping->count == TN_YAML_KEYS)
            return too_many_keys(p, entry->key_place);
        int32_t status = copy(p, entry, depth + 1, &made);
        if (status)
            return status;
        tn_yaml_append(mapping, made);
    }
    return TN_OK;
}

static int32_t merge(parser *p, tn_yaml *mapping, int depth)
{
    tn_yaml *from = tn_yaml_get(mapping, "<<");
    if (!from)
        return TN_OK;
    tn_yaml_replace(mapping, from, NULL);
    if (from->kind != TN_YAML_SEQUENCE)
        return merge_one(p, mapping, from, depth);
    for (const tn_yaml *one = from->first; one; one = one->next) {
        int32_t status = merge_one(p, mapping, one, depth);
        if (status)
            return status;
    }
    return TN_OK;
}

static int32_t check_key(parser *p, const tn_yaml *mapping, const tn_yaml *key)
{
    if (key->kind != TN_YAML_SCALAR || !key->value[0])
        return tn_place_error(p->err, TN_E_INVALID, key->place, "a key must be a name");
    const tn_yaml *old = tn_yaml_get(mapping, key->value);
    if (old && old->key_place.text->is_file)
        return tn_place_error(p->err, TN_E_INVALID, key->place, "'%s' is given twice, first in line %zu; keep one",
                              key->value, tn_place_line(old->key_place));
    if (old)
        return tn_place_error(p->err, TN_E_INVALID, key->place, "'%s' is given twice", key->value);
    return mapping->count == TN_YAML_KEYS ? too_many_keys(p, key->place) : TN_OK;
}

static int32_t parse_entry(parser *p, tn_yaml *mapping, int depth)
{
    tn_yaml *key, *value;
    int32_t status = parse_node(p, depth + 1, &key);
    if (!status)
        status = check_key(p, mapping, key);
    if (!status)
        status = next(p);
    if (!status)
        status = parse_node(p, depth + 1, &value);
    if (status)
        return status;
    value->key = key->value;
    value->key_place = key->place;
    tn_yaml_append(mapping, value);
    return TN_OK;
}

static int32_t parse_mapping(parser *p, tn_yaml *mapping, int depth)
{
    for (;;) {
        int32_t status = next(p);
        if (!status && p->event->type == FYET_MAPPING_END)
            return merge(p, mapping, depth);
        if (!status)
            status = parse_entry(p, mapping, depth);
        if (status)
            return status;
    }
}

static int32_t parse_sequence(parser *p, tn_yaml *sequence, int depth)
{
    for (;;) {
        tn_yaml *element;
        int32_t status = next(p);
        if (!status && p->event->type == FYET_SEQUENCE_END)
            return TN_OK;
        if (!status)
            status = parse_node(p, depth + 1, &element);
        if (status)
            return status;
        tn_yaml_append(sequence, element);
    }
}

/* What the event that begins a value says. */
typedef struct head {
    int32_t kind;
    struct fy_token *anchor, *tag, *start;
} head;

static head event_head(const struct fy_event *event)
{
    switch (event->type) {
    case FYET_MAPPING_START:
        return (head){TN_YAML_MAPPING, event->mapping_start.anchor, event->mapping_start.tag,
                      event->mapping_start.mapping_start};
    case FYET_SEQUENCE_START:
        return (head){TN_YAML_SEQUENCE, event->sequence_start.anchor, event->sequence_start.tag,
                      event->sequence_start.sequence_start};
    default:
        return (head){TN_YAML_SCALAR, event->scalar.anchor, event->scalar.tag, event->scalar.value};
    }
}

/* The value that begins with p->event; afterwards p->event is its last. */
static int32_t parse_node(parser *p, int depth, tn_yaml **ret)
{
    if (p->event->type == FYET_ALIAS)
        return parse_alias(p, depth, ret);
    head h = event_head(p->event);
    note_place(p, h.start);
    if (depth > TN_YAML_DEPTH)
        return tn_place_error(p->err, TN_E_INVALID, p->place, "more than %d levels deep", TN_YAML_DEPTH);
    if (h.tag)
        return tn_place_error(p->err, TN_E_INVALID, p->place, "tags (!...) mean nothing here: the key gives the type");
    tn_yaml *node = NULL;
    anchor *a = NULL;
    int32_t status = tn_yaml_new(p->tree, h.kind, NULL, p->place, &node, p->err);
    if (!status)
        status = set_anchor(p, h.anchor, &a);
    if (!status)
        status = h.kind == TN_YAML_MAPPING    ? parse_mapping(p, node, depth)
                 : h.kind == TN_YAML_SEQUENCE ? parse_sequence(p, node, depth)
                                              : parse_scalar(p, node);
    if (status)
        return status;
    if (a)
        a->node = node;
    *ret = node;
    return TN_OK;
}

static int32_t parse_stream(parser *p, tn_yaml **ret)
{
    tn_yaml *root;
    int32_t status = next(p); /* stream start */
    if (!status)
        status = next(p);
    if (!status && p->event->type == FYET_STREAM_END)
        return tn_yaml_new(p->tree, TN_YAML_SCALAR, "", p->place, ret, p->err);
    if (!status)
        status = next(p); /* after document start */
    if (!status)
        status = parse_node(p, 1, &root);
    if (!status)
        status = next(p); /* document end */
    if (!status)
        status = next(p);
    if (status)
        return status;
    if (p->event->type != FYET_STREAM_END)
        return tn_place_error(p->err, TN_E_INVALID, p->place, "a second document begins after this; one is needed");
    *ret = root;
    return TN_OK;
}

int32_t tn_yaml_parse(tn_yaml_tree *tree, const tn_place_text *text, tn_yaml **ret, tn_error *err)
{
    int32_t status = check_text(text, err);
    if (status)
        return status;
    parser p = {.tree = tree, .text = text, .place = {text, 0}, .err = err};
    struct fy_diag_cfg quiet;
    fy_diag_cfg_default(&quiet);
    quiet.fp = NULL;
    p.diag = fy_diag_create(&quiet);
    struct fy_parse_cfg config = {.search_path = "", .flags = FYPCF_JSON_NONE, .diag = p.diag};
    if (p.diag) {
        fy_diag_set_collect_errors(p.diag, true);
        p.fy = fy_parser_create(&config);
    }
    if (!p.fy || fy_parser_set_string(p.fy, text->bytes, text->size))
        status = tn_place_no_memory(err);
    else
        status = parse_stream(&p, ret);
    if (p.fy) {
        fy_parser_event_free(p.fy, p.event);
        fy_parser_destroy(p.fy);
    }
    if (p.diag)
        fy_diag_destroy(p.diag);
    return status;
}
