/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule.c: the section `schedule` of an experiment.
 */
#include "host/experiment/schedule.h"

#include <string.h>

#include "host/base/memory.h"
#include "host/experiment/value.h"

/* ---- targets ---- */

static const char links[] = "update.";

const char *tn_instance_call(const tn_instance *instance)
{
    size_t length = sizeof links - 1;
    return instance->path + (strncmp(instance->path, links, length) == 0 ? length : 0);
}

/* The i-th component that stands in no other; NULL after the last. */
static tn_instance *root_at(const tn_experiment *e, size_t i)
{
    tn_instance *single[] = {e->data,    e->model,       e->loss,       e->backend,  e->collective,
                             e->storage, e->state_codec, e->loss_scale, e->recompute};
    for (size_t n = 0; n < sizeof single / sizeof *single; n++)
        if (single[n] && i-- == 0)
            return single[n];
    if (i < e->update_count)
        return e->update[i];
    i -= e->update_count;
    return i < e->sink_count ? e->sinks[i] : NULL;
}

/* The instance of that path within `instance`, or NULL; collects the names of all on the way. */
static tn_instance *find_within(tn_instance *instance, const char *name, const char **known, size_t *n)
{
    if (tn_name_equal(name, tn_instance_call(instance)) || tn_name_equal(name, instance->path))
        return instance;
    if (*n < TN_KNOWN_MAX)
        known[(*n)++] = tn_instance_call(instance);
    for (size_t i = 0; i < instance->child_count; i++) {
        tn_instance *found = find_within(instance->children[i], name, known, n);
        if (found)
            return found;
    }
    return NULL;
}

static int32_t find_target(const tn_build *build, const tn_experiment *e, const tn_yaml *entry, const char *name,
                           tn_instance **ret)
{
    const char *known[TN_KNOWN_MAX];
    size_t n = 0;
    tn_instance *root;
    for (size_t i = 0; (root = root_at(e, i)); i++) {
        *ret = find_within(root, name, known, &n);
        if (*ret)
            return TN_OK;
    }
    return tn_place_unknown(build->err, TN_E_INVALID, entry->key_place, name, known, n,
                            "schedule: nothing is called '%s'", name);
}

static int32_t find_row(const tn_build *build, const tn_instance *target, const tn_yaml *entry, const char *name,
                        const tn_row **ret)
{
    const char *known[TN_KNOWN_MAX];
    size_t n = 0;
    const tn_row *row = tn_instance_row(target, name);
    if (row && row->type == TN_TYPE_REAL) {
        *ret = row;
        return TN_OK;
    }
    for (size_t i = 0; i < target->info->row_count && n < TN_KNOWN_MAX; i++)
        if (target->info->rows[i].type == TN_TYPE_REAL)
            known[n++] = target->info->rows[i].name;
    if (row)
        return tn_place_unknown(build->err, TN_E_INVALID, entry->key_place, "", known, n,
                                "schedule: '%s' of %s '%s' is %s and stays as it is; only real rows change", row->name,
                                target->info->kind, target->info->name, tn_type_name(row->type));
    return tn_place_unknown(build->err, TN_E_INVALID, entry->key_place, name, known, n,
                            "schedule: %s '%s' has no row '%s'", target->info->kind, target->info->name, name);
}

/* Sets target and row from the key "handle.row". */
static int32_t find(const tn_build *build, const tn_experiment *e, const tn_yaml *entry, tn_schedule *schedule)
{
    const char *dot = strrchr(entry->key, '.');
    if (!dot || dot == entry->key || !dot[1])
        return tn_place_error(build->err, TN_E_INVALID, entry->key_place,
                              "schedule: needed HANDLE.ROW, such as adamw.lr; found '%s'", entry->key);
    char *name = tn_strndup(entry->key, (size_t)(dot - entry->key));
    if (!name)
        return tn_place_no_memory(build->err);
    int32_t status = find_target(build, e, entry, name, &schedule->target);
    tn_free(name);
    if (!status)
        status = find_row(build, schedule->target, entry, dot + 1, &schedule->row);
    for (size_t i = 0; !status && i < e->schedule_count; i++)
        if (e->schedules[i].row == schedule->row && e->schedules[i].target == schedule->target)
            return tn_place_error(build->err, TN_E_INVALID, entry->key_place, "schedule: '%s' is scheduled twice",
                                  entry->key);
    return status;
}

/* ---- segments ---- */

/* All but the last must say how long they are. */
static int32_t check_length(const tn_build *build, const tn_instance *segment, const tn_yaml *node)
{
    const tn_row *steps = tn_instance_row(segment, "steps");
    if (!steps || steps->type != TN_TYPE_INTEGER)
        return tn_place_error(build->err, TN_E_INVALID, node->place,
                              "schedule: scheduler '%s' has no row 'steps', so it can only be the last",
                              segment->info->name);
    if (tn_instance_integer(segment, steps) <= 0)
        return tn_place_error(build->err, TN_E_INVALID, node->place,
                              "schedule: scheduler '%s' needs 'steps' > 0, since another follows", segment->info->name);
    return TN_OK;
}

static int32_t add_segment(const tn_build *build, const tn_yaml *node, int is_last, tn_schedule *schedule)
{
    static const char *const kinds[] = {"scheduler", NULL};
    const tn_seat seat = {kinds, NULL, NULL};
    tn_instance **segment = &schedule->segments[schedule->segment_count];
    char *path = tn_format("schedule.%s.%s.%zu", tn_instance_call(schedule->target), schedule->row->name,
                           schedule->segment_count);
    int32_t status =
        path ? tn_build_instance(build, &seat, node, node->place, path, NULL, segment) : tn_place_no_memory(build->err);
    tn_free(path);
    if (status)
        return status;
    schedule->segment_count++;
    return is_last ? TN_OK : check_length(build, *segment, node);
}

static int32_t add_schedule(const tn_build *build, const tn_yaml *entry, tn_experiment *e)
{
    tn_schedule *schedule = &e->schedules[e->schedule_count];
    int is_list = entry->kind == TN_YAML_SEQUENCE;
    size_t count = is_list ? entry->count : 1;
    int32_t status = find(build, e, entry, schedule);
    if (status)
        return status;
    if (!count)
        return tn_place_error(build->err, TN_E_INVALID, entry->place, "schedule: '%s' needs a scheduler", entry->key);
    schedule->base = *tn_instance_real(schedule->target, schedule->row);
    schedule->segments = tn_alloc(count, sizeof *schedule->segments);
    if (!schedule->segments)
        return tn_place_no_memory(build->err);
    e->schedule_count++;
    const tn_yaml *node = is_list ? entry->first : entry;
    for (size_t i = 0; i < count && !status; i++, node = node->next)
        status = add_segment(build, node, i + 1 == count, schedule);
    return status;
}

int32_t tn_schedules_build(const tn_build *build, const tn_yaml *section, tn_experiment *experiment)
{
    char found[TN_FOUND_MAX];
    if (!section || (section->kind == TN_YAML_SCALAR && strcmp(section->value, "none") == 0))
        return TN_OK;
    if (section->kind != TN_YAML_MAPPING) {
        tn_value_found(section, found);
        return tn_place_error(build->err, TN_E_INVALID, section->place,
                              "schedule takes a mapping of HANDLE.ROW to schedulers; found %s", found);
    }
    experiment->schedules = tn_alloc(section->count, sizeof *experiment->schedules);
    if (!experiment->schedules)
        return tn_place_no_memory(build->err);
    int32_t status = TN_OK;
    for (const tn_yaml *entry = section->first; entry && !status; entry = entry->next)
        status = add_schedule(build, entry, experiment);
    return status;
}
