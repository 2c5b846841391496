/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_graph_backend.c: backends, against a product as plain as can be.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/base/philox.h"
#include "host/base/pool.h"
#include "host/check/count.h"
#include "host/check/gemm.h"
#include "host/check/guard.h"
#include "host/check/rules_graph.h"

#define THREADS 4
#define LOOSE   (-1) /* not TN_GUARD_*: nothing is looked at beside a, b and c, */
#define SLACK   4096 /* which have so many bytes more */

bool tn_check_is_backend(const tn_check_subject *subject)
{
    const tn_entry_info *entry = subject->entry;
    return entry && strcmp(entry->interface, TN_BACKEND) == 0 && strcmp(entry->device, "cpu") == 0;
}

static bool open_backend(const tn_check_subject *subject, tn_check_finding *finding, tn_backend *table)
{
    static const tn_services services = {.struct_size = sizeof services};
    tn_error err = {0};
    *table = (tn_backend){.struct_size = sizeof *table};
    if (!tn_check_load(subject, table, sizeof *table, finding))
        return false;
    if (!table->gemm) {
        tn_check_fail(finding, "its table lacks gemm");
        return false;
    }
    tn_check_stage(subject, "probe");
    if (table->probe && table->probe(&services, &err) != TN_OK)
        tn_check_skip(finding, "this machine can not use it: %s", err.msg);
    tn_check_stage(subject, NULL);
    tn_guard_watch(subject->stage, 256);
    return finding->verdict == TN_CHECK_PASSED;
}

void tn_check_backend_probe(const tn_check_subject *subject, tn_check_finding *finding)
{
    static const tn_services services = {.struct_size = sizeof services};
    tn_backend table = {.struct_size = sizeof table};
    tn_error err = {0};
    if (!tn_check_load(subject, &table, sizeof table, finding))
        return;
    if (!table.probe || !table.describe || !table.gemm) {
        tn_check_fail(finding, "its table lacks probe, describe or gemm");
        return;
    }
    if (table.device != TN_CPU)
        tn_check_fail(finding, "its table has device %d, its note cpu", table.device);
    int32_t status = table.probe(&services, &err);
    if (status != TN_OK && !*err.msg)
        tn_check_fail(finding, "probe says that this machine can not use it, and not why");
    if (table.probe(&services, NULL) != status)
        tn_check_fail(finding, "probe says something else when asked again with err NULL");
    const char *line = status == TN_OK ? table.describe() : "-";
    if (!line || !*line || strchr(line, '\n'))
        tn_check_fail(finding, "describe gives no line of text");
    else if (status == TN_OK && strcmp(line, table.describe()) != 0)
        tn_check_fail(finding, "describe gives another line when asked again; the text is static");
}

/* ---- products ---- */

/* A product with memory of its own. */
typedef struct {
    tn_gemm gemm;
    tn_guard a, b, c;
    void *before;          /* c as it was */
    int64_t a_n, b_n, c_n; /* numbers */
} product;

static int64_t length(int64_t rows, int64_t columns, int64_t ld, int64_t step, int64_t count)
{
    return rows && columns && count ? (count - 1) * step + (rows - 1) * ld + columns : 0;
}

typedef struct {
    int64_t m, n, k, gap, count; /* gap: what leading dimensions have more than a row, and steps more than a matrix */
    double alpha, beta;
} plan;

static const plan plans[] = {
    {1, 1, 1, 0, 1, 1, 0},     {3, 5, 7, 0, 1, 1, 0},     {3, 5, 7, 3, 1, 1, 1},      {17, 33, 65, 1, 1, -0.5, 1},
    {1, 40, 9, 2, 1, 1, 0},    {40, 1, 9, 2, 1, 2, -1},   {31, 29, 1, 0, 1, 1, 0},    {64, 64, 64, 0, 1, 1, 0.25},
    {5, 3, 130, 5, 3, 1, 0.5}, {7, 9, 11, 2, 4, 1, 0},    {4, 6, 0, 1, 1, 1, 0.5},    {4, 6, 0, 1, 1, 1, 0},
    {0, 6, 5, 1, 1, 1, 0},     {4, 0, 5, 1, 1, 1, 0.5},   {4, 6, 5, 1, 0, 1, 0},      {4, 6, 5, 1, 1, 0, 2},
    {33, 70, 257, 0, 1, 1, 0}, {128, 37, 19, 4, 1, 1, 1}, {2, 2, 1000, 0, 2, 1, 0.5},
};
#define PLANS (sizeof plans / sizeof *plans)

static size_t width(const product *p) { return p->gemm.dtype.bits / 8u; }

static bool open_matrix(const char *name, int64_t n, const product *p, int32_t place, tn_guard *ret)
{
    size_t bytes = (size_t)n * width(p) + (place == LOOSE ? SLACK : 0);
    return tn_guard_open(name, bytes, width(p), place == LOOSE ? TN_GUARD_START : place, ret, NULL) == TN_OK;
}

static bool lend(product *p, int32_t place)
{
    uint32_t real = p->gemm.dtype.bits;
    if (!open_matrix("a", p->a_n, p, place, &p->a) || !open_matrix("b", p->b_n, p, place, &p->b) ||
        !open_matrix("c", p->c_n, p, place, &p->c))
        return false;
    if (p->a_n)
        tn_random_uniform(1, 0, 0, p->a_n, -1, 1, real, p->a.data);
    if (p->b_n)
        tn_random_uniform(2, 0, 0, p->b_n, -1, 1, real, p->b.data);
    if (p->c_n)
        tn_random_uniform(3, 0, 0, p->c_n, -1, 1, real, p->c.data);
    p->gemm.a = p->a.data;
    p->gemm.b = p->b.data;
    p->gemm.c = p->c.data;
    p->before = tn_alloc((size_t)p->c_n + 1, width(p));
    if (p->before && p->c_n)
        memcpy(p->before, p->c.data, (size_t)p->c_n * width(p));
    tn_guard_read_only(&p->a, place != LOOSE);
    tn_guard_read_only(&p->b, place != LOOSE);
    return p->before != NULL;
}

static bool open_product(const plan *plan, uint8_t bits, int transposed, int32_t place, product *p)
{
    int64_t ta = transposed & 1, tb = transposed >> 1 & 1, a_rows = ta ? plan->k : plan->m,
            a_columns = ta ? plan->m : plan->k, b_rows = tb ? plan->n : plan->k, b_columns = tb ? plan->k : plan->n;
    *p = (product){.gemm = {.struct_size = sizeof p->gemm,
                            .dtype = {TN_FLOAT, bits, 1},
                            .transpose_a = (int32_t)ta,
                            .transpose_b = (int32_t)tb,
                            .m = plan->m,
                            .n = plan->n,
                            .k = plan->k,
                            .alpha = plan->alpha,
                            .beta = plan->beta,
                            .lda = a_columns + plan->gap,
                            .ldb = b_columns + plan->gap,
                            .ldc = plan->n + plan->gap,
                            .count = plan->count}};
    tn_gemm *g = &p->gemm;
    g->a_step = a_rows * g->lda + plan->gap;
    g->b_step = b_rows * g->ldb + plan->gap;
    g->c_step = plan->m * g->ldc + plan->gap;
    p->a_n = length(a_rows, a_columns, g->lda, g->a_step, plan->count);
    p->b_n = length(b_rows, b_columns, g->ldb, g->b_step, plan->count);
    p->c_n = length(plan->m, plan->n, g->ldc, g->c_step, plan->count);
    return lend(p, place);
}

static void close_product(product *p)
{
    tn_guard_close(&p->a);
    tn_guard_close(&p->b);
    tn_guard_close(&p->c);
    tn_free(p->before);
    p->before = NULL;
}

static const char *words_of(const product *p)
{
    static char text[160];
    const tn_gemm *g = &p->gemm;
    snprintf(text, sizeof text, "%lld products %lld x %lld x %lld in f%d%s%s, alpha %g, beta %g", (long long)g->count,
             (long long)g->m, (long long)g->n, (long long)g->k, g->dtype.bits, g->transpose_a ? ", a transposed" : "",
             g->transpose_b ? ", b transposed" : "", g->alpha, g->beta);
    return text;
}

/* Calls `visit` for each plan, type and transposition. */
static void tour(const tn_check_subject *subject, tn_check_finding *finding, int32_t place,
                 void (*visit)(const tn_backend *table, product *p, tn_check_finding *finding))
{
    tn_backend table;
    product p;
    if (!open_backend(subject, finding, &table))
        return;
    for (size_t i = 0; i < PLANS; i++)
        for (int bits = 32; bits <= 64; bits += 32)
            for (int t = 0; t < 4 && finding->verdict == TN_CHECK_PASSED; t++) {
                if (open_product(&plans[i], (uint8_t)bits, t, place, &p)) {
                    tn_check_stage(subject, "gemm, %s", words_of(&p));
                    visit(&table, &p, finding);
                } else {
                    tn_check_skip(finding, "no memory for a product");
                }
                close_product(&p);
            }
}

static double number(const product *p, const void *matrix, int64_t i)
{
    return p->gemm.dtype.bits == 64 ? ((const double *)matrix)[i] : (double)((const float *)matrix)[i];
}

static bool run(const tn_backend *table, const product *p, tn_check_finding *finding)
{
    tn_error err = {0};
    if (table->gemm(&p->gemm, &err) == TN_OK)
        return true;
    tn_check_fail(finding, "%s: it refuses them: %s", words_of(p), err.msg);
    return false;
}

/* Is number i of c outside of all products? */
static bool is_gap(const product *p, int64_t i)
{
    const tn_gemm *g = &p->gemm;
    int64_t within = g->c_step ? i % g->c_step : i;
    return within >= g->m * g->ldc || within % g->ldc >= g->n;
}

static void compare(const product *p, const void *right, tn_check_finding *finding)
{
    double unit = p->gemm.dtype.bits == 64 ? DBL_EPSILON : FLT_EPSILON;
    double bound = 2 * unit * ((double)p->gemm.k * fabs(p->gemm.alpha) + fabs(p->gemm.beta) + 1);
    for (int64_t i = 0; i < p->c_n && finding->verdict == TN_CHECK_PASSED; i++) {
        double got = number(p, p->c.data, i), wanted = number(p, right, i), was = number(p, p->before, i);
        if (is_gap(p, i) && got != was)
            tn_check_fail(finding, "%s: number %lld of c, between rows, is %.9g, was %.9g; it is not of the product",
                          words_of(p), (long long)i, got, was);
        else if (!is_gap(p, i) && !(fabs(got - wanted) <= bound))
            tn_check_fail(finding, "%s: number %lld of c is %.9g, needed %.9g within %.2g", words_of(p), (long long)i,
                          got, wanted, bound);
    }
}

static void visit_products(const tn_backend *table, product *p, tn_check_finding *finding)
{
    tn_gemm plain = p->gemm;
    void *right = tn_alloc((size_t)p->c_n + 1, width(p));
    if (right && run(table, p, finding)) {
        if (p->c_n)
            memcpy(right, p->before, (size_t)p->c_n * width(p));
        plain.c = right;
        tn_plain_gemm(&plain);
        compare(p, right, finding);
    }
    tn_free(right);
}

void tn_check_backend_products(const tn_check_subject *subject, tn_check_finding *finding)
{
    tour(subject, finding, LOOSE, visit_products);
}

/* The pages beside a, b and c can not be touched, and a and b not be written. */
static void visit_memory(const tn_backend *table, product *p, tn_check_finding *finding)
{
    run(table, p, finding);
    if (tn_guard_damage(&p->c))
        tn_check_fail(finding, "%s: it writes beside c", words_of(p));
}

void tn_check_backend_memory(const tn_check_subject *subject, tn_check_finding *finding)
{
    for (int32_t place = TN_GUARD_START; place <= TN_GUARD_END && finding->verdict == TN_CHECK_PASSED; place++)
        tour(subject, finding, place, visit_memory);
}

/* With beta 0 c may hold anything. */
static void visit_beta(const tn_backend *table, product *p, tn_check_finding *finding)
{
    if (p->gemm.beta != 0)
        return;
    memset(p->c.data, 0xFF, p->c.bytes);
    if (!run(table, p, finding))
        return;
    for (int64_t i = 0; i < p->c_n && finding->verdict == TN_CHECK_PASSED; i++)
        if (!is_gap(p, i) && !isfinite(number(p, p->c.data, i)))
            tn_check_fail(finding, "%s: number %lld of c, which held NaN, is %g; with beta 0 c is not read",
                          words_of(p), (long long)i, number(p, p->c.data, i));
}

void tn_check_backend_beta(const tn_check_subject *subject, tn_check_finding *finding)
{
    tour(subject, finding, LOOSE, visit_beta);
}

/* ---- the same again, and on threads ---- */

static void set_back(product *p)
{
    if (p->c_n)
        memcpy(p->c.data, p->before, (size_t)p->c_n * width(p));
}

static void visit_repeat(const tn_backend *table, product *p, tn_check_finding *finding)
{
    void *first = tn_alloc((size_t)p->c_n + 1, width(p));
    if (first && run(table, p, finding) && p->c_n) {
        memcpy(first, p->c.data, (size_t)p->c_n * width(p));
        set_back(p);
        run(table, p, finding);
        if (memcmp(first, p->c.data, (size_t)p->c_n * width(p)) != 0)
            tn_check_fail(finding, "%s: the same call once more gives other bits", words_of(p));
    }
    tn_free(first);
}

void tn_check_backend_repeat(const tn_check_subject *subject, tn_check_finding *finding)
{
    tour(subject, finding, LOOSE, visit_repeat);
}

#define REPEATS 40

static const tn_backend *shared_table;
static product beside[THREADS];
static int32_t differs[THREADS];

static void run_beside(void *arg, int64_t index, int32_t thread)
{
    product *p = &beside[index];
    void *right = arg ? ((void **)arg)[index] : NULL;
    (void)thread;
    for (int k = 0; k < REPEATS && right; k++) {
        set_back(p);
        differs[index] |=
            shared_table->gemm(&p->gemm, NULL) != TN_OK || memcmp(right, p->c.data, (size_t)p->c_n * width(p)) != 0;
    }
}

void tn_check_backend_threads(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_backend table;
    tn_pool *pool = NULL;
    tn_error err = {0};
    void *right[THREADS] = {0};
    static const size_t which[THREADS] = {3, 7, 8, 16};
    if (!open_backend(subject, finding, &table) || tn_pool_create(THREADS, &pool, &err) != TN_OK)
        return;
    shared_table = &table;
    for (int bits = 32; bits <= 64; bits += 32) {
        for (int i = 0; i < THREADS; i++) {
            if (!open_product(&plans[which[i]], (uint8_t)bits, i, LOOSE, &beside[i]) ||
                !run(&table, &beside[i], finding) ||
                !(right[i] = tn_alloc((size_t)beside[i].c_n + 1, width(&beside[i]))))
                return;
            memcpy(right[i], beside[i].c.data, (size_t)beside[i].c_n * width(&beside[i]));
        }
        tn_check_stage(subject, "gemm on %d threads", THREADS);
        tn_pool_run(pool, run_beside, right, THREADS);
        for (int i = 0; i < THREADS; i++) {
            if (differs[i])
                tn_check_fail(finding, "%s: other bits while other threads multiply too", words_of(&beside[i]));
            close_product(&beside[i]);
            tn_free(right[i]);
        }
    }
    tn_pool_destroy(pool);
}

/* ---- what is no product ---- */

static void refuse(const tn_backend *table, const product *p, const tn_gemm *wrong, const char *what,
                   tn_check_finding *finding)
{
    tn_error err = {0};
    (void)p;
    if (table->gemm(wrong, &err) == TN_OK)
        tn_check_fail(finding, "it takes a product with %s; refuse it, as it would be computed wrong in silence", what);
    else if (!*err.msg)
        tn_check_fail(finding, "it refuses a product with %s and does not say why", what);
    if (table->gemm(wrong, NULL) == TN_OK)
        tn_check_fail(finding, "with err NULL it takes a product with %s", what);
}

void tn_check_backend_refusals(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_backend table;
    product p;
    if (!open_backend(subject, finding, &table) || !open_product(&plans[1], 32, 0, LOOSE, &p))
        return;
    tn_gemm unknown = p.gemm, negative = p.gemm, narrow = p.gemm;
    unknown.dtype = (tn_dtype){99, 32, 1};
    negative.m = -1;
    narrow.ldc = p.gemm.n - 1;
    refuse(&table, &p, &unknown, "numbers of the type 99, which there is not", finding);
    refuse(&table, &p, &negative, "m = -1", finding);
    refuse(&table, &p, &narrow, "ldc less than n", finding);
    close_product(&p);
}

/* ---- what stays behind: a library may allocate, and has to free ---- */

void tn_check_backend_leak(const tn_check_subject *subject, tn_check_finding *finding)
{
    enum { CALLS = 10000 };
    tn_backend table;
    product small, large;
    tn_error err = {0};
    if (!open_backend(subject, finding, &table) || !open_product(&plans[1], 32, 0, LOOSE, &small) ||
        !open_product(&plans[16], 32, 0, LOOSE, &large))
        return;
    for (int k = 0; k < 2; k++)
        if (!run(&table, &small, finding) || !run(&table, &large, finding))
            return;
    if (tn_count_open(&err) != TN_OK) {
        tn_check_skip(finding, "%s", err.msg);
        return;
    }
    int64_t mapped = tn_count_mapped(), held = tn_count_held();
    for (int k = 0; k < CALLS; k++)
        table.gemm(k % 100 ? &small.gemm : &large.gemm, NULL);
    int64_t more = tn_count_held() - held;
    if (more > 0)
        tn_check_fail(finding, "%lld blocks are not freed after %d products", (long long)more, CALLS);
    else if (tn_count_mapped() > mapped + ((int64_t)1 << 20))
        tn_check_fail(finding, "the process has grown by %lld bytes after %d products",
                      (long long)(tn_count_mapped() - mapped), CALLS);
}
