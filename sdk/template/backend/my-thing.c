/* SPDX-License-Identifier: Apache-2.0
 *
 * Products in tiles of 4 rows and 16 columns whose sums stay in registers (Goto and van de Geijn, ACM Transactions on
 * Mathematical Software 34, 2008, without their packing). k goes from 0 up in the matrices' own type, so the bits of an
 * element depend on its row and column alone.
 */
#include <tenon/gemm.h>

enum { ROWS = 4, COLUMNS = 16 };

static int64_t my_thing_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* NAME_tile: c[i, j] of a tile, from strides of a and b along rows, columns and k. NAME_products: all of them. */
#define PRODUCT(name, type)                                                                                            \
    TN_CLONES static void name##_tile(const tn_gemm *g, int64_t rows, int64_t columns, const type *a, int64_t a_i,     \
                                      int64_t a_k, const type *b, int64_t b_k, int64_t b_j, type *c)                   \
    {                                                                                                                  \
        type sum[ROWS][COLUMNS] = {{0}};                                                                               \
        for (int64_t k = 0; k < (tn_gemm_reads(g) ? g->k : 0); k++)                                                    \
            for (int64_t i = 0; i < rows; i++)                                                                         \
                for (int64_t j = 0; j < columns; j++)                                                                  \
                    sum[i][j] += a[i * a_i + k * a_k] * b[k * b_k + j * b_j];                                          \
        for (int64_t i = 0; i < rows; i++)                                                                             \
            for (int64_t j = 0; j < columns; j++) {                                                                    \
                type *to = &c[i * g->ldc + j];                                                                         \
                *to = (type)g->alpha * sum[i][j] + (g->beta != 0 ? (type)g->beta * *to : 0);                           \
            }                                                                                                          \
    }                                                                                                                  \
    static void name##_products(const tn_gemm *g)                                                                      \
    {                                                                                                                  \
        int64_t a_i = g->transpose_a ? 1 : g->lda, a_k = g->transpose_a ? g->lda : 1;                                  \
        int64_t b_k = g->transpose_b ? 1 : g->ldb, b_j = g->transpose_b ? g->ldb : 1;                                  \
        for (int64_t p = 0; p < g->count; p++) {                                                                       \
            const type *a = (const type *)tn_gemm_at(g, g->a, g->a_step, p);                                           \
            const type *b = (const type *)tn_gemm_at(g, g->b, g->b_step, p);                                           \
            type *c = (type *)tn_gemm_at(g, g->c, g->c_step, p);                                                       \
            for (int64_t i = 0; i < g->m; i += ROWS)                                                                   \
                for (int64_t j = 0; j < g->n; j += COLUMNS)                                                            \
                    name##_tile(g, my_thing_least(ROWS, g->m - i), my_thing_least(COLUMNS, g->n - j),                  \
                                a ? a + i *a_i : a, a_i, a_k, b ? b + j *b_j : b, b_k, b_j, c + i * g->ldc + j);       \
        }                                                                                                              \
    }
PRODUCT(my_thing_f32, float)
PRODUCT(my_thing_f64, double)

/* Can this machine use it? */
static int32_t my_thing_probe(const tn_services *services, tn_error *err)
{
    (void)services, (void)err;
    return TN_OK;
}

static const char *my_thing_describe(void) { return "tiles of 4 x 16"; }

static int32_t my_thing_gemm(const tn_gemm *gemm, tn_error *err)
{
    int32_t status = tn_gemm_check("my-thing", gemm, err);
    if (status == TN_OK && !tn_gemm_empty(gemm))
        (gemm->dtype.bits == 32 ? my_thing_f32_products : my_thing_f64_products)(gemm);
    return status;
}

static const tn_backend my_thing_table = {.struct_size = sizeof(tn_backend),
                                          .device = TN_CPU,
                                          .probe = TN_CALL(my_thing_probe),
                                          .describe = my_thing_describe,
                                          .gemm = TN_CALL(my_thing_gemm)};
TN_COMPONENT(my_thing, "backend", TN_BACKEND, 0u, TN_NO_HYPER, "Products in tiles of registers",
             TN_PAPER("Goto and van de Geijn 2008"), my_thing_table);
TN_PLUGIN("org.example.my-thing", "0.1.0", "Apache-2.0", my_thing)
