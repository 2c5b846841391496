/* SPDX-License-Identifier: Apache-2.0
 *
 * philox.c: random fills on Philox4x32-10 (Salmon et al., SC 2011).
 */
#include "host/base/philox.h"

#include <math.h>
#include <string.h>

#include <tenon/sdk.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static void hash_number(XXH3_state_t *state, uint64_t number) { XXH3_64bits_update(state, &number, sizeof number); }

static void hash_text(XXH3_state_t *state, const char *text)
{
    hash_number(state, strlen(text));
    XXH3_64bits_update(state, text, strlen(text));
}

uint64_t tn_hash_key(uint64_t seed, const char *path, const char *purpose)
{
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    hash_number(&state, seed);
    hash_text(&state, path);
    hash_text(&state, purpose);
    return XXH3_64bits_digest(&state);
}

/* In [0, 1), all 53 bits used. */
static double uniform53(uint32_t high, uint32_t low) { return (double)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53; }

static void uniform_f32(uint64_t key, uint64_t attempt, int64_t first, int64_t n, double lo, double hi, float *ret)
{
    float below_hi = nextafterf((float)hi, -INFINITY);
    for (int64_t i = first; i < first + n;) {
        tn_random4 block = tn_philox(key, attempt, (uint64_t)i / 4);
        do {
            float x = (float)(lo + (hi - lo) * (double)tn_uniform(block.v[i % 4]));
            *ret++ = x < (float)hi ? x : below_hi;
        } while (++i < first + n && i % 4);
    }
}

static void uniform_f64(uint64_t key, uint64_t attempt, int64_t first, int64_t n, double lo, double hi, double *ret)
{
    double below_hi = nextafter(hi, -INFINITY);
    for (int64_t i = first; i < first + n; i++) {
        tn_random4 block = tn_philox(key, attempt, (uint64_t)i / 2);
        double x = lo + (hi - lo) * uniform53(block.v[i % 2 * 2], block.v[i % 2 * 2 + 1]);
        *ret++ = x < hi ? x : below_hi;
    }
}

void tn_random_uniform(uint64_t key, uint64_t attempt, int64_t first, int64_t n, double lo, double hi, uint32_t real,
                       void *ret)
{
    if (real == 64)
        uniform_f64(key, attempt, first, n, lo, hi, ret);
    else
        uniform_f32(key, attempt, first, n, lo, hi, ret);
}

/* Two independent standard normal numbers of block b. */
static void normal_pair(uint64_t key, uint64_t attempt, uint64_t b, double ret[2])
{
    tn_random4 block = tn_philox(key, attempt, b);
    double u = 1 - uniform53(block.v[0], block.v[1]); /* in (0, 1] */
    double angle = 6.283185307179586476925 * uniform53(block.v[2], block.v[3]), radius = sqrt(-2 * log(u));
    ret[0] = radius * cos(angle);
    ret[1] = radius * sin(angle);
}

void tn_random_normal(uint64_t key, uint64_t attempt, int64_t first, int64_t n, double mean, double std, uint32_t real,
                      void *ret)
{
    double pair[2];
    for (int64_t i = 0; i < n; i++) {
        int64_t element = first + i;
        if (!i || element % 2 == 0)
            normal_pair(key, attempt, (uint64_t)element / 2, pair);
        double x = mean + std * pair[element % 2];
        if (real == 64)
            ((double *)ret)[i] = x;
        else
            ((float *)ret)[i] = (float)x;
    }
}

/* Words of the blocks (epoch, 0), (epoch, 1), ... in turn. */
typedef struct words {
    uint64_t key, epoch, next;
    tn_random4 block;
} words;

static uint32_t next_word(words *source)
{
    if (source->next % 4 == 0)
        source->block = tn_philox(source->key, source->epoch, source->next / 4);
    return source->block.v[source->next++ % 4];
}

/* Uniform in [0, bound): the high half of a product, words that would favour some results thrown away (Lemire,
 * ACM TOMACS 29, 2019). */
static uint32_t bounded(words *source, uint32_t bound)
{
    uint64_t product = (uint64_t)next_word(source) * bound;
    if ((uint32_t)product < bound)
        for (uint32_t least = -bound % bound; (uint32_t)product < least;)
            product = (uint64_t)next_word(source) * bound;
    return (uint32_t)(product >> 32);
}

void tn_random_permutation(uint64_t key, uint64_t epoch, int64_t n, uint32_t *ret)
{
    words source = {.key = key, .epoch = epoch};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = bounded(&source, i + 1);
        ret[i] = ret[j];
        ret[j] = i;
    }
}
