/* SPDX-License-Identifier: Apache-2.0
 *
 * experiment.c: the sections of an experiment file.
 */
#include "host/experiment/experiment.h"

#include <math.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/base/pool.h"
#include "host/experiment/file.h"
#include "host/experiment/reader.h"
#include "host/experiment/resolved.h"
#include "host/experiment/schedule.h"
#include "host/experiment/value.h"

/* ---- the host's own keys: rows as components have them. Without default_text: 0 ---- */

static const tn_row name_row = {TN_OWN_ROW("name", TEXT, NULL, "", name)};
static const tn_row batch_row = {TN_OWN_ROW("batch", INTEGER, "64", "[1, 2147483647]", batch),
                                 .range = {1, 2147483647, 0, 0, 0, "", ""}};
static const tn_row train_rows[] = {
    {TN_OWN_ROW("epochs", REAL, NULL, "(0, inf)", epochs), .range = {0, HUGE_VAL, 1, 1, 0, "", ""}},
    {TN_OWN_ROW("steps", INTEGER, NULL, "[1, inf)", steps), .range = {1, HUGE_VAL, 0, 1, 0, "", ""}},
    {TN_OWN_ROW("accumulate", INTEGER, "1", "[1, 2147483647]", accumulate), .range = {1, 2147483647, 0, 0, 0, "", ""}},
    {TN_OWN_ROW("seed", INTEGER, "0", "[0, inf)", seed), .range = {0, HUGE_VAL, 0, 1, 0, "", ""}},
    {TN_OWN_ROW("threads", INTEGER, "0", "[0, 1024]", threads), .range = {0, TN_POOL_MAX, 0, 0, 0, "", ""}},
    {TN_OWN_ROW("check_finite", FLAG, "true", "", check_finite)},
    {TN_OWN_ROW("noise_scale", FLAG, "false", "", noise_scale)},
    {TN_OWN_ROW("from", TEXT, NULL, "", from)},
};
static const tn_row eval_rows[] = {
    {TN_OWN_ROW("split", TEXT, "test", "", split)},
    {TN_OWN_ROW("every", TEXT, "1 epoch", "", every)},
    {TN_OWN_ROW("batch", INTEGER, "0", "[0, 2147483647]", eval_batch), .range = {0, 2147483647, 0, 0, 0, "", ""}},
    {TN_OWN_ROW("refresh", INTEGER, "0", "[0, 2147483647]", refresh), .range = {0, 2147483647, 0, 0, 0, "", ""}},
    {TN_OWN_ROW("view", CHOICE, "eval", "train | eval", view), .choices = (char *[]){"train", "eval"},
     .choice_count = 2},
};
static const tn_row checkpoint_rows[] = {
    {TN_OWN_ROW("every", TEXT, "1 epoch", "", every)},
    {TN_OWN_ROW("keep", INTEGER, "3", "[0, inf)", keep), .range = {0, HUGE_VAL, 0, 1, 0, "", ""}},
    {TN_OWN_ROW("best", INTEGER, "1", "[0, inf)", best), .range = {0, HUGE_VAL, 0, 1, 0, "", ""}},
    {TN_OWN_ROW("metric", TEXT, "loss", "", metric)},
    {TN_OWN_ROW("mode", CHOICE, "min", "min | max", mode), .choices = (char *[]){"min", "max"}, .choice_count = 2},
};
#define SECTION_ROWS 8
_Static_assert(TN_COUNT(train_rows) <= SECTION_ROWS && TN_COUNT(eval_rows) <= SECTION_ROWS &&
                   TN_COUNT(checkpoint_rows) <= SECTION_ROWS,
               "read_section has no more room");

const char *const tn_reader_sections[] = {"name",     "data",    "model",     "loss",       "update",
                                          "schedule", "backend", "precision", "recompute",  "parallel",
                                          "sinks",    "train",   "eval",      "checkpoint", NULL};

/* ---- reading ---- */

int tn_reader_is_none(const tn_yaml *node)
{
    return node && node->kind == TN_YAML_SCALAR && !strcmp(node->value, "none");
}

/* A key of the host from a mapping; its default if the mapping does not give it. */
int32_t tn_reader_own(tn_reader *r, const tn_yaml *mapping, const tn_row *row, const char *owner)
{
    const tn_yaml *entry = tn_yaml_get(mapping, row->name);
    void *value = (char *)&r->own + row->offset;
    if (entry)
        return tn_value_set(row, owner, entry, value, r->err);
    return row->default_text ? tn_value_default(row, owner, value, r->err) : TN_OK;
}

int32_t tn_reader_needs_mapping(const tn_reader *r, const tn_yaml *section, const char *owner)
{
    char found[TN_FOUND_MAX];
    tn_value_found(section, found);
    return tn_place_error(r->err, TN_E_INVALID, section->place, "%s takes a mapping; found %s", owner, found);
}

/* A section of the host's keys. NULL: all at their defaults. */
static int32_t read_section(tn_reader *r, const tn_yaml *section, const tn_row *rows, size_t n, const char *owner)
{
    const char *known[SECTION_ROWS];
    int32_t status = TN_OK;
    for (size_t i = 0; i < n; i++)
        known[i] = rows[i].name;
    if (section && section->kind != TN_YAML_MAPPING)
        return tn_reader_needs_mapping(r, section, owner);
    if (section)
        status = tn_build_check_keys(section, known, n, owner, r->err);
    for (size_t i = 0; i < n && !status; i++)
        status = tn_reader_own(r, section, &rows[i], owner);
    return status;
}

tn_place tn_reader_whole(const tn_reader *r) { return (tn_place){&r->text, TN_WHOLE}; }

int32_t tn_reader_missing(const tn_reader *r, const char *section)
{
    return tn_place_error(r->err, TN_E_INVALID, tn_reader_whole(r),
                          "there is no section '%s'; data, model, loss, update and train are needed", section);
}

/* A component, the entry `key` of `parent`. One with a default name may be missing. */
static int32_t read_component(tn_reader *r, const tn_yaml *parent, const char *key, const char *path,
                              const tn_seat *seat, tn_instance **ret)
{
    const tn_yaml *node = tn_yaml_get(parent, key);
    if (!node && !seat->default_name)
        return tn_reader_missing(r, key);
    return tn_build_instance(&r->build, seat, node, tn_reader_whole(r), path, NULL, ret);
}

int32_t tn_reader_optional(tn_reader *r, const tn_yaml *parent, const char *key, const char *path, const char *kind,
                           tn_instance **ret)
{
    const tn_seat seat = {.kinds = TN_KINDS(kind)};
    const tn_yaml *node = tn_yaml_get(parent, key);
    return !node || tn_reader_is_none(node) ? TN_OK
                                            : tn_build_instance(&r->build, &seat, node, node->place, path, NULL, ret);
}

static int32_t read_data(tn_reader *r)
{
    const tn_seat seat = {.kinds = TN_KINDS("data"), .host_keys = (const char *const[]){"batch", NULL}};
    int32_t status = read_component(r, r->root, "data", "data", &seat, &r->e->data);
    if (!status)
        status = tn_reader_own(r, tn_yaml_get(r->root, "data"), &batch_row, "data");
    r->e->batch = r->own.batch;
    return status;
}

static int32_t read_parallel(tn_reader *r)
{
    const tn_seat seat = {.kinds = TN_KINDS("collective"), .default_name = "self"};
    const char *const known[] = {"collective"};
    const tn_yaml *section = tn_yaml_get(r->root, "parallel");
    if (section && section->kind != TN_YAML_MAPPING)
        return tn_reader_needs_mapping(r, section, "parallel");
    int32_t status = section ? tn_build_check_keys(section, known, 1, "parallel", r->err) : TN_OK;
    return status ? status : read_component(r, section, "collective", "parallel.collective", &seat, &r->e->collective);
}

static int32_t read_components(tn_reader *r)
{
    const tn_seat model = {.kinds = TN_KINDS("model")}, loss = {.kinds = TN_KINDS("loss")},
                  backend = {.kinds = TN_KINDS("backend"), .default_name = "openblas"};
    int32_t status = read_data(r);
    if (!status)
        status = read_component(r, r->root, "model", "model", &model, &r->e->model);
    if (!status)
        status = read_component(r, r->root, "loss", "loss", &loss, &r->e->loss);
    if (!status)
        status = read_component(r, r->root, "backend", "backend", &backend, &r->e->backend);
    if (!status)
        status = tn_reader_optional(r, r->root, "recompute", "recompute", "recompute", &r->e->recompute);
    return status ? status : read_parallel(r);
}
/* ---- sinks ---- */

static int32_t read_sink(tn_reader *r, const tn_yaml *node)
{
    const tn_seat seat = {.kinds = TN_KINDS("sink")};
    const char *name;
    int32_t status = tn_build_name(&r->build, &seat, node, node->place, &name);
    for (size_t i = 0; i < r->e->sink_count && !status; i++)
        if (tn_name_equal(r->e->sinks[i]->info->name, tn_build_short_name(name)))
            status = tn_place_error(r->err, TN_E_INVALID, node->place, "the sink '%s' is given twice", name);
    if (status)
        return status;
    char *path = tn_format("sinks.%s", tn_build_short_name(name));
    status = path ? tn_build_instance(&r->build, &seat, node, node->place, path, NULL, &r->e->sinks[r->e->sink_count])
                  : tn_place_no_memory(r->err);
    tn_free(path);
    r->e->sink_count += !status;
    return status;
}

static int32_t read_sinks(tn_reader *r)
{
    const tn_yaml *list = tn_yaml_get(r->root, "sinks");
    if (!list) /* an override took it away: a run without records on disk */
        return TN_OK;
    r->e->sinks = tn_alloc(list->count, sizeof *r->e->sinks);
    int32_t status = r->e->sinks ? TN_OK : tn_place_no_memory(r->err);
    for (const tn_yaml *node = list->first; node && !status; node = node->next)
        status = read_sink(r, node);
    return status;
}
/* ---- name, train, eval ---- */

#define NAME_MAX_BYTES 100

static int32_t check_name(const tn_reader *r, const tn_yaml *node)
{
    const char *name = r->own.name;
    size_t length = strlen(name);
    int bad = length == 0 || length > NAME_MAX_BYTES || name[0] == '.';
    for (size_t i = 0; i < length; i++)
        bad |= name[i] == '/' || (unsigned char)name[i] < ' ' || name[i] == 0x7F;
    return bad ? tn_place_error(r->err, TN_E_INVALID, node->place,
                                "'name' becomes part of a folder's name: needed 1 to %d bytes without '/' and control "
                                "characters, not beginning with '.'",
                                NAME_MAX_BYTES)
               : TN_OK;
}

/* The file's name without folder and .yaml, '-' for bytes that a name may not have. */
static char *default_name(const char *file)
{
    const char *slash = strrchr(file, '/'), *base = slash ? slash + 1 : file;
    size_t length = strlen(base), step;
    if (length > 5 && strcmp(base + length - 5, ".yaml") == 0)
        length -= 5;
    else if (length > 4 && strcmp(base + length - 4, ".yml") == 0)
        length -= 4;
    char *name = length ? tn_strndup(base, length) : tn_strdup("experiment");
    size_t end = 0;
    for (size_t at = 0; name && name[at]; at += step ? step : 1) {
        step = tn_place_character(name + at, strlen(name + at));
        if (!step || (unsigned char)name[at] < ' ' || name[at] == 0x7F || (at == 0 && name[at] == '.'))
            name[at] = '-';
        if (at + step <= NAME_MAX_BYTES)
            end = at + (step ? step : 1);
    }
    if (name && strlen(name) > NAME_MAX_BYTES)
        name[end] = 0;
    return name;
}

static int32_t read_name(tn_reader *r)
{
    const tn_yaml *node = tn_yaml_get(r->root, "name");
    int32_t status = tn_reader_own(r, r->root, &name_row, "");
    if (!status && node)
        status = check_name(r, node);
    if (!status && !node && !(r->own.name = default_name(r->e->file)))
        status = tn_place_no_memory(r->err);
    r->e->name = r->own.name;
    r->own.name = NULL;
    return status;
}

static int32_t read_train(tn_reader *r)
{
    const tn_yaml *section = tn_yaml_get(r->root, "train");
    if (!section)
        return tn_reader_missing(r, "train");
    int32_t status = read_section(r, section, train_rows, TN_COUNT(train_rows), "train");
    if (status)
        return status;
    const tn_yaml *steps = tn_yaml_get(section, "steps"), *epochs = tn_yaml_get(section, "epochs");
    if (!steps == !epochs)
        return tn_place_error(r->err, TN_E_INVALID, steps ? steps->key_place : section->place,
                              steps ? "train takes 'epochs' or 'steps', not both" : "train needs 'epochs' or 'steps'");
    r->e->epochs = r->own.epochs;
    r->e->steps = r->own.steps;
    r->e->accumulate = r->own.accumulate;
    r->e->seed = (uint64_t)r->own.seed;
    r->e->threads = r->own.threads;
    r->e->check_finite = r->own.check_finite != 0;
    r->e->noise_scale = r->own.noise_scale != 0;
    if (r->own.from && *r->own.from) {
        r->e->from = r->own.from;
        r->own.from = NULL;
    }
    return TN_OK;
}

/* "0.5 epochs", "500 steps". 0 if it is none. */
static int parse_period(const char *text, tn_period *ret)
{
    char number[64];
    size_t length = strcspn(text, " ");
    const char *unit = text + length + strspn(text + length, " ");
    tn_period period = {0};
    if (!length || length >= sizeof number || unit == text + length)
        return 0;
    memcpy(number, text, length);
    number[length] = 0;
    if (strcmp(unit, "epoch") == 0 || strcmp(unit, "epochs") == 0)
        tn_parse_user_real(number, &period.epochs);
    else if (strcmp(unit, "step") == 0 || strcmp(unit, "steps") == 0)
        tn_parse_integer(number, &period.steps);
    *ret = period;
    return (period.epochs > 0 && isfinite(period.epochs)) || period.steps > 0;
}

/* The key `every` of a section. */
static int32_t read_period(tn_reader *r, const tn_yaml *section, const char *owner, tn_period *ret)
{
    if (parse_period(r->own.every, ret))
        return TN_OK;
    return tn_place_error(r->err, TN_E_INVALID, tn_yaml_get(section, "every")->place,
                          "'every' of %s takes a period such as '1 epoch', '0.5 epochs' or '500 steps'; found '%s'",
                          owner, r->own.every);
}

static int32_t read_eval(tn_reader *r)
{
    const tn_yaml *section = tn_yaml_get(r->root, "eval");
    if (!section || tn_reader_is_none(section))
        return TN_OK;
    int32_t status = read_section(r, section, eval_rows, TN_COUNT(eval_rows), "eval");
    if (!status)
        status = read_period(r, section, "eval", &r->e->eval_every);
    if (status)
        return status;
    r->e->eval_batch = r->own.eval_batch;
    r->e->eval_refresh = r->own.refresh;
    r->e->eval_view = (int32_t)r->own.view;
    r->e->eval_split = r->own.split;
    r->own.split = NULL;
    if (r->e->eval_refresh > 0 && !r->e->eval_view)
        return tn_place_error(r->err, TN_E_INVALID, tn_yaml_get(section, "refresh")->place,
                              "'refresh' of eval is for the view 'eval'; the view 'train' has the statistics of "
                              "training");
    return TN_OK;
}

static int32_t read_checkpoint(tn_reader *r)
{
    const tn_yaml *section = tn_yaml_get(r->root, "checkpoint");
    if (tn_reader_is_none(section))
        return TN_OK;
    int32_t status = read_section(r, section, checkpoint_rows, TN_COUNT(checkpoint_rows), "checkpoint");
    if (!status)
        status = read_period(r, section, "checkpoint", &r->e->checkpoint_every);
    if (status)
        return status;
    r->e->checkpoint_keep = r->own.keep;
    r->e->checkpoint_best = r->own.best;
    r->e->checkpoint_mode = (int32_t)r->own.mode;
    r->e->checkpoint_metric = r->own.metric;
    r->own.metric = NULL;
    return TN_OK;
}

/* ---- the whole ---- */

static int32_t parse_tree(tn_reader *r, const char *const *overrides, size_t count)
{
    int32_t status = tn_yaml_parse(&r->tree, &r->text, &r->root, r->err);
    if (status)
        return status;
    if (r->root->kind != TN_YAML_MAPPING) {
        char found[TN_FOUND_MAX];
        tn_value_found(r->root, found);
        return tn_place_error(
            r->err, TN_E_INVALID, r->root->place,
            "an experiment is a mapping with the sections data, model, loss, update and train; found %s", found);
    }
    r->overrides = tn_alloc(count, sizeof *r->overrides);
    r->override_count = r->overrides ? count : 0;
    status = r->overrides ? tn_override_prepare(&r->tree, r->root, r->err) : tn_place_no_memory(r->err);
    for (size_t i = 0; i < count && !status; i++)
        status = tn_override_apply(&r->tree, r->root, overrides[i], &r->overrides[i], r->err);
    return status;
}

static int32_t read_sections(tn_reader *r)
{
    int32_t status =
        tn_build_check_keys(r->root, tn_reader_sections, TN_COUNT(tn_reader_sections) - 1, "the experiment", r->err);
    if (!status)
        status = tn_reader_precision(r);
    if (!status)
        status = read_name(r);
    if (!status)
        status = read_components(r);
    if (!status)
        status = tn_reader_update(r);
    if (!status)
        status = read_sinks(r);
    if (!status)
        status = tn_schedules_build(&r->build, tn_yaml_get(r->root, "schedule"), r->e);
    if (!status)
        status = read_train(r);
    if (!status)
        status = read_eval(r);
    return status ? status : read_checkpoint(r);
}

static int32_t resolve(tn_reader *r)
{
    tn_text text = {0};
    tn_resolved_print(r->e, &text);
    r->e->resolved = tn_text_take(&text);
    tn_text_free(&text);
    return r->e->resolved ? TN_OK : tn_place_no_memory(r->err);
}

static void end_reading(tn_reader *r)
{
    tn_yaml_free(&r->tree);
    for (size_t i = 0; i < r->override_count; i++)
        tn_override_free(&r->overrides[i]);
    tn_free(r->overrides);
    tn_free(r->own.name);
    tn_free(r->own.split);
    tn_free(r->own.every);
    tn_free(r->own.metric);
    tn_free(r->own.from);
}

int32_t tn_experiment_parse(tn_registry *registry, const char *file, const char *bytes, size_t size,
                            const char *const *overrides, size_t override_count, tn_experiment **ret, tn_error *err)
{
    tn_reader r = {.build = {registry, 0, 0, err}, .text = {file, bytes, size, 1}, .err = err};
    r.e = tn_alloc(1, sizeof *r.e);
    int32_t status =
        r.e && (r.e->file = tn_strdup(file)) ? parse_tree(&r, overrides, override_count) : tn_place_no_memory(err);
    if (!status)
        status = read_sections(&r);
    if (!status)
        status = resolve(&r);
    end_reading(&r);
    if (status)
        tn_experiment_free(r.e);
    else
        *ret = r.e;
    return status;
}

int32_t tn_experiment_read(tn_registry *registry, const char *path, const char *const *overrides, size_t override_count,
                           tn_experiment **ret, tn_error *err)
{
    char *bytes;
    size_t size;
    int32_t status = tn_read_whole_file(path, TN_EXPERIMENT_MAX, &bytes, &size, err);
    if (status)
        return status;
    status = tn_experiment_parse(registry, path, bytes, size, overrides, override_count, ret, err);
    tn_free(bytes);
    return status;
}

static void free_all(tn_instance **list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        tn_instance_free(list[i]);
    tn_free(list);
}

static void free_schedule(tn_schedule *schedule)
{
    free_all(schedule->segments, schedule->segment_count);
    tn_free(schedule->lengths);
}

void tn_experiment_unschedule(tn_experiment *e, const tn_instance *target, const tn_row *row)
{
    for (size_t i = 0; i < e->schedule_count; i++) {
        if (e->schedules[i].target != target || e->schedules[i].row != row)
            continue;
        free_schedule(&e->schedules[i]);
        memmove(&e->schedules[i], &e->schedules[i + 1], (e->schedule_count - i - 1) * sizeof *e->schedules);
        e->schedule_count--;
        return;
    }
}

void tn_experiment_free(tn_experiment *e)
{
    if (!e)
        return;
    for (size_t i = 0; i < e->schedule_count; i++)
        free_schedule(&e->schedules[i]);
    tn_free(e->schedules);
    free_all(e->update, e->update_count);
    free_all(e->sinks, e->sink_count);
    tn_instance_free(e->data);
    tn_instance_free(e->model);
    tn_instance_free(e->loss);
    tn_instance_free(e->backend);
    tn_instance_free(e->collective);
    tn_instance_free(e->storage);
    tn_instance_free(e->state_codec);
    tn_instance_free(e->loss_scale);
    tn_instance_free(e->recompute);
    tn_free(e->eval_split);
    tn_free(e->checkpoint_metric);
    tn_free(e->from);
    tn_free(e->resolved);
    tn_free(e->name);
    tn_free(e->file);
    tn_free(e);
}
