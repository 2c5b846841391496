/* SPDX-License-Identifier: Apache-2.0
 *
 * value.c: one row's value, from text to the hyper struct and back.
 */
#include "host/experiment/value.h"

#include <stdio.h>
#include <string.h>

#include "host/base/memory.h"

/* ---- messages ---- */

void tn_value_needs(const tn_row *row, char out[TN_NEEDS_MAX])
{
    const char *what = "text", *in = "", *range = "";
    switch (row->type) {
    case TN_TYPE_REAL:
    case TN_TYPE_FIXED:
        what = "a number";
        break;
    case TN_TYPE_INTEGER:
        what = "an integer";
        break;
    case TN_TYPE_FLAG:
        what = "true or false";
        break;
    case TN_TYPE_CHOICE:
        what = "one of";
        break;
    case TN_TYPE_INTEGERS:
        what = "a list of integers";
        break;
    case TN_TYPE_COMPONENT:
        what = "none or a component of kind";
        break;
    default:
        break;
    }
    if (row->type != TN_TYPE_TEXT && row->type != TN_TYPE_FLAG && row->range_text[0]) {
        range = row->range_text;
        in = row->type == TN_TYPE_CHOICE || row->type == TN_TYPE_COMPONENT ? " "
             : row->type == TN_TYPE_INTEGERS                               ? ", each in "
                                                                           : " in ";
    }
    snprintf(out, TN_NEEDS_MAX, "%s%s%s", what, in, range);
}

void tn_value_found(const tn_yaml *node, char out[TN_FOUND_MAX])
{
    if (node->kind != TN_YAML_SCALAR || (!node->value[0] && !node->quoted)) {
        strcpy(out, node->kind == TN_YAML_MAPPING    ? "a mapping"
                    : node->kind == TN_YAML_SEQUENCE ? "a list"
                                                     : "nothing");
        return;
    }
    size_t length = strlen(node->value), shown = length < TN_FOUND_MAX - 20 ? length : TN_FOUND_MAX - 20;
    while (shown < length && (node->value[shown] & 0xC0) == 0x80)
        shown--;
    snprintf(out, TN_FOUND_MAX, node->quoted ? "the text \"%.*s%s\"" : "'%.*s%s'", (int)shown, node->value,
             shown < length ? "..." : "");
}

static const char *number_hint(const tn_yaml *node, int32_t status)
{
    double ignored;
    if (node->kind != TN_YAML_SCALAR)
        return "";
    if (node->quoted)
        return tn_parse_user_real(node->value, &ignored) == TN_OK ? "; remove the quotes" : "";
    if (status == TN_E_NUMERIC)
        return ", which does not fit";
    if (tn_parse_user_real(node->value, &ignored) != TN_OK && tn_parse_real(node->value, &ignored) == TN_OK)
        return "; write a digit on both sides of the point";
    return strchr(node->value, '_') ? "; write numbers without '_'" : "";
}

/* `hint` begins with its own punctuation. */
static int32_t refuse(const tn_row *row, const char *owner, const tn_yaml *node, const char *hint, tn_error *err)
{
    char needs[TN_NEEDS_MAX], found[TN_FOUND_MAX];
    tn_value_needs(row, needs);
    tn_value_found(node, found);
    return tn_place_error(err, TN_E_INVALID, node->place, "'%s'%s%s (%s) takes %s; found %s%s", row->name,
                          owner[0] ? " of " : "", owner, tn_type_name(row->type), needs, found, hint);
}

/* ---- text -> value ---- */

/* A scalar that is something. */
static int is_word(const tn_yaml *node) { return node->kind == TN_YAML_SCALAR && (node->value[0] || node->quoted); }

static int is_plain(const tn_yaml *node) { return is_word(node) && !node->quoted; }

static int32_t set_real(const tn_row *row, const char *owner, const tn_yaml *node, double *value, tn_error *err)
{
    double parsed;
    int32_t status = is_plain(node) ? tn_parse_user_real(node->value, &parsed) : TN_E_INVALID;
    if (status == TN_E_MEMORY)
        return tn_place_no_memory(err);
    if (status)
        return refuse(row, owner, node, number_hint(node, status), err);
    if (!tn_range_holds(&row->range, parsed))
        return refuse(row, owner, node, "", err);
    *value = parsed;
    return TN_OK;
}

static int32_t set_integer(const tn_row *row, const char *owner, const tn_yaml *node, int64_t *value, tn_error *err)
{
    int64_t parsed;
    int32_t status = is_plain(node) ? tn_parse_integer(node->value, &parsed) : TN_E_INVALID;
    if (status)
        return refuse(row, owner, node, number_hint(node, status), err);
    if (!tn_range_holds(&row->range, (double)parsed))
        return refuse(row, owner, node, "", err);
    *value = parsed;
    return TN_OK;
}

static int32_t set_flag(const tn_row *row, const char *owner, const tn_yaml *node, int64_t *value, tn_error *err)
{
    int yes = is_plain(node) && strcmp(node->value, "true") == 0;
    if (!yes && !(is_plain(node) && strcmp(node->value, "false") == 0))
        return refuse(row, owner, node, "", err);
    *value = yes;
    return TN_OK;
}

static int32_t set_choice(const tn_row *row, const char *owner, const tn_yaml *node, int64_t *value, tn_error *err)
{
    for (size_t i = 0; is_word(node) && i < row->choice_count; i++)
        if (tn_name_equal(row->choices[i], node->value)) {
            *value = (int64_t)i;
            return TN_OK;
        }
    char hint[96] = "";
    const char *near =
        is_word(node) ? tn_nearest(node->value, (const char *const *)row->choices, row->choice_count) : NULL;
    if (near)
        snprintf(hint, sizeof hint, "; did you mean '%s'?", near);
    return refuse(row, owner, node, hint, err);
}

static int32_t set_text(const tn_row *row, const char *owner, const tn_yaml *node, char **value, tn_error *err)
{
    if (!is_word(node))
        return refuse(row, owner, node, node->kind == TN_YAML_SCALAR ? "; write \"\" for the empty text" : "", err);
    char *copy = tn_strdup(node->value);
    if (!copy)
        return tn_place_no_memory(err);
    tn_free(*value);
    *value = copy;
    return TN_OK;
}

/* A single integer is a list of one. */
static int32_t set_integers(const tn_row *row, const char *owner, const tn_yaml *node, tn_integers *value,
                            tn_error *err)
{
    if (node->kind == TN_YAML_MAPPING)
        return refuse(row, owner, node, "", err);
    const tn_yaml *element = node->kind == TN_YAML_SEQUENCE ? node->first : node;
    size_t count = node->kind == TN_YAML_SEQUENCE ? node->count : 1;
    int64_t *values = count ? tn_alloc(count, sizeof *values) : NULL;
    if (count && !values)
        return tn_place_no_memory(err);
    for (size_t i = 0; i < count; i++, element = element->next) {
        int32_t status = set_integer(row, owner, element, &values[i], err);
        if (status) {
            tn_free(values);
            return status;
        }
    }
    tn_value_free(row, value);
    *value = (tn_integers){values, (int64_t)count};
    return TN_OK;
}

int32_t tn_value_set(const tn_row *row, const char *owner, const tn_yaml *node, void *value, tn_error *err)
{
    switch (row->type) {
    case TN_TYPE_REAL:
    case TN_TYPE_FIXED:
        return set_real(row, owner, node, value, err);
    case TN_TYPE_INTEGER:
        return set_integer(row, owner, node, value, err);
    case TN_TYPE_FLAG:
        return set_flag(row, owner, node, value, err);
    case TN_TYPE_CHOICE:
        return set_choice(row, owner, node, value, err);
    case TN_TYPE_TEXT:
        return set_text(row, owner, node, value, err);
    case TN_TYPE_INTEGERS:
        return set_integers(row, owner, node, value, err);
    default:
        return tn_error_set(err, TN_E_INTERNAL, "'%s' is a row of type %s", row->name, tn_type_name(row->type));
    }
}

static int32_t default_integers(const tn_row *row, const char *owner, void *value, tn_error *err)
{
    tn_place_text text = {"default", row->default_text, strlen(row->default_text), 0};
    tn_yaml_tree tree = {0};
    tn_yaml *node;
    int32_t status = tn_yaml_parse(&tree, &text, &node, err);
    if (!status)
        status = set_integers(row, owner, node, value, err);
    tn_yaml_free(&tree);
    return status;
}

int32_t tn_value_default(const tn_row *row, const char *owner, void *value, tn_error *err)
{
    if (row->type == TN_TYPE_INTEGERS)
        return default_integers(row, owner, value, err);
    tn_yaml node = {.kind = TN_YAML_SCALAR, .value = row->default_text, .quoted = row->type == TN_TYPE_TEXT};
    if (row->type != TN_TYPE_REAL && row->type != TN_TYPE_FIXED)
        return tn_value_set(row, owner, &node, value, err);
    double parsed;
    int32_t status = tn_parse_real(row->default_text, &parsed);
    if (status == TN_E_MEMORY)
        return tn_place_no_memory(err);
    if (status)
        return refuse(row, owner, &node, ", its default", err);
    *(double *)value = parsed;
    return TN_OK;
}

void tn_value_free(const tn_row *row, void *value)
{
    if (row->type == TN_TYPE_TEXT) {
        tn_free(*(char **)value);
        *(char **)value = NULL;
    } else if (row->type == TN_TYPE_INTEGERS) {
        tn_free((void *)(uintptr_t)((tn_integers *)value)->values);
        *(tn_integers *)value = (tn_integers){0};
    }
}

/* ---- value -> text ---- */

static void print_integers(const tn_integers *list, tn_text *text)
{
    tn_text_char(text, '[');
    for (int64_t i = 0; i < list->count; i++)
        tn_text_addf(text, "%s%lld", i ? ", " : "", (long long)list->values[i]);
    tn_text_char(text, ']');
}

void tn_value_print(const tn_row *row, const void *value, tn_text *text)
{
    switch (row->type) {
    case TN_TYPE_REAL:
    case TN_TYPE_FIXED:
        tn_text_real(text, *(const double *)value);
        break;
    case TN_TYPE_INTEGER:
        tn_text_addf(text, "%lld", (long long)*(const int64_t *)value);
        break;
    case TN_TYPE_FLAG:
        tn_text_add(text, *(const int64_t *)value ? "true" : "false");
        break;
    case TN_TYPE_CHOICE:
        tn_text_add(text, row->choices[*(const int64_t *)value]);
        break;
    case TN_TYPE_TEXT:
        tn_text_json(text, *(char *const *)value);
        break;
    case TN_TYPE_INTEGERS:
        print_integers(value, text);
        break;
    default:
        break;
    }
}
