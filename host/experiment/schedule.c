/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule.c: the section `schedule` of an experiment.
 */
#include "host/experiment/schedule.h"

#include <math.h>
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

/* Target and row from the key "handle.row". */
static int32_t find(const tn_build *build, const tn_experiment *e, const tn_yaml *entry, tn_instance **ret_target,
                    const tn_row **ret_row)
{
    const char *dot = strrchr(entry->key, '.');
    if (!dot || dot == entry->key || !dot[1])
        return tn_place_error(build->err, TN_E_INVALID, entry->key_place,
                              "schedule: needed HANDLE.ROW, such as adamw.lr; found '%s'", entry->key);
    char *name = tn_strndup(entry->key, (size_t)(dot - entry->key));
    if (!name)
        return tn_place_no_memory(build->err);
    int32_t status = find_target(build, e, entry, name, ret_target);
    tn_free(name);
    return status ? status : find_row(build, *ret_target, entry, dot + 1, ret_row);
}

int32_t tn_schedule_find(const tn_experiment *experiment, const char *label, const char *name, tn_instance **ret_target,
                         const tn_row **ret_row, tn_error *err)
{
    const tn_place_text text = {label, name, strlen(name), 0};
    const tn_yaml entry = {.key = name, .key_place = {&text, TN_WHOLE}};
    const tn_build build = {.err = err};
    return find(&build, experiment, &entry, ret_target, ret_row);
}

/* Sets target and row. */
static int32_t find_own(const tn_build *build, const tn_experiment *e, const tn_yaml *entry, tn_schedule *schedule)
{
    int32_t status = find(build, e, entry, &schedule->target, &schedule->row);
    for (size_t i = 0; !status && i < e->schedule_count; i++)
        if (e->schedules[i].row == schedule->row && e->schedules[i].target == schedule->target)
            return tn_place_error(build->err, TN_E_INVALID, entry->key_place, "schedule: '%s' is scheduled twice",
                                  entry->key);
    return status;
}

/* ---- segments ---- */

/* Adds the scheduler that `node` says. */
static int32_t add_scheduler(const tn_build *build, const tn_yaml *node, int32_t factor, tn_schedule *schedule)
{
    static const char *const kinds[] = {"scheduler", NULL};
    const tn_seat seat = {kinds, NULL, NULL};
    size_t i = schedule->segment_count;
    char *path = tn_format("schedule.%s.%s.%zu", tn_instance_call(schedule->target), schedule->row->name, i);
    int32_t status = path ? tn_build_instance(build, &seat, node, node->place, path, NULL, &schedule->segments[i])
                          : tn_place_no_memory(build->err);
    tn_free(path);
    if (status)
        return status;
    schedule->lengths[i].factor = factor;
    schedule->segment_count++;
    return TN_OK;
}

static int32_t add_single(const tn_build *build, const tn_yaml *node, int is_last, tn_schedule *schedule)
{
    int32_t status = add_scheduler(build, node, TN_SEGMENT_ALONE, schedule);
    if (status)
        return status;
    const tn_instance *scheduler = schedule->segments[schedule->segment_count - 1];
    const tn_row *steps = tn_instance_row(scheduler, "steps");
    if (!is_last && (!steps || steps->type != TN_TYPE_INTEGER))
        return tn_place_error(build->err, TN_E_INVALID, node->place,
                              "schedule: scheduler '%s' has no row 'steps', so it can only be the last",
                              scheduler->info->name);
    int64_t length = steps && steps->type == TN_TYPE_INTEGER ? tn_instance_integer(scheduler, steps) : 0;
    if (!is_last && length <= 0)
        return tn_place_error(build->err, TN_E_INVALID, node->place,
                              "schedule: scheduler '%s' needs 'steps' > 0, since another follows",
                              scheduler->info->name);
    schedule->lengths[schedule->segment_count - 1].steps = length;
    return TN_OK;
}

/* The factors of `{product: [...], steps: n}`, or NULL. */
static const tn_yaml *product_of(const tn_yaml *node)
{
    return node->kind == TN_YAML_MAPPING ? tn_yaml_get(node, "product") : NULL;
}

static int32_t product_steps(const tn_build *build, const tn_yaml *node, int is_last, int64_t *ret)
{
    static const tn_row row = {.name = "steps",
                               .type = TN_TYPE_INTEGER,
                               .range_text = "[0, inf)",
                               .range = {0, HUGE_VAL, 0, 1, 0, "", ""},
                               .size = sizeof(int64_t)};
    const tn_yaml *steps = tn_yaml_get(node, "steps");
    int32_t status = steps ? tn_value_set(&row, "a product", steps, ret, build->err) : TN_OK;
    if (status || is_last || *ret > 0)
        return status;
    return tn_place_error(build->err, TN_E_INVALID, node->place,
                          "schedule: a product needs 'steps' > 0, since another scheduler follows");
}

static int32_t add_product(const tn_build *build, const tn_yaml *node, int is_last, tn_schedule *schedule)
{
    static const char *const known[] = {"product", "steps"};
    const tn_yaml *factors = product_of(node);
    char found[TN_FOUND_MAX];
    int64_t steps = 0;
    int32_t status = tn_build_check_keys(node, known, 2, "a product", build->err);
    tn_value_found(factors, found);
    if (!status && (factors->kind != TN_YAML_SEQUENCE || factors->count == 0))
        return tn_place_error(build->err, TN_E_INVALID, factors->place,
                              "schedule: a product takes a list of schedulers; found %s", found);
    if (!status)
        status = product_steps(build, node, is_last, &steps);
    for (const tn_yaml *factor = factors->first; factor && !status; factor = factor->next)
        if (product_of(factor))
            status = tn_place_error(build->err, TN_E_INVALID, factor->place,
                                    "schedule: a factor is a scheduler, not a product; write all factors in one list");
    for (const tn_yaml *factor = status ? NULL : factors->first; factor && !status; factor = factor->next) {
        status = add_scheduler(build, factor, factor == factors->first ? TN_SEGMENT_FIRST : TN_SEGMENT_NEXT, schedule);
        if (!status)
            schedule->lengths[schedule->segment_count - 1].steps = steps;
    }
    return status;
}

/* Schedulers in a segment, at least 1. */
static size_t scheduler_count(const tn_yaml *node)
{
    const tn_yaml *factors = product_of(node);
    return factors && factors->kind == TN_YAML_SEQUENCE && factors->count ? factors->count : 1;
}

static int32_t reserve(const tn_build *build, const tn_yaml *first, size_t count, tn_schedule *schedule)
{
    size_t schedulers = 0;
    for (size_t i = 0; i < count; i++, first = first->next)
        schedulers += scheduler_count(first);
    schedule->segments = tn_alloc(schedulers, sizeof *schedule->segments);
    schedule->lengths = tn_alloc(schedulers, sizeof *schedule->lengths);
    return schedule->segments && schedule->lengths ? TN_OK : tn_place_no_memory(build->err);
}

static int32_t add_schedule(const tn_build *build, const tn_yaml *entry, tn_experiment *e)
{
    tn_schedule *schedule = &e->schedules[e->schedule_count];
    int is_list = entry->kind == TN_YAML_SEQUENCE;
    size_t count = is_list ? entry->count : 1;
    int32_t status = find_own(build, e, entry, schedule);
    if (status)
        return status;
    if (!count)
        return tn_place_error(build->err, TN_E_INVALID, entry->place, "schedule: '%s' needs a scheduler", entry->key);
    schedule->base = *tn_instance_real(schedule->target, schedule->row);
    e->schedule_count++;
    const tn_yaml *node = is_list ? entry->first : entry;
    status = reserve(build, node, count, schedule);
    for (size_t i = 0; i < count && !status; i++, node = node->next)
        status = product_of(node) ? add_product(build, node, i + 1 == count, schedule)
                                  : add_single(build, node, i + 1 == count, schedule);
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
