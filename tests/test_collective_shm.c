/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/collective/shm: every operation against a serial computation, calls that do not match, ranks that die, hang
 * or never come; nothing is left in /dev/shm. Each rank is a process: a failure there is told through shared memory.
 */
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>

#include <tenon/parallel.h>

#include "tests/component.h"

#define RANKS_MOST 8

/* ---- a team: one process a rank ---- */

typedef struct report {
    char text[RANKS_MOST][1200]; /* why the rank failed */
    volatile int32_t steps[RANKS_MOST];
} report;

typedef struct rank {
    tn_collective table;
    tn_instance *instance;
    tn_group group;
    int32_t members[RANKS_MOST];
    _Alignas(64) char state[8192];
    int64_t sequence;
    double timeout;
    int32_t index; /* of this process in its team */
} rank;

static report *shared;
static char run_name[64];

static __attribute__((format(printf, 3, 4), noreturn)) void rank_fails(int32_t index, int line, const char *format, ...)
{
    char *text = shared->text[index];
    va_list args;
    va_start(args, format);
    snprintf(text, 32, "line %d: ", line);
    vsnprintf(text + strlen(text), sizeof *shared->text - 32, format, args);
    va_end(args);
    _exit(1);
}

/* In the process of a rank: like expect(). */
#define need(w, condition, ...)                                                                                        \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            rank_fails((w)->index, __LINE__, __VA_ARGS__);                                                             \
    } while (0)

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void team_setup(void)
{
    static int run;
    const size_t bytes = sizeof *shared;
    if (!shared)
        shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(shared, MAP_FAILED);
    memset(shared, 0, bytes);
    snprintf(run_name, sizeof run_name, "test-%d-%d", (int)getpid(), run++);
}

/* The plugin with its rows, loaded before the fork. */
static void rank_load(rank *w, const char *chunk, const char *patience)
{
    memset(w, 0, sizeof *w);
    w->instance = component_open("collective", "shm", 0, &w->table, sizeof w->table);
    component_set(w->instance, "name", run_name);
    component_set(w->instance, "chunk", chunk ? chunk : "262144");
    component_set(w->instance, "patience", patience ? patience : "10");
    ck_assert_int_le(w->table.state_bytes, sizeof w->state);
    ck_assert_int_eq(w->table.ordered, 1);
    w->timeout = 10;
}

static int32_t rank_open(rank *w, int32_t r, int32_t size, int64_t arena, tn_error *err)
{
    memset(w->state, 0, sizeof w->state);
    w->index = r;
    for (int32_t i = 0; i < size; i++)
        w->members[i] = i;
    w->group = (tn_group){.struct_size = sizeof w->group,
                          .rank = r,
                          .size = size,
                          .members = w->members,
                          .state = w->state,
                          .arena_bytes = arena};
    return w->table.open(w->instance->hyper, &w->group, err);
}

static void rank_opens(rank *w, int32_t r, int32_t size, int64_t arena)
{
    tn_error err = {0};
    need(w, rank_open(w, r, size, arena, &err) == TN_OK, "open: %s", err.msg);
    need(w, !w->group.arena == !arena && (uintptr_t)w->group.arena % 64 == 0, "arena %p", w->group.arena);
}

typedef void rank_body(rank *w, int32_t r, int32_t size, const void *arg);

static void team_start(rank *w, int32_t size, rank_body *body, const void *arg, pid_t *pids)
{
    for (int32_t r = 0; r < size; r++) {
        pids[r] = fork();
        ck_assert_int_ge(pids[r], 0);
        if (pids[r] == 0) {
            w->index = r;
            body(w, r, size, arg);
            _exit(0);
        }
    }
}

/* All ranks ended well. `but`: that one may end as it likes (-1: none). */
static void team_wait(int32_t size, const pid_t *pids, int32_t but)
{
    int failed = 0;
    for (int32_t r = 0; r < size; r++) {
        int status = 0;
        ck_assert_int_eq(waitpid(pids[r], &status, 0), pids[r]);
        failed |= r != but && status != 0;
    }
    for (int32_t r = 0; r < size; r++)
        ck_assert_msg(r == but || !shared->text[r][0], "rank %d of %d: %s", r, size, shared->text[r]);
    ck_assert_int_eq(failed, 0);
}

static void team_run(rank *w, int32_t size, rank_body *body, const void *arg)
{
    pid_t pids[RANKS_MOST];
    team_start(w, size, body, arg, pids);
    team_wait(size, pids, -1);
}

/* ---- calls ---- */

static const tn_dtype f64 = {TN_FLOAT, 64, 1}, f32 = {TN_FLOAT, 32, 1}, f16 = {TN_FLOAT, 16, 1},
                      bf16 = {TN_BFLOAT, 16, 1}, i32 = {TN_INT, 32, 1}, i64 = {TN_INT, 64, 1};

static tn_transfer call_of(rank *w, int32_t operation, tn_dtype dtype, const void *from, void *to, int64_t count)
{
    return (tn_transfer){.struct_size = sizeof(tn_transfer),
                         .operation = operation,
                         .sequence = w->sequence++,
                         .dtype = dtype,
                         .from = from,
                         .to = to,
                         .count = count,
                         .timeout = w->timeout};
}

static int32_t do_call(rank *w, const tn_transfer *t, tn_error *err)
{
    int64_t ticket = 0;
    int32_t status = w->table.start(&w->group, t, &ticket, err);
    return status ? status : w->table.wait(&w->group, ticket, err);
}

static void must(rank *w, const tn_transfer *t)
{
    tn_error err = {0};
    int32_t status = do_call(w, t, &err);
    need(w, status == TN_OK, "operation %d of %lld: %s", t->operation, (long long)t->count, err.msg);
}

/* ---- the serial computation ---- */

static double f16_value(uint16_t h)
{
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    double size = exponent == 31  ? mantissa ? (double)NAN : (double)INFINITY
                  : exponent == 0 ? ldexp(mantissa, -24)
                                  : ldexp(1024 + mantissa, exponent - 25);
    return h & 0x8000 ? -size : size;
}

/* x rounded to `bits` bits of precision, exponents from `least`; beyond `most` it is infinite. */
static double round_to(double x, int bits, int least, double most)
{
    if (x == 0 || !isfinite(x))
        return x;
    int exponent = ilogb(x) < least ? least : ilogb(x);
    double unit = ldexp(1, exponent - bits + 1), y = nearbyint(x / unit) * unit;
    return fabs(y) > most ? copysign((double)INFINITY, y) : y;
}

static uint64_t mixed(int32_t r, int64_t i)
{
    uint64_t x = (uint64_t)i * 0x9e3779b97f4a7c15u + (uint64_t)(r + 1) * 0xbf58476d1ce4e5b9u;
    x ^= x >> 31;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 29;
}

/* What rank r gives as element i, and what is read back. */
static void put(tn_dtype dtype, void *data, int64_t i, int32_t r, int64_t index)
{
    const uint64_t bits = mixed(r, index);
    const double x = ((double)(bits >> 11) * 0x1p-53 - 0.5) * ldexp(1, (int)(bits & 7));
    const float single = (float)x;
    const int32_t whole = (int32_t)bits;
    const uint16_t half = (uint16_t)((bits & 0xbfff) | (bits >> 20 & 0x3000)); /* f16: no inf; subnormals */
    char *to = (char *)data + i * (dtype.bits / 8);
    if (dtype.code == TN_BFLOAT)
        memcpy(to, (const char *)&single + 2, 2); /* truncated; little-endian */
    else if (dtype.code == TN_INT)
        memcpy(to, dtype.bits == 32 ? (const void *)&whole : (const void *)&bits, dtype.bits / 8);
    else
        memcpy(to,
               dtype.bits == 16   ? (const void *)&half
               : dtype.bits == 32 ? (const void *)&single
                                  : (const void *)&x,
               dtype.bits / 8);
}

static double get(tn_dtype dtype, const void *data, int64_t i)
{
    double x;
    float single = 0;
    uint16_t half;
    const char *from = (const char *)data + i * (dtype.bits / 8);
    if (dtype.bits == 64) {
        memcpy(&x, from, sizeof x);
        return x;
    }
    if (dtype.bits == 16 && dtype.code == TN_FLOAT) {
        memcpy(&half, from, sizeof half);
        return f16_value(half);
    }
    memcpy((char *)&single + (dtype.bits == 16 ? 2 : 0), from, dtype.bits / 8);
    return (double)single;
}

static int same_number(double a, double b) { return isnan(a) ? isnan(b) : bits_of(a) == bits_of(b); }

/* 1 if `data[i]` is the reduction of element `index` in rank order. */
static int is_reduced(tn_dtype dtype, int32_t reduce, const void *data, int64_t i, int32_t size, int64_t index)
{
    double wide = 0;
    float sum = 0;
    int64_t whole = 0;
    for (int32_t r = 0; r < size; r++) {
        _Alignas(8) char one[8] = {0};
        put(dtype, one, 0, r, index);
        if (dtype.code == TN_INT) {
            int32_t word;
            int64_t x;
            memcpy(&word, one, sizeof word);
            memcpy(&x, one, sizeof x);
            x = dtype.bits == 32 ? word : x;
            whole = r == 0 || (reduce == TN_REDUCE_MAX && x > whole) ? x
                    : reduce == TN_REDUCE_MAX                        ? whole
                                                                     : (int64_t)((uint64_t)whole + (uint64_t)x);
            continue;
        }
        double x = get(dtype, one, 0);
        wide = r == 0 ? x : reduce == TN_REDUCE_MAX ? fmax(wide, x) : wide + x;
        sum = r == 0 ? (float)x : reduce == TN_REDUCE_MAX ? fmaxf(sum, (float)x) : sum + (float)x;
    }
    if (dtype.code == TN_INT)
        return dtype.bits == 32 ? ((const int32_t *)data)[i] == (int32_t)whole : ((const int64_t *)data)[i] == whole;
    if (reduce == TN_REDUCE_MEAN) {
        wide /= size;
        sum /= (float)size;
    }
    double right = dtype.bits == 64          ? wide
                   : dtype.bits == 32        ? (double)sum
                   : dtype.code == TN_BFLOAT ? round_to((double)sum, 8, -126, 0x1.fep127)
                                             : round_to((double)sum, 11, -14, 65504);
    return same_number(get(dtype, data, i), right);
}

/* ---- every operation ---- */

typedef struct job {
    tn_dtype dtype;
    int64_t count;
    int32_t reduce;
    int64_t arena; /* bytes; data lies there on the ranks of `inside` */
    uint32_t inside;
} job;

static char *memory_of(rank *w, const job *j, int64_t skip, int64_t bytes)
{
    if (j->inside >> w->index & 1) {
        need(w, skip + bytes <= j->arena, "the arena is too small");
        return (char *)w->group.arena + skip;
    }
    char *memory = calloc(1, (size_t)bytes + 64);
    need(w, memory != NULL, "no memory");
    return memory;
}

static void release(rank *w, const job *j, void *memory)
{
    if (!(j->inside >> w->index & 1))
        free(memory);
}

static void check_reduced(rank *w, const job *j, const void *data, int64_t first, int32_t size, const char *what)
{
    for (int64_t i = 0; i < j->count; i++)
        need(w, is_reduced(j->dtype, j->reduce, data, i, size, first + i),
             "%s, code %d of %d bits, reduction %d: element %lld of %lld", what, j->dtype.code, j->dtype.bits,
             j->reduce, (long long)i, (long long)j->count);
}

static void check_given(rank *w, const job *j, const char *data, int32_t giver, const char *what)
{
    const int64_t bytes = j->dtype.bits / 8;
    for (int64_t i = 0; i < j->count; i++) {
        _Alignas(8) char one[8] = {0};
        put(j->dtype, one, 0, giver, i);
        need(w, !memcmp(one, data + i * bytes, (size_t)bytes), "%s from rank %d: element %lld of %lld", what, giver,
             (long long)i, (long long)j->count);
    }
}

static void all_reduces(rank *w, const job *j, int32_t r, int32_t size)
{
    const int64_t bytes = j->count * j->dtype.bits / 8, room = (bytes + 127) & ~63;
    char *from = memory_of(w, j, 0, room), *to = memory_of(w, j, room, room);
    for (int64_t i = 0; i < j->count; i++)
        put(j->dtype, from, i, r, i);
    tn_transfer t = call_of(w, TN_ALL_REDUCE, j->dtype, from, to, j->count);
    t.reduce = j->reduce;
    must(w, &t);
    check_reduced(w, j, to, 0, size, "all-reduce");
    t = call_of(w, TN_ALL_REDUCE, j->dtype, from, from, j->count);
    t.reduce = j->reduce;
    must(w, &t);
    need(w, bytes == 0 || !memcmp(from, to, (size_t)bytes), "an all-reduce in place differs");
    release(w, j, from);
    release(w, j, to);
}

static void reduce_scatters(rank *w, const job *j, int32_t r, int32_t size)
{
    const int64_t bytes = j->count * j->dtype.bits / 8, room = (bytes * size + 127) & ~63;
    char *from = memory_of(w, j, 0, room), *to = memory_of(w, j, room, room);
    for (int64_t i = 0; i < j->count * size; i++)
        put(j->dtype, from, i, r, i);
    tn_transfer t = call_of(w, TN_REDUCE_SCATTER, j->dtype, from, to, j->count);
    t.reduce = j->reduce;
    must(w, &t);
    check_reduced(w, j, to, r * j->count, size, "reduce-scatter");
    t = call_of(w, TN_REDUCE_SCATTER, j->dtype, from, from + r * bytes, j->count);
    t.reduce = j->reduce;
    must(w, &t);
    need(w, bytes == 0 || !memcmp(from + r * bytes, to, (size_t)bytes), "a reduce-scatter in place differs");
    release(w, j, from);
    release(w, j, to);
}

static void moves(rank *w, const job *j, int32_t r, int32_t size)
{
    const int64_t bytes = j->count * j->dtype.bits / 8, room = (bytes * size + 127) & ~63;
    char *from = memory_of(w, j, 0, room), *to = memory_of(w, j, room, room);
    for (int64_t i = 0; i < j->count; i++)
        put(j->dtype, from, i, r, i);
    tn_transfer t = call_of(w, TN_ALL_GATHER, j->dtype, from, to, j->count);
    must(w, &t);
    for (int32_t p = 0; p < size; p++)
        check_given(w, j, to + p * bytes, p, "all-gather");
    for (int32_t root = 0; root < size; root++) {
        memset(to, 0, (size_t)bytes);
        t = call_of(w, TN_BROADCAST, j->dtype, r == root ? from : NULL, to, j->count);
        t.peer = root;
        must(w, &t);
        check_given(w, j, to, root, "broadcast");
    }
    for (int32_t p = 0; p < size; p++) { /* round the ring: everyone sends to the next */
        const int32_t next = (p + 1) % size;
        t = call_of(w, r == p ? TN_SEND : TN_RECEIVE, j->dtype, r == p ? from : NULL, r == p ? NULL : to, j->count);
        t.peer = r == p ? next : p;
        if (r == p || r == next)
            must(w, &t);
        if (r == next)
            check_given(w, j, to, p, "receive");
    }
    t = call_of(w, TN_BARRIER, (tn_dtype){0, 0, 0}, NULL, NULL, 0);
    must(w, &t);
    release(w, j, from);
    release(w, j, to);
}

static void do_job(rank *w, const job *j, int32_t r, int32_t size)
{
    all_reduces(w, j, r, size);
    reduce_scatters(w, j, r, size);
    if (j->reduce == 0)
        moves(w, j, r, size);
}

static const int64_t sizes[] = {0, 1, 7, 8, 20, 4097, 100000};

typedef struct plan {
    int64_t most; /* elements */
    int64_t arena;
    uint32_t inside;
} plan;

static void every_type(rank *w, int32_t r, int32_t size, const void *arg)
{
    const tn_dtype dtypes[] = {f32, f64, bf16, f16, i32, i64};
    const plan *p = arg;
    rank_opens(w, r, size, p->arena);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && sizes[i] <= p->most; i++)
        for (int d = 0; d < 6; d++)
            for (int32_t reduce = 0; reduce <= (d < 4 ? 2 : 1); reduce++) {
                if (sizes[i] > 5000 && (d > 0 && reduce != 0))
                    continue;
                const job j = {dtypes[d], sizes[i], reduce, p->arena, p->inside};
                do_job(w, &j, r, size);
            }
    w->table.close(&w->group);
}

START_TEST(every_operation)
{
    rank w;
    const plan p = {100000, 0, 0};
    team_setup();
    rank_load(&w, _i == 3 ? "4096" : NULL, NULL);
    team_run(&w, _i, every_type, &p);
    tn_instance_free(w.instance);
}
END_TEST

/* COL-02: chunks of 7 f64. */
START_TEST(chunks_of_seven)
{
    rank w;
    const plan p = {_i == 2 ? 4097 : 20, 0, 0};
    team_setup();
    rank_load(&w, "56", NULL);
    team_run(&w, _i, every_type, &p);
    tn_instance_free(w.instance);
}
END_TEST

/* All data in the arenas; then on some ranks only, which must not change a bit. */
START_TEST(arenas)
{
    rank w;
    const plan p = {100000, 16 << 20, _i ? 5 : 15};
    team_setup();
    rank_load(&w, NULL, NULL);
    team_run(&w, 3, every_type, &p);
    tn_instance_free(w.instance);
}
END_TEST

/* ---- averages ---- */

/* COL-01: the sum of 8 times 10000 is beyond f16, an eighth of its smallest number is nothing. */
static void averages(rank *w, int32_t r, int32_t size, const void *arg)
{
    const uint16_t from[2] = {0x70e2, 1}; /* 10000, 2^-24 */
    uint16_t to[2];
    (void)arg;
    rank_opens(w, r, size, 0);
    tn_transfer t = call_of(w, TN_ALL_REDUCE, f16, from, to, 2);
    t.reduce = TN_REDUCE_MEAN;
    must(w, &t);
    need(w, f16_value(to[0]) == 10000 && f16_value(to[1]) == 0x1p-24, "means %g, %g", f16_value(to[0]),
         f16_value(to[1]));
    t = call_of(w, TN_ALL_REDUCE, f16, from, to, 2);
    must(w, &t);
    need(w, isinf(f16_value(to[0])) && f16_value(to[1]) == 0x1p-21, "sums %g, %g", f16_value(to[0]), f16_value(to[1]));
    w->table.close(&w->group);
}

/* The mean of equal numbers is the number: every f16 and bf16 there is. */
static void every_half(rank *w, int32_t r, int32_t size, const void *arg)
{
    static uint16_t from[65536], to[65536];
    (void)arg;
    rank_opens(w, r, size, 0);
    for (int i = 0; i < 65536; i++)
        from[i] = (uint16_t)i;
    for (int b = 0; b < 2; b++) {
        tn_transfer t = call_of(w, TN_ALL_REDUCE, b ? bf16 : f16, from, to, 65536);
        t.reduce = TN_REDUCE_MEAN;
        must(w, &t);
        const int inf = b ? 0x7f80 : 0x7c00, half = b ? 0x7f00 : 0x10000;
        for (int i = 0; i < 65536; i++) {
            const int size_of = i & 0x7fff, nan = size_of > inf;
            if (size_of >= half && size_of < inf) /* the sum of two such bf16 overflows f32 */
                continue;
            need(w, nan ? (to[i] & 0x7fff) > inf : to[i] == i, "%s %04x became %04x", b ? "bf16" : "f16", i, to[i]);
        }
    }
    w->table.close(&w->group);
}

START_TEST(halves)
{
    rank w;
    team_setup();
    rank_load(&w, NULL, NULL);
    team_run(&w, 8, averages, NULL);
    team_run(&w, 2, every_half, NULL);
    tn_instance_free(w.instance);
}
END_TEST

static void nans(rank *w, int32_t r, int32_t size, const void *arg)
{
    float from[3] = {r == 1 ? NAN : 1, r == 0 ? NAN : 1, (float)r}, to[3];
    (void)arg;
    rank_opens(w, r, size, 0);
    tn_transfer t = call_of(w, TN_ALL_REDUCE, f32, from, to, 3);
    t.reduce = TN_REDUCE_MAX;
    must(w, &t);
    need(w, isnan(to[0]) && isnan(to[1]) && to[2] == (float)(size - 1), "max %g %g %g", (double)to[0], (double)to[1],
         (double)to[2]);
    w->table.close(&w->group);
}

START_TEST(a_max_with_nan)
{
    rank w;
    team_setup();
    rank_load(&w, NULL, NULL);
    team_run(&w, 3, nans, NULL);
    tn_instance_free(w.instance);
}
END_TEST

/* ---- groups, queue, world ---- */

static void parts(rank *w, int32_t r, int32_t size, const void *arg)
{
    static rank part;
    float one = (float)(r + 1), sum = 0;
    tn_error err = {0};
    (void)arg;
    rank_opens(w, r, size, 0);
    part = *w;
    part.group = (tn_group){.struct_size = sizeof part.group,
                            .rank = r / 2,
                            .size = 2,
                            .members = part.members,
                            .state = part.state,
                            .arena_bytes = 64};
    part.members[0] = r % 2;
    part.members[1] = r % 2 + 2;
    for (int again = 0; again < 3; again++) {
        memset(part.state, 0, sizeof part.state);
        need(w, part.table.open(w->instance->hyper, &part.group, &err) == TN_OK, "open: %s", err.msg);
        tn_transfer t = call_of(&part, TN_ALL_REDUCE, f32, &one, &sum, 1);
        must(&part, &t);
        need(w, sum == (r % 2 ? 6 : 4), "the part's sum is %g", (double)sum);
        t = call_of(w, TN_ALL_REDUCE, f32, &one, &sum, 1);
        must(w, &t);
        need(w, sum == 10, "the world's sum is %g", (double)sum);
        part.table.close(&part.group);
        part.table.close(&part.group); /* does nothing */
    }
    w->table.close(&w->group);
}

START_TEST(parts_of_the_world)
{
    rank w;
    team_setup();
    rank_load(&w, NULL, NULL);
    team_run(&w, 4, parts, NULL);
    tn_instance_free(w.instance);
}
END_TEST

static void queues(rank *w, int32_t r, int32_t size, const void *arg)
{
    float from[100], to[100] = {0};
    int64_t tickets[100];
    tn_error err = {0};
    (void)arg;
    rank_opens(w, r, size, 0);
    for (int i = 0; i < 100; i++) {
        from[i] = (float)(i * (r + 1));
        const tn_transfer t = call_of(w, TN_ALL_REDUCE, f32, &from[i], &to[i], 1);
        need(w, w->table.start(&w->group, &t, &tickets[i], &err) == TN_OK, "start %d: %s", i, err.msg);
    }
    need(w, w->table.wait(&w->group, tickets[99], &err) == TN_OK, "wait: %s", err.msg);
    for (int i = 0; i < 100; i++)
        need(w, to[i] == (float)(3 * i) && w->table.wait(&w->group, tickets[i], &err) == TN_OK, "%d: %g", i,
             (double)to[i]);
    need(w, w->table.wait(&w->group, tickets[99] + 1, &err) == TN_E_INVALID, "a ticket never given");
    need(w, w->table.wait(&w->group, 0, &err) == TN_E_INVALID, "ticket 0");
    w->table.close(&w->group);
}

START_TEST(a_queue)
{
    rank w;
    team_setup();
    rank_load(&w, NULL, NULL);
    team_run(&w, 2, queues, NULL);
    tn_instance_free(w.instance);
}
END_TEST

START_TEST(alone)
{
    rank w;
    float from[2] = {1, 2}, to[2] = {0, 0};
    team_setup();
    rank_load(&w, NULL, NULL);
    component_set(w.instance, "name", "\"\"");
    rank_opens(&w, 0, 1, 4096);
    for (int32_t operation = TN_ALL_REDUCE; operation <= TN_BROADCAST; operation++) {
        memset(to, 0, sizeof to);
        const tn_transfer t = call_of(&w, operation, f32, from, to, 2);
        must(&w, &t);
        ck_assert_mem_eq(to, from, sizeof to);
    }
    ((char *)w.group.arena)[4095] = 1;
    w.table.close(&w.group);
    tn_instance_free(w.instance);
}
END_TEST

START_TEST(the_world)
{
    rank w;
    int32_t r = -1, size = -1;
    tn_error err = {0};
    team_setup();
    rank_load(&w, NULL, NULL);
    const void *hyper = w.instance->hyper;
    ck_ok(w.table.world(hyper, &r, &size, &err), err);
    ck_assert_int_eq(r, 0);
    ck_assert_int_eq(size, 1);
    setenv("TENON_RANKS", "4", 1);
    ck_assert_refused(w.table.world(hyper, &r, &size, &err), TN_E_INVALID, err, "collective shm", "rank -1 of 4");
    setenv("TENON_RANK", "3", 1);
    ck_ok(w.table.world(hyper, &r, &size, &err), err);
    ck_assert_int_eq(r, 3);
    ck_assert_int_eq(size, 4);
    component_set(w.instance, "ranks", "2");
    ck_assert_refused(w.table.world(hyper, &r, &size, &err), TN_E_INVALID, err, "collective shm", "rank 3 of 2");
    component_set(w.instance, "rank", "1");
    ck_ok(w.table.world(hyper, &r, &size, &err), err);
    ck_assert_int_eq(r, 1);
    ck_assert_int_eq(size, 2);
    component_set(w.instance, "ranks", "0");
    setenv("TENON_RANKS", "4x", 1);
    ck_assert_refused(w.table.world(hyper, &r, &size, &err), TN_E_INVALID, err, "collective shm", "'4x'");
    setenv("TENON_RANKS", "257", 1);
    ck_assert_refused(w.table.world(hyper, &r, &size, &err), TN_E_INVALID, err, "collective shm", "TENON_RANKS");
    component_set(w.instance, "name", "\"\"");
    ck_assert_refused(rank_open(&w, 0, 2, 0, &err), TN_E_INVALID, err, "collective shm", "no name");
    tn_instance_free(w.instance);
}
END_TEST

/* ---- calls that can not be meant: refused on the spot ---- */

static void check_refused(rank *w, tn_transfer t, const char *word)
{
    int64_t ticket = -7;
    tn_error err = {0};
    int32_t status = w->table.start(&w->group, &t, &ticket, &err);
    need(w, status == TN_E_INVALID || status == TN_E_UNSUPPORTED, "status %d, needed '%s'", status, word);
    need(w, strstr(err.msg, word) && ticket == -7, "no '%s' in: %s", word, err.msg);
}

static void refuses(rank *w, int32_t r, int32_t size, const void *arg)
{
    float from[4] = {1}, to[4] = {2};
    tn_transfer t;
    (void)arg;
    rank_opens(w, r, size, 0);
    const tn_transfer good = call_of(w, TN_ALL_REDUCE, f32, from, to, 1);
#define REFUSED(change, word) (t = good, change, check_refused(w, t, word))
    REFUSED(t.operation = 7, "operation 7");
    REFUSED(t.operation = -1, "operation -1");
    REFUSED(t.reduce = 3, "reduction 3");
    REFUSED((t.reduce = TN_REDUCE_MEAN, t.dtype = i32), "a mean of i32");
    REFUSED(t.dtype.bits = 8, "8 bits");
    REFUSED(t.dtype.bits = 4, "4 bits");
    REFUSED(t.count = -1, "count is -1");
    REFUSED(t.count = INT64_MAX / 5, "count is");
    REFUSED(t.from = NULL, "from is NULL");
    REFUSED(t.to = NULL, "to is NULL");
    REFUSED(t.from = (char *)from + 1, "aligned");
    REFUSED(t.timeout = 0, "timeout is 0");
    REFUSED(t.timeout = NAN, "timeout is");
    REFUSED((t.operation = TN_SEND, t.peer = r), "this rank itself");
    REFUSED((t.operation = TN_RECEIVE, t.peer = size), "needed 0 to");
    REFUSED((t.operation = TN_BROADCAST, t.peer = -1), "needed 0 to");
    must(w, &good);
    check_refused(w, good, "sequence 0 after 0");
    w->table.close(&w->group);
}

START_TEST(refusals)
{
    rank w;
    team_setup();
    rank_load(&w, NULL, NULL);
    team_run(&w, 2, refuses, NULL);
    tn_instance_free(w.instance);
}
END_TEST

/* ---- ranks that disagree ---- */

typedef struct clash {
    void (*change)(tn_transfer *t); /* on rank 1 */
    const char *common, *other;     /* stand in every rank's error */
} clash;

static void other_operation(tn_transfer *t) { t->operation = TN_BARRIER; }
static void other_gather(tn_transfer *t) { t->operation = TN_ALL_GATHER; }
static void other_count(tn_transfer *t) { t->count = 9; }
static void other_dtype(tn_transfer *t) { t->dtype = i32; }
static void other_reduce(tn_transfer *t) { t->reduce = TN_REDUCE_MAX; }
static void other_sequence(tn_transfer *t) { t->sequence += 5; }
static void other_send(tn_transfer *t) { t->operation = TN_SEND, t->peer = 0; }

static const clash clashes[] = {{other_operation, "all-reduce (sum) of 10 f32, sequence 1", "barrier, sequence 1"},
                                {other_gather, "all-reduce (sum) of 10 f32", "all-gather of 10 f32"},
                                {other_count, "of 10 f32", "of 9 f32"},
                                {other_dtype, "of 10 f32", "of 10 i32"},
                                {other_reduce, "all-reduce (sum)", "all-reduce (max)"},
                                {other_sequence, "sequence 1", "sequence 6"},
                                {other_send, "all-reduce (sum)", "send of 10 f32 to rank 0"}};

static void clashing(rank *w, int32_t r, int32_t size, const void *arg)
{
    const clash *c = arg;
    float from[10] = {0}, to[10];
    tn_error err = {0};
    const double start = now();
    rank_opens(w, r, size, 0);
    tn_transfer t = call_of(w, TN_ALL_REDUCE, f32, from, to, 10);
    must(w, &t);
    t = call_of(w, TN_ALL_REDUCE, f32, from, to, 10);
    if (r == 1)
        c->change(&t);
    int32_t status = do_call(w, &t, &err);
    need(w, status == TN_E_INVALID && err.code == status, "status %d: %s", status, err.msg);
    need(w, strstr(err.msg, c->common) && strstr(err.msg, c->other), "not both sides: %s", err.msg);
    need(w, strstr(err.msg, "rank 1 calls"), "no rank 1: %s", err.msg);
    need(w, now() - start < 5, "took %g s", now() - start);
    t = call_of(w, TN_ALL_REDUCE, f32, from, to, 10);
    t.sequence += 10;
    need(w, do_call(w, &t, &err) != TN_OK, "the group goes on");
    usleep(50000); /* that nobody is told of a rank that left before it looked */
    w->table.close(&w->group);
}

START_TEST(disagreements)
{
    rank w;
    team_setup();
    rank_load(&w, NULL, NULL);
    team_run(&w, 3, clashing, &clashes[_i]);
    tn_instance_free(w.instance);
}
END_TEST

/* Two that send to each other, a wrong root, a pair that disagrees while others wait. */
static void wrong_pairs(rank *w, int32_t r, int32_t size, const void *arg)
{
    const int32_t kind = *(const int32_t *)arg;
    float data[4] = {0};
    tn_error err = {0};
    rank_opens(w, r, size, 0);
    tn_transfer t = call_of(w, kind == 1 ? TN_BROADCAST : TN_SEND, f32, data, data, kind == 2 && r ? 3 : 4);
    t.peer = !r;
    if (kind == 2 && r)
        t.operation = TN_RECEIVE;
    need(w, do_call(w, &t, &err) == TN_E_INVALID, "accepted: %s", err.msg);
    const char *words[3][2] = {{"send of 4 f32 to rank 1", "send of 4 f32 to rank 0"},
                               {"broadcast of 4 f32 from rank 1", "broadcast of 4 f32 from rank 0"},
                               {"send of 4 f32 to rank 1", "receive of 3 f32 from rank 0"}};
    need(w, strstr(err.msg, words[kind][0]) && strstr(err.msg, words[kind][1]), "not both sides: %s", err.msg);
    usleep(50000);
    w->table.close(&w->group);
}

START_TEST(pairs_that_disagree)
{
    rank w;
    team_setup();
    rank_load(&w, NULL, NULL);
    team_run(&w, 2, wrong_pairs, &_i);
    tn_instance_free(w.instance);
}
END_TEST

/* ---- ranks that die, hang, leave or never come ---- */

typedef enum fault { KILLED, HUNG, LEFT } fault;

typedef struct trouble {
    fault fault;
    int32_t operation;
} trouble;

static void troubled(rank *w, int32_t r, int32_t size, const void *arg)
{
    static double from[1 << 18], to[1 << 20];
    const trouble *x = arg;
    tn_error err = {0};
    char name[16];
    int32_t status = TN_OK;
    double start = now();
    rank_opens(w, r, size, 0);
    w->timeout = x->fault == HUNG ? 0.4 : 10;
    while (status == TN_OK && now() - start < 8) {
        if (r == 1 && w->sequence == 20) {
            if (x->fault == LEFT)
                w->table.close(&w->group);
            shared->steps[r] = 1;
            while (x->fault != LEFT)
                pause();
            return;
        }
        start = now();
        tn_transfer t = call_of(w, x->operation, f64, from, to, 1 << 18);
        status = do_call(w, &t, &err);
    }
    snprintf(name, sizeof name, "rank 1");
    need(w, status == TN_E_IO, "status %d: %s", status, err.msg);
    need(w, strstr(err.msg, name) && strstr(err.msg, "sequence 20"), "%s", err.msg);
    need(w,
         strstr(err.msg, x->fault == KILLED ? "died"
                         : x->fault == LEFT ? "left the group"
                                            : "did not come"),
         "%s", err.msg);
    need(w, now() - start < 3, "took %g s", now() - start);
}

static const int32_t kinds_of_call[] = {TN_ALL_REDUCE, TN_ALL_GATHER, TN_BARRIER};

START_TEST(a_rank_in_trouble)
{
    const trouble x = {(fault)(_i / 3), kinds_of_call[_i % 3]};
    pid_t pids[RANKS_MOST];
    rank w;
    team_setup();
    rank_load(&w, NULL, NULL);
    team_start(&w, 3, troubled, &x, pids);
    for (int i = 0; i < 5000 && !shared->steps[1]; i++)
        usleep(1000);
    ck_assert_int_eq(shared->steps[1], 1);
    if (x.fault == KILLED)
        kill(pids[1], SIGKILL); /* a zombie until the others have ended */
    for (int32_t r = 0; r < 3; r += 2)
        ck_assert_int_eq(waitid(P_PID, (id_t)pids[r], &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
    kill(pids[1], SIGKILL);
    team_wait(3, pids, 1);
    tn_instance_free(w.instance);
}
END_TEST

/* Rank *arg is not started. */
static void too_few(rank *w, int32_t r, int32_t size, const void *arg)
{
    const int32_t absent = *(const int32_t *)arg;
    tn_error err = {0};
    const double start = now();
    if (r == absent)
        return;
    int32_t status = rank_open(w, r, size, 0, &err);
    need(w, status == TN_E_IO, "status %d: %s", status, err.msg);
    need(w, strstr(err.msg, absent ? "did not come within 0.3 s: 2" : "rank 0 of 3 did not come"), "%s", err.msg);
    need(w, strstr(err.msg, run_name), "%s", err.msg);
    need(w, now() - start < 2, "took %g s", now() - start);
}

START_TEST(a_rank_that_never_comes)
{
    const int32_t absent = _i * 2;
    rank w;
    team_setup();
    rank_load(&w, NULL, "0.3");
    team_run(&w, 3, too_few, &absent);
    tn_instance_free(w.instance);
}
END_TEST

/* Ranks that do not fit together: all are told why. */
static void misfits(rank *w, int32_t r, int32_t size, const void *arg)
{
    const int32_t kind = *(const int32_t *)arg;
    static const char *const words[] = {"chunk is 262144 on rank 0 and 64 on rank 1", "number of ranks",
                                        "both come as rank 1"};
    tn_error err = {0};
    if (kind == 0 && r == 1)
        component_set(w->instance, "chunk", "64");
    if (kind == 2)
        size = 3, r = r == 2 ? 1 : r;
    int32_t status = rank_open(w, r, kind == 1 && r == 1 ? 3 : size, 0, &err);
    if (kind == 2 && status == TN_E_IO) /* the third rank never comes; of two alike one may be told first */
        return;
    need(w, status == (kind == 1 ? TN_E_IO : TN_E_INVALID) && strstr(err.msg, words[kind]), "status %d: %s", status,
         err.msg);
}

START_TEST(ranks_that_do_not_fit)
{
    rank w;
    team_setup();
    rank_load(&w, NULL, "0.4");
    team_run(&w, _i == 2 ? 3 : 2, misfits, &_i);
    tn_instance_free(w.instance);
}
END_TEST

static void too_much(rank *w, int32_t r, int32_t size, const void *arg)
{
    tn_error err = {0};
    int32_t status = rank_open(w, r, size, r ? *(const int64_t *)arg : 0, &err);
    need(w, status == TN_E_MEMORY && strstr(err.msg, "/dev/shm refused"), "status %d: %s", status, err.msg);
    need(w, strstr(err.msg, "MB are free"), "%s", err.msg);
}

START_TEST(no_space)
{
    const int64_t bytes[] = {(int64_t)1 << 46, INT64_MAX};
    struct statvfs disk;
    rank w;
    ck_assert_int_eq(statvfs("/dev/shm", &disk), 0);
    if (_i == 0 && (disk.f_blocks == 0 || disk.f_blocks * disk.f_frsize >= (uint64_t)bytes[0]))
        return; /* without a limit the machine itself would run out */
    team_setup();
    rank_load(&w, NULL, NULL);
    team_run(&w, 2, too_much, &bytes[_i]);
    tn_instance_free(w.instance);
}
END_TEST

/* ---- a hundred kills ---- */

static int names_in_shm(void)
{
    int count = 0;
    DIR *folder = opendir("/dev/shm");
    ck_assert_ptr_nonnull(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        count += strstr(entry->d_name, "tenon") != NULL || entry->d_name[0] == '#';
    closedir(folder);
    return count;
}

/* Bytes of /dev/shm that are taken, by whomever. */
static double taken_in_shm(void)
{
    struct statvfs disk;
    ck_assert_int_eq(statvfs("/dev/shm", &disk), 0);
    return (double)(disk.f_blocks - disk.f_bfree) * (double)disk.f_frsize;
}

static void until_killed(rank *w, int32_t r, int32_t size, const void *arg)
{
    static float from[400000], to[400000];
    tn_error err = {0};
    int32_t status = rank_open(w, r, size, 65536, &err);
    (void)arg;
    for (int i = 0; i < 1000000 && status == TN_OK; i++) {
        tn_transfer t = call_of(w, TN_ALL_REDUCE, f32, from, to, i % 3 ? 400000 : 100);
        status = do_call(w, &t, &err);
    }
    need(w, status == TN_E_IO, "status %d: %s", status, err.msg);
    need(w, strstr(err.msg, "rank"), "%s", err.msg);
}

static void kill_one(rank *w)
{
    const int32_t victim = (int32_t)(random_bits() % 3);
    pid_t pids[RANKS_MOST];
    double start = now();
    memset(shared, 0, sizeof *shared);
    team_start(w, 3, until_killed, NULL, pids);
    usleep((useconds_t)(random_bits() % 10000)); /* opening takes some of it */
    kill(pids[victim], SIGKILL);
    for (int32_t r = 0; r < 3; r++)
        if (r != victim)
            ck_assert_int_eq(waitid(P_PID, (id_t)pids[r], &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
    team_wait(3, pids, victim);
    ck_assert_msg(now() - start < 3, "took %g s", now() - start);
}

START_TEST(a_hundred_kills)
{
    const int before = names_in_shm();
    const double taken = taken_in_shm();
    rank w;
    team_setup();
    rank_load(&w, "65536", "0.15");
    for (int i = 0; i < 100; i++)
        kill_one(&w);
    ck_assert_int_eq(names_in_shm(), before);
    ck_assert_double_lt(taken_in_shm(), taken + 32e6); /* a group takes 1 MB; other tests may be at work */
    tn_instance_free(w.instance);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("collective shm");
    TCase *tcase = tcase_create("shm");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, every_operation, 2, 5);
    tcase_add_loop_test(tcase, chunks_of_seven, 2, 4);
    tcase_add_loop_test(tcase, arenas, 0, 2);
    tcase_add_test(tcase, halves);
    tcase_add_test(tcase, a_max_with_nan);
    tcase_add_test(tcase, parts_of_the_world);
    tcase_add_test(tcase, a_queue);
    tcase_add_test(tcase, alone);
    tcase_add_test(tcase, the_world);
    tcase_add_test(tcase, refusals);
    tcase_add_loop_test(tcase, disagreements, 0, sizeof clashes / sizeof *clashes);
    tcase_add_loop_test(tcase, pairs_that_disagree, 0, 3);
    tcase_add_loop_test(tcase, a_rank_in_trouble, 0, 9);
    tcase_add_loop_test(tcase, a_rank_that_never_comes, 0, 2);
    tcase_add_loop_test(tcase, ranks_that_do_not_fit, 0, 3);
    tcase_add_loop_test(tcase, no_space, 0, 2);
    tcase_add_test(tcase, a_hundred_kills);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
