/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples that need no file: number i of a split is a pure function of (seed, split, i), from Philox. n is normal with
 * deviation `noise`, u uniform in [0, 1); sample i has class c = i mod classes, except in regression.
 *
 *   blobs       x_j = center_cj + n_j,  center_cj normal with deviation 1
 *   spirals     x = (t cos a + n_0, t sin a + n_1),  a = 2 pi (turns t + c / classes),  t = sqrt(u)
 *   regression  x_j standard normal,  y_k = b_k + sum_j w_jk x_j + n_k,  w_jk = sin(1 + j + features k),  b_k = cos(1 +
 * k) images      x_rq = cos(f (r cos a + q sin a) + 2 pi u) + n_rq,  a = pi c / classes,  f = 2 pi `waves` / size:
 * gratings whose direction is the class, at any phase, so no pixel alone says anything; n is uniform here
 */
#include <tenon/data.h>
#include <tenon/sdk.h>

#define HYPER(X)                                                                                                       \
    X(choice, task, blobs, "blobs | spirals | regression | images", "what the samples are")                            \
    X(integer, train, 4096, "[1, 4294967295]", "samples of the split train")                                           \
    X(integer, test, 1024, "[0, 4294967295]", "samples of the split test; 0: there is none")                           \
    X(integer, validation, 0, "[0, 4294967295]", "samples of the split validation; 0: there is none")                  \
    X(integer, features, 2, "[1, 1048576]", "numbers of a sample: blobs, regression")                                  \
    X(integer, classes, 3, "[1, 1048576]", "of blobs, spirals and images")                                             \
    X(integer, outputs, 1, "[1, 1048576]", "numbers of a target: regression")                                          \
    X(integer, size, 16, "[1, 1024]", "rows and columns of an image")                                                  \
    X(flag, flatten, true, "", "images of shape [size * size] instead of [1, size, size]")                             \
    X(fixed, noise, 0.1, "[0, inf)", "deviation of what is random in a number")                                        \
    X(fixed, turns, 1, "[0, inf)", "of each arm: spirals")                                                             \
    X(fixed, waves, 2, "[0, inf)", "over an image's side: images")                                                     \
    X(integer, seed, 0, "[0, inf)", "another one gives another set; train.seed changes nothing here")
TN_DECLARE(synthetic, HYPER)
enum { SYN_BLOBS, SYN_SPIRALS, SYN_REGRESSION, SYN_IMAGES };
enum { SYN_TRAIN, SYN_TEST, SYN_VALIDATION, SYN_CENTERS };

#define SYN_TAU   6.283185307179586
#define SYN_SIDE  1024
#define SYN_BLOCK 128 /* outputs of a regression at a time */

/* A split's memory: which one it is; for blobs then the centers, [classes, features]; for regression the weights,
 * [features, outputs], and the shifts, [outputs]. */
typedef struct synthetic_memory {
    int64_t split;
    int64_t padding[7];
    double numbers[];
} synthetic_memory;
TN_STATIC_ASSERT(sizeof(synthetic_memory) == 64, "the numbers are not aligned");

/* ---- random numbers: block (i, split, j) ---- */

static tn_random4 synthetic_block(const synthetic *h, int64_t split, int64_t i, int64_t j)
{
    return tn_philox((uint64_t)h->seed, (uint64_t)i, (uint64_t)split << 32 | (uint64_t)j);
}

/* Two normal numbers by Box and Muller. */
static void synthetic_normal(tn_random4 block, double ret[2])
{
    double radius = sqrt(-2 * log(((double)block.v[0] + 1) * 0x1p-32)), angle = SYN_TAU * (double)block.v[1] * 0x1p-32;
    ret[0] = radius * cos(angle);
    ret[1] = radius * sin(angle);
}

/* Normal numbers [0, n) of a sample, the first of block `first`, into `ret`. */
static void synthetic_normals(const synthetic *h, int64_t split, int64_t i, int64_t first, int64_t n, double *ret)
{
    for (int64_t j = 0; j < n; j += 2) {
        double pair[2];
        synthetic_normal(synthetic_block(h, split, i, first + j / 2), pair);
        ret[j] = pair[0];
        if (j + 1 < n)
            ret[j + 1] = pair[1];
    }
}

/* ---- samples ---- */

static void synthetic_blob(const synthetic *h, const synthetic_memory *m, int64_t i, tn_real *x)
{
    const double *center = m->numbers + i % h->classes * h->features;
    for (int64_t j = 0; j < h->features; j += 2) {
        double pair[2];
        synthetic_normals(h, m->split, i, j / 2, 2, pair);
        for (int64_t k = j; k < h->features && k < j + 2; k++)
            x[k] = (tn_real)(center[k] + h->noise * pair[k - j]);
    }
}

static void synthetic_spiral(const synthetic *h, const synthetic_memory *m, int64_t i, tn_real *x)
{
    double t = sqrt(synthetic_block(h, m->split, i, 0).v[0] * 0x1p-32), noise[2];
    double angle = SYN_TAU * (h->turns * t + (double)(i % h->classes) / (double)h->classes);
    synthetic_normals(h, m->split, i, 1, 2, noise);
    x[0] = (tn_real)(t * cos(angle) + h->noise * noise[0]);
    x[1] = (tn_real)(t * sin(angle) + h->noise * noise[1]);
}

static void synthetic_regress(const synthetic *h, const synthetic_memory *m, int64_t i, tn_real *x, tn_real *y)
{
    const double *w = m->numbers, *b = w + h->features * h->outputs;
    int64_t noises = (h->features + 1) / 2; /* blocks of x before those of the noise */
    for (int64_t lo = 0; lo < h->outputs; lo += SYN_BLOCK) {
        int64_t n = h->outputs - lo < SYN_BLOCK ? h->outputs - lo : SYN_BLOCK;
        double sum[SYN_BLOCK], noise[SYN_BLOCK], pair[2];
        synthetic_normals(h, m->split, i, noises + lo / 2, n, noise);
        for (int64_t k = 0; k < n; k++)
            sum[k] = b[lo + k] + h->noise * noise[k];
        for (int64_t j = 0; j < h->features; j++) {
            if (j % 2 == 0)
                synthetic_normals(h, m->split, i, j / 2, 2, pair);
            x[j] = (tn_real)pair[j % 2];
            for (int64_t k = 0; k < n; k++)
                sum[k] += w[j * h->outputs + lo + k] * pair[j % 2];
        }
        for (int64_t k = 0; k < n; k++)
            y[lo + k] = (tn_real)sum[k];
    }
}

/* Adds uniform numbers of deviation `noise` to n pixels, four a block. */
static void synthetic_grain(const synthetic *h, const synthetic_memory *m, int64_t i, int64_t n, tn_real *x)
{
    tn_real width = (tn_real)(h->noise * sqrt(12.0));
    for (int64_t j = 0; h->noise > 0 && j < n; j += 4) {
        tn_random4 block = synthetic_block(h, m->split, i, 1 + j / 4);
        for (int64_t k = j; k < n && k < j + 4; k++)
            x[k] += width * ((tn_real)tn_uniform(block.v[k - j]) - (tn_real)0.5);
    }
}

/* cos(u + v) = cos u cos v - sin u sin v: functions of the row and the column only. */
static void synthetic_image(const synthetic *h, const synthetic_memory *m, int64_t i, tn_real *x)
{
    double phase = SYN_TAU * synthetic_block(h, m->split, i, 0).v[0] * 0x1p-32,
           step = SYN_TAU * h->waves / (double)h->size;
    double angle = SYN_TAU / 2 * (double)(i % h->classes) / (double)h->classes;
    tn_real column_cos[SYN_SIDE], column_sin[SYN_SIDE];
    for (int64_t q = 0; q < h->size; q++) {
        column_cos[q] = (tn_real)cos(step * sin(angle) * (double)q);
        column_sin[q] = (tn_real)sin(step * sin(angle) * (double)q);
    }
    for (int64_t r = 0; r < h->size; r++) {
        double at = step * cos(angle) * (double)r + phase;
        tn_real row_cos = (tn_real)cos(at), row_sin = (tn_real)sin(at);
        for (int64_t q = 0; q < h->size; q++)
            x[r * h->size + q] = row_cos * column_cos[q] - row_sin * column_sin[q];
    }
    synthetic_grain(h, m, i, h->size * h->size, x);
}

/* ---- the three entries ---- */

static int64_t synthetic_features(const synthetic *h)
{
    return h->task == SYN_SPIRALS ? 2 : h->task == SYN_IMAGES ? h->size * h->size : h->features;
}

/* Doubles behind the head. */
static int64_t synthetic_numbers(const synthetic *h)
{
    return h->task == SYN_BLOBS        ? h->classes * h->features
           : h->task == SYN_REGRESSION ? (h->features + 1) * h->outputs
                                       : 0;
}

static int32_t synthetic_split(const synthetic *h, const char *split, int64_t *ret, int64_t *ret_samples, tn_error *err)
{
    static const char *const names[] = {"train", "test", "validation"};
    const int64_t samples[] = {h->train, h->test, h->validation};
    for (int i = 0; i < 3; i++)
        if (!strcmp(split, names[i]) && samples[i] > 0) {
            *ret = i;
            *ret_samples = samples[i];
            return TN_OK;
        }
    return tn_fail(err, TN_E_NOT_FOUND,
                   "data synthetic: no split \"%s\"; it has train, and test and validation where "
                   "their rows are above 0",
                   split);
}

static int32_t synthetic_describe(const void *hyper, const char *split, tn_data_split *ret, tn_error *err)
{
    const synthetic *h = hyper;
    int64_t which = 0, samples = 0;
    int32_t status = synthetic_split(h, split, &which, &samples, err);
    if (status != TN_OK)
        return status;
    int square = h->task == SYN_IMAGES && !h->flatten;
    ret->ndim = square ? 3 : 1;
    ret->shape[0] = square ? 1 : synthetic_features(h);
    ret->shape[1] = ret->shape[2] = square ? h->size : 0;
    ret->samples = samples;
    ret->classes = h->task == SYN_REGRESSION ? 0 : h->classes;
    ret->target_ndim = h->task == SYN_REGRESSION;
    ret->target_shape[0] = h->task == SYN_REGRESSION ? h->outputs : 0;
    ret->bytes = (int64_t)sizeof(synthetic_memory) + synthetic_numbers(h) * (int64_t)sizeof(double);
    return TN_OK;
}

static int32_t synthetic_load(const void *hyper, const char *split, const tn_data_split *described, const void *train,
                              void *memory, tn_error *err)
{
    const synthetic *h = hyper;
    synthetic_memory *m = memory;
    int64_t samples = 0, features = h->features;
    (void)described;
    (void)train;
    int32_t status = synthetic_split(h, split, &m->split, &samples, err);
    if (status != TN_OK)
        return status;
    for (int64_t c = 0; h->task == SYN_BLOBS && c < h->classes; c++)
        synthetic_normals(h, SYN_CENTERS, c, 0, features, m->numbers + c * features);
    for (int64_t k = 0; h->task == SYN_REGRESSION && k < h->outputs; k++) {
        for (int64_t j = 0; j < features; j++)
            m->numbers[j * h->outputs + k] = sin((double)(1 + j + features * k));
        m->numbers[features * h->outputs + k] = cos((double)(1 + k));
    }
    return TN_OK;
}

static void synthetic_gather(const void *hyper, const void *memory, const tn_context *context, const int64_t *index,
                             int64_t n, int32_t augment, void *x, void *target)
{
    const synthetic *h = hyper;
    const synthetic_memory *m = memory;
    int64_t features = synthetic_features(h);
    (void)context;
    (void)augment;
    for (int64_t i = 0; i < n; i++) {
        tn_real *sample = (tn_real *)x + i * features;
        if (h->task == SYN_REGRESSION)
            synthetic_regress(h, m, index[i], sample, (tn_real *)target + i * h->outputs);
        else
            ((int32_t *)target)[i] = (int32_t)(index[i] % h->classes);
        if (h->task == SYN_BLOBS)
            synthetic_blob(h, m, index[i], sample);
        else if (h->task == SYN_SPIRALS)
            synthetic_spiral(h, m, index[i], sample);
        else if (h->task == SYN_IMAGES)
            synthetic_image(h, m, index[i], sample);
    }
}

static const tn_data synthetic_table = {sizeof(tn_data), 0, synthetic_describe, synthetic_load, synthetic_gather};

TN_COMPONENT(synthetic, "data", TN_DATA, TN_REAL, HYPER, "Generated samples: blobs, spirals, regression, images",
             TN_FORMULA("see the task: blobs x = center + n; spirals t exp(i (turns t + c/classes)) + n; regression "
                        "y = x w + b + n; images cos(f (r cos a + q sin a) + phase) + n, a = pi c/classes"),
             synthetic_table);
TN_PLUGIN("org.tenon.synthetic", "0.1.0", "Apache-2.0", synthetic)
