/* SPDX-License-Identifier: Apache-2.0
 *
 * interface.c: what this host speaks: interfaces, kinds and facts.
 */
#include "host/plugin/interface.h"

#include <string.h>

#include <tenon/backend.h>
#include <tenon/data.h>
#include <tenon/layer.h>
#include <tenon/loss.h>
#include <tenon/minimizer.h>
#include <tenon/model.h>
#include <tenon/optimizer.h>
#include <tenon/parallel.h>
#include <tenon/precision.h>
#include <tenon/recompute.h>
#include <tenon/scheduler.h>
#include <tenon/sink.h>
#include <tenon/strategy.h>

#include "host/base/error.h"
#include "host/plugin/slot.h"

/* The JSON type of a fact's value. */
enum fact_type { TEXT, FLAG, LIST };

typedef struct {
    const char *key;
    enum fact_type type;
    const char *words; /* all that the text, or a text in the list, may be; NULL: anything */
} fact;

#define FACTS_MAX 8

typedef struct {
    const char *id;
    const char *kinds;
    fact facts[FACTS_MAX];
} interface_row;

static const interface_row known[] = {
    {TN_OPTIMIZER,
     "optimizer transform average wrapper",
     {{"stage", TEXT, "source gradient rule update write after"},
      {"grain", TEXT, "element tensor matrix layer"},
      {"slots", LIST, NULL},
      {"rounds", LIST, NULL},
      {"reports", LIST, NULL},
      {"signals", LIST, "gradient2 taps"},
      {"view", TEXT, NULL}}},
    {TN_MINIMIZER,
     "optimizer",
     {{"stage", TEXT, "rule"}, {"grain", TEXT, "model"}, {"slots", LIST, NULL}, {"reports", LIST, NULL}}},
    {TN_LAYER,
     "layer normalizer activation regularizer",
     {{"axis", TEXT, "rows elements columns whole"},
      {"keeps", TEXT, "input output both none"},
      {"in_place", FLAG, NULL},
      {"split", LIST, NULL},
      {"tap", TEXT, "linear"}}},
    {TN_LOSS, "loss metric", {{"metrics", LIST, NULL}, {"targets", TEXT, "class real"}}},
    {TN_SCHEDULER, "scheduler", {{"slots", LIST, NULL}}},
    {TN_SINK, "sink", {{"file", TEXT, NULL}}},
    {TN_MODEL, "model", {{0}}},
    {TN_DATA, "data", {{0}}},
    {TN_BACKEND, "backend", {{0}}},
    {TN_COLLECTIVE, "collective", {{0}}},
    {TN_STRATEGY, "strategy", {{0}}},
    {TN_CODEC, "codec", {{0}}},
    {TN_LOSS_SCALE, "loss-scale", {{"slots", LIST, NULL}}},
    {TN_RECOMPUTE, "recompute", {{0}}},
};

static const fact common[] = {
    {"hyper", LIST, NULL}, {"paper", TEXT, NULL}, {"formula", TEXT, NULL}, {"licence", TEXT, NULL}};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Is `word` one of the words in `list`, which are separated by spaces? */
static int holds_word(const char *list, const char *word) { return tn_word_at(list, word, strlen(word)) >= 0; }

/* "tenon.optimizer/0.1" and "tenon.optimizer/1" are revisions of the same. */
static int same_family(const char *a, const char *b)
{
    size_t n = strcspn(a, "/");
    return n == strcspn(b, "/") && memcmp(a, b, n) == 0;
}

int32_t tn_interface_check(const char *file, const char *kind, const char *interface, tn_error *err)
{
    for (size_t i = 0; i < COUNT(known); i++)
        if (strcmp(known[i].id, interface) == 0 && holds_word(known[i].kinds, kind))
            return TN_OK;
    for (size_t i = 0; i < COUNT(known); i++) {
        if (same_family(known[i].id, interface) && strcmp(known[i].id, interface) != 0)
            return tn_error_set(
                err, TN_E_PLUGIN,
                "INTERFACE: %s: built for %s, this host speaks %s; rebuild the plugin with these headers", file,
                interface, known[i].id);
        if (strcmp(known[i].id, interface) == 0 || holds_word(known[i].kinds, kind))
            return tn_error_set(err, TN_E_PLUGIN, "INTERFACE: %s: kind %s behind %s; %s is for the kinds: %s", file,
                                kind, interface, known[i].id, known[i].kinds);
    }
    return TN_OK;
}

static const fact *find_fact(const char *interface, const char *key)
{
    for (size_t i = 0; i < COUNT(common); i++) {
        if (strcmp(common[i].key, key) == 0)
            return &common[i];
    }
    for (size_t i = 0; i < COUNT(known); i++) {
        if (strcmp(known[i].id, interface) != 0)
            continue;
        for (size_t j = 0; j < FACTS_MAX && known[i].facts[j].key; j++) {
            if (strcmp(known[i].facts[j].key, key) == 0)
                return &known[i].facts[j];
        }
    }
    return NULL;
}

static int has_type(const json_t *value, enum fact_type type)
{
    switch (type) {
    case TEXT:
        return json_is_string(value);
    case FLAG:
        return json_is_boolean(value);
    default:
        return json_is_array(value);
    }
}

/* The first text in `value` that is not among `words`, or NULL. */
static const char *unknown_word(const json_t *value, const char *words)
{
    if (json_is_string(value))
        return holds_word(words, json_string_value(value)) ? NULL : json_string_value(value);
    size_t i;
    json_t *item;
    json_array_foreach(value, i, item) {
        if (!json_is_string(item) || !holds_word(words, json_string_value(item)))
            return json_is_string(item) ? json_string_value(item) : "(not a text)";
    }
    return NULL;
}

/* Flags may be several, with blanks or commas between. */
static int32_t check_word(const char *file, const char *name, const json_t *slot, const char *key, const char *words,
                          tn_error *err)
{
    const char *text = json_string_value(json_object_get(slot, key));
    char word[64];
    for (size_t n; text && *text; text += n + (text[n] != 0)) {
        n = strcspn(text, " ,");
        snprintf(word, sizeof word, "%.*s", (int)n, text);
        if (n && (n >= sizeof word || !holds_word(words, word)))
            return tn_error_set(err, TN_E_PLUGIN,
                                "NOTE_UNKNOWN: %s: %s: a slot's %s is '%s', which this host does not know; "
                                "it knows: %s",
                                file, name, key, word, words);
    }
    return TN_OK;
}

static int32_t check_slots(const char *file, const char *name, const json_t *slots, tn_error *err)
{
    size_t i;
    json_t *slot;
    int32_t status = TN_OK;
    json_array_foreach(slots, i, slot) {
        if (!status)
            status = check_word(file, name, slot, "shape", TN_SLOT_SHAPES, err);
        if (!status)
            status = check_word(file, name, slot, "init", TN_SLOT_INITS, err);
        if (!status)
            status = check_word(file, name, slot, "flags", TN_SLOT_FLAGS, err);
    }
    return status;
}

static int32_t check_round_word(const char *file, const char *name, const char *key, const json_t *value,
                                const char *words, tn_error *err)
{
    const char *text = json_is_string(value) ? json_string_value(value) : "(not a text)";
    if (holds_word(words, text))
        return TN_OK;
    return tn_error_set(err, TN_E_PLUGIN, "NOTE_UNKNOWN: %s: %s: a round's %s is '%s', this host knows: %s", file, name,
                        key, text, words);
}

/* What a host does not know it would leave out, so unknown keys are refused. */
static int32_t check_round_row(const char *file, const char *name, const char *key, const json_t *value, tn_error *err)
{
    static const char counts[] = "scalars rows columns";
    json_int_t n = json_integer_value(value);
    if (strcmp(key, "scope") == 0)
        return check_round_word(file, name, key, value, "tensor model", err);
    if (strcmp(key, "reduce") == 0)
        return check_round_word(file, name, key, value, "sum max", err);
    if (!holds_word(counts, key))
        return tn_error_set(err, TN_E_PLUGIN, "NOTE_UNKNOWN: %s: %s: a round's '%s', this host knows: scope reduce %s",
                            file, name, key, counts);
    if (json_is_integer(value) && n >= 0 && n <= 1024)
        return TN_OK;
    return tn_error_set(err, TN_E_PLUGIN, "NOTE_INVALID: %s: %s: a round's %s must be a whole number from 0 to 1024",
                        file, name, key);
}

static int32_t check_round(const char *file, const char *name, json_t *round, tn_error *err)
{
    const char *key, *scope = json_string_value(json_object_get(round, "scope"));
    json_t *value;
    int32_t status = TN_OK;
    json_object_foreach(round, key, value) {
        if (status == TN_OK)
            status = check_round_row(file, name, key, value, err);
    }
    if (status)
        return status;
    json_int_t scalars = json_integer_value(json_object_get(round, "scalars")),
               vectors = json_integer_value(json_object_get(round, "rows")) +
                         json_integer_value(json_object_get(round, "columns"));
    const char *wrong = !scope                                   ? "needs a scope, tensor or model"
                        : scalars + vectors == 0                 ? "needs scalars, rows or columns"
                        : vectors && strcmp(scope, "model") == 0 ? "with rows or columns needs the scope tensor"
                                                                 : NULL;
    if (wrong)
        return tn_error_set(err, TN_E_PLUGIN, "NOTE_INVALID: %s: %s: a round %s", file, name, wrong);
    return TN_OK;
}

static int32_t check_rounds(const char *file, const char *name, const json_t *rounds, tn_error *err)
{
    size_t i;
    json_t *round;
    int32_t status = TN_OK;
    json_array_foreach(rounds, i, round) {
        if (status == TN_OK)
            status = check_round(file, name, round, err);
    }
    return status;
}

/* The words of layer.h. */
static const char split_keys[] = "name parameters x y rows";

static int32_t check_split(const char *file, const char *name, json_t *form, tn_error *err)
{
    const char *key, *x = json_string_value(json_object_get(form, "x")), *y;
    json_t *value;
    y = json_string_value(json_object_get(form, "y"));
    json_object_foreach(form, key, value) {
        if (!holds_word(split_keys, key))
            return tn_error_set(err, TN_E_PLUGIN, "NOTE_UNKNOWN: %s: %s: a split's '%s', this host knows: %s", file,
                                name, key, split_keys);
    }
    if (!json_is_string(json_object_get(form, "name")) || !json_is_array(json_object_get(form, "parameters")) || !x ||
        !y)
        return tn_error_set(err, TN_E_PLUGIN, "NOTE_INVALID: %s: %s: a split needs name, parameters, x and y", file,
                            name);
    if (!holds_word("whole last", x) || !holds_word("whole last partial", y))
        return tn_error_set(err, TN_E_PLUGIN,
                            "NOTE_UNKNOWN: %s: %s: a split from x '%s' to y '%s'; this host knows whole and last, and "
                            "partial for y",
                            file, name, x, y);
    return TN_OK;
}

static int32_t check_splits(const char *file, const char *name, const json_t *splits, tn_error *err)
{
    size_t i;
    json_t *form;
    int32_t status = TN_OK;
    json_array_foreach(splits, i, form) {
        if (!json_is_null(form) && status == TN_OK)
            status = check_split(file, name, form, err);
    }
    return status;
}

int32_t tn_fact_check(const char *file, const char *component, const char *interface, const char *key,
                      const json_t *value, tn_error *err)
{
    static const char *const type_names[] = {"a text", "true or false", "a list"};
    const fact *f = find_fact(interface, key);
    if (!f)
        return tn_error_set(err, TN_E_PLUGIN,
                            "NOTE_UNKNOWN: %s: %s: fact '%s', which this host does not know for %s; upgrade tenon or "
                            "correct the name",
                            file, component, key, interface);
    if (!has_type(value, f->type))
        return tn_error_set(err, TN_E_PLUGIN, "NOTE_INVALID: %s: %s: fact '%s' must be %s", file, component, key,
                            type_names[f->type]);
    const char *word = f->words ? unknown_word(value, f->words) : NULL;
    if (word)
        return tn_error_set(err, TN_E_PLUGIN,
                            "NOTE_UNKNOWN: %s: %s: %s '%s', this host knows: %s; upgrade tenon or correct the word",
                            file, component, key, word, f->words);
    if (strcmp(key, "split") == 0)
        return check_splits(file, component, value, err);
    if (strcmp(key, "rounds") == 0)
        return check_rounds(file, component, value, err);
    int slots =
        strcmp(key, "slots") == 0 && (strcmp(interface, TN_OPTIMIZER) == 0 || strcmp(interface, TN_MINIMIZER) == 0);
    return slots ? check_slots(file, component, value, err) : TN_OK;
}
