/* SPDX-License-Identifier: Apache-2.0
 *
 * instance.c: a component as an experiment uses it.
 */
#include "host/experiment/instance.h"

#include <float.h>
#include <math.h>

#include <stdio.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/experiment/build.h"
#include "host/experiment/foreign.h"
#include "host/experiment/value.h"

#define NESTING_MAX 16 /* components within components */

/* ---- access ---- */

const tn_row *tn_instance_row(const tn_instance *instance, const char *name)
{
    for (size_t i = 0; i < instance->info->row_count; i++)
        if (tn_name_equal(instance->info->rows[i].name, name))
            return &instance->info->rows[i];
    return NULL;
}

static void *value_of(const tn_instance *instance, const tn_row *row) { return (char *)instance->hyper + row->offset; }

double *tn_instance_real(const tn_instance *instance, const tn_row *row) { return value_of(instance, row); }

int64_t tn_instance_integer(const tn_instance *instance, const tn_row *row)
{
    return *(const int64_t *)value_of(instance, row);
}

void tn_instance_free(tn_instance *instance)
{
    if (!instance)
        return;
    for (size_t i = 0; instance->hyper && i < instance->info->row_count; i++)
        tn_value_free(&instance->info->rows[i], value_of(instance, &instance->info->rows[i]));
    for (size_t i = 0; i < instance->child_count; i++)
        tn_instance_free(instance->children[i]);
    tn_selector_free(instance->on);
    tn_foreign_free(instance->foreign);
    tn_free(instance->children);
    tn_free(instance->hyper);
    tn_free(instance->handle);
    tn_free(instance->path);
    tn_free(instance);
}

/* ---- finding the component ---- */

static int is_among(const char *word, const char *const *list)
{
    for (; list && *list; list++)
        if (tn_name_equal(*list, word))
            return 1;
    return 0;
}

static int is_kind(const tn_seat *seat, const char *kind) { return !seat->kinds || is_among(kind, seat->kinds); }

/* "loss", "optimizer, transform, average or wrapper", "component". */
static const char *kinds_text(const tn_seat *seat, char out[128])
{
    strcpy(out, seat->kinds ? "" : "component");
    for (const char *const *kind = seat->kinds; kind && *kind; kind++) {
        const char *joint = kind == seat->kinds ? "" : kind[1] ? ", " : " or ";
        size_t length = strlen(out);
        snprintf(out + length, 128 - length, "%s%s", joint, *kind);
    }
    return out;
}

static const char *article(const tn_seat *seat)
{
    return seat->kinds && strchr("aeiou", seat->kinds[0][0]) ? "an" : "a";
}

const char *tn_build_short_name(const char *name)
{
    const char *slash = strchr(name, '/');
    return slash ? slash + 1 : name;
}

static int names_kind(const char *name, const char *kind)
{
    const char *slash = strchr(name, '/');
    return !slash || (strlen(kind) == (size_t)(slash - name) && strncmp(name, kind, strlen(kind)) == 0);
}

int32_t tn_build_name(const tn_build *build, const tn_seat *seat, const tn_yaml *node, tn_place place, const char **ret)
{
    char kinds[128], found[TN_FOUND_MAX];
    const tn_yaml *use = node && node->kind == TN_YAML_MAPPING ? tn_yaml_get(node, "use") : node;
    if (!use && seat->default_name) {
        *ret = seat->default_name;
        return TN_OK;
    }
    if (!use)
        return tn_place_error(build->err, TN_E_INVALID, place, "needs 'use:' with the name of %s %s", article(seat),
                              kinds_text(seat, kinds));
    if (use->kind == TN_YAML_SCALAR && use->value[0]) {
        *ret = use->value;
        return TN_OK;
    }
    tn_value_found(use, found);
    return tn_place_error(build->err, TN_E_INVALID, use->place,
                          "needs the name of %s %s, or a mapping with 'use:'; found %s", article(seat),
                          kinds_text(seat, kinds), found);
}

/* The message for a name that no component of the seat's kinds has. */
static int32_t not_found(const tn_build *build, const tn_seat *seat, tn_place place, const char *name)
{
    const char *known[TN_KNOWN_MAX];
    const tn_entry_info *other = NULL;
    size_t n = 0;
    for (size_t i = 0; i < tn_registry_count(build->registry); i++) {
        const tn_entry_info *entry = tn_registry_at(build->registry, i);
        if (entry->state != TN_FOUND)
            continue;
        if (tn_name_equal(entry->name, tn_build_short_name(name)) && names_kind(name, entry->kind))
            other = entry;
        else if (is_kind(seat, entry->kind) && n < TN_KNOWN_MAX && !(n > 0 && tn_name_equal(known[n - 1], entry->name)))
            known[n++] = entry->name;
    }
    char kinds[128];
    kinds_text(seat, kinds);
    if (other && is_kind(seat, other->kind))
        return tn_place_error(build->err, TN_E_NOT_FOUND, place,
                              "%s '%s' is there for f%u on %s only; f%u on cpu is needed", other->kind, other->name,
                              other->real, other->device, build->real);
    if (other)
        return tn_place_unknown(build->err, TN_E_NOT_FOUND, place, name, known, n,
                                "'%s' is a component of kind %s, not %s", name, other->kind, kinds);
    return tn_place_unknown(build->err, TN_E_NOT_FOUND, place, name, known, n,
                            n ? "no %s is called '%s'" : "no %s is called '%s'; no plugin of that kind was found",
                            kinds, name);
}

static const char *const any_kind[] = {NULL};

/* The one entry of the seat's kinds with that name. */
static int32_t find(const tn_build *build, const tn_seat *seat, tn_place place, const char *name,
                    const tn_entry_info **ret)
{
    const tn_entry_info *found = NULL, *entry;
    const char *const *kind = seat->kinds ? seat->kinds : any_kind;
    tn_error inner;
    do {
        if (*kind && !names_kind(name, *kind))
            continue;
        const char *device = *kind && strcmp(*kind, "backend") == 0 ? NULL : "cpu";
        int32_t status =
            tn_registry_find(build->registry, *kind, tn_build_short_name(name), device, build->real, &entry, &inner);
        if (status == TN_E_NOT_FOUND)
            continue;
        if (status)
            return status == TN_E_MEMORY ? tn_place_no_memory(build->err)
                                         : tn_place_error(build->err, status, place, "%s", inner.msg);
        if (found)
            return tn_place_error(build->err, TN_E_INVALID, place, "'%s' is both %s and %s; write %s/%s or %s/%s", name,
                                  found->kind, entry->kind, found->kind, name, entry->kind, name);
        found = entry;
    } while (*kind && *++kind);
    if (!found)
        return not_found(build, seat, place, name);
    *ret = found;
    return TN_OK;
}

/* ---- building ---- */

int32_t tn_build_check_keys(const tn_yaml *mapping, const char *const *known, size_t n, const char *owner,
                            tn_error *err)
{
    for (const tn_yaml *entry = mapping->first; entry; entry = entry->next) {
        size_t i = 0;
        while (i < n && !tn_name_equal(known[i], entry->key))
            i++;
        if (i == n)
            return tn_place_unknown(err, TN_E_INVALID, entry->key_place, entry->key, known, n, "unknown key '%s' of %s",
                                    entry->key, owner);
    }
    return TN_OK;
}

#define OWNER_MAX 80

static const char *owner_of(const tn_instance *instance, char out[OWNER_MAX])
{
    snprintf(out, OWNER_MAX, "%s '%s'", instance->info->kind, instance->info->name);
    return out;
}

/* The entry must be `use`, a key of the host or a row. */
static int32_t check_entry(const tn_build *build, const tn_instance *instance, const tn_seat *seat,
                           const tn_yaml *entry)
{
    if (tn_name_equal(entry->key, "use") || is_among(entry->key, seat->host_keys) ||
        tn_instance_row(instance, entry->key))
        return TN_OK;
    const char *known[TN_KNOWN_MAX] = {"use"};
    size_t n = 1;
    for (const char *const *key = seat->host_keys; key && *key; key++)
        known[n++] = *key;
    for (size_t i = 0; i < instance->info->row_count && n < TN_KNOWN_MAX; i++)
        known[n++] = instance->info->rows[i].name;
    char owner[OWNER_MAX];
    return tn_place_unknown(build->err, TN_E_INVALID, entry->key_place, entry->key, known, n, "unknown key '%s' of %s",
                            entry->key, owner_of(instance, owner));
}

/* Puts `child` (NULL: none) in the place of what a `component` row had. There is room for it. */
static void put_child(tn_instance *instance, const tn_row *row, tn_instance *child)
{
    int64_t *handle = value_of(instance, row), old = *handle;
    if (old >= 0 && child) {
        tn_instance_free(instance->children[old]);
        instance->children[old] = child;
    } else if (child) {
        *handle = (int64_t)instance->child_count;
        instance->children[instance->child_count++] = child;
    } else if (old >= 0) {
        tn_instance_free(instance->children[old]);
        size_t after = --instance->child_count - (size_t)old;
        memmove(&instance->children[old], &instance->children[old + 1], after * sizeof *instance->children);
        for (size_t i = 0; i < instance->info->row_count; i++) {
            int64_t *other = value_of(instance, &instance->info->rows[i]);
            if (instance->info->rows[i].type == TN_TYPE_COMPONENT && *other > old)
                --*other;
        }
        *handle = -1;
    }
}

static int32_t set_component(const tn_build *build, tn_instance *instance, const tn_row *row, const tn_yaml *node,
                             tn_place place)
{
    const char *kinds[] = {row->range_text, NULL}, *name;
    int must_say = node && strcmp(row->default_text, "none") == 0; /* keys without `use` are of no component then */
    tn_seat seat = {kinds, NULL, must_say ? NULL : row->default_text};
    int32_t status = tn_build_name(build, &seat, node, place, &name);
    if (status)
        return status;
    tn_instance *child = NULL;
    if (strcmp(name, "none") == 0) {
        const char *none_takes[] = {"use"};
        status = node ? tn_build_check_keys(node, none_takes, 1, "'none'", build->err) : TN_OK;
    } else {
        tn_build inner = *build;
        inner.depth++;
        char *path = tn_format("%s.%s", instance->path, row->name);
        status =
            path ? tn_build_instance(&inner, &seat, node, place, path, NULL, &child) : tn_place_no_memory(build->err);
        tn_free(path);
    }
    if (!status)
        put_child(instance, row, child);
    return status;
}

int tn_instance_fits(const tn_instance *instance, double value)
{
    if (instance->info->real != 32 || value == 0 || !isfinite(value))
        return 1;
    return fabs(value) <= FLT_MAX && (float)value != 0;
}

/* A number that the component would make 0 or inf of, an eps that would be none, is refused rather than silently lost.
 */
static int32_t check_precision(const tn_build *build, const tn_instance *instance, const tn_row *row,
                               const tn_yaml *node)
{
    if ((row->type != TN_TYPE_REAL && row->type != TN_TYPE_FIXED) || instance->info->real != 32)
        return TN_OK;
    double value = *tn_instance_real(instance, row);
    if (tn_instance_fits(instance, value))
        return TN_OK;
    return tn_place_error(build->err, TN_E_INVALID, node->place,
                          "%s: %g would be %s in f32; give a number that f32 holds, or `precision: f64`", row->name,
                          value, fabs(value) < 1 ? "0" : "inf");
}

/* A row from a value; NULL: its default. */
static int32_t set_row(const tn_build *build, tn_instance *instance, const tn_row *row, const tn_yaml *node,
                       tn_place place)
{
    char owner[OWNER_MAX];
    owner_of(instance, owner);
    if (row->type == TN_TYPE_COMPONENT)
        return set_component(build, instance, row, node, node ? node->place : place);
    if (!node)
        return tn_value_default(row, owner, value_of(instance, row), build->err);
    int32_t status = tn_value_set(row, owner, node, value_of(instance, row), build->err);
    return status ? status : check_precision(build, instance, row, node);
}

/* Keys of the host can not be a component's too. */
static int32_t check_rows(const tn_build *build, const tn_instance *instance, const tn_seat *seat, tn_place place)
{
    for (size_t i = 0; i < instance->info->row_count; i++) {
        const char *name = instance->info->rows[i].name;
        if (strcmp(name, "use") == 0 || is_among(name, seat->host_keys))
            return tn_place_error(
                build->err, TN_E_PLUGIN, place,
                "%s '%s' declares a row '%s', which is a key of the experiment itself; rename the row",
                instance->info->kind, instance->info->name, name);
    }
    return TN_OK;
}

static int32_t set_rows(const tn_build *build, tn_instance *instance, const tn_seat *seat, const tn_yaml *node,
                        tn_place place)
{
    int is_mapping = node && node->kind == TN_YAML_MAPPING;
    for (const tn_yaml *entry = is_mapping ? node->first : NULL; entry; entry = entry->next) {
        int32_t status = check_entry(build, instance, seat, entry);
        if (status)
            return status;
    }
    int32_t status = check_rows(build, instance, seat, place);
    for (size_t i = 0; i < instance->info->row_count && !status; i++) {
        const tn_row *row = &instance->info->rows[i];
        status = set_row(build, instance, row, tn_yaml_get(node, row->name), place);
    }
    return status;
}

/* Memory for the component's hyper struct, which ends in 8 bytes that nobody reads, and its children. */
static int32_t allocate(const tn_build *build, const char *path, const char *handle, tn_instance *instance)
{
    const tn_component_info *info = instance->info;
    size_t components = 0;
    instance->path = tn_strdup(path);
    instance->handle = tn_strdup(handle ? handle : info->name);
    instance->hyper_size = info->hyper_size;
    instance->hyper = tn_alloc(1, info->hyper_size + 8);
    for (size_t i = 0; instance->hyper && i < info->row_count; i++)
        if (info->rows[i].type == TN_TYPE_COMPONENT) {
            *(int64_t *)value_of(instance, &info->rows[i]) = -1;
            components++;
        }
    instance->children = tn_alloc(components, sizeof *instance->children);
    int complete = instance->path && instance->handle && instance->hyper && instance->children;
    return complete ? TN_OK : tn_place_no_memory(build->err);
}

static int32_t find_info(const tn_build *build, tn_place place, tn_instance *instance)
{
    tn_error inner;
    int32_t status = tn_registry_info(build->registry, instance->entry, &instance->info, &inner);
    if (!status)
        return TN_OK;
    return status == TN_E_MEMORY ? tn_place_no_memory(build->err)
                                 : tn_place_error(build->err, status, place, "%s", inner.msg);
}

int32_t tn_build_instance(const tn_build *build, const tn_seat *seat, const tn_yaml *node, tn_place place,
                          const char *path, const char *handle, tn_instance **ret)
{
    const char *name;
    if (node)
        place = node->place;
    if (build->depth > NESTING_MAX)
        return tn_place_error(build->err, TN_E_INVALID, place, "%s: more than %d components within one another", path,
                              NESTING_MAX);
    int32_t status = tn_build_name(build, seat, node, place, &name);
    if (status)
        return status;
    tn_instance *instance = tn_alloc(1, sizeof *instance);
    if (!instance)
        return tn_place_no_memory(build->err);
    const tn_yaml *use = tn_yaml_get(node, "use");
    instance->real = build->real;
    instance->kind_given = tn_build_short_name(name) != name;
    status = find(build, seat, use ? use->place : place, name, &instance->entry);
    if (!status)
        status = find_info(build, place, instance);
    if (!status)
        status = allocate(build, path, handle, instance);
    if (!status)
        status = set_rows(build, instance, seat, node, place);
    if (!status)
        status = tn_foreign_examine(instance, node, place, build->err);
    if (status) {
        tn_instance_free(instance);
        return status;
    }
    *ret = instance;
    return TN_OK;
}

/* ---- from text ---- */

/* A setting's text as a value. `text` and its label live as long as the tree. */
static int32_t parse_setting(tn_yaml_tree *tree, const char *path, const tn_setting *setting, tn_place_text *text,
                             tn_yaml **ret, tn_error *err)
{
    char *label = tn_format("%s: setting '%s=%s'", path, setting->name, setting->value);
    if (!label)
        return tn_place_no_memory(err);
    *text = (tn_place_text){label, setting->value, strlen(setting->value), 0};
    return tn_yaml_parse(tree, text, ret, err);
}

/* All settings as one mapping. */
static int32_t parse_settings(tn_yaml_tree *tree, const char *path, const tn_setting *settings, size_t count,
                              tn_place_text *texts, tn_yaml *mapping, tn_error *err)
{
    for (size_t i = 0; i < count; i++) {
        tn_yaml *value;
        int32_t status = parse_setting(tree, path, &settings[i], &texts[i], &value, err);
        tn_place place = {&texts[i], 0};
        if (!status && (tn_yaml_get(mapping, settings[i].name) || tn_name_equal(settings[i].name, "use")))
            status = tn_place_error(err, TN_E_INVALID, place, "'%s' can not be given here, or is given twice",
                                    settings[i].name);
        if (!status)
            status = tn_yaml_put(tree, mapping, settings[i].name, place, value, err);
        if (status)
            return status;
    }
    return TN_OK;
}

int32_t tn_instance_create(tn_registry *registry, const char *kind, const char *name, uint32_t real, const char *path,
                           const tn_setting *settings, size_t setting_count, tn_instance **ret, tn_error *err)
{
    const char *kinds[] = {kind, NULL};
    tn_seat seat = {kind ? kinds : NULL, NULL, name};
    tn_build build = {registry, real, 0, err};
    tn_place_text here = {path, "", 0, 0}, *texts = tn_alloc(setting_count, sizeof *texts);
    tn_yaml_tree tree = {0};
    tn_yaml *mapping;
    int32_t status = texts ? tn_yaml_new(&tree, TN_YAML_MAPPING, NULL, (tn_place){&here, 0}, &mapping, err)
                           : tn_place_no_memory(err);
    if (!status)
        status = parse_settings(&tree, path, settings, setting_count, texts, mapping, err);
    if (!status)
        status = tn_build_instance(&build, &seat, mapping, mapping->place, path, NULL, ret);
    tn_yaml_free(&tree);
    for (size_t i = 0; texts && i < setting_count; i++)
        tn_free((char *)(uintptr_t)texts[i].label);
    tn_free(texts);
    return status;
}

/* A row of an instance that is there; what it had stays where the new value is refused, by itself or beside others. */
static int32_t change_row(const tn_build *build, tn_instance *instance, const tn_row *row, const tn_yaml *value)
{
    tn_integers old = {0}; /* the longest value */
    if (!instance->entry->own)
        return set_row(build, instance, row, value, value->place);
    memcpy(&old, value_of(instance, row), row->size);
    memset(value_of(instance, row), 0, row->size);
    int32_t status = set_row(build, instance, row, value, value->place);
    if (!status)
        status = tn_foreign_examine(instance, NULL, value->place, build->err);
    if (status) {
        tn_value_free(row, value_of(instance, row));
        memcpy(value_of(instance, row), &old, row->size);
        return status;
    }
    tn_value_free(row, &old);
    tn_foreign_unbind(instance);
    return TN_OK;
}

int32_t tn_instance_set(tn_instance *instance, tn_registry *registry, const char *row_name, const char *text,
                        tn_error *err)
{
    const tn_row *row = tn_instance_row(instance, row_name);
    const char *known[TN_KNOWN_MAX];
    size_t n = 0;
    char owner[OWNER_MAX];
    for (; n < instance->info->row_count && n < TN_KNOWN_MAX; n++)
        known[n] = instance->info->rows[n].name;
    if (!row)
        return tn_place_unknown(err, TN_E_NOT_FOUND, (tn_place){0}, row_name, known, n, "%s: unknown key '%s' of %s",
                                instance->path, row_name, owner_of(instance, owner));
    tn_build build = {registry, instance->real, 0, err};
    tn_place_text source = {0};
    tn_yaml_tree tree = {0};
    tn_yaml *value;
    int32_t status = parse_setting(&tree, instance->path, &(tn_setting){row_name, text}, &source, &value, err);
    if (!status)
        status = change_row(&build, instance, row, value);
    tn_yaml_free(&tree);
    tn_free((char *)(uintptr_t)source.label);
    return status;
}
