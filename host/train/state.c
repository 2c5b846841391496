/* SPDX-License-Identifier: Apache-2.0
 *
 * state.c: what a run has come to, in a file and back. One list names every tensor of it and says where it lies, so
 * that saving and restoring can not disagree:
 *
 *   parameters/NAME            in the real type, or U8 as a codec stores them where the run has no others
 *   update/LINK/SLOT[/NAME]    as stored; transient slots excepted
 *   clocks/NAME                committed updates of each parameter
 *   buffers/train|eval/NAME    of the layers, for both views
 *   schedules/TARGET/SEGMENT   what schedulers keep
 *   loss-scale                 what the loss scale keeps
 *   noise-scale                means of its two estimates
 *   run/...                    counters, last losses, the last evaluation
 *
 * The metadata holds the experiment, which process's file it is and of which attempt, a checksum of each tensor and one
 * of the metadata itself, a look at the training data, the plugins whose state it is, and how long the sinks' files
 * were. Which files there are is checkpoints.c's.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY /* the hash's state lies in memory of ours */
#include <xxhash.h>

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/store/safetensors.h"
#include "host/train/internal.h"
#include "host/update/operand.h"

#define FORMAT       "tenon.checkpoint/0.2"
#define BUFFER_BYTES ((int64_t)1 << 20)

/* One tensor of the state. */
typedef struct {
    char *name;
    void *data; /* where it lies in the trainer, row-major */
    tn_dtype dtype;
    int32_t ndim;
    int64_t shape[TN_MAX_DIMS];
    int64_t bytes;
    int32_t own; /* 1: each process has one of its own */
} item;

typedef struct {
    item *list;
    size_t count, room;
    int32_t failed; /* 1: out of memory */
} state;

/* ---- the list ---- */

static const tn_dtype byte_type = {TN_UINT, 8, 1}, integer_type = {TN_INT, 64, 1}, double_type = {TN_FLOAT, 64, 1};

static char *format_name(const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int size = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *name = size < 0 ? NULL : tn_alloc((size_t)size + 1, 1);
    if (name)
        vsnprintf(name, (size_t)size + 1, format, args);
    return name;
}

/* Adds a tensor, its name after `format`; one number where shape is NULL. */
static void add(state *s, tn_dtype dtype, void *data, const int64_t *shape, int32_t ndim, const char *format, ...)
    TN_PRINTF(6, 7);

static void add(state *s, tn_dtype dtype, void *data, const int64_t *shape, int32_t ndim, const char *format, ...)
{
    va_list args;
    s->failed |= tn_grow(&s->list, &s->room, s->count, sizeof *s->list) != TN_OK;
    if (s->failed)
        return;
    item *added = &s->list[s->count++];
    *added = (item){.data = data, .dtype = dtype, .ndim = ndim, .bytes = dtype.bits / 8};
    for (int32_t i = 0; i < ndim; i++)
        added->bytes *= added->shape[i] = shape[i];
    va_start(args, format);
    added->name = format_name(format, args);
    va_end(args);
    s->failed = !added->name;
}

static void add_parameters(tn_trainer *t, state *s)
{
    const tn_parameters *all = tn_graph_parameters(t->graph);
    const tn_precision *precision = &t->precision;
    const tn_dtype real = {TN_FLOAT, (uint8_t)all->real, 1};
    for (int64_t i = 0; i < all->count; i++) {
        const tn_parameter *p = &all->list[i];
        int64_t stored = precision->stored ? tn_codec_bytes(&precision->storage_table, all->real, p->n) : 0;
        if (precision->stored)
            add(s, byte_type, precision->stored_at[i], &stored, 1, "parameters/%s", p->name);
        else
            add(s, real, (char *)all->p + all->at[i] * (all->real / 8), p->shape, p->ndim, "parameters/%s", p->name);
        add(s, integer_type, &tn_chain_clocks(t->chain)[i], NULL, 0, "clocks/%s", p->name);
    }
}

/* Slots in a real type show their elements, in the parameter's shape where they have it; what a codec made is bytes. */
static void add_slot(const tn_trainer *t, state *s, const tn_chain_slot *slot)
{
    const tn_parameter *p = slot->parameter < 0 ? NULL : &tn_graph_parameters(t->graph)->list[slot->parameter];
    int real = (slot->bits == 32 || slot->bits == 64) && slot->bytes == slot->elements * (slot->bits / 8);
    int like = real && p && strcmp(slot->shape, "like") == 0;
    add(s, real ? (tn_dtype){TN_FLOAT, (uint8_t)slot->bits, 1} : byte_type, slot->data,
        like   ? p->shape
        : real ? &slot->elements
               : &slot->bytes,
        like ? p->ndim : 1, "update/%s/%s%s%s", slot->link, slot->slot, p ? "/" : "", p ? p->name : "");
    if (!s->failed)
        s->list[s->count - 1].own = t->comm && !slot->replicated;
}

static void add_slots(const tn_trainer *t, state *s)
{
    for (size_t i = 0; i < tn_chain_slot_count(t->chain); i++) {
        tn_chain_slot slot;
        tn_chain_slot_at(t->chain, i, &slot);
        if (slot.persistent)
            add_slot(t, s, &slot);
    }
}

static void add_buffer(const tn_trainer *t, state *s, const char *view, const char *name, const tn_tensor *tensor)
{
    add(s, tensor->dtype, tensor->data, tensor->shape, tensor->ndim, "buffers/%s/%s", view, name);
    if (!s->failed)
        s->list[s->count - 1].own = t->comm != NULL;
}

static void add_buffers(const tn_trainer *t, state *s)
{
    const tn_graph_buffer *buffers;
    size_t count = tn_graph_buffers(t->graph, &buffers);
    for (size_t i = 0; i < count; i++) {
        add_buffer(t, s, "train", buffers[i].name, &buffers[i].tensor);
        add_buffer(t, s, "eval", buffers[i].name, &buffers[i].eval);
    }
}

static void add_automata(tn_trainer *t, state *s)
{
    const char *name;
    size_t segment, count;
    double *slots;
    int64_t scale = t->precision.scale.slots;
    for (size_t i = 0; (name = tn_schedules_state(t->schedules, i, &segment, &slots, &count)); i++)
        add(s, double_type, slots, &(int64_t){(int64_t)count}, 1, "schedules/%s/%zu", name, segment);
    if (t->e->loss_scale)
        add(s, double_type, t->precision.scale_slots, &scale, 1, "loss-scale");
    if (t->e->noise_scale)
        add(s, double_type, &t->noise.means, &(int64_t){2}, 1, "noise-scale");
}

static void add_counters(tn_trainer *t, state *s)
{
    add(s, integer_type, &t->attempt, NULL, 0, "run/attempt");
    add(s, integer_type, tn_chain_update(t->chain), NULL, 0, "run/update");
    add(s, integer_type, &t->skipped, NULL, 0, "run/skipped");
    add(s, integer_type, &t->bad, NULL, 0, "run/bad");
    add(s, integer_type, &t->evaluated_at, NULL, 0, "run/evaluated_at");
    add(s, double_type, &t->samples, NULL, 0, "run/samples");
    add(s, double_type, &t->tokens, NULL, 0, "run/tokens");
    add(s, double_type, &t->loss, NULL, 0, "run/loss");
    add(s, double_type, &t->eval_loss, NULL, 0, "run/eval_loss");
    if (t->e->eval_split)
        add(s, double_type, t->eval_values, &(int64_t){(int64_t)t->metric_count + 1}, 1, "run/evaluation");
}

static void free_state(state *s)
{
    for (size_t i = 0; i < s->count; i++)
        tn_free(s->list[i].name);
    tn_free(s->list);
}

static int32_t collect(tn_trainer *t, state *ret, tn_error *err)
{
    *ret = (state){0};
    add_parameters(t, ret);
    add_slots(t, ret);
    add_buffers(t, ret);
    add_automata(t, ret);
    add_counters(t, ret);
    return ret->failed ? tn_error_set(err, TN_E_MEMORY, "no memory for a checkpoint") : TN_OK;
}

/* The file that holds what this process alone has; the first one's is the checkpoint itself. */
static char *own_path(const tn_trainer *t, const char *path)
{
    int32_t rank = tn_comm_rank(t->comm);
    return rank == 0 ? tn_strdup(path) : tn_format("%s.rank-%d", path, rank);
}

/* ---- saving ---- */

/* The notes of a file; `texts` are those to be freed. */
typedef struct {
    tn_safetensors_note *list;
    char **texts;
    size_t count, text_count;
    int32_t failed;
} notes;

static void add_note(notes *n, const char *key, const char *text)
{
    n->list[n->count++] = (tn_safetensors_note){key, text};
}

/* The same with texts that the notes own, NULL for want of memory. */
static void add_made(notes *n, char *key, char *text)
{
    n->texts[n->text_count++] = key;
    n->texts[n->text_count++] = text;
    n->failed |= !key || !text;
    add_note(n, key, text);
}

static void add_lengths(const tn_trainer *t, notes *n)
{
    for (size_t i = 0; t->sinks && i < t->e->sink_count; i++)
        add_made(n, tn_format("sink/%s", t->e->sinks[i]->path), tn_format("%" PRId64, tn_sinks_length(t->sinks, i)));
}

/* The components that have state, each by what it is called here: whose it is. */
static const tn_instance *stateful(const tn_experiment *e, size_t index)
{
    const tn_instance *const others[] = {e->storage, e->state_codec, e->loss_scale};
    if (index < e->update_count)
        return e->update[index];
    index -= e->update_count;
    if (index < sizeof others / sizeof *others)
        return others[index];
    index -= sizeof others / sizeof *others;
    for (size_t i = 0; i < e->schedule_count; index -= e->schedules[i++].segment_count)
        if (index < e->schedules[i].segment_count)
            return e->schedules[i].segments[index];
    return NULL;
}

static size_t stateful_count(const tn_experiment *e)
{
    size_t count = e->update_count + 3;
    for (size_t i = 0; i < e->schedule_count; i++)
        count += e->schedules[i].segment_count;
    return count;
}

static void add_plugins(const tn_trainer *t, notes *n)
{
    for (size_t i = 0; i < stateful_count(t->e); i++) {
        const tn_instance *instance = stateful(t->e, i);
        if (instance)
            add_made(n, tn_format("plugin/%s", instance->path),
                     tn_format("%s %s", instance->info->plugin, instance->info->version));
    }
}

static void add_checksums(const state *s, int32_t rank, notes *n)
{
    for (size_t i = 0; i < s->count; i++)
        if (rank == 0 || s->list[i].own)
            add_made(n, tn_format("xxh3/%s", s->list[i].name),
                     tn_format("%016" PRIx64, XXH3_64bits(s->list[i].data, (size_t)s->list[i].bytes)));
}

/* The shape of each parameter that stands there as a codec's bytes: "[24, 64]". */
static void add_shapes(const tn_trainer *t, notes *n)
{
    const tn_parameters *all = tn_graph_parameters(t->graph);
    for (int64_t i = 0; i < all->count && t->precision.stored; i++) {
        tn_text text = {0};
        for (int32_t a = 0; a < all->list[i].ndim; a++)
            tn_text_addf(&text, "%s%" PRId64, a ? ", " : "[", all->list[i].shape[a]);
        tn_text_add(&text, all->list[i].ndim ? "]" : "[]");
        add_made(n, tn_format("shape/%s", all->list[i].name), tn_text_take(&text));
        tn_text_free(&text);
    }
}

/* The sum of the hashes of all notes but itself: their order does not matter. */
#define SEAL "xxh3"

static uint64_t note_hash(const tn_safetensors_note *note)
{
    return XXH3_64bits_withSeed(note->text, strlen(note->text), XXH3_64bits(note->key, strlen(note->key)));
}

static void add_seal(notes *n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n->count && !n->failed; i++)
        sum += note_hash(&n->list[i]);
    add_made(n, tn_strdup(SEAL), tn_format("%016" PRIx64, sum));
}

/* Which data it was trained on: how many samples, and what some of them are. */
static int32_t add_data(const tn_trainer *t, notes *n, tn_error *err)
{
    uint64_t print = 0;
    int32_t status = tn_dataset_fingerprint(&t->train, t->pool, &t->services, &print, err);
    add_made(n, tn_strdup("samples"), tn_format("%" PRId64, t->train.split.samples));
    add_made(n, tn_strdup("data"), tn_format("%016" PRIx64, print));
    return status;
}

static int32_t make_notes(const tn_trainer *t, const state *s, notes *n, tn_error *err)
{
    size_t room = 2 * s->count + t->e->sink_count + stateful_count(t->e) + 10;
    n->list = tn_alloc(room, sizeof *n->list);
    n->texts = tn_alloc(2 * room, sizeof *n->texts);
    n->failed = !n->list || !n->texts;
    int32_t status = TN_OK;
    if (!n->failed) {
        add_note(n, "format", FORMAT);
        add_note(n, "experiment", t->e->resolved);
        add_made(n, tn_strdup("processes"), tn_format("%d", tn_comm_size(t->comm)));
        add_made(n, tn_strdup("rank"), tn_format("%d", tn_comm_rank(t->comm)));
        add_made(n, tn_strdup("attempt"), tn_format("%" PRId64, t->attempt));
        status = add_data(t, n, err);
        add_lengths(t, n);
        add_plugins(t, n);
        add_shapes(t, n);
        add_checksums(s, tn_comm_rank(t->comm), n);
        add_seal(n);
    }
    return n->failed ? tn_error_set(err, TN_E_MEMORY, "no memory for a checkpoint") : status;
}

static void free_notes(notes *n)
{
    for (size_t i = 0; i < n->text_count; i++)
        tn_free(n->texts[i]);
    tn_free(n->texts);
    tn_free(n->list);
}

static int32_t write_items(const char *path, state *s, int32_t rank, const notes *n, tn_error *err)
{
    size_t count = 0;
    tn_tensor *tensors = tn_alloc(s->count + 1, sizeof *tensors);
    tn_safetensors_entry *entries = tn_alloc(s->count + 1, sizeof *entries);
    int32_t status = tensors && entries ? TN_OK : tn_error_set(err, TN_E_MEMORY, "no memory for a checkpoint");
    for (size_t i = 0; i < s->count && status == TN_OK; i++) {
        item *at = &s->list[i];
        if (rank != 0 && !at->own)
            continue;
        tensors[count] = (tn_tensor){
            .data = at->data, .device = {TN_CPU, 0}, .ndim = at->ndim, .dtype = at->dtype, .shape = at->shape};
        entries[count] = (tn_safetensors_entry){at->name, &tensors[count]};
        count++;
    }
    if (status == TN_OK)
        status = tn_safetensors_write(path, entries, count, n->list, n->count, err);
    tn_free(tensors);
    tn_free(entries);
    return status;
}

static int32_t save(tn_trainer *t, const char *path, tn_error *err)
{
    state s;
    notes n = {0};
    char *own = own_path(t, path);
    int32_t status = collect(t, &s, err);
    if (status == TN_OK && t->sinks)
        status = tn_sinks_sync(t->sinks, err);
    if (status == TN_OK)
        status = make_notes(t, &s, &n, err);
    if (status == TN_OK && !own)
        status = tn_error_set(err, TN_E_MEMORY, "no memory for a path");
    if (status == TN_OK)
        status = write_items(own, &s, tn_comm_rank(t->comm), &n, err);
    free_notes(&n);
    free_state(&s);
    tn_free(own);
    return status;
}

/* The first process writes last: where its file is, the others' are. */
int32_t tn_trainer_save(tn_trainer *t, const char *path, tn_error *err)
{
    int32_t first = tn_comm_rank(t->comm) == 0;
    int32_t status = tn_trainer_agree(t, first ? TN_OK : save(t, path, err), err);
    if (status != TN_OK)
        return status;
    status = tn_trainer_agree(t, first ? save(t, path, err) : TN_OK, err);
    t->checkpointed_at = status == TN_OK ? t->attempt : t->checkpointed_at;
    return status;
}

/* ---- restoring: is it this experiment's? ---- */

/* The next line of a resolved experiment that decides bits; NULL at the end. Sections are told by their first line. */
static const char *next_line(const char *text, int *skipped, size_t *ret_size)
{
    static const char *const passed[] = {"name:", "sinks:", "checkpoint:", "parallel:"};
    for (; *text; text += *ret_size + (text[*ret_size] == '\n')) {
        *ret_size = strcspn(text, "\n");
        if (*text != ' ')
            *skipped = 0;
        for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
            *skipped |= strncmp(text, passed[i], strlen(passed[i])) == 0;
        if (!*skipped)
            return text;
    }
    return NULL;
}

/* Where two lines differ, the number behind "threads: " left out; -1: nowhere. */
static int64_t difference(const char *a, size_t a_size, const char *b, size_t b_size)
{
    size_t i = 0, j = 0;
    for (;; i++, j++) {
        if (i >= 9 && strncmp(a + i - 9, "threads: ", 9) == 0) {
            i += strspn(a + i, "0123456789");
            j += strspn(b + j, "0123456789");
        }
        if (i >= a_size || j >= b_size || a[i] != b[j])
            break;
    }
    return i == a_size && j == b_size ? -1 : (int64_t)i;
}

static int32_t check_experiment(const tn_trainer *t, const char *path, const char *saved, tn_error *err)
{
    int skip_a = 0, skip_b = 0;
    size_t a_size = 0, b_size = 0;
    const char *a = next_line(saved, &skip_a, &a_size), *b = next_line(t->e->resolved, &skip_b, &b_size);
    int64_t at = -1;
    while (a && b && (at = difference(a, a_size, b, b_size)) < 0) {
        a = next_line(a + a_size + (a[a_size] == '\n'), &skip_a, &a_size);
        b = next_line(b + b_size + (b[b_size] == '\n'), &skip_b, &b_size);
    }
    if (!a && !b)
        return TN_OK;
    size_t from = at > 40 ? (size_t)at - 40 : 0;
    a = a ? a : "";
    b = b ? b : "";
    return tn_error_set(
        err, TN_E_INVALID,
        "%s: is of another experiment: it has \"%.*s\" where this one has \"%.*s\"; go on with the "
        "experiment that it is of, or begin a new run",
        path, a_size > from ? (int)(a_size - from < 120 ? a_size - from : 120) : 0, a + (a_size > from ? from : 0),
        b_size > from ? (int)(b_size - from < 120 ? b_size - from : 120) : 0, b + (b_size > from ? from : 0));
}

/* Rows that components have gained since have their defaults in both. */
static int32_t check_experiment_of_before(const tn_trainer *t, const char *path, const char *saved, tn_error *err)
{
    tn_experiment *before;
    tn_error ignored;
    int32_t status = check_experiment(t, path, saved, err);
    if (status != TN_E_INVALID ||
        tn_experiment_parse(t->options.registry, path, saved, strlen(saved), NULL, 0, &before, &ignored) != TN_OK)
        return status;
    status = check_experiment(t, path, before->resolved, err);
    tn_experiment_free(before);
    return status;
}

/* State means what the plugin that made it says: another plugin's of the same name is refused, another version's is
 * taken with a warning. */
static int32_t check_plugins(const tn_trainer *t, const char *path, const tn_safetensors *file, tn_error *err)
{
    for (size_t i = 0; i < stateful_count(t->e); i++) {
        const tn_instance *instance = stateful(t->e, i);
        char *key = instance ? tn_format("plugin/%s", instance->path) : NULL;
        const char *made = key ? tn_safetensors_note_of(file, key) : NULL;
        size_t id = made ? strcspn(made, " ") : 0;
        int32_t same = made && strlen(instance->info->plugin) == id && !strncmp(made, instance->info->plugin, id);
        tn_free(key);
        if (instance && !key)
            return tn_error_set(err, TN_E_MEMORY, "no memory for a checkpoint");
        if (made && !same)
            return tn_error_set(err, TN_E_INVALID,
                                "%s: the state of %s is of the plugin %s, found is %s %s (%s); take that plugin, or "
                                "start anew from the parameters alone with train.from",
                                path, instance->path, made, instance->info->plugin, instance->info->version,
                                instance->entry->path);
        if (made && strcmp(made + id + 1, instance->info->version) != 0)
            tn_log_write(t->options.log, TN_LOG_WARNING,
                         "%s: the state of %s is of %s, and goes on with version %s: the numbers may not be those of "
                         "a run that never stopped",
                         path, instance->path, made, instance->info->version);
    }
    return TN_OK;
}

static int32_t check_seal(const tn_safetensors *file, tn_error *err)
{
    uint64_t sum = 0;
    char found[20];
    tn_safetensors_note note;
    const char *saved = tn_safetensors_note_of(file, SEAL);
    for (void *at = NULL; (at = tn_safetensors_next_note(file, at, &note));)
        sum += strcmp(note.key, SEAL) != 0 ? note_hash(&note) : 0;
    snprintf(found, sizeof found, "%016" PRIx64, sum);
    if (saved && strcmp(saved, found) == 0)
        return TN_OK;
    return tn_error_set(err, TN_E_DATA,
                        "%s: its metadata has the checksum %s, needed %s; the file is damaged, take an older one",
                        tn_safetensors_path(file), found, saved ? saved : "one");
}

int32_t tn_checkpoint_check_format(const tn_safetensors *file, const char *path, tn_error *err)
{
    const char *format = tn_safetensors_note_of(file, "format");
    if (format && strcmp(format, FORMAT) == 0 && tn_safetensors_note_of(file, "experiment") &&
        tn_safetensors_note_of(file, "processes"))
        return check_seal(file, err);
    return tn_error_set(err, TN_E_DATA, "%s: its format is \"%s\", needed " FORMAT "; it is no checkpoint of this host",
                        path, format ? format : "none");
}

/* Another number of samples is another run; other samples are worth a warning, since a machine or a build may round
 * otherwise. Checkpoints of before this was noted are taken. */
static int32_t check_data(const tn_trainer *t, const char *path, const tn_safetensors *file, tn_error *err)
{
    char now[24];
    uint64_t print;
    const char *samples = tn_safetensors_note_of(file, "samples"), *data = tn_safetensors_note_of(file, "data");
    snprintf(now, sizeof now, "%" PRId64, t->train.split.samples);
    if (samples && strcmp(samples, now) != 0)
        return tn_error_set(
            err, TN_E_INVALID,
            "%s: is of a run on %s training samples, the data has %s now; put back what it was, or begin "
            "a new run, with train.from if it is to start with these parameters",
            path, samples, now);
    int32_t status = tn_dataset_fingerprint(&t->train, t->pool, &t->services, &print, err);
    snprintf(now, sizeof now, "%016" PRIx64, print);
    if (status == TN_OK && data && strcmp(data, now) != 0 && tn_comm_rank(t->comm) == 0)
        tn_log_write(t->options.log, TN_LOG_WARNING,
                     "%s: the training data is not what it was; the numbers will not be those of a run that never "
                     "stopped",
                     path);
    return status;
}

static int32_t check_notes(const tn_trainer *t, const char *path, const tn_safetensors *file, tn_error *err)
{
    char processes[16];
    int32_t status = tn_checkpoint_check_format(file, path, err);
    if (status != TN_OK)
        return status;
    const char *saved = tn_safetensors_note_of(file, "experiment"), *size = tn_safetensors_note_of(file, "processes");
    snprintf(processes, sizeof processes, "%d", tn_comm_size(t->comm));
    if (strcmp(size, processes) != 0)
        return tn_error_set(err, TN_E_INVALID, "%s: is of a run on %s processes, this one has %s; start as many", path,
                            size, processes);
    status = check_experiment_of_before(t, path, saved, err);
    if (status == TN_OK)
        status = check_data(t, path, file, err);
    return status == TN_OK ? check_plugins(t, path, file, err) : status;
}

/* ---- restoring: does it hold what it should? ---- */

/* The files of a checkpoint: the whole one, and this process's own, which may be the same. */
typedef struct {
    const char *path;
    tn_safetensors *whole, *own;
} files;

static const tn_safetensors *file_of(const files *f, const item *at) { return at->own ? f->own : f->whole; }

static int fits(const item *at, const tn_safetensors_info *info)
{
    return memcmp(&info->dtype, &at->dtype, sizeof info->dtype) == 0 && info->ndim == at->ndim &&
           memcmp(info->shape, at->shape, (size_t)at->ndim * sizeof *at->shape) == 0;
}

static void list_name(tn_text *text, const char *what, const char *name, int *count)
{
    if (*count < 5)
        tn_text_addf(text, "%s%s", *count ? ", " : what, name);
    else if (*count == 5)
        tn_text_add(text, ", ...");
    ++*count;
}

static int by_name(const void *a, const void *b) { return strcmp(((const item *)a)->name, ((const item *)b)->name); }

/* Complains of names that only one of the list, as far as it is in the file, and the file has, and of other shapes or
 * types. `part`: the file may hold more. The list is sorted. */
static int32_t check_names_in(const files *f, const tn_safetensors *file, const state *s, int part, tn_error *err)
{
    tn_text text = {0};
    int missing = 0, odd = 0, extra = 0;
    for (size_t i = 0; i < s->count; i++)
        if (file_of(f, &s->list[i]) == file && !tn_safetensors_find(file, s->list[i].name))
            list_name(&text, "; missing: ", s->list[i].name, &missing);
    for (size_t i = 0; i < s->count; i++) {
        const tn_safetensors_info *info = tn_safetensors_find(file, s->list[i].name);
        if (file_of(f, &s->list[i]) == file && info && !fits(&s->list[i], info))
            list_name(&text, "; of another shape or type: ", s->list[i].name, &odd);
    }
    for (size_t i = 0; i < tn_safetensors_count(file) && !part; i++) {
        const item key = {.name = (char *)tn_safetensors_at(file, i)->name};
        if (!bsearch(&key, s->list, s->count, sizeof *s->list, by_name))
            list_name(&text, "; not known here: ", key.name, &extra);
    }
    int32_t status = tn_text_status(&text, err);
    if (status == TN_OK && missing + odd + extra)
        status = tn_error_set(err, TN_E_DATA,
                              "%s: does not hold the state of this run%s; it was written for other "
                              "plugins or another model",
                              tn_safetensors_path(file), tn_text_string(&text));
    tn_text_free(&text);
    return status;
}

/* Sorts the list. */
static int32_t check_names(const files *f, state *s, int part, tn_error *err)
{
    qsort(s->list, s->count, sizeof *s->list, by_name);
    int32_t status = check_names_in(f, f->whole, s, part, err);
    return status == TN_OK && f->own != f->whole ? check_names_in(f, f->own, s, part, err) : status;
}

/* Is an item in the file what was written? */
static int32_t check_item(const files *f, const item *at, void *buffer, XXH3_state_t *hash, tn_error *err)
{
    const tn_safetensors *file = file_of(f, at);
    const tn_safetensors_info *info = tn_safetensors_find(file, at->name);
    char found[20], *key = tn_format("xxh3/%s", at->name);
    const char *saved = key ? tn_safetensors_note_of(file, key) : NULL;
    int32_t status = key ? TN_OK : tn_error_set(err, TN_E_MEMORY, "no memory for a checkpoint");
    XXH3_64bits_reset(hash);
    for (int64_t done = 0, n; done < at->bytes && status == TN_OK; done += n) {
        n = at->bytes - done < BUFFER_BYTES ? at->bytes - done : BUFFER_BYTES;
        status = tn_safetensors_read(file, info, done, n, buffer, err);
        if (status == TN_OK)
            XXH3_64bits_update(hash, buffer, (size_t)n);
    }
    snprintf(found, sizeof found, "%016" PRIx64, XXH3_64bits_digest(hash));
    if (status == TN_OK && (!saved || strcmp(saved, found) != 0))
        status = tn_error_set(err, TN_E_DATA,
                              "%s: tensor '%s' has the checksum %s, needed %s; the file is damaged, take an older one",
                              tn_safetensors_path(file), at->name, found, saved ? saved : "one");
    tn_free(key);
    return status;
}

static int32_t check_items(const files *f, const state *s, tn_error *err)
{
    void *buffer = tn_alloc_aligned((size_t)BUFFER_BYTES);
    XXH3_state_t *hash = tn_alloc_aligned(sizeof *hash);
    int32_t status = buffer && hash ? TN_OK : tn_error_set(err, TN_E_MEMORY, "no memory for a checkpoint");
    for (size_t i = 0; i < s->count && status == TN_OK; i++)
        status = check_item(f, &s->list[i], buffer, hash, err);
    tn_free(buffer);
    tn_free(hash);
    return status;
}

/* ---- restoring ---- */

static int32_t open_files(const tn_trainer *t, const char *path, files *f, tn_error *err)
{
    char *own = own_path(t, path);
    *f = (files){.path = path};
    int32_t status =
        own ? tn_safetensors_open(path, &f->whole, err) : tn_error_set(err, TN_E_MEMORY, "no memory for a path");
    if (status == TN_OK && tn_comm_rank(t->comm) == 0)
        f->own = f->whole;
    else if (status == TN_OK)
        status = tn_safetensors_open(own, &f->own, err);
    tn_free(own);
    return status;
}

static void close_files(files *f)
{
    if (f->own != f->whole)
        tn_safetensors_close(f->own);
    tn_safetensors_close(f->whole);
}

/* Is the file of this process, and of the attempt whose other files are read? */
static int32_t check_place(const tn_safetensors *file, int32_t rank, const tn_safetensors *whole, tn_error *err)
{
    char needed[16];
    const char *found = tn_safetensors_note_of(file, "rank"), *attempt = tn_safetensors_note_of(file, "attempt"),
               *of_whole = tn_safetensors_note_of(whole, "attempt");
    snprintf(needed, sizeof needed, "%d", rank);
    if (found && attempt && of_whole && strcmp(found, needed) == 0 && strcmp(attempt, of_whole) == 0)
        return TN_OK;
    return tn_error_set(
        err, TN_E_DATA,
        "%s: is the file of process %s at attempt %s, needed that of process %s at attempt %s; files of "
        "other checkpoints have got its name, take another checkpoint",
        tn_safetensors_path(file), found ? found : "none", attempt ? attempt : "none", needed,
        of_whole ? of_whole : "none");
}

/* Everything that can be refused, before anything changes. */
static int32_t check(const tn_trainer *t, const files *f, state *s, tn_error *err)
{
    int32_t status = check_notes(t, f->path, f->whole, err);
    if (status == TN_OK)
        status = check_place(f->whole, 0, f->whole, err);
    if (status == TN_OK && f->own != f->whole)
        status = check_notes(t, tn_safetensors_path(f->own), f->own, err);
    if (status == TN_OK && f->own != f->whole)
        status = check_place(f->own, tn_comm_rank(t->comm), f->whole, err);
    if (status == TN_OK)
        status = check_names(f, s, 0, err);
    return status == TN_OK ? check_items(f, s, err) : status;
}

static int32_t take(const files *f, const state *s, tn_error *err)
{
    int32_t status = TN_OK;
    for (size_t i = 0; i < s->count && status == TN_OK; i++) {
        const tn_safetensors *file = file_of(f, &s->list[i]);
        status = tn_safetensors_read(file, tn_safetensors_find(file, s->list[i].name), 0, s->list[i].bytes,
                                     s->list[i].data, err);
    }
    return status;
}

int32_t tn_trainer_restore(tn_trainer *t, const char *path, tn_error *err)
{
    state s;
    files f = {0};
    int32_t status = collect(t, &s, err);
    if (status == TN_OK)
        status = open_files(t, path, &f, err);
    if (status == TN_OK)
        status = check(t, &f, &s, err);
    status = tn_trainer_agree(t, status, err);
    if (status == TN_OK)
        status = tn_trainer_agree(t, take(&f, &s, err), err);
    if (status == TN_OK) {
        tn_precision_show(t, NULL); /* where p is behind a codec: what layers see of it */
        t->held = -1;
        t->checkpointed_at = t->attempt;
    }
    close_files(&f);
    free_state(&s);
    return status;
}

/* ---- looking at what was learnt ---- */

static int is_in(const void *arena, int64_t bytes, const void *data)
{
    return arena && (const char *)data >= (const char *)arena && (const char *)data < (const char *)arena + bytes;
}

/* Only what an evaluation reads: parameters, their view, training's buffers, how far the run is. */
static void keep_what_is_looked_at(tn_trainer *t, state *s)
{
    static const char *const read[] = {"parameters/", "buffers/train/", "run/attempt", "run/update", "run/samples"};
    const tn_parameters *all = tn_graph_parameters(t->graph);
    const void *view = tn_chain_view(t->chain) == all->p ? NULL : tn_chain_view(t->chain);
    size_t left = 0;
    for (size_t i = 0; i < s->count; i++) {
        int keep = is_in(view, all->elements * (all->real / 8), s->list[i].data);
        for (size_t k = 0; k < sizeof read / sizeof *read; k++)
            keep |= strncmp(s->list[i].name, read[k], strlen(read[k])) == 0;
        if (keep)
            s->list[left++] = s->list[i];
        else
            tn_free(s->list[i].name);
    }
    s->count = left;
}

int32_t tn_trainer_load(tn_trainer *t, const char *path, tn_error *err)
{
    state s;
    files f = {.path = path};
    int32_t status = collect(t, &s, err);
    if (status == TN_OK) {
        keep_what_is_looked_at(t, &s);
        status = tn_safetensors_open(path, &f.whole, err);
    }
    f.own = f.whole; /* of several processes the first one's statistics are evaluated */
    if (status == TN_OK)
        status = tn_checkpoint_check_format(f.whole, path, err);
    if (status == TN_OK)
        status = check_names(&f, &s, 1, err);
    if (status == TN_OK)
        status = check_items(&f, &s, err);
    if (status == TN_OK)
        status = take(&f, &s, err);
    if (status == TN_OK)
        tn_precision_show(t, NULL);
    close_files(&f);
    free_state(&s);
    return status;
}
