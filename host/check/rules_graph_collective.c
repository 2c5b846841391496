/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_graph_collective.c: collectives, in a team of processes where they serve one that is started with TENON_RANKS,
 * TENON_RANK and TENON_SHM (docs/experiment.md), else in one process.
 */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <tenon/parallel.h>

#include "host/base/memory.h"
#include "host/check/count.h"
#include "host/check/guard.h"
#include "host/check/rules_graph.h"
#include "host/experiment/instance.h"

#define RANKS    3
#define TIMEOUT  2.0 /* seconds, of one operation */
#define SHORT    0.5 /* of one to which somebody does not come */
#define PATIENCE 30  /* seconds, of a team */
#define SOON     6   /* of one of which somebody does not come */
#define MOST     2048

bool tn_check_is_collective(const tn_check_subject *subject)
{
    const tn_entry_info *entry = subject->entry;
    return entry && strcmp(entry->interface, TN_COLLECTIVE) == 0 && strcmp(entry->device, "cpu") == 0;
}

/* ---- a member ---- */

typedef struct member {
    const tn_check_subject *subject;
    tn_check_finding *finding;
    tn_collective table;
    tn_instance *instance;
    tn_group group;
    int32_t ranks[RANKS];
    int32_t rank, size;
    void *state;
    int64_t sequence;
    bool is_broken; /* an operation failed: the group is only good for close */
} member;

typedef void member_body(member *m);

static void fail(member *m, const char *format, ...) TN_PRINTF(2, 3);
static void fail(member *m, const char *format, ...)
{
    char words[900];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    tn_check_fail(m->finding, "rank %d of %d: %s", m->rank, m->size, words);
}

static bool is_done(const member *m) { return m->finding->verdict != TN_CHECK_PASSED; }

static bool open_group(member *m)
{
    tn_error err = {0};
    int32_t rank = -1, size = -1;
    tn_check_stage(m->subject, "world");
    if (m->table.world(m->instance->hyper, &rank, &size, &err) != TN_OK) {
        fail(m, "world fails: %s", err.msg);
        return false;
    }
    m->size = size;
    if (rank != m->rank)
        fail(m, "world says that it is rank %d of %d", rank, size);
    m->state = tn_alloc_aligned((size_t)m->table.state_bytes + 64);
    for (int32_t i = 0; i < RANKS; i++)
        m->ranks[i] = i;
    m->group = (tn_group){
        .struct_size = sizeof m->group, .rank = m->rank, .size = m->size, .members = m->ranks, .state = m->state};
    tn_check_stage(m->subject, "open");
    if (!is_done(m) && m->table.open(m->instance->hyper, &m->group, &err) != TN_OK)
        fail(m, "open fails: %s", err.msg);
    tn_check_stage(m->subject, NULL);
    return !is_done(m);
}

static bool load(const tn_check_subject *subject, tn_check_finding *finding, member *m)
{
    tn_error err = {0};
    const tn_entry_info *entry = subject->entry;
    *m = (member){.subject = subject, .finding = finding, .table = {.struct_size = sizeof m->table}};
    if (!tn_check_load(subject, &m->table, sizeof m->table, finding))
        return false;
    if (!m->table.world || !m->table.open || !m->table.close || !m->table.start || !m->table.wait)
        tn_check_fail(finding, "its table lacks world, open, close, start or wait");
    else if (m->table.state_bytes < 0 || m->table.state_bytes > ((int64_t)1 << 30))
        tn_check_fail(finding, "its table has %lld state bytes", (long long)m->table.state_bytes);
    else if (tn_instance_create(subject->registry, entry->kind, entry->name, entry->real ? entry->real : 32,
                                entry->name, NULL, 0, &m->instance, &err) != TN_OK)
        tn_check_skip(finding, "no instance with its defaults: %s", err.msg);
    return !is_done(m);
}

/* ---- a team ---- */

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* How many processes serve: RANKS, or 1 where the collective's world is of one whatever the environment says. */
static int32_t team_size(member *m)
{
    int32_t rank = 0, size = 1;
    char name[64];
    tn_error err = {0};
    snprintf(name, sizeof name, "tenon-check-%d", (int)getpid());
    setenv("TENON_SHM", name, 1);
    set_number("TENON_RANKS", RANKS);
    set_number("TENON_RANK", 0);
    tn_check_stage(m->subject, "world");
    if (m->table.world(m->instance->hyper, &rank, &size, &err) != TN_OK)
        tn_check_fail(m->finding, "world fails with TENON_RANKS %d and TENON_RANK 0: %s", RANKS, err.msg);
    if (size != RANKS && size != 1)
        tn_check_skip(m->finding, "its world is of %d processes, which this check does not start", size);
    return size;
}

static void start_rank(member *m, int32_t rank, member_body *body, tn_check_finding *finding)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    set_number("TENON_RANK", rank);
    m->rank = rank;
    m->finding = finding;
    if (open_group(m)) {
        body(m);
        m->table.close(&m->group);
    }
    _exit(0);
}

/* A process that ends by a signal ends this one by it, for the rule's finding. */
static void settle(member *m, int32_t rank, int how)
{
    if (WIFSIGNALED(how)) {
        signal(WTERMSIG(how), SIG_DFL);
        raise(WTERMSIG(how));
    }
    if (WEXITSTATUS(how) != 0)
        tn_check_fail(m->finding, "rank %d ended with exit code %d", rank, WEXITSTATUS(how));
}

static void await_team(member *m, int32_t size, pid_t *pids, int patience)
{
    const struct timespec moment = {0, 2000000};
    int32_t left = size;
    for (int k = 0; left > 0 && k < patience * 500; k++) {
        for (int32_t r = 0; r < size; r++) {
            int how = 0;
            if (pids[r] <= 0 || waitpid(pids[r], &how, WNOHANG) != pids[r])
                continue;
            pids[r] = 0;
            left--;
            settle(m, r, how);
        }
        nanosleep(&moment, NULL);
    }
    for (int32_t r = 0; r < size; r++)
        if (pids[r] > 0) {
            tn_check_fail(m->finding, "rank %d of %d is not done after %d s; an operation ends within its time-out", r,
                          size, patience);
            kill(pids[r], SIGKILL);
            waitpid(pids[r], NULL, 0);
        }
}

static void run_team(const tn_check_subject *subject, tn_check_finding *finding, member_body *body, int patience)
{
    member m;
    pid_t pids[RANKS] = {0};
    if (!load(subject, finding, &m))
        return;
    int32_t size = team_size(&m);
    tn_check_finding *findings = tn_check_shared(RANKS * sizeof *findings);
    if (is_done(&m) || !findings)
        return;
    for (int32_t r = 0; r < size; r++) {
        findings[r] = *finding;
        pids[r] = fork();
        if (pids[r] == 0)
            start_rank(&m, r, body, &findings[r]);
    }
    await_team(&m, size, pids, patience);
    for (int32_t r = 0; r < size; r++)
        if (findings[r].verdict != TN_CHECK_PASSED && !is_done(&m))
            *finding = findings[r];
}

/* ---- operations ---- */

static tn_transfer transfer_of(member *m, int32_t operation, tn_dtype dtype, const void *from, void *to, int64_t count)
{
    return (tn_transfer){.struct_size = sizeof(tn_transfer),
                         .operation = operation,
                         .sequence = m->sequence++,
                         .dtype = dtype,
                         .from = from,
                         .to = to,
                         .count = count,
                         .timeout = TIMEOUT};
}

static int32_t run(member *m, const tn_transfer *t, tn_error *err)
{
    int64_t ticket = 0;
    int32_t status = m->table.start(&m->group, t, &ticket, err);
    return status == TN_OK ? m->table.wait(&m->group, ticket, err) : status;
}

static const char *const operations[] = {"all-reduce", "reduce-scatter", "all-gather", "broadcast",
                                         "send",       "receive",        "barrier"};
static const tn_dtype f32 = {TN_FLOAT, 32, 1}, f64 = {TN_FLOAT, 64, 1}, i32 = {TN_INT, 32, 1};

/* A member whose numbers are wrong goes on all the same: the others count on it. */
static bool must(member *m, const tn_transfer *t)
{
    tn_error err = {0};
    tn_check_stage(m->subject, "%s of %lld numbers", operations[t->operation], (long long)t->count);
    m->is_broken = m->is_broken || run(m, t, &err) != TN_OK;
    if (m->is_broken)
        fail(m, "%s of %lld numbers of %d bits fails: %s", operations[t->operation], (long long)t->count, t->dtype.bits,
             err.msg);
    tn_check_stage(m->subject, NULL);
    return !m->is_broken;
}

/* Number i of rank r: small, and sums of three are exact. */
static double value_of(int32_t r, int64_t i) { return (double)((i * 7 + r * 5) % 23) - 11 + 0.25 * (r + 1); }
static double whole_of(int32_t r, int64_t i) { return floor(value_of(r, i)); }

static void put(tn_dtype dtype, void *data, int64_t i, double value)
{
    if (dtype.code == TN_INT)
        ((int32_t *)data)[i] = (int32_t)value;
    else if (dtype.bits == 64)
        ((double *)data)[i] = value;
    else
        ((float *)data)[i] = (float)value;
}

static double get(tn_dtype dtype, const void *data, int64_t i)
{
    if (dtype.code == TN_INT)
        return ((const int32_t *)data)[i];
    return dtype.bits == 64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

typedef double rank_value(int32_t r, int64_t i);

static double reduced(const member *m, int32_t reduce, int64_t i, rank_value *value)
{
    double sum = value(0, i);
    for (int32_t r = 1; r < m->size; r++)
        sum = reduce == TN_REDUCE_MAX ? fmax(sum, value(r, i)) : sum + value(r, i);
    return reduce == TN_REDUCE_MEAN ? sum / m->size : sum;
}

/* Memory between pages: what is sent can not be written, what is received not left. */
typedef struct {
    tn_guard from, to;
} buffers;

static bool open_buffers(member *m, buffers *b, int64_t from, int64_t to, size_t width)
{
    tn_error err;
    if (tn_guard_open("from", (size_t)from * width, 64, TN_GUARD_END, &b->from, &err) == TN_OK &&
        tn_guard_open("to", (size_t)to * width, 64, TN_GUARD_END, &b->to, &err) == TN_OK) {
        memset(b->to.data, 0xEE, b->to.bytes);
        return true;
    }
    tn_check_skip(m->finding, "no memory for buffers");
    return false;
}

static void close_buffers(member *m, buffers *b)
{
    if (tn_guard_damage(&b->from) || tn_guard_damage(&b->to))
        fail(m, "it writes beside the numbers that it was lent");
    tn_guard_close(&b->from);
    tn_guard_close(&b->to);
}

static void compare(member *m, const tn_transfer *t, int64_t n, int64_t first, rank_value *value, int32_t of_rank)
{
    double unit = t->dtype.bits == 64 ? 1e-14 : 1e-6;
    for (int64_t i = 0; i < n && !is_done(m); i++) {
        double got = get(t->dtype, t->to, i),
               wanted = of_rank >= 0 ? value(of_rank, first + i) : reduced(m, t->reduce, first + i, value);
        if (!(fabs(got - wanted) <= unit * fmax(1, fabs(wanted))))
            fail(m, "%s of %lld numbers of %d bits: number %lld is %.9g, needed %.9g", operations[t->operation],
                 (long long)t->count, t->dtype.bits, (long long)i, got, wanted);
    }
}

static void try_reduce(member *m, tn_dtype dtype, int32_t reduce, int64_t count, bool scatters)
{
    buffers b = {{0}, {0}};
    int64_t whole = scatters ? count * m->size : count;
    rank_value *value = dtype.code == TN_INT ? whole_of : value_of;
    if (!open_buffers(m, &b, whole, count, dtype.bits / 8u))
        return;
    for (int64_t i = 0; i < whole; i++)
        put(dtype, b.from.data, i, value(m->rank, i));
    tn_guard_read_only(&b.from, 1);
    tn_transfer t = transfer_of(m, scatters ? TN_REDUCE_SCATTER : TN_ALL_REDUCE, dtype, b.from.data, b.to.data, count);
    t.reduce = reduce;
    if (must(m, &t))
        compare(m, &t, count, scatters ? m->rank * count : 0, value, -1);
    if (!m->is_broken && !scatters) {
        tn_guard_read_only(&b.from, 0);
        tn_transfer in_place = transfer_of(m, TN_ALL_REDUCE, dtype, b.from.data, b.from.data, count);
        in_place.reduce = reduce;
        if (must(m, &in_place))
            compare(m, &in_place, count, 0, value, -1);
    }
    close_buffers(m, &b);
}

static void try_gather(member *m, tn_dtype dtype, int64_t count)
{
    buffers b = {{0}, {0}};
    if (!open_buffers(m, &b, count, count * m->size, dtype.bits / 8u))
        return;
    for (int64_t i = 0; i < count; i++)
        put(dtype, b.from.data, i, value_of(m->rank, i));
    tn_guard_read_only(&b.from, 1);
    tn_transfer t = transfer_of(m, TN_ALL_GATHER, dtype, b.from.data, b.to.data, count);
    bool done = must(m, &t);
    for (int32_t of = 0; done && of < m->size; of++) {
        tn_transfer part = t;
        part.to = (char *)t.to + (size_t)(of * count) * (dtype.bits / 8u);
        compare(m, &part, count, 0, value_of, of);
    }
    close_buffers(m, &b);
}

static void try_broadcast(member *m, tn_dtype dtype, int64_t count, int32_t root)
{
    buffers b = {{0}, {0}};
    if (!open_buffers(m, &b, count, count, dtype.bits / 8u))
        return;
    for (int64_t i = 0; i < count; i++)
        put(dtype, b.from.data, i, value_of(m->rank, i));
    tn_guard_read_only(&b.from, 1);
    tn_transfer t = transfer_of(m, TN_BROADCAST, dtype, b.from.data, b.to.data, count);
    t.peer = root;
    if (must(m, &t))
        compare(m, &t, count, 0, value_of, root);
    close_buffers(m, &b);
}

/* Rank 0 to the last, which is the only other one that takes part. */
static void try_send(member *m, tn_dtype dtype, int64_t count)
{
    buffers b = {{0}, {0}};
    int32_t last = m->size - 1;
    bool sends = m->rank == 0, takes_part = sends || m->rank == last;
    if (last == 0 || !open_buffers(m, &b, count, count, dtype.bits / 8u))
        return;
    for (int64_t i = 0; i < count; i++)
        put(dtype, b.from.data, i, value_of(m->rank, i));
    tn_transfer t = transfer_of(m, sends ? TN_SEND : TN_RECEIVE, dtype, b.from.data, b.to.data, count);
    t.peer = sends ? last : 0;
    if (takes_part && must(m, &t) && !sends)
        compare(m, &t, count, 0, value_of, 0);
    close_buffers(m, &b);
}

static void all_operations(member *m)
{
    static const int64_t counts[] = {0, 1, 17, 1000, MOST};
    tn_guard_watch(m->subject->stage, 256);
    for (int k = 0; k < 5 && !m->is_broken; k++) {
        for (int32_t reduce = TN_REDUCE_SUM; reduce <= TN_REDUCE_MEAN && !m->is_broken; reduce++) {
            try_reduce(m, f32, reduce, counts[k], false);
            try_reduce(m, f64, reduce, counts[k], true);
        }
        if (!m->is_broken)
            try_reduce(m, i32, TN_REDUCE_SUM, counts[k], false);
        if (!m->is_broken)
            try_gather(m, f32, counts[k]);
        for (int32_t root = 0; root < m->size && !m->is_broken; root++)
            try_broadcast(m, f64, counts[k], root);
        if (!m->is_broken)
            try_send(m, f32, counts[k]);
    }
    tn_transfer barrier = transfer_of(m, TN_BARRIER, f32, NULL, NULL, 0);
    if (!m->is_broken)
        must(m, &barrier);
}

void tn_check_collective_operations(const tn_check_subject *subject, tn_check_finding *finding)
{
    run_team(subject, finding, all_operations, PATIENCE);
}

/* ---- the same bits whoever comes first ---- */

static float part_of(int32_t r, int64_t i) { return 1.0f / (float)(3 + r * 1000 + i * 7) * (r == 1 ? 1e4f : -1); }

static void check_bits(member *m)
{
    float from[512], to[512];
    for (int k = 0; k < 30; k++) {
        const struct timespec late = {0, (k + m->rank) % 3 * 300000};
        for (int64_t i = 0; i < 512; i++)
            from[i] = part_of(m->rank, i);
        nanosleep(&late, NULL);
        tn_transfer t = transfer_of(m, TN_ALL_REDUCE, f32, from, to, 512);
        if (!must(m, &t))
            return;
        for (int64_t i = 0; i < 512 && !is_done(m); i++) {
            float sum = part_of(0, i);
            for (int32_t r = 1; r < m->size; r++)
                sum += part_of(r, i);
            if (to[i] != sum)
                fail(m, "its table says that it adds in rank order, and number %lld is %.9g, by that order %.9g",
                     (long long)i, (double)to[i], (double)sum);
        }
    }
}

void tn_check_collective_ordered(const tn_check_subject *subject, tn_check_finding *finding)
{
    member m;
    if (!load(subject, finding, &m))
        return;
    if (m.table.ordered)
        run_team(subject, finding, check_bits, PATIENCE);
    else
        tn_check_skip(finding, "its table does not say `ordered`");
}

/* ---- members that disagree, or do not come ---- */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void expect_refusal(member *m, const tn_transfer *t, const char *what)
{
    tn_error err = {0};
    double began = seconds();
    tn_check_stage(m->subject, "%s", what);
    int32_t status = run(m, t, &err);
    if (status == TN_OK)
        fail(m, "%s is done as if nothing were wrong", what);
    else if (!*err.msg)
        fail(m, "%s fails, and does not say why", what);
    if (seconds() - began > t->timeout + 3)
        fail(m, "%s ends after %.1f s, with a time-out of %g s", what, seconds() - began, t->timeout);
    tn_check_stage(m->subject, NULL);
}

static void disagree(member *m)
{
    float from[64] = {0}, to[64];
    tn_transfer t = transfer_of(m, TN_ALL_REDUCE, f32, from, to, m->size > 1 && m->rank == 1 ? 63 : 64);
    if (m->size == 1)
        t.operation = 99;
    expect_refusal(m, &t,
                   m->size > 1 ? "an all-reduce of which one rank passes 63 numbers and the others 64"
                               : "operation 99, which there is not");
}

void tn_check_collective_mismatch(const tn_check_subject *subject, tn_check_finding *finding)
{
    run_team(subject, finding, disagree, PATIENCE);
}

/* The last rank stays away. */
static void stay_away(member *m)
{
    float from[64] = {0}, to[64];
    tn_transfer t = transfer_of(m, TN_ALL_REDUCE, f32, from, to, 64);
    const struct timespec while_others_wait = {1, 200000000};
    t.timeout = SHORT;
    if (m->size == 1) {
        tn_check_skip(m->finding, "its world is of one process");
    } else if (m->rank == m->size - 1) {
        nanosleep(&while_others_wait, NULL);
    } else {
        expect_refusal(m, &t, "an all-reduce to which one rank does not come");
    }
}

void tn_check_collective_absent(const tn_check_subject *subject, tn_check_finding *finding)
{
    run_team(subject, finding, stay_away, SOON);
}

/* ---- what stays behind ---- */

static void often(member *m)
{
    enum { TIMES = 10000 };
    float from[16] = {0}, to[16];
    tn_error err = {0};
    for (int k = 0; k < 100; k++) {
        tn_transfer t = transfer_of(m, TN_ALL_REDUCE, f32, from, to, 16);
        if (!must(m, &t))
            return;
    }
    if (tn_count_open(&err) != TN_OK) {
        tn_check_skip(m->finding, "%s", err.msg);
        return;
    }
    int64_t files = tn_count_files(), held = tn_count_held(), before = tn_count_allocations();
    for (int k = 0; k < TIMES; k++) {
        tn_transfer t = transfer_of(m, TN_ALL_REDUCE, f32, from, to, 16);
        if (run(m, &t, &err) != TN_OK)
            fail(m, "of %d operations number %d fails: %s", TIMES, k, err.msg);
    }
    int64_t made = tn_count_allocations() - before;
    if (made > 0)
        fail(m, "%d operations allocate %lld times (%s); a step of training must not wait for the heap", TIMES,
             (long long)made, tn_count_last());
    else if (tn_count_held() > held || tn_count_files() > files)
        fail(m, "%d operations leave %lld files open", TIMES, (long long)(tn_count_files() - files));
}

void tn_check_collective_heap(const tn_check_subject *subject, tn_check_finding *finding)
{
    run_team(subject, finding, often, PATIENCE);
}
