/* SPDX-License-Identifier: Apache-2.0
 *
 * show.c: the registry as text and as JSON; see the end of registry.h.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/plugin/hash.h"
#include "host/plugin/registry.h"

static const char *const state_names[] = {"found", "shadowed", "refused", "not a tenon plugin"};

static int32_t no_memory(tn_error *err)
{
    return tn_error_set(err, TN_E_MEMORY, "out of memory while components were shown");
}

/* ---- tables ---- */

/* The text of one cell, valid until the next call; row 0 is the heading. */
typedef const char *cell_text(void *table, size_t row, size_t column);

#define COLUMNS_MAX 8

/* In characters: bytes that do not continue one. */
static size_t width(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += (*text & 0xC0) != 0x80;
    return n;
}

/* Two blanks between columns, none at the end of a line. */
static void add_line(tn_text *text, void *table, cell_text *cell, size_t row, size_t columns, const size_t *widths)
{
    size_t blanks = 0;
    for (size_t column = 0; column < columns; column++) {
        const char *content = cell(table, row, column);
        if (content[0]) {
            tn_text_addf(text, "%*s%s", (int)blanks, "", content);
            blanks = 0;
        }
        blanks += widths[column] - width(content) + 2;
    }
    tn_text_char(text, '\n');
}

static void add_table(tn_text *text, void *table, cell_text *cell, size_t rows, size_t columns)
{
    size_t widths[COLUMNS_MAX] = {0};
    for (size_t row = 0; row < rows; row++) {
        for (size_t column = 0; column < columns; column++) {
            size_t w = width(cell(table, row, column));
            widths[column] = w > widths[column] ? w : widths[column];
        }
    }
    for (size_t row = 0; row < rows; row++)
        add_line(text, table, cell, row, columns, widths);
}

/* ---- list ---- */

static int is_listed(const tn_entry_info *entry, const char *kind, int all)
{
    return (all || entry->state != TN_NOT_PLUGIN) && (!kind || tn_name_equal(kind, entry->kind));
}

typedef struct {
    const tn_entry_info *entry;
    int twice; /* the same component for both real types */
} list_line;

static const char *entry_cell(void *table, size_t row, size_t column)
{
    static const char *const headings[] = {"KIND", "NAME", "DEVICE", "REAL", "VERSION", "SUMMARY"};
    if (row == 0)
        return headings[column];
    const list_line *line = &((const list_line *)table)[row - 1];
    const tn_entry_info *entry = line->entry;
    const char *const cells[] = {entry->kind,    entry->name,
                                 entry->device,  line->twice ? "f32 f64" : tn_real_name(entry->real, "-"),
                                 entry->version, entry->summary};
    return cells[column];
}

static int differ_in_real_only(const tn_entry_info *a, const tn_entry_info *b)
{
    return a->real == 32 && b->real == 64 && !strcmp(a->kind, b->kind) && !strcmp(a->name, b->name) &&
           !strcmp(a->device, b->device) && !strcmp(a->plugin, b->plugin) && !strcmp(a->version, b->version);
}

/* What a file is called is its maker's: control characters do not reach the terminal. */
static void add_plain(tn_text *text, const char *string)
{
    for (; *string; string++)
        tn_text_char(text, (unsigned char)*string < ' ' || *string == 0x7F ? '?' : *string);
}

static void add_other(tn_text *text, const tn_entry_info *entry)
{
    tn_text_addf(text, "%s: ", state_names[entry->state]);
    if (entry->name[0])
        tn_text_addf(text, "%s/%s (%s %s): ", entry->kind, entry->name, entry->device, tn_real_name(entry->real, "-"));
    add_plain(text, entry->state == TN_REFUSED ? entry->reason : entry->path);
    if (entry->state == TN_SHADOWED) {
        tn_text_add(text, " by ");
        add_plain(text, entry->reason);
    }
    tn_text_char(text, '\n');
}

int32_t tn_registry_list_text(const tn_registry *registry, const char *kind, int all, tn_text *text, tn_error *err)
{
    int32_t status = kind ? tn_registry_check_kind(registry, kind, err) : TN_OK;
    if (status)
        return status;
    size_t count = tn_registry_count(registry), found = 0;
    list_line *lines = tn_alloc(count, sizeof *lines);
    if (!lines)
        return no_memory(err);
    for (size_t i = 0; i < count; i++) {
        const tn_entry_info *entry = tn_registry_at(registry, i);
        if (entry->state != TN_FOUND || !is_listed(entry, kind, all))
            continue;
        if (found > 0 && differ_in_real_only(lines[found - 1].entry, entry))
            lines[found - 1].twice = 1;
        else
            lines[found++].entry = entry;
    }
    if (found > 0)
        add_table(text, lines, entry_cell, found + 1, 6);
    for (size_t i = 0; i < count; i++) {
        const tn_entry_info *entry = tn_registry_at(registry, i);
        if (entry->state != TN_FOUND && is_listed(entry, kind, all))
            add_other(text, entry);
    }
    tn_free(lines);
    return tn_text_status(text, err);
}

static void add_pair(tn_text *text, const char *before, const char *key, const char *value)
{
    tn_text_addf(text, "%s\"%s\":", before, key);
    tn_text_json(text, value);
}

/* An object without its closing brace. */
static void add_entry(tn_text *text, const tn_entry_info *entry)
{
    add_pair(text, "{", "kind", entry->kind);
    add_pair(text, ",", "name", entry->name);
    add_pair(text, ",", "device", entry->device);
    tn_text_addf(text, ",\"real\":%" PRIu32, entry->real);
    add_pair(text, ",", "plugin", entry->plugin);
    add_pair(text, ",", "version", entry->version);
    add_pair(text, ",", "summary", entry->summary);
    add_pair(text, ",", "interface", entry->interface);
    add_pair(text, ",", "path", entry->path);
    add_pair(text, ",", "state", state_names[entry->state]);
    add_pair(text, ",", "reason", entry->reason);
}

int32_t tn_registry_list_json(const tn_registry *registry, const char *kind, int all, tn_text *text, tn_error *err)
{
    const char *before = "[";
    int32_t status = kind ? tn_registry_check_kind(registry, kind, err) : TN_OK;
    if (status)
        return status;
    for (size_t i = 0; i < tn_registry_count(registry); i++) {
        const tn_entry_info *entry = tn_registry_at(registry, i);
        if (!is_listed(entry, kind, all))
            continue;
        tn_text_add(text, before);
        add_entry(text, entry);
        tn_text_char(text, '}');
        before = ",\n";
    }
    tn_text_add(text, before[0] == '[' ? "[]\n" : "]\n");
    return tn_text_status(text, err);
}

int32_t tn_registry_list_names(const tn_registry *registry, const char *kind, tn_text *text, tn_error *err)
{
    const tn_entry_info *last = NULL;
    int32_t status = kind ? tn_registry_check_kind(registry, kind, err) : TN_OK;
    if (status)
        return status;
    for (size_t i = 0; i < tn_registry_count(registry); i++) {
        const tn_entry_info *entry = tn_registry_at(registry, i);
        if (entry->state != TN_FOUND || !is_listed(entry, kind, 0))
            continue;
        if (!last || strcmp(last->kind, entry->kind) || strcmp(last->name, entry->name))
            tn_text_addf(text, "%s/%s\n", entry->kind, entry->name);
        last = entry;
    }
    return tn_text_status(text, err);
}

/* ---- info ---- */

static const char *row_cell(void *table, size_t row, size_t column)
{
    static const char *const headings[] = {"name", "type", "default", "range", "doc"};
    const tn_component_info *info = table;
    if (row == 0)
        return headings[column];
    const tn_row *r = &info->rows[row - 1];
    const char *const cells[] = {r->name, tn_type_name(r->type), r->default_text, r->range_text, r->doc};
    return cells[column];
}

static void add_line_of(tn_text *text, const char *key, const char *value)
{
    if (value[0])
        tn_text_addf(text, "%-10s  %s\n", key, value);
}

/* A fact that is a list of objects, such as slots: a row each, a column for each key of the first. */
typedef struct {
    const json_t *list;
    const char *keys[COLUMNS_MAX];
    char number[32];
} object_table;

static const char *object_cell(void *argument, size_t row, size_t column)
{
    object_table *table = argument;
    if (row == 0)
        return table->keys[column];
    const json_t *value = json_object_get(json_array_get(table->list, row - 1), table->keys[column]);
    snprintf(table->number, sizeof table->number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    return json_is_string(value) ? json_string_value(value) : json_is_integer(value) ? table->number : "";
}

static void add_objects(tn_text *text, const char *key, json_t *list)
{
    object_table table = {.list = list};
    size_t columns = 0;
    const char *name;
    json_t *value;
    json_object_foreach(json_array_get(list, 0), name, value) {
        if (columns < COLUMNS_MAX)
            table.keys[columns++] = name;
    }
    tn_text_addf(text, "\n%s\n", key);
    add_table(text, &table, object_cell, json_array_size(list) + 1, columns);
}

static void add_words(tn_text *text, const char *key, const json_t *list)
{
    size_t i;
    const json_t *item;
    tn_text_addf(text, "%-10s", key);
    json_array_foreach(list, i, item)
        tn_text_addf(text, "%s%s", i ? ", " : "  ", json_is_string(item) ? json_string_value(item) : "?");
    tn_text_char(text, '\n');
}

/* Facts of one line first, then the tables. */
static void add_facts(tn_text *text, json_t *facts, int tables)
{
    const char *key;
    json_t *value;
    json_object_foreach(facts, key, value) {
        int is_table = json_is_object(json_array_get(value, 0));
        if (is_table != tables)
            continue;
        if (is_table)
            add_objects(text, key, value);
        else if (json_array_size(value) > 0)
            add_words(text, key, value);
        else if (json_is_boolean(value))
            add_line_of(text, key, json_is_true(value) ? "yes" : "no");
        else if (json_is_string(value))
            add_line_of(text, key, json_string_value(value));
    }
}

/* Bytes of state for each element of a parameter, from the note's slots of its shape; in the real type. */
static int64_t state_bytes(const tn_component_info *info)
{
    size_t i;
    int64_t bytes = 0;
    const json_t *slot;
    json_array_foreach(json_object_get(info->facts, "slots"), i, slot)
        bytes += strcmp(tn_fact_text(slot, "shape", "like"), "like") ? 0 : info->real ? info->real / 8 : 4;
    return bytes;
}

/* "up to 8 bytes an element, and row (rows)": which slots there are may depend on hyper-parameters. */
static void add_state(tn_text *text, const tn_component_info *info)
{
    size_t i;
    const char *before = ", and ";
    const json_t *slot, *slots = json_object_get(info->facts, "slots");
    if (json_array_size(slots) == 0 || !json_object_get(info->facts, "stage"))
        return;
    tn_text_addf(text, "%-10s  up to %" PRId64 " bytes an element", "state", state_bytes(info));
    json_array_foreach(slots, i, slot) {
        const char *shape = tn_fact_text(slot, "shape", "like");
        if (strcmp(shape, "like") == 0)
            continue;
        tn_text_addf(text, "%s%s (%s)", before, tn_fact_text(slot, "name", "?"), shape);
        before = ", ";
    }
    tn_text_char(text, '\n');
}

int32_t tn_registry_info_text(tn_registry *registry, const tn_entry_info *entry, tn_text *text, tn_error *err)
{
    const tn_component_info *info;
    char hash[TN_HASH_TEXT];
    int32_t status = tn_registry_info(registry, entry, &info, err);
    if (!status)
        status = tn_hash_file(entry->path, hash, err);
    if (status)
        return status;
    tn_text_addf(text, "%s/%s (%s %s): %s\n\n", info->kind, info->name, info->device, tn_real_name(info->real, "-"),
                 info->summary);
    add_line_of(text, "formula", info->formula);
    add_line_of(text, "paper", info->paper);
    add_facts(text, info->facts, 0);
    add_state(text, info);
    add_line_of(text, "interface", info->interface);
    tn_text_addf(text, "%-10s  %s %s\n", "plugin", info->plugin, info->version);
    add_line_of(text, "licence", info->licence);
    tn_text_addf(text, "%-10s  %" PRIu32 ".%" PRIu32 "\n", "ABI", info->abi_major, info->abi_minor);
    add_line_of(text, "path", entry->path);
    add_line_of(text, "xxh128", hash);
    if (entry->state == TN_SHADOWED)
        tn_text_addf(text, "%-10s  by %s\n", "shadowed", entry->reason);
    if (info->row_count > 0) {
        tn_text_add(text, "\nhyper\n");
        add_table(text, (void *)(uintptr_t)info, row_cell, info->row_count + 1, 5);
    }
    add_facts(text, info->facts, 1);
    return tn_text_status(text, err);
}

static void add_rows(tn_text *text, const tn_component_info *info)
{
    tn_text_add(text, ",\"hyper\":[");
    for (size_t i = 0; i < info->row_count; i++) {
        const tn_row *row = &info->rows[i];
        add_pair(text, i ? ",{" : "{", "name", row->name);
        add_pair(text, ",", "type", tn_type_name(row->type));
        add_pair(text, ",", "default", row->default_text);
        add_pair(text, ",", "range", row->range_text);
        add_pair(text, ",", "doc", row->doc);
        tn_text_char(text, '}');
    }
    tn_text_char(text, ']');
}

static int add_bytes(const char *bytes, size_t size, void *text)
{
    tn_text_addn(text, bytes, size);
    return 0;
}

int32_t tn_registry_info_json(tn_registry *registry, const tn_entry_info *entry, tn_text *text, tn_error *err)
{
    const tn_component_info *info;
    char hash[TN_HASH_TEXT];
    int32_t status = tn_registry_info(registry, entry, &info, err);
    if (!status)
        status = tn_hash_file(entry->path, hash, err);
    if (status)
        return status;
    add_entry(text, entry);
    add_pair(text, ",", "paper", info->paper);
    add_pair(text, ",", "formula", info->formula);
    add_pair(text, ",", "licence", info->licence);
    tn_text_addf(text, ",\"abi\":\"%" PRIu32 ".%" PRIu32 "\"", info->abi_major, info->abi_minor);
    add_pair(text, ",", "xxh128", hash);
    if (json_object_get(info->facts, "slots") && json_object_get(info->facts, "stage"))
        tn_text_addf(text, ",\"state_bytes\":%" PRId64, state_bytes(info));
    add_rows(text, info);
    tn_text_add(text, ",\"facts\":");
    if (json_dump_callback(info->facts, add_bytes, text, JSON_COMPACT))
        return no_memory(err);
    tn_text_add(text, "}\n");
    return tn_text_status(text, err);
}
