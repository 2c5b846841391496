/* SPDX-License-Identifier: Apache-2.0
 *
 * info.c: all that a note says of one component.
 */
#include "host/plugin/info.h"

#include <string.h>

#include "host/base/memory.h"
#include "host/base/text.h"
#include "host/plugin/interface.h"
#include "host/plugin/note.h"

/* What the functions below share while they fill one info. */
typedef struct {
    const char *file;
    tn_component_info *info;
    tn_error *err;
} parser;

static const char *const type_names[] = {NULL,     "real", "fixed",    "integer",  "flag",
                                         "choice", "text", "integers", "component"};

const char *tn_real_name(uint32_t real, const char *any) { return real == 32 ? "f32" : real == 64 ? "f64" : any; }

const char *tn_fact_text(const json_t *object, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : otherwise;
}

const char *tn_type_name(int32_t type)
{
    return type > 0 && type < (int32_t)(sizeof type_names / sizeof *type_names) ? type_names[type] : "unknown";
}

static int32_t no_memory(const parser *p)
{
    return tn_error_set(p->err, TN_E_MEMORY, "%s: out of memory while its notes were read", p->file);
}

static int32_t invalid_row(const parser *p, const tn_row *row, const char *what, const char *found, const char *needed)
{
    return tn_error_set(p->err, TN_E_PLUGIN, "NOTE_INVALID: %s: %s: hyper-parameter '%s': %s '%s', needed %s", p->file,
                        p->info->name, row->name ? row->name : "?", what, found, needed);
}

/* ---- defaults ---- */

static int32_t check_real(const parser *p, const tn_row *row)
{
    double value;
    if (tn_parse_real(row->default_text, &value))
        return invalid_row(p, row, "default", row->default_text, "a real number");
    if (!tn_range_holds(&row->range, value))
        return invalid_row(p, row, "default", row->default_text, row->range_text);
    return TN_OK;
}

static int32_t check_integer(const parser *p, const tn_row *row)
{
    int64_t value;
    if (tn_parse_integer(row->default_text, &value))
        return invalid_row(p, row, "default", row->default_text, "an integer");
    if (!tn_range_holds(&row->range, (double)value))
        return invalid_row(p, row, "default", row->default_text, row->range_text);
    return TN_OK;
}

static int32_t check_integers(const parser *p, const tn_row *row)
{
    json_t *list = json_loads(row->default_text, 0, NULL), *item;
    size_t i;
    int ok = json_is_array(list);
    json_array_foreach(list, i, item)
        ok = ok && json_is_integer(item) && tn_range_holds(&row->range, (double)json_integer_value(item));
    json_decref(list);
    return ok ? TN_OK : invalid_row(p, row, "default", row->default_text, "a list of integers within the range");
}

static int32_t check_flag(const parser *p, const tn_row *row)
{
    if (strcmp(row->default_text, "true") == 0 || strcmp(row->default_text, "false") == 0)
        return TN_OK;
    return invalid_row(p, row, "default", row->default_text, "true or false");
}

static int32_t check_choice(const parser *p, const tn_row *row)
{
    for (size_t i = 0; i < row->choice_count; i++) {
        if (strcmp(row->choices[i], row->default_text) == 0)
            return TN_OK;
    }
    return invalid_row(p, row, "default", row->default_text, row->range_text);
}

static int32_t check_component(const parser *p, const tn_row *row)
{
    if (!tn_note_word(row->range_text))
        return invalid_row(p, row, "range", row->range_text, "the kind of the component");
    if (!tn_note_word(row->default_text))
        return invalid_row(p, row, "default", row->default_text, "the name of a component, or none");
    return TN_OK;
}

static int32_t check_default(const parser *p, const tn_row *row)
{
    switch (row->type) {
    case TN_TYPE_REAL:
    case TN_TYPE_FIXED:
        return check_real(p, row);
    case TN_TYPE_INTEGER:
        return check_integer(p, row);
    case TN_TYPE_INTEGERS:
        return check_integers(p, row);
    case TN_TYPE_FLAG:
        return check_flag(p, row);
    case TN_TYPE_CHOICE:
        return check_choice(p, row);
    case TN_TYPE_COMPONENT:
        return check_component(p, row);
    default:
        return TN_OK; /* text */
    }
}

/* ---- rows ---- */

/* Splits "torch | paper; since 1.2.0" into the words before the semicolon. */
static int32_t split_choices(const parser *p, tn_row *row)
{
    const char *at = row->range_text;
    size_t left = strcspn(at, ";");
    size_t words = 1;
    for (size_t i = 0; i < left; i++)
        words += at[i] == '|';
    row->choices = tn_alloc(words, sizeof *row->choices);
    if (!row->choices)
        return no_memory(p);
    while (row->choice_count < words) {
        size_t part = strcspn(at, "|;");
        size_t blank = strspn(at, " ");
        size_t n = part > blank ? part - blank : 0;
        while (n > 0 && at[blank + n - 1] == ' ')
            n--;
        char *word = tn_strndup(at + blank, n);
        if (!word)
            return no_memory(p);
        row->choices[row->choice_count++] = word;
        if (!tn_note_word(word))
            return invalid_row(p, row, "range", row->range_text, "words with | between them");
        at += part + (at[part] != 0);
    }
    return TN_OK;
}

static int32_t parse_range(const parser *p, tn_row *row)
{
    if (row->type == TN_TYPE_CHOICE)
        return split_choices(p, row);
    const char *bounds = row->type == TN_TYPE_COMPONENT ? "" : row->range_text;
    if (tn_range_parse(bounds, &row->range))
        return invalid_row(p, row, "range", row->range_text, "bounds such as [0, 1), then a unit, then ; since 1.2.0");
    if ((row->type == TN_TYPE_FLAG || row->type == TN_TYPE_TEXT) && !row->range.nan_ok)
        return invalid_row(p, row, "range", row->range_text, "no bounds for this type");
    return TN_OK;
}

static int32_t parse_type(const parser *p, const char *type, tn_row *row)
{
    for (int32_t i = TN_TYPE_REAL; i <= TN_TYPE_COMPONENT; i++) {
        if (strcmp(type, type_names[i]) == 0)
            row->type = i;
    }
    if (row->type)
        return TN_OK;
    return tn_error_set(p->err, TN_E_PLUGIN,
                        "NOTE_UNKNOWN: %s: %s: hyper-parameter '%s' has type '%s', which this host does not know; "
                        "upgrade tenon or correct the type",
                        p->file, p->info->name, row->name, type);
}

static int is_identifier(const char *name)
{
    return name[0] != 0 && !(name[0] >= '0' && name[0] <= '9') &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == strlen(name);
}

static int32_t check_name(const parser *p, const tn_row *row)
{
    if (!is_identifier(row->name))
        return invalid_row(p, row, "name", row->name, "a C identifier");
    for (const tn_row *other = p->info->rows; other < row; other++) {
        if (tn_name_equal(other->name, row->name))
            return invalid_row(p, row, "name", row->name, "each name once");
    }
    return TN_OK;
}

/* Copies the texts of a row's JSON object; *type is borrowed from it. */
static int32_t copy_texts(const parser *p, json_t *object, tn_row *row, const char **type)
{
    struct {
        const char *key;
        char **copy;
    } fields[] = {
        {"name", &row->name}, {"default", &row->default_text}, {"range", &row->range_text}, {"doc", &row->doc}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const char *text = json_string_value(json_object_get(object, fields[i].key));
        if (!text)
            return invalid_row(p, row, "missing", fields[i].key, "a text");
        if (!(*fields[i].copy = tn_strdup(text)))
            return no_memory(p);
    }
    *type = json_string_value(json_object_get(object, "type"));
    if (!*type)
        return invalid_row(p, row, "missing", "type", "a text");
    if (json_object_size(object) != 5)
        return tn_error_set(p->err, TN_E_PLUGIN,
                            "NOTE_UNKNOWN: %s: %s: hyper-parameter '%s' says more than name, type, default, range and "
                            "doc; upgrade tenon",
                            p->file, p->info->name, row->name);
    return TN_OK;
}

static int32_t parse_row(const parser *p, json_t *object, tn_row *row)
{
    const char *type = NULL;
    int32_t status = copy_texts(p, object, row, &type);
    if (!status)
        status = check_name(p, row);
    if (!status)
        status = parse_type(p, type, row);
    if (!status)
        status = parse_range(p, row);
    if (!status)
        status = check_default(p, row);
    if (status)
        return status;
    row->offset = p->info->hyper_size;
    row->size = row->type == TN_TYPE_INTEGERS ? sizeof(tn_integers) : 8;
    p->info->hyper_size += row->size;
    return TN_OK;
}

static int32_t parse_rows(const parser *p, json_t *list)
{
    tn_component_info *info = p->info;
    size_t count = json_array_size(list);
    info->rows = tn_alloc(count, sizeof *info->rows);
    if (!info->rows)
        return no_memory(p);
    while (info->row_count < count) {
        size_t i = info->row_count++; /* counted first, so that a half-built row is freed */
        int32_t status = parse_row(p, json_array_get(list, i), &info->rows[i]);
        if (status)
            return status;
    }
    return TN_OK;
}

/* ---- facts ---- */

/* Drops the nulls that end arrays and looks for text that no terminal should be sent. */
static int clean(json_t *value)
{
    const char *key;
    json_t *item;
    size_t i;
    int ok = !json_is_string(value) || tn_note_printable(json_string_value(value));
    while (json_array_size(value) > 0 && json_is_null(json_array_get(value, json_array_size(value) - 1)))
        json_array_remove(value, json_array_size(value) - 1);
    json_array_foreach(value, i, item)
        ok = clean(item) && ok;
    json_object_foreach(value, key, item)
        ok = tn_note_printable(key) && clean(item) && ok;
    return ok;
}

/* Parses the text behind a head and checks every fact's name and type. The caller owns *ret. */
static int32_t parse_text(const parser *p, const tn_note *note, json_t **ret)
{
    json_error_t where;
    json_t *root = json_loads((const char *)note + note->text_at, JSON_REJECT_DUPLICATES, &where);
    if (!root && !where.text[0]) /* the parser says nothing when it is out of memory */
        return no_memory(p);
    if (!root)
        return tn_error_set(p->err, TN_E_PLUGIN, "NOTE_INVALID: %s: %s: the text is not JSON: %s at byte %d", p->file,
                            p->info->name, where.text, where.position);
    int32_t status = TN_OK;
    if (!json_is_object(root) || !clean(root))
        status = tn_error_set(p->err, TN_E_PLUGIN,
                              "NOTE_INVALID: %s: %s: the text must be a JSON object without control characters",
                              p->file, p->info->name);
    const char *key;
    json_t *value;
    if (!status) {
        json_object_foreach(root, key, value) {
            status = tn_fact_check(p->file, p->info->name, note->interface, key, value, p->err);
            if (status)
                break;
        }
    }
    if (status)
        json_decref(root);
    else
        *ret = root;
    return status;
}

/* Moves a fact's text out of `facts`; "" if it is not there. */
static int32_t take_text(const parser *p, json_t *facts, const char *key, char **ret)
{
    const char *text = json_string_value(json_object_get(facts, key));
    if (!(*ret = tn_strdup(text ? text : "")))
        return no_memory(p);
    json_object_del(facts, key);
    return TN_OK;
}

static int32_t parse_licence(const parser *p, const tn_note *plugin)
{
    if (p->info->licence[0])
        return TN_OK;
    json_t *facts;
    int32_t status = parse_text(p, plugin, &facts);
    if (status)
        return status;
    tn_free(p->info->licence);
    status = take_text(p, facts, "licence", &p->info->licence);
    json_decref(facts);
    return status;
}

static int32_t parse_facts(const parser *p, const tn_note *component)
{
    tn_component_info *info = p->info;
    int32_t status = parse_text(p, component, &info->facts);
    if (!status)
        status = parse_rows(p, json_object_get(info->facts, "hyper"));
    if (status)
        return status;
    json_object_del(info->facts, "hyper");
    status = take_text(p, info->facts, "paper", &info->paper);
    if (!status)
        status = take_text(p, info->facts, "formula", &info->formula);
    if (!status)
        status = take_text(p, info->facts, "licence", &info->licence);
    return status;
}

static int32_t copy_head(const parser *p, const tn_note *plugin, const tn_note *component)
{
    tn_component_info *info = p->info;
    struct {
        const char *text;
        char **copy;
    } fields[] = {{component->name, &info->name},       {component->kind, &info->kind},
                  {component->device, &info->device},   {component->interface, &info->interface},
                  {component->summary, &info->summary}, {plugin->plugin, &info->plugin},
                  {plugin->version, &info->version}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!(*fields[i].copy = tn_strdup(fields[i].text)))
            return no_memory(p);
    }
    for (char *c = info->name; *c; c++)
        *c = *c == '_' ? '-' : *c;
    info->real = component->real;
    info->abi_major = component->abi_major;
    info->abi_minor = component->abi_minor;
    info->isa = component->isa;
    return TN_OK;
}

int32_t tn_info_parse(const char *file, const tn_note *plugin, const tn_note *component, tn_component_info **ret,
                      tn_error *err)
{
    parser p = {file, tn_alloc(1, sizeof *p.info), err};
    if (!p.info)
        return no_memory(&p);
    int32_t status = copy_head(&p, plugin, component);
    if (!status)
        status = parse_facts(&p, component);
    if (!status)
        status = parse_licence(&p, plugin);
    if (status)
        tn_info_free(p.info);
    else
        *ret = p.info;
    return status;
}

static void free_row(tn_row *row)
{
    for (size_t i = 0; i < row->choice_count; i++)
        tn_free(row->choices[i]);
    tn_free(row->choices);
    tn_free(row->name);
    tn_free(row->default_text);
    tn_free(row->range_text);
    tn_free(row->doc);
}

void tn_info_free(tn_component_info *info)
{
    if (!info)
        return;
    for (size_t i = 0; i < info->row_count; i++)
        free_row(&info->rows[i]);
    tn_free(info->rows);
    tn_free(info->kind);
    tn_free(info->name);
    tn_free(info->device);
    tn_free(info->interface);
    tn_free(info->plugin);
    tn_free(info->version);
    tn_free(info->summary);
    tn_free(info->paper);
    tn_free(info->formula);
    tn_free(info->licence);
    json_decref(info->facts);
    tn_free(info);
}
