/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_against.c: a plugin against an earlier build of it. Versions are semantic: what breaks those who use it needs a
 * new first number (0.x: second), any other change a new version.
 */
#include <stdlib.h>
#include <string.h>

#include "host/check/rules_file.h"

typedef struct {
    tn_registry *old_registry;
    const tn_component_info *old, *new;
    bool is_same;   /* the versions are equal */
    bool may_break; /* the first numbers differ */
    char label[96]; /* "optimizer/lion f32" */
    tn_check_finding *finding;
} comparison;

/* "2" of "2.1.0", "0.3" of "0.3.1": within one, nothing may break. */
static size_t series(const char *version)
{
    size_t n = strcspn(version, ".");
    return strtol(version, NULL, 10) == 0 && version[n] ? n + 1 + strcspn(version + n + 1, ".") : n;
}

static bool same_series(const char *a, const char *b)
{
    return series(a) == series(b) && strncmp(a, b, series(a)) == 0;
}

/* Of what breaks users, and of what only changes results. */
#define BREAKS(c)  (!(c)->may_break)
#define CHANGES(c) ((c)->is_same)

static const tn_row *find_row(const tn_component_info *info, const char *name)
{
    for (size_t i = 0; i < info->row_count; i++)
        if (strcmp(info->rows[i].name, name) == 0)
            return &info->rows[i];
    return NULL;
}

static bool has_choice(const tn_row *row, const char *word)
{
    for (size_t i = 0; i < row->choice_count; i++)
        if (strcmp(row->choices[i], word) == 0)
            return true;
    return false;
}

static void compare_row(const comparison *c, const tn_row *old, const tn_row *new)
{
    if (!new) {
        if (BREAKS(c))
            tn_check_fail(c->finding, "%s: row %s of version %s is gone; keep it, or raise the version's first number",
                          c->label, old->name, c->old->version);
        return;
    }
    if (old->type != new->type && BREAKS(c))
        tn_check_fail(c->finding, "%s: row %s is of type %s, was %s", c->label, old->name, tn_type_name(new->type),
                      tn_type_name(old->type));
    for (size_t i = 0; i < old->choice_count && BREAKS(c); i++)
        if (!has_choice(new, old->choices[i]))
            tn_check_fail(c->finding, "%s: row %s no longer takes \"%s\"", c->label, old->name, old->choices[i]);
    if (strcmp(old->default_text, new->default_text) != 0 && CHANGES(c))
        tn_check_fail(c->finding, "%s: the default of row %s is %s, was %s in the same version %s; raise the version",
                      c->label, old->name, new->default_text, old->default_text, c->old->version);
    if (strcmp(old->range_text, new->range_text) != 0 && CHANGES(c))
        tn_check_fail(c->finding, "%s: the range of row %s is \"%s\", was \"%s\" in the same version %s", c->label,
                      old->name, new->range_text, old->range_text, c->old->version);
}

static void compare_facts(const comparison *c)
{
    const char *key;
    json_t *value;
    json_object_foreach(c->old->facts, key, value)
        if (!json_equal(value, json_object_get(c->new->facts, key)) && CHANGES(c))
            tn_check_fail(c->finding, "%s: \"%s\" of the note is another than in the same version %s%s", c->label, key,
                          c->old->version, strcmp(key, "slots") ? "" : ", so that checkpoints differ");
    json_object_foreach(c->new->facts, key, value)
        if (!json_object_get(c->old->facts, key) && CHANGES(c))
            tn_check_fail(c->finding, "%s: \"%s\" of the note was not there in the same version %s", c->label, key,
                          c->old->version);
}

static void compare_component(const comparison *c)
{
    for (size_t i = 0; i < c->old->row_count; i++)
        compare_row(c, &c->old->rows[i], find_row(c->new, c->old->rows[i].name));
    for (size_t i = 0; i < c->new->row_count; i++)
        if (!find_row(c->old, c->new->rows[i].name) && CHANGES(c))
            tn_check_fail(c->finding, "%s: row %s was not there in the same version %s", c->label, c->new->rows[i].name,
                          c->old->version);
    if (strcmp(c->old->interface, c->new->interface) != 0 && CHANGES(c))
        tn_check_fail(c->finding, "%s: it stands behind %s, in the same version %s behind %s", c->label,
                      c->new->interface, c->old->version, c->old->interface);
    compare_facts(c);
}

static const tn_entry_info *find_entry(const tn_registry *registry, const char *path, const tn_entry_info *like)
{
    for (size_t i = 0; i < tn_registry_count(registry); i++) {
        const tn_entry_info *e = tn_registry_at(registry, i);
        if (strcmp(e->path, path) == 0 && e->state != TN_REFUSED && e->real == like->real &&
            !strcmp(e->kind, like->kind) && !strcmp(e->name, like->name) && !strcmp(e->device, like->device))
            return e;
    }
    return NULL;
}

/* The version of the file as a whole, whose components may all be others. */
static const char *version_in(const tn_registry *registry, const char *path)
{
    for (size_t i = 0; i < tn_registry_count(registry); i++)
        if (strcmp(tn_registry_at(registry, i)->path, path) == 0)
            return tn_registry_at(registry, i)->version;
    return "";
}

static void compare_entry(const tn_check_subject *subject, comparison *c, const tn_entry_info *old)
{
    tn_error err = {0};
    const tn_entry_info *new = find_entry(subject->registry, subject->path, old);
    snprintf(c->label, sizeof c->label, "%s/%s (%s %s)", old->kind, old->name, old->device,
             tn_real_name(old->real, "any"));
    if (!new) {
        if (BREAKS(c))
            tn_check_fail(c->finding, "%s of version %s is gone; keep it, or raise the version's first number",
                          c->label, old->version);
        return;
    }
    if (tn_registry_info(c->old_registry, old, &c->old, &err) != TN_OK ||
        tn_registry_info(subject->registry, new, &c->new, &err) != TN_OK)
        tn_check_skip(c->finding, "%s", err.msg);
    else
        compare_component(c);
}

void tn_check_against(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_error err = {0};
    comparison c = {.finding = finding};
    if (tn_registry_open(NULL, &c.old_registry, &err) != TN_OK ||
        tn_registry_add_file(c.old_registry, subject->against, &err) != TN_OK) {
        tn_check_skip(finding, "the earlier build can not be read: %s", err.msg);
        return;
    }
    const char *old = version_in(c.old_registry, subject->against);
    const char *new = version_in(subject->registry, subject->path);
    c.is_same = strcmp(old, new) == 0;
    c.may_break = !same_series(old, new);
    for (size_t i = 0; i < tn_registry_count(c.old_registry); i++) {
        const tn_entry_info *entry = tn_registry_at(c.old_registry, i);
        if (strcmp(entry->path, subject->against) == 0 && entry->state != TN_REFUSED)
            compare_entry(subject, &c, entry);
    }
}
