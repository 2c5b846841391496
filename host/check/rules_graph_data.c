/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_graph_data.c: data sets, with the component's defaults; where these name no file that is there, with small ones
 * in rows of the usual names. One that takes neither is skipped.
 */
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <tenon/data.h>

#include "host/base/memory.h"
#include "host/base/pool.h"
#include "host/check/count.h"
#include "host/check/guard.h"
#include "host/check/rules_graph.h"
#include "host/experiment/instance.h"

#define SAMPLES     32 /* at a time */
#define LOOKED_MOST 2048
#define THREADS     4
#define BYTES_MOST  ((int64_t)1 << 31)
#define LOOSE       (-1)
#define SLACK       4096 /* bytes beside a split's memory, then */

/* A split in memory of its own. */
typedef struct {
    tn_data_split split;
    tn_guard memory;
    int64_t x, target; /* numbers of a sample */
} portion;

typedef struct {
    const tn_check_subject *subject;
    tn_check_finding *finding;
    tn_data table;
    tn_instance *instance;
    uint32_t real;
    int32_t place;       /* of guards: TN_GUARD_*, or LOOSE: nothing is looked at beside a split's memory */
    portion train, test; /* test.memory.map NULL: there is none */
    tn_context context;
} source;

bool tn_check_is_data(const tn_check_subject *subject)
{
    const tn_entry_info *entry = subject->entry;
    return entry && strcmp(entry->interface, TN_DATA) == 0 && strcmp(entry->device, "cpu") == 0;
}

static size_t real_bytes(const source *s) { return s->real / 8; }
static size_t target_bytes(const source *s, const portion *p)
{
    return p->split.classes > 0 ? sizeof(int32_t) : real_bytes(s);
}
static bool is_done(const source *s) { return s->finding->verdict != TN_CHECK_PASSED; }

/* ---- opening ---- */

static int64_t product(const int64_t *shape, int32_t ndim)
{
    int64_t n = 1;
    for (int32_t i = 0; i < ndim; i++)
        if (shape[i] < 0 || (n *= shape[i]) > BYTES_MOST)
            return -1;
    return n;
}

static bool is_plausible(const tn_data_split *d)
{
    return d->ndim >= 0 && d->ndim < TN_MAX_DIMS && d->target_ndim >= 0 && d->target_ndim < TN_MAX_DIMS &&
           d->samples >= 1 && d->classes >= 0 && d->classes <= INT32_MAX && d->bytes >= 0 &&
           product(d->shape, d->ndim) >= 0 && product(d->target_shape, d->target_ndim) >= 0;
}

static int32_t describe(source *s, const char *split, tn_data_split *ret, tn_error *err);

/* ---- files for one whose defaults name none that is there ---- */

static bool write_csv(const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file)
        return false;
    fputs("a,b,c,label\n", file);
    for (int i = 0; i < 60; i++)
        fprintf(file, "%d.%d,%d,-%d.5,%d\n", i, i % 7, i * i % 11, i % 5, i % 3);
    return fclose(file) == 0;
}

/* The images or labels of a split in the format of MNIST: 60 of 4 x 5. */
static bool write_idx(const char *folder, const char *split, bool images)
{
    static const unsigned char of_images[] = {0, 0, 8, 3, 0, 0, 0, 60, 0, 0, 0, 4, 0, 0, 0, 5},
                               of_labels[] = {0, 0, 8, 1, 0, 0, 0, 60};
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s-%s-ubyte", folder, split, images ? "images-idx3" : "labels-idx1");
    FILE *file = fopen(path, "w");
    if (!file)
        return false;
    fwrite(images ? of_images : of_labels, 1, images ? sizeof of_images : sizeof of_labels, file);
    for (int i = 0; i < (images ? 1200 : 60); i++)
        fputc(images ? i * 37 % 256 : i % 4, file);
    return fclose(file) == 0;
}

static void set_first(source *s, const char *const *rows, const char *path)
{
    tn_error err;
    for (; *rows; rows++) {
        const tn_row *row = tn_instance_row(s->instance, *rows);
        if (row && row->type == TN_TYPE_TEXT &&
            tn_instance_set(s->instance, s->subject->registry, row->name, path, &err) == TN_OK)
            return;
    }
}

/* Rows of the usual names get small files of the usual formats. */
static void lend_files(source *s)
{
    static const char *const files[] = {"train", "file", "path", NULL}, *const folders[] = {"folder", "directory",
                                                                                            NULL};
    char csv[PATH_MAX];
    const char *folder = s->subject->folder;
    snprintf(csv, sizeof csv, "%s/samples.csv", folder);
    if (write_csv(csv))
        set_first(s, files, csv);
    if (write_idx(folder, "train", true) && write_idx(folder, "train", false) && write_idx(folder, "t10k", true) &&
        write_idx(folder, "t10k", false))
        set_first(s, folders, folder);
}

static bool begin(const tn_check_subject *subject, tn_check_finding *finding, source *s)
{
    tn_error err = {0};
    const tn_entry_info *entry = subject->entry;
    *s = (source){.subject = subject,
                  .finding = finding,
                  .table = {.struct_size = sizeof s->table},
                  .real = entry->real ? entry->real : 32,
                  .place = LOOSE,
                  .context = {.struct_size = sizeof s->context, .attempt = 4, .key = 0xFEDCBA9876543210}};
    if (!tn_check_load(subject, &s->table, sizeof s->table, finding))
        return false;
    if (!s->table.describe || !s->table.load || !s->table.gather)
        tn_check_fail(finding, "its table lacks describe, load or gather");
    else if (tn_instance_create(subject->registry, entry->kind, entry->name, s->real, entry->name, NULL, 0,
                                &s->instance, &err) != TN_OK)
        tn_check_skip(finding, "no instance with its defaults: %s", err.msg);
    tn_guard_watch(subject->stage, 256);
    tn_data_split split;
    if (!is_done(s) && describe(s, "train", &split, &err) != TN_OK)
        lend_files(s);
    return !is_done(s);
}

static int32_t describe(source *s, const char *split, tn_data_split *ret, tn_error *err)
{
    *ret = (tn_data_split){.struct_size = sizeof *ret};
    tn_check_stage(s->subject, "describe of the split %s", split);
    int32_t status = s->table.describe(s->instance->hyper, split, ret, err);
    tn_check_stage(s->subject, NULL);
    return status;
}

static bool fill(source *s, const char *split, const portion *train, portion *p)
{
    tn_error err = {0};
    p->x = product(p->split.shape, p->split.ndim);
    p->target = product(p->split.target_shape, p->split.target_ndim);
    if (!is_plausible(&p->split) || p->split.bytes > BYTES_MOST) {
        tn_check_skip(s->finding, "what it describes can not be loaded here, see data-describe");
        return false;
    }
    if (tn_guard_open("the memory of a split", (size_t)p->split.bytes + (s->place == LOOSE ? SLACK : 0),
                      TN_GUARD_ALIGNMENT, s->place == LOOSE ? TN_GUARD_START : s->place, &p->memory, &err) != TN_OK) {
        tn_check_skip(s->finding, "%s", err.msg);
        return false;
    }
    tn_check_stage(s->subject, "load of the split %s", split);
    int32_t status =
        s->table.load(s->instance->hyper, split, &p->split, train ? train->memory.data : NULL, p->memory.data, &err);
    tn_check_stage(s->subject, NULL);
    if (status != TN_OK)
        tn_check_fail(s->finding, "load of the split %s, which describe has described, fails: %s", split, err.msg);
    if (tn_guard_damage(&p->memory))
        tn_check_fail(s->finding, "load of the split %s writes %zu bytes beside its memory of %lld bytes", split,
                      tn_guard_damage(&p->memory), (long long)p->split.bytes);
    tn_guard_read_only(&p->memory, s->place != LOOSE);
    return !is_done(s);
}

/* Describes and loads `train`, and `test` where there is one. */
static bool open_source(const tn_check_subject *subject, tn_check_finding *finding, source *s, int32_t place)
{
    tn_error err = {0};
    if (!begin(subject, finding, s))
        return false;
    s->place = place;
    if (describe(s, "train", &s->train.split, &err) != TN_OK) {
        tn_check_skip(finding, "with its defaults it has no data here, nor with the files that were tried: %s",
                      err.msg);
        return false;
    }
    if (!fill(s, "train", NULL, &s->train))
        return false;
    if (describe(s, "test", &s->test.split, &err) == TN_OK)
        return fill(s, "test", &s->train, &s->test);
    return true;
}

/* ---- gathering ---- */

typedef struct {
    tn_guard x, target, index;
    size_t x_bytes, target_bytes; /* of a sample */
    int64_t n;
} batch;

static bool open_batch(source *s, const portion *p, int64_t n, batch *b)
{
    tn_error err = {0};
    *b = (batch){
        .x_bytes = (size_t)p->x * real_bytes(s), .target_bytes = (size_t)p->target * target_bytes(s, p), .n = n};
    size_t count = (size_t)n;
    int32_t place = s->place == LOOSE ? TN_GUARD_START : s->place;
    if (tn_guard_open("x", count * b->x_bytes, TN_GUARD_ALIGNMENT, place, &b->x, &err) == TN_OK &&
        tn_guard_open("target", count * b->target_bytes, TN_GUARD_ALIGNMENT, place, &b->target, &err) == TN_OK &&
        tn_guard_open("index", count * sizeof(int64_t), 8, place, &b->index, &err) == TN_OK)
        return true;
    tn_check_skip(s->finding, "%s", err.msg);
    return false;
}

static void close_batch(batch *b)
{
    tn_guard_close(&b->x);
    tn_guard_close(&b->target);
    tn_guard_close(&b->index);
}

static void gather(source *s, const portion *p, batch *b, int64_t first, int64_t n, int32_t augment)
{
    s->table.gather(s->instance->hyper, p->memory.data, &s->context, (const int64_t *)b->index.data + first, n, augment,
                    (char *)b->x.data + (size_t)first * b->x_bytes,
                    (char *)b->target.data + (size_t)first * b->target_bytes);
}

/* Sample numbers all over the split, the first and the last among them, some twice. */
static void choose(const portion *p, batch *b)
{
    int64_t *index = b->index.data, last = p->split.samples - 1;
    for (int64_t i = 0; i < b->n; i++)
        index[i] = (int64_t)((uint64_t)(i + 1) * 0x9E3779B97F4A7C15u % (uint64_t)p->split.samples);
    index[0] = last;
    if (b->n > 2) {
        index[1] = 0;
        index[2] = last;
    }
}

static void spoil(batch *b, int byte)
{
    memset(b->x.data, byte, b->x.bytes);
    memset(b->target.data, byte, b->target.bytes);
}

typedef void visit_split(source *s, const portion *p, const char *split);

static void each_split(const tn_check_subject *subject, tn_check_finding *finding, int32_t place, visit_split *visit)
{
    static source s;
    if (!open_source(subject, finding, &s, place))
        return;
    visit(&s, &s.train, "train");
    if (s.test.memory.map && !is_done(&s))
        visit(&s, &s.test, "test");
}

/* ---- describe ---- */

static void check_split(source *s, const char *split, const tn_data_split *d)
{
    tn_data_split again;
    tn_error err = {0};
    if (!is_plausible(d))
        tn_check_fail(s->finding,
                      "the split %s is described with %lld samples of %d axes, %lld classes and %lld bytes, "
                      "which can not be",
                      split, (long long)d->samples, d->ndim, (long long)d->classes, (long long)d->bytes);
    if (describe(s, split, &again, &err) != TN_OK || memcmp(&again, d, sizeof again) != 0)
        tn_check_fail(s->finding, "described again, the split %s is another one", split);
}

void tn_check_data_describe(const tn_check_subject *subject, tn_check_finding *finding)
{
    source s;
    tn_error err = {0};
    tn_data_split split;
    if (!begin(subject, finding, &s))
        return;
    int32_t status = describe(&s, "no-such-split", &split, &err);
    if (status == TN_OK)
        tn_check_fail(finding, "it describes a split no-such-split; needed TN_E_NOT_FOUND");
    else if (!*err.msg)
        tn_check_fail(finding, "it refuses the split no-such-split and does not say why");
    describe(&s, "no-such-split", &split, NULL);
    err = (tn_error){0};
    status = describe(&s, "train", &split, &err);
    if (status == TN_OK)
        check_split(&s, "train", &split);
    else if (!*err.msg)
        tn_check_fail(finding, "it refuses the split train and does not say why");
    else
        tn_check_skip(finding, "with its defaults it has no data here, nor with the files that were tried: %s",
                      err.msg);
}

/* ---- memory ---- */

static void visit_memory(source *s, const portion *p, const char *split)
{
    batch b;
    for (int64_t n = 1; n <= SAMPLES && !is_done(s); n = n == 1 ? 5 : n == 5 ? SAMPLES : n + 1) {
        if (!open_batch(s, p, n, &b))
            return;
        choose(p, &b);
        tn_guard_read_only(&b.index, 1);
        for (int32_t augment = 0; augment <= 1; augment++) {
            tn_check_stage(s->subject, "gather of %lld samples of %s%s", (long long)n, split,
                           augment ? ", augmented" : "");
            gather(s, p, &b, 0, n, augment);
            gather(s, p, &b, 0, 0, augment);
        }
        if (tn_guard_damage(&b.x) || tn_guard_damage(&b.target))
            tn_check_fail(s->finding, "gather of %lld samples of %s writes beside x or target", (long long)n, split);
        close_batch(&b);
    }
}

void tn_check_data_memory(const tn_check_subject *subject, tn_check_finding *finding)
{
    for (int32_t place = TN_GUARD_START; place <= TN_GUARD_END && finding->verdict == TN_CHECK_PASSED; place++)
        each_split(subject, finding, place, visit_memory);
}

/* ---- values ---- */

static double number(const source *s, const void *data, int64_t i)
{
    return s->real == 64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void check_sample(source *s, const portion *p, const batch *b, int64_t i, const char *split)
{
    const char *x = (const char *)b->x.data + (size_t)i * b->x_bytes,
               *target = (const char *)b->target.data + (size_t)i * b->target_bytes;
    long long sample = (long long)((const int64_t *)b->index.data)[i];
    for (int64_t k = 0; k < p->x; k++)
        if (!isfinite(number(s, x, k)))
            tn_check_fail(s->finding,
                          "number %lld of sample %lld of %s is %g: records are checked in load, or x is not "
                          "set whole",
                          (long long)k, sample, split, number(s, x, k));
    for (int64_t k = 0; k < p->target; k++) {
        double value = p->split.classes > 0 ? ((const int32_t *)target)[k] : number(s, target, k);
        if (p->split.classes > 0 ? value < 0 || value >= (double)p->split.classes : !isfinite(value))
            tn_check_fail(s->finding, "the target of sample %lld of %s is %g, of %lld classes", sample, split, value,
                          (long long)p->split.classes);
    }
}

static void visit_values(source *s, const portion *p, const char *split)
{
    batch b;
    int64_t stride = p->split.samples / LOOKED_MOST + 1;
    if (!open_batch(s, p, SAMPLES, &b))
        return;
    for (int64_t first = 0; first < p->split.samples && !is_done(s); first += stride * SAMPLES) {
        for (int64_t i = 0; i < SAMPLES; i++) {
            int64_t sample = first + i * stride;
            ((int64_t *)b.index.data)[i] = sample < p->split.samples ? sample : p->split.samples - 1;
        }
        spoil(&b, 0xFF);
        tn_check_stage(s->subject, "gather of samples from %lld on of %s", (long long)first, split);
        gather(s, p, &b, 0, SAMPLES, 0);
        for (int64_t i = 0; i < SAMPLES && !is_done(s); i++)
            check_sample(s, p, &b, i, split);
    }
    close_batch(&b);
}

void tn_check_data_values(const tn_check_subject *subject, tn_check_finding *finding)
{
    each_split(subject, finding, LOOSE, visit_values);
}

/* ---- a sample is the same in any company ---- */

static void compare(source *s, const batch *a, const batch *b, const char *split, const char *why)
{
    for (int64_t i = 0; i < a->n && !is_done(s); i++)
        if (memcmp((char *)a->x.data + (size_t)i * a->x_bytes, (char *)b->x.data + (size_t)i * b->x_bytes,
                   a->x_bytes) != 0 ||
            memcmp((char *)a->target.data + (size_t)i * a->target_bytes,
                   (char *)b->target.data + (size_t)i * b->target_bytes, a->target_bytes) != 0)
            tn_check_fail(s->finding, "sample %lld of %s %s", (long long)((const int64_t *)a->index.data)[i], split,
                          why);
}

static void visit_order(source *s, const portion *p, const char *split)
{
    batch together, alone;
    if (!open_batch(s, p, SAMPLES, &together) || !open_batch(s, p, SAMPLES, &alone))
        return;
    choose(p, &together);
    choose(p, &alone);
    for (int32_t augment = 0; augment <= 1 && !is_done(s); augment++) {
        spoil(&together, 0xFF);
        spoil(&alone, 0x7E);
        gather(s, p, &together, 0, SAMPLES, augment);
        for (int64_t i = SAMPLES - 1; i >= 0; i--)
            gather(s, p, &alone, i, 1, augment);
        compare(s, &together, &alone, split,
                "is another one when gathered by itself: it depends on the order of calls, on the place in the batch "
                "or on what memory held before");
    }
    close_batch(&together);
    close_batch(&alone);
}

void tn_check_data_order(const tn_check_subject *subject, tn_check_finding *finding)
{
    each_split(subject, finding, LOOSE, visit_order);
}

/* ---- a new process ---- */

typedef struct {
    int32_t is_second;
    uint64_t hashes[2]; /* of train, of test */
} record;

static uint64_t mix(uint64_t hash, const void *bytes, size_t size)
{
    for (const unsigned char *at = bytes, *end = at + size; at < end; at++)
        hash = (hash ^ *at) * 0x100000001B3u;
    return hash;
}

static uint64_t hash_split(source *s, const portion *p)
{
    batch b;
    uint64_t hash = mix(0xCBF29CE484222325u, &p->split, sizeof p->split);
    if (!open_batch(s, p, SAMPLES, &b))
        return hash;
    choose(p, &b);
    for (int32_t augment = 0; augment <= 1; augment++) {
        gather(s, p, &b, 0, SAMPLES, augment);
        hash = mix(mix(hash, b.x.data, b.x.bytes), b.target.data, b.target.bytes);
    }
    close_batch(&b);
    return hash;
}

static void one_process(const tn_check_subject *subject, void *memory, tn_check_finding *finding)
{
    source s;
    record *r = memory;
    if (!open_source(subject, finding, &s, LOOSE))
        return;
    const uint64_t hashes[2] = {hash_split(&s, &s.train), s.test.memory.map ? hash_split(&s, &s.test) : 0};
    if (r->is_second && memcmp(hashes, r->hashes, sizeof hashes) != 0)
        tn_check_fail(finding,
                      "a new process gets other samples of the split %s: a run that goes on would learn from "
                      "another set",
                      hashes[0] != r->hashes[0] ? "train" : "test");
    memcpy(r->hashes, hashes, sizeof hashes);
    r->is_second = 1;
}

void tn_check_data_fresh(const tn_check_subject *subject, tn_check_finding *finding)
{
    record *memory = tn_check_shared(sizeof *memory);
    if (!memory)
        tn_check_skip(finding, "no memory that processes share");
    else if (tn_check_apart(subject, one_process, memory, finding))
        tn_check_apart(subject, one_process, memory, finding);
}

/* ---- threads ---- */

static source *shared_source;
static const portion *shared_portion;
static batch batches[THREADS];

static void gather_beside(void *arg, int64_t index, int32_t thread)
{
    (void)arg, (void)thread;
    for (int k = 0; k < 30; k++)
        gather(shared_source, shared_portion, &batches[index], 0, SAMPLES, 1);
}

static void visit_threads(source *s, const portion *p, const char *split)
{
    tn_error err = {0};
    tn_pool *pool = NULL;
    batch right;
    if (tn_pool_create(THREADS, &pool, &err) != TN_OK) {
        tn_check_skip(s->finding, "%s", err.msg);
        return;
    }
    shared_source = s;
    shared_portion = p;
    for (int i = 0; i < THREADS; i++) {
        if (!open_batch(s, p, SAMPLES, &batches[i]))
            return;
        choose(p, &batches[i]);
        for (int64_t k = 0; k < SAMPLES; k++) /* others for each */
            ((int64_t *)batches[i].index.data)[k] = (((int64_t *)batches[i].index.data)[k] + i) % p->split.samples;
    }
    tn_check_stage(s->subject, "gather on %d threads", THREADS);
    tn_pool_run(pool, gather_beside, NULL, THREADS);
    tn_pool_destroy(pool);
    for (int i = 0; i < THREADS && !is_done(s); i++) {
        if (!open_batch(s, p, SAMPLES, &right))
            return;
        memcpy(right.index.data, batches[i].index.data, right.index.bytes);
        gather(s, p, &right, 0, SAMPLES, 1);
        compare(s, &right, &batches[i], split,
                "is another one when 4 threads gather at a time; keep nothing in static "
                "memory");
        close_batch(&right);
        close_batch(&batches[i]);
    }
}

void tn_check_data_threads(const tn_check_subject *subject, tn_check_finding *finding)
{
    each_split(subject, finding, LOOSE, visit_threads);
}

/* ---- the heap, and what stays open ---- */

#define CALLS 10000
#define MOST  ((int64_t)1 << 20) /* bytes that a process may grow by meanwhile, for reasons of its own */

static void visit_heap(source *s, const portion *p, const char *split)
{
    batch b;
    tn_error err = {0};
    if (!open_batch(s, p, 1, &b))
        return;
    choose(p, &b);
    gather(s, p, &b, 0, 1, 1);
    if (tn_count_open(&err) != TN_OK) {
        tn_check_skip(s->finding, "%s", err.msg);
        return;
    }
    int64_t files = tn_count_files(), mapped = tn_count_mapped(), before = tn_count_allocations();
    for (int k = 0; k < CALLS; k++)
        gather(s, p, &b, 0, 1, k % 2);
    int64_t made = tn_count_allocations() - before;
    if (made > 0)
        tn_check_fail(s->finding, "%d calls of gather of %s allocate %lld times (%s)", CALLS, split, (long long)made,
                      tn_count_last());
    else if (tn_count_files() > files)
        tn_check_fail(s->finding, "gather of %s leaves %lld files open; it reads what was loaded and nothing else",
                      split, (long long)(tn_count_files() - files));
    else if (tn_count_mapped() > mapped + MOST)
        tn_check_fail(s->finding, "the process has grown by %lld bytes after %d calls of gather of %s",
                      (long long)(tn_count_mapped() - mapped), CALLS, split);
    close_batch(&b);
}

void tn_check_data_heap(const tn_check_subject *subject, tn_check_finding *finding)
{
    each_split(subject, finding, LOOSE, visit_heap);
}

static void describe_and_load(source *s)
{
    tn_error err = {0};
    portion p = {.split = {0}};
    if (describe(s, "train", &p.split, &err) == TN_OK && fill(s, "train", NULL, &p))
        tn_guard_close(&p.memory);
    describe(s, "no-such-split", &p.split, &err);
}

void tn_check_data_leak(const tn_check_subject *subject, tn_check_finding *finding)
{
    enum { TIMES = 3 };
    source s;
    tn_error err = {0};
    if (!begin(subject, finding, &s) || tn_count_open(&err) != TN_OK)
        return;
    describe_and_load(&s);
    int64_t files = tn_count_files(), held = tn_count_held();
    for (int k = 0; k < TIMES && !is_done(&s); k++)
        describe_and_load(&s);
    int64_t more = tn_count_held() - held;
    if (more > 0)
        tn_check_fail(finding, "%lld blocks are not freed after describe and load were called %d times",
                      (long long)more, TIMES);
    else if (tn_count_files() > files)
        tn_check_fail(finding, "%lld files are left open after describe and load were called %d times",
                      (long long)(tn_count_files() - files), TIMES);
}
