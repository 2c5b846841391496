/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/backend: every CPU backend that the registry finds against a triple loop in f64, and its bits under threads.
 */
#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>

#include <tenon/backend.h>
#include <tenon/sdk.h>

#include "tests/component.h"

#define BACKENDS 8

typedef struct candidate {
    const char *name;
    tn_backend table;
} candidate;

static candidate backends[BACKENDS];
static int backend_count;

static void open_backends(void)
{
    tn_registry *registry = test_plugins();
    backend_count = 0;
    for (size_t i = 0; i < tn_registry_count(registry); i++) {
        const tn_entry_info *entry = tn_registry_at(registry, i);
        candidate *b = &backends[backend_count];
        tn_error err = {0};
        if (strcmp(entry->kind, "backend") != 0 || strcmp(entry->device, "cpu") != 0 || entry->state != TN_FOUND)
            continue;
        ck_assert_int_lt(backend_count, BACKENDS);
        tn_instance_free(component_open("backend", entry->name, 0, &b->table, sizeof b->table));
        ck_assert_msg(b->table.probe(NULL, &err) == TN_OK, "%s", err.msg);
        ck_assert_int_eq(b->table.device, TN_CPU);
        b->name = entry->name;
        backend_count++;
    }
    ck_assert_int_ge(backend_count, 2);
}

static const candidate *backend_named(const char *name)
{
    for (int i = 0; i < backend_count; i++)
        if (strcmp(backends[i].name, name) == 0)
            return &backends[i];
    ck_abort_msg("no backend %s", name);
    return NULL;
}

/* ---- products on random numbers ---- */

static uint64_t drawn;

static uint32_t draw(uint32_t below) { return tn_philox(11, drawn++, 0).v[0] % below; }

/* A product with its own memory: operands with NaN where nothing may be read, c with a pattern where nothing may be
 * written (kept in `before`). */
typedef struct product {
    tn_gemm gemm;
    size_t c_bytes;
    void *a, *b, *c, *before;
} product;

static double get(const void *data, int bits, int64_t i)
{
    return bits == 32 ? (double)((const float *)data)[i] : ((const double *)data)[i];
}

static void set(void *data, int bits, int64_t i, double value)
{
    if (bits == 32)
        ((float *)data)[i] = (float)value;
    else
        ((double *)data)[i] = value;
}

/* `count` matrices of rows x columns. `fill`: random numbers inside; NaN or `pad` outside. */
static void *matrices(int bits, int64_t count, int64_t step, int64_t rows, int64_t columns, int64_t ld, double pad,
                      int fill, size_t *ret_bytes)
{
    size_t elements = (size_t)(count * step + rows * ld + 1), bytes = elements * (size_t)bits / 8;
    void *data = malloc(bytes);
    for (size_t i = 0; i < elements; i++)
        set(data, bits, (int64_t)i, pad);
    for (int64_t p = 0; fill && p < count; p++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++)
                set(data, bits, p * step + i * ld + j, (double)draw(2001) / 1000 - 1);
    if (ret_bytes)
        *ret_bytes = bytes;
    return data;
}

static int64_t extent(uint32_t largest) { return draw(8) == 0 ? 0 : 1 + draw(largest); }

static product random_product(int bits, uint32_t largest)
{
    static const double factors[] = {0, 1, -0.5, 2.25};
    product p = {.gemm = {.struct_size = sizeof(tn_gemm)}};
    tn_gemm *g = &p.gemm;
    g->dtype = (tn_dtype){TN_FLOAT, (uint8_t)bits, 1};
    g->transpose_a = (int32_t)draw(2);
    g->transpose_b = (int32_t)draw(2);
    g->m = extent(largest);
    g->n = extent(largest);
    g->k = extent(largest);
    g->count = draw(4) ? 1 : extent(4);
    g->alpha = factors[draw(4)];
    g->beta = factors[draw(4)];
    int64_t a_rows = g->transpose_a ? g->k : g->m, a_columns = g->transpose_a ? g->m : g->k;
    int64_t b_rows = g->transpose_b ? g->n : g->k, b_columns = g->transpose_b ? g->k : g->n;
    g->lda = a_columns + draw(3);
    g->ldb = b_columns + draw(3);
    g->ldc = g->n + draw(3);
    g->a_step = draw(3) ? a_rows * g->lda + draw(5) : 0; /* 0: one a for all */
    g->b_step = b_rows * g->ldb + draw(5);
    g->c_step = g->m * g->ldc + draw(5);
    p.a = matrices(bits, g->count, g->a_step, a_rows, a_columns, g->lda, NAN, 1, NULL);
    p.b = matrices(bits, g->count, g->b_step, b_rows, b_columns, g->ldb, NAN, 1, NULL);
    p.c = matrices(bits, g->count, g->c_step, g->m, g->n, g->ldc, g->beta == 0 ? NAN : 77, g->beta != 0, &p.c_bytes);
    p.before = malloc(p.c_bytes);
    memcpy(p.before, p.c, p.c_bytes);
    int reads = g->k > 0 && g->alpha != 0;
    g->a = reads ? p.a : NULL;
    g->b = reads ? p.b : NULL;
    g->c = p.c;
    return p;
}

static void product_free(product *p)
{
    free(p->a);
    free(p->b);
    free(p->c);
    free(p->before);
}

/* Element (i, j) of product q; *ret_size: what the error may be proportional to. */
static double expected(const product *p, int64_t q, int64_t i, int64_t j, double *ret_size)
{
    const tn_gemm *g = &p->gemm;
    int bits = g->dtype.bits;
    double sum = 0, size = 0, old = g->beta != 0 ? get(p->before, bits, q * g->c_step + i * g->ldc + j) : 0;
    for (int64_t k = 0; g->alpha != 0 && k < g->k; k++) {
        double a = get(p->a, bits, q * g->a_step + (g->transpose_a ? k * g->lda + i : i * g->lda + k));
        double b = get(p->b, bits, q * g->b_step + (g->transpose_b ? j * g->ldb + k : k * g->ldb + j));
        sum += a * b;
        size += fabs(a * b);
    }
    *ret_size = fabs(g->alpha) * size + fabs(g->beta * old);
    return g->alpha * sum + g->beta * old;
}

/* Elements inside are near (of the reference: exact, as it adds in the same order); bytes outside are as before. */
static void check_product(const candidate *b, const product *p)
{
    const tn_gemm *g = &p->gemm;
    int bits = g->dtype.bits, exact = strcmp(b->name, "reference") == 0;
    double epsilon = ldexp((double)g->k + 3, bits == 32 ? -24 : -53);
    char *rest = malloc(p->c_bytes);
    memcpy(rest, p->c, p->c_bytes);
    for (int64_t q = 0; q < g->count; q++)
        for (int64_t i = 0; i < g->m; i++)
            for (int64_t j = 0; j < g->n; j++) {
                int64_t at = q * g->c_step + i * g->ldc + j;
                double size, value = expected(p, q, i, j, &size), found = get(p->c, bits, at);
                value = bits == 32 ? (double)(float)value : value;
                ck_assert_msg(exact ? found == value : fabs(found - value) <= epsilon * size,
                              "%s f%d m %lld n %lld k %lld ta %d tb %d alpha %g beta %g: [%lld][%lld, %lld] is %.17g, "
                              "not %.17g",
                              b->name, bits, (long long)g->m, (long long)g->n, (long long)g->k, g->transpose_a,
                              g->transpose_b, g->alpha, g->beta, (long long)q, (long long)i, (long long)j, found,
                              value);
                memcpy(rest + at * bits / 8, (char *)p->before + at * bits / 8, (size_t)bits / 8);
            }
    ck_assert_msg(memcmp(rest, p->before, p->c_bytes) == 0, "%s wrote outside of c", b->name);
    free(rest);
}

static void run_product(const candidate *b, product *p)
{
    tn_error err = {0};
    memcpy(p->c, p->before, p->c_bytes);
    ck_assert_msg(b->table.gemm(&p->gemm, &err) == TN_OK, "%s: %s", b->name, err.msg);
}

START_TEST(every_backend_is_right)
{
    open_backends();
    for (int round = 0; round < 600; round++) {
        product p = random_product(round % 2 ? 32 : 64, round % 50 ? 40 : 150);
        for (int i = 0; i < backend_count; i++) {
            run_product(&backends[i], &p);
            check_product(&backends[i], &p);
        }
        product_free(&p);
    }
}
END_TEST

/* ---- threads ---- */

#define PRODUCTS 12

typedef struct worker {
    pthread_t thread;
    const candidate *b;
    const product *products; /* with the serial results in c */
    int wrong;
} worker;

static void *work(void *user)
{
    worker *w = user;
    for (int round = 0; round < 60; round++) {
        const product *p = &w->products[round % PRODUCTS];
        tn_gemm gemm = p->gemm;
        gemm.c = malloc(p->c_bytes);
        memcpy(gemm.c, p->before, p->c_bytes);
        w->wrong += w->b->table.gemm(&gemm, NULL) != TN_OK || memcmp(gemm.c, p->c, p->c_bytes) != 0;
        free(gemm.c);
    }
    return NULL;
}

START_TEST(same_bits_under_threads)
{
    product products[PRODUCTS];
    open_backends();
    for (int i = 0; i < PRODUCTS; i++)
        products[i] = random_product(i % 3 ? 32 : 64, 160);
    for (int i = 0; i < backend_count; i++) {
        worker workers[3];
        for (int j = 0; j < PRODUCTS; j++)
            run_product(&backends[i], &products[j]);
        for (int j = 0; j < 3; j++) {
            workers[j] = (worker){.b = &backends[i], .products = products};
            ck_assert_int_eq(pthread_create(&workers[j].thread, NULL, work, &workers[j]), 0);
        }
        for (int j = 0; j < 3; j++) {
            ck_assert_int_eq(pthread_join(workers[j].thread, NULL), 0);
            ck_assert_msg(workers[j].wrong == 0, "%s: %d results differ from serial ones", backends[i].name,
                          workers[j].wrong);
        }
    }
    for (int i = 0; i < PRODUCTS; i++)
        product_free(&products[i]);
}
END_TEST

/* ---- refusals ---- */

static void check_refused(const candidate *b, const tn_gemm *gemm, int32_t code, const char *word)
{
    tn_error err = {0};
    ck_assert_int_eq(b->table.gemm(gemm, &err), code);
    ck_assert_msg(strstr(err.msg, word) && strstr(err.msg, b->name), "no \"%s\" in: %s", word, err.msg);
    ck_assert_int_eq(b->table.gemm(gemm, NULL), code);
}

START_TEST(refusals)
{
    float data[16] = {0};
    const tn_gemm good = {.struct_size = sizeof good,
                          .dtype = {TN_FLOAT, 32, 1},
                          .m = 2,
                          .n = 3,
                          .k = 4,
                          .alpha = 1,
                          .a = data,
                          .lda = 4,
                          .b = data,
                          .ldb = 3,
                          .c = data,
                          .ldc = 3,
                          .count = 1};
    open_backends();
    for (int i = 0; i < backend_count; i++) {
        const candidate *b = &backends[i];
        tn_gemm g = good;
        ck_assert_int_eq(b->table.gemm(&g, NULL), TN_OK);
        g.dtype.bits = 16;
        check_refused(b, &g, TN_E_UNSUPPORTED, "16 bits");
        g = good;
        g.dtype.code = TN_INT;
        check_refused(b, &g, TN_E_UNSUPPORTED, "code 0");
        g = good;
        g.k = -1;
        check_refused(b, &g, TN_E_INVALID, "-1");
        g = good;
        g.lda = 3;
        check_refused(b, &g, TN_E_INVALID, "lda is 3, needed at least 4");
        g = good;
        g.transpose_b = 1;
        check_refused(b, &g, TN_E_INVALID, "ldb is 3, needed at least 4");
        g = good;
        g.ldc = 2;
        check_refused(b, &g, TN_E_INVALID, "ldc is 2, needed at least 3");
        g = good;
        g.b = NULL;
        check_refused(b, &g, TN_E_INVALID, "b is NULL");
    }
}
END_TEST

START_TEST(openblas_has_32_bit_extents)
{
    float data[16] = {0};
    tn_gemm g = {.struct_size = sizeof g,
                 .dtype = {TN_FLOAT, 32, 1},
                 .m = (int64_t)INT_MAX + 1,
                 .n = 1,
                 .k = 1,
                 .alpha = 1,
                 .a = data,
                 .lda = 1,
                 .b = data,
                 .ldb = 1,
                 .c = data,
                 .ldc = 1,
                 .count = 1};
    open_backends();
    check_refused(backend_named("openblas"), &g, TN_E_UNSUPPORTED, "m is 2147483648");
    g.m = 1;
    g.ldc = (int64_t)1 << 33;
    check_refused(backend_named("openblas"), &g, TN_E_UNSUPPORTED, "ldc is 8589934592");
}
END_TEST

START_TEST(openblas_wants_one_thread)
{
    tn_error err = {0};
    open_backends();
    void *library = dlopen("libopenblas.so.0", RTLD_LAZY | RTLD_NOLOAD);
    ck_assert_ptr_nonnull(library);
    void (*set_threads)(int) = NULL;
    *(void **)&set_threads = dlsym(library, "openblas_set_num_threads");
    ck_assert(set_threads != NULL);
    set_threads(2);
    ck_assert_int_eq(backend_named("openblas")->table.probe(NULL, &err), TN_E_PLUGIN);
    ck_assert_ptr_nonnull(strstr(err.msg, "2 threads"));
    ck_assert_ptr_nonnull(strstr(err.msg, "OPENBLAS_NUM_THREADS=1"));
    set_threads(1);
    ck_assert_int_eq(backend_named("openblas")->table.probe(NULL, NULL), TN_OK);
    ck_assert_int_eq(dlclose(library), 0);
}
END_TEST

START_TEST(descriptions)
{
    open_backends();
    for (int i = 0; i < backend_count; i++) {
        const char *text = backends[i].table.describe();
        ck_assert_uint_gt(strlen(text), 10);
        ck_assert_ptr_eq(backends[i].table.describe(), text);
    }
    ck_assert_ptr_eq(strstr(backend_named("openblas")->table.describe(), "OpenBLAS 0."),
                     backend_named("openblas")->table.describe());
}
END_TEST

/* ---- the flavours of OpenBLAS: the plugin's own source over a library that says what the test wants ---- */

static int said_parallel, said_threads;
static int fake_parallel(void) { return said_parallel; }
static int fake_threads(void) { return said_threads; }
static void fake_product(int order, ...) { ck_abort_msg("a product, order %d", order); }
#include <cblas.h>
#define openblas_get_parallel    fake_parallel
#define openblas_get_num_threads fake_threads
#define openblas_get_config()    "OpenBLAS 1.2.3 SOME FLAGS"
#define cblas_sgemm              fake_product
#define cblas_dgemm              fake_product
#define tenon_plugin_v1          openblas_entry
#include "plugins/backend/openblas.c"

static void check_flavour(int parallel, int threads, const char *word)
{
    tn_error err = {0};
    said_parallel = parallel;
    said_threads = threads;
    ck_assert_int_eq(openblas_table.probe(NULL, &err), word ? TN_E_PLUGIN : TN_OK);
    ck_assert_msg(!word || strstr(err.msg, word), "no \"%s\" in: %s", word, err.msg);
}

START_TEST(openblas_flavours)
{
    ck_assert_ptr_nonnull(openblas_entry(NULL));
    check_flavour(0, 1, "serial flavour");
    check_flavour(1, 1, NULL);
    check_flavour(2, 1, "OpenMP flavour");
    check_flavour(2, 1, "libopenblas0-pthread");
    check_flavour(3, 1, "unknown flavour");
    check_flavour(1, 16, "16 threads");
    ck_assert_str_eq(openblas_table.describe(), "OpenBLAS 1.2.3 SOME FLAGS");
}
END_TEST

int main(void)
{
    setenv("OPENBLAS_NUM_THREADS", "1", 1); /* read when the library is loaded */
    Suite *suite = suite_create("backends");
    TCase *tcase = tcase_create("backends");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, every_backend_is_right);
    tcase_add_test(tcase, same_bits_under_threads);
    tcase_add_test(tcase, refusals);
    tcase_add_test(tcase, openblas_has_32_bit_extents);
    tcase_add_test(tcase, openblas_wants_one_thread);
    tcase_add_test(tcase, descriptions);
    tcase_add_test(tcase, openblas_flavours);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
