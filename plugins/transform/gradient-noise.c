/* SPDX-License-Identifier: Apache-2.0
 *
 * Gaussian noise on the gradient, which fades. Neelakantan et al., arXiv:1511.06807, equation 1: the variance at update
 * t is eta / (1 + t)^gamma, t from 0. Box and Muller's normals from Philox, by attempt and element, so that neither
 * threads nor slices change them.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, eta, 0.01, "[0, inf)", "variance of the first noise")                                                      \
    X(real, gamma, 0.55, "[0, inf)", "how fast it fades")
TN_DECLARE(gradient_noise, HYPER)

typedef struct {
    tn_real sigma;
} gradient_noise_constants;

static void gradient_noise_begin(const void *hyper, const tn_clock *clock, void *k)
{
    const gradient_noise *h = (const gradient_noise *)hyper;
    ((gradient_noise_constants *)k)->sigma = (tn_real)sqrt(h->eta / pow((double)clock->t, h->gamma));
}

/* One of the two normals that 64 bits make; the uniform under the logarithm is above 0. */
static tn_real gradient_noise_normal(tn_random4 bits)
{
    double radius = sqrt(-2 * log(((double)bits.v[0] + 0.5) * 0x1p-32));
    return (tn_real)(radius * cos(2 * M_PI * ((double)bits.v[1] * 0x1p-32)));
}

/* The link's key, and the parameter's name: elements of the same place in two parameters draw apart. FNV-1a. */
static uint64_t gradient_noise_key(const tn_piece *piece)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (const char *at = piece->parameter->name; *at; at++)
        hash = (hash ^ (uint8_t)*at) * 0x100000001B3u;
    return piece->context->key ^ hash;
}

static void gradient_noise_update(const tn_piece *piece)
{
    const tn_real *g = (const tn_real *)piece->g, scale = (tn_real)piece->scale;
    tn_real *d = (tn_real *)piece->d, sigma = ((const gradient_noise_constants *)piece->k)->sigma;
    uint64_t attempt = (uint64_t)piece->context->attempt, key = gradient_noise_key(piece);
    for (int64_t i = 0; i < piece->n; i++)
        d[i] = scale * g[i] + sigma * gradient_noise_normal(tn_philox(key, (uint64_t)(piece->lo + i), attempt));
}

static const tn_optimizer gradient_noise_table = {.struct_size = sizeof(tn_optimizer),
                                                  .constants_bytes = (uint32_t)sizeof(gradient_noise_constants),
                                                  .begin = gradient_noise_begin,
                                                  .update = gradient_noise_update};
TN_LINK(gradient_noise, "transform", HYPER, TN_NO_SLOTS, "Gaussian noise on the gradient, which fades",
        TN_STAGE("gradient") TN_GRAIN("element") TN_PAPER("arXiv:1511.06807")
            TN_FORMULA("g = g + N(0, eta / t^gamma), t from 1"),
        gradient_noise_table)
TN_PLUGIN("org.tenon.gradient-noise", "0.1.0", "Apache-2.0", gradient_noise)
