/* SPDX-License-Identifier: Apache-2.0
 *
 * noise.c: the gradient noise scale of a run.
 */
#include "host/train/noise.h"

#include <math.h>
#include <string.h>

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/train/internal.h"

#define KEPT 0.99 /* of a mean at each estimate: some 100 updates count */

/* ---- estimates ---- */

tn_noise tn_noise_estimate(double small, double big, double samples, int64_t parts)
{
    double n = (double)parts;
    if (parts < 2)
        return (tn_noise){NAN, NAN};
    return (tn_noise){(n * big - small) / (n - 1), (small - big) * samples / (n - 1)};
}

/* Both together or neither. The ratio of two such means needs no correction for their beginning. */
void tn_noise_add(tn_noise *means, const tn_noise *estimate)
{
    tn_noise next = {KEPT * means->gradient + (1 - KEPT) * estimate->gradient,
                     KEPT * means->noise + (1 - KEPT) * estimate->noise};
    if (isfinite(next.gradient) && isfinite(next.noise))
        *means = next;
}

double tn_noise_scale(const tn_noise *means)
{
    double scale = means->gradient > 0 && means->noise > 0 ? means->noise / means->gradient : NAN;
    return isfinite(scale) ? scale : NAN;
}

/* ---- norms ---- */

#define LANES 8

/* The sum over n elements of (g - before)^2; `before` NULL: 0. In f64, in an order that depends on n alone. */
#define DEFINE_SQUARES(name, real)                                                                                     \
    static double name(const real *g, const real *before, int64_t n)                                                   \
    {                                                                                                                  \
        double sums[LANES] = {0}, all = 0;                                                                             \
        for (int64_t i = 0; i + LANES <= n; i += LANES)                                                                \
            for (int k = 0; k < LANES; k++) {                                                                          \
                double d = (double)g[i + k] - (before ? (double)before[i + k] : 0);                                    \
                sums[k] += d * d;                                                                                      \
            }                                                                                                          \
        for (int64_t i = n - n % LANES; i < n; i++) {                                                                  \
            double d = (double)g[i] - (before ? (double)before[i] : 0);                                                \
            sums[i % LANES] += d * d;                                                                                  \
        }                                                                                                              \
        for (int k = 0; k < LANES; k++)                                                                                \
            all += sums[k];                                                                                            \
        return all;                                                                                                    \
    }
DEFINE_SQUARES(squares_f32, float)
DEFINE_SQUARES(squares_f64, double)

typedef struct {
    const tn_parameters *all;
    tn_noise_watch *watch;
    int subtract, keep; /* the gradient that was kept; this one, in its place */
} pass;

static void pass_chunk(void *arg, int64_t chunk, int32_t thread)
{
    const pass *p = arg;
    const tn_noise_chunk *c = &p->watch->chunks[chunk];
    size_t size = p->all->real / 8, at = (size_t)c->at * size;
    const char *g = (const char *)p->all->g + at;
    char *before = p->watch->before ? (char *)p->watch->before + at : NULL;
    const void *less = p->subtract ? before : NULL;
    (void)thread;
    p->watch->partial[chunk] = p->all->real == 64 ? squares_f64((const double *)(const void *)g, less, c->n)
                                                  : squares_f32((const float *)(const void *)g, less, c->n);
    if (p->keep && before)
        memcpy(before, g, (size_t)c->n * size);
}

static double squares(tn_trainer *t, int subtract, int keep)
{
    pass p = {tn_graph_parameters(t->graph), &t->noise, subtract, keep};
    double sum = 0;
    tn_pool_run(t->pool, pass_chunk, &p, t->noise.chunk_count);
    for (int64_t i = 0; i < t->noise.chunk_count; i++)
        sum += t->noise.partial[i];
    return sum;
}

/* ---- a run ---- */

static int32_t refuse(const tn_trainer *t, tn_error *err)
{
    return tn_error_set(err, TN_E_INVALID,
                        "train.noise_scale: an update has one gradient here, and two of different batches are needed; "
                        "%s, or share each batch among several processes",
                        t->e->accumulate > 1 ? "there is but one batch in an epoch: make data.batch smaller"
                                             : "set train.accumulate=2, with half the data.batch for the same update");
}

static int plan_chunks(tn_trainer *t, const tn_parameters *all)
{
    tn_noise_watch *watch = &t->noise;
    int64_t count = 0;
    for (int64_t i = 0; i < all->count; i++)
        count += ceil_div(all->list[i].n, TN_CHUNK);
    watch->chunks = tn_alloc((size_t)count, sizeof *watch->chunks);
    watch->partial = tn_alloc((size_t)count, sizeof *watch->partial);
    if (!watch->chunks || !watch->partial)
        return 0;
    for (int64_t i = 0; i < all->count; i++)
        for (int64_t from = 0, n = all->list[i].n; from < n; from += TN_CHUNK)
            watch->chunks[watch->chunk_count++] =
                (tn_noise_chunk){all->at[i] + from, n - from < TN_CHUNK ? n - from : TN_CHUNK};
    return 1;
}

int32_t tn_noise_open(tn_trainer *t, tn_error *err)
{
    const tn_parameters *all = tn_graph_parameters(t->graph);
    int64_t micro = t->e->accumulate < t->micro_batches ? t->e->accumulate : t->micro_batches;
    t->noise.now = (tn_noise){NAN, NAN};
    if (!t->e->noise_scale)
        return TN_OK;
    if (micro * tn_comm_size(t->comm) < 2)
        return refuse(t, err);
    t->noise.bytes = micro > 1 ? all->elements * (all->real / 8) : 0;
    if (t->noise.bytes)
        t->noise.before = tn_alloc_aligned((size_t)t->noise.bytes);
    if (!plan_chunks(t, all) || (t->noise.bytes && !t->noise.before))
        return tn_error_set(err, TN_E_MEMORY, "no memory for the noise scale");
    return TN_OK;
}

void tn_noise_close(tn_trainer *t)
{
    tn_free(t->noise.before);
    tn_free(t->noise.chunks);
    tn_free(t->noise.partial);
}

void tn_noise_see(tn_trainer *t, const tn_graph_run *run)
{
    tn_window w = tn_window_at(t, t->attempt);
    int first = !(run->flags & TN_ACCUMULATE), last = run->micro / tn_comm_size(t->comm) == w.end - w.first - 1;
    if (!t->e->noise_scale)
        return;
    double part = run->n > 0 ? squares(t, !first, !last) / (double)run->n : 0;
    t->noise.parts = first ? part : t->noise.parts + part;
}

int32_t tn_noise_measure(tn_trainer *t, tn_error *err)
{
    tn_window w = tn_window_at(t, t->attempt);
    tn_exact parts;
    if (!t->e->noise_scale)
        return TN_OK;
    tn_exact_clear(&parts);
    tn_exact_add(&parts, t->noise.parts);
    int32_t status = tn_comm_sum_exact(t->comm, &parts, 1, err);
    if (status != TN_OK)
        return status;
    double samples = (double)w.samples, mean = 1 / (t->seed * t->count);
    t->noise.now = tn_noise_estimate(tn_exact_value(&parts) * samples * mean * mean, squares(t, 0, 0) * mean * mean,
                                     samples, (w.end - w.first) * tn_comm_size(t->comm));
    return TN_OK;
}

void tn_noise_keep(tn_trainer *t, int32_t committed)
{
    if (t->e->noise_scale && committed)
        tn_noise_add(&t->noise.means, &t->noise.now);
}
