/* SPDX-License-Identifier: Apache-2.0
 *
 * host/base/philox: against published vectors and Random123; fills that no split changes; distributions.
 */
#include <math.h>
#include <string.h>

#include <Random123/philox.h>
#include <tenon/sdk.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "host/base/philox.h"
#include "tests/support.h"

#define KEY 0x9E3779B97F4A7C15u

/* The vectors that Random123 publishes for philox4x32-10 (kat_vectors). */
START_TEST(philox_known_answers)
{
    static const struct {
        uint32_t counter[4], key[2], result[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint32_t *c = cases[i].counter, *k = cases[i].key;
        tn_random4 r = tn_philox(k[0] | (uint64_t)k[1] << 32, c[0] | (uint64_t)c[1] << 32, c[2] | (uint64_t)c[3] << 32);
        ck_assert_mem_eq(r.v, cases[i].result, sizeof r.v);
    }
}
END_TEST

START_TEST(philox_equals_random123)
{
    uint64_t key = 1, low = 2, high = 3;
    for (int i = 0; i < 20000; i++) {
        tn_random4 r = tn_philox(key, low, high);
        philox4x32_ctr_t counter = {{(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32)}};
        philox4x32_key_t k = {{(uint32_t)key, (uint32_t)(key >> 32)}};
        philox4x32_ctr_t expected = philox4x32(counter, k);
        ck_assert_mem_eq(r.v, expected.v, sizeof r.v);
        key = key * 6364136223846793005u + r.v[0];
        low ^= (uint64_t)r.v[1] << 32 | r.v[2];
        high += (uint64_t)r.v[3] << (i % 33);
    }
}
END_TEST

/* The frozen definition, put together another way. */
static uint64_t expected_key(uint64_t seed, const char *path, const char *purpose)
{
    unsigned char bytes[256];
    uint64_t lengths[2] = {strlen(path), strlen(purpose)};
    size_t n = 0;
    memcpy(bytes + n, &seed, 8), n += 8;
    memcpy(bytes + n, &lengths[0], 8), n += 8;
    memcpy(bytes + n, path, lengths[0]), n += lengths[0];
    memcpy(bytes + n, &lengths[1], 8), n += 8;
    memcpy(bytes + n, purpose, lengths[1]), n += lengths[1];
    return XXH3_64bits(bytes, n);
}

START_TEST(keys_are_frozen_and_differ)
{
    static const struct {
        uint64_t seed;
        const char *path, *purpose;
    } uses[] = {
        {0, "", ""},
        {1, "", ""},
        {0, "a", ""},
        {0, "", "a"},
        {0, "ab", "c"},
        {0, "a", "bc"},
        {0, "abc", ""},
        {0, "", "abc"},
        {1, "ab", "c"},
        {256, "ab", "c"},
        {0, "body.0", "x"},
        {0, "body.1", "x"},
        {0, "body.0", "y"},
        {UINT64_MAX, "body.0", "x"},
        {7, "a.path.of.an.instance.that.is.long.enough.for.another.branch.of.the.hash.function.body.11.attention",
         "initial"},
    };
    int n = sizeof uses / sizeof *uses;
    for (int i = 0; i < n; i++) {
        uint64_t key = tn_hash_key(uses[i].seed, uses[i].path, uses[i].purpose);
        ck_assert_uint_eq(key, expected_key(uses[i].seed, uses[i].path, uses[i].purpose));
        for (int j = 0; j < i; j++)
            ck_assert_uint_ne(key, tn_hash_key(uses[j].seed, uses[j].path, uses[j].purpose));
    }
}
END_TEST

START_TEST(uniform_elements_come_from_their_words)
{
    float x[64];
    double y[64];
    tn_random_uniform(KEY, 5, 3, 64, 0, 1, 32, x);
    tn_random_uniform(KEY, 5, 3, 64, 0, 1, 64, y);
    for (uint64_t i = 0; i < 64; i++) {
        tn_random4 four = tn_philox(KEY, 5, (i + 3) / 4), two = tn_philox(KEY, 5, (i + 3) / 2);
        uint64_t bits = (uint64_t)two.v[(i + 3) % 2 * 2] << 32 | two.v[(i + 3) % 2 * 2 + 1];
        ck_assert_float_eq(x[i], (float)(four.v[(i + 3) % 4] >> 8) / 16777216.0f);
        ck_assert_double_eq(y[i], (double)(bits >> 11) / 9007199254740992.0);
    }
}
END_TEST

typedef void fill(uint64_t key, uint64_t attempt, int64_t first, int64_t n, double a, double b, uint32_t real,
                  void *ret);

static void assert_split_changes_nothing(fill *f, uint32_t real)
{
    enum { N = 101 };
    char whole[8 * N], parts[8 * N];
    size_t size = real / 8;
    int64_t base = ((int64_t)1 << 40) + 1;
    f(KEY, 9, base, N, -1, 2, real, whole);
    for (int64_t piece = 1; piece < 12; piece++) {
        memset(parts, 0xFF, sizeof parts);
        for (int64_t at = 0; at < N; at += piece)
            f(KEY, 9, base + at, at + piece > N ? N - at : piece, -1, 2, real, parts + (size_t)at * size);
        ck_assert_mem_eq(whole, parts, N * size);
    }
    f(KEY, 9, base, 0, -1, 2, real, NULL);
}

START_TEST(no_split_changes_a_fill)
{
    assert_split_changes_nothing(tn_random_uniform, 32);
    assert_split_changes_nothing(tn_random_uniform, 64);
    assert_split_changes_nothing(tn_random_normal, 32);
    assert_split_changes_nothing(tn_random_normal, 64);
}
END_TEST

START_TEST(float_normals_are_the_doubles_rounded)
{
    float x[50];
    double y[50];
    tn_random_normal(KEY, 2, 7, 50, 0.5, 3, 32, x);
    tn_random_normal(KEY, 2, 7, 50, 0.5, 3, 64, y);
    for (int i = 0; i < 50; i++)
        ck_assert_float_eq(x[i], (float)y[i]);
}
END_TEST

#define MANY 400000
static double sample[MANY];

/* Mean, variance and correlation of neighbours within 5 standard errors. */
static void assert_moments(double mean, double variance, double fourth)
{
    double m = 0, v = 0, c = 0;
    for (int i = 0; i < MANY; i++)
        m += sample[i] / MANY;
    for (int i = 0; i < MANY; i++) {
        v += (sample[i] - mean) * (sample[i] - mean) / MANY;
        c += (sample[i] - mean) * (sample[(i + 1) % MANY] - mean) / MANY;
    }
    ck_assert_double_le(fabs(m - mean), 5 * sqrt(variance / MANY));
    ck_assert_double_le(fabs(v - variance), 5 * sqrt((fourth - variance * variance) / MANY));
    ck_assert_double_le(fabs(c), 5 * variance / sqrt(MANY));
}

/* Chi-squared with 99 degrees of freedom over parts of equal probability: below 171 in all but 1 of 10^5 cases; not
 * suspiciously small either. */
static void assert_even(double (*probability)(double))
{
    double chi = 0;
    int count[100] = {0}, outside = 0;
    for (int i = 0; i < MANY; i++) {
        double p = probability(sample[i]);
        if (p >= 0 && p < 1)
            count[(int)(100 * p)]++;
        else
            outside++;
    }
    ck_assert_int_eq(outside, 0);
    for (int i = 0; i < 100; i++)
        chi += pow(count[i] - MANY / 100, 2) / (MANY / 100);
    ck_assert_double_lt(chi, 171);
    ck_assert_double_gt(chi, 49);
}

static double uniform_probability(double x) { return (x + 3) / 5; }

static double normal_probability(double x) { return erfc(-(x - 1) / 2 / sqrt(2)) / 2; }

START_TEST(uniform_distribution)
{
    tn_random_uniform(KEY, 0, 0, MANY, -3, 2, 64, sample);
    assert_moments(-0.5, 25.0 / 12, 625.0 / 80);
    assert_even(uniform_probability);
    static float x[MANY];
    tn_random_uniform(KEY, 1, 0, MANY, -3, 2, 32, x);
    for (int i = 0; i < MANY; i++)
        sample[i] = (double)x[i];
    assert_moments(-0.5, 25.0 / 12, 625.0 / 80);
    assert_even(uniform_probability);
}
END_TEST

START_TEST(normal_distribution)
{
    tn_random_normal(KEY, 0, 0, MANY, 1, 2, 64, sample);
    assert_moments(1, 4, 48);
    assert_even(normal_probability);
    int beyond = 0; /* 3 standard deviations: 0.27 % */
    for (int i = 0; i < MANY; i++)
        beyond += fabs(sample[i] - 1) > 6;
    ck_assert_int_gt(beyond, 900);
    ck_assert_int_lt(beyond, 1260);
}
END_TEST

START_TEST(uniform_stays_below_its_end)
{
    static const double bounds[][2] = {{0, 1}, {1, 1.0000002}, {-1e-30, 1e-30}, {16777215, 16777216}, {-1e30, 3}};
    static float x[20000];
    static double y[20000];
    for (size_t b = 0; b < sizeof bounds / sizeof *bounds; b++) {
        float lo = (float)bounds[b][0], hi = (float)bounds[b][1];
        tn_random_uniform(KEY, b, 0, 20000, bounds[b][0], bounds[b][1], 32, x);
        tn_random_uniform(KEY, b, 0, 20000, bounds[b][0], nextafter(bounds[b][0], HUGE_VAL), 64, y);
        int wrong = 0;
        for (int i = 0; i < 20000; i++)
            wrong += !(x[i] >= lo && x[i] < hi) + (y[i] < bounds[b][0] || y[i] > bounds[b][0]);
        ck_assert_int_eq(wrong, 0);
    }
}
END_TEST

START_TEST(attempts_and_keys_give_other_numbers)
{
    float a[8], b[8], c[8];
    tn_random_uniform(KEY, 0, 0, 8, 0, 1, 32, a);
    tn_random_uniform(KEY, 1, 0, 8, 0, 1, 32, b);
    tn_random_uniform(KEY + 1, 0, 0, 8, 0, 1, 32, c);
    ck_assert(memcmp(a, b, sizeof a) != 0);
    ck_assert(memcmp(a, c, sizeof a) != 0);
}
END_TEST

START_TEST(permutations_hold_each_number_once)
{
    static uint32_t p[5000];
    static char seen[5000];
    for (int64_t n = 0; n <= 5000; n = 2 * n + 1) {
        memset(seen, 0, sizeof seen);
        memset(p, 0xFF, sizeof p);
        tn_random_permutation(KEY, 3, n, p);
        for (int64_t i = 0; i < n; i++) {
            ck_assert_int_lt(p[i], n);
            ck_assert_int_eq(seen[p[i]]++, 0);
        }
        ck_assert_uint_eq(p[n], UINT32_MAX);
    }
}
END_TEST

START_TEST(permutations_are_equally_likely)
{
    int count[256] = {0}, different = 0;
    double chi = 0;
    for (uint64_t epoch = 0; epoch < 48000; epoch++) {
        uint32_t p[4];
        tn_random_permutation(KEY, epoch, 4, p);
        count[p[0] | p[1] << 2 | p[2] << 4 | p[3] << 6]++;
    }
    for (int i = 0; i < 256; i++)
        if (count[i]) {
            different++;
            chi += pow(count[i] - 2000, 2) / 2000;
        }
    ck_assert_int_eq(different, 24);
    ck_assert_double_lt(chi, 62); /* 23 degrees of freedom: above in 2 of 10^5 cases */
    ck_assert_double_gt(chi, 5);
}
END_TEST

/* The first draws are bounded by 1, 2, 3, ...: with words from Philox by hand, by the definition with a remainder. */
START_TEST(permutation_is_frozen)
{
    enum { N = 300 };
    uint32_t p[N], q[N];
    uint64_t word = 0;
    for (uint32_t i = 0; i < N; i++) {
        uint64_t product, unfair = ((uint64_t)1 << 32) % (i + 1);
        do {
            tn_random4 block = tn_philox(KEY, 11, word / 4);
            product = (uint64_t)block.v[word % 4] * (i + 1);
            word++;
        } while ((product & 0xFFFFFFFF) < unfair);
        q[i] = q[product >> 32 < i ? product >> 32 : 0];
        if (product >> 32 == i)
            q[i] = i;
        else
            q[product >> 32] = i;
    }
    tn_random_permutation(KEY, 11, N, p);
    ck_assert_mem_eq(p, q, sizeof p);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("philox");
    TCase *tests = tcase_create("philox");
    tcase_set_timeout(tests, 30);
    tcase_add_test(tests, philox_known_answers);
    tcase_add_test(tests, philox_equals_random123);
    tcase_add_test(tests, keys_are_frozen_and_differ);
    tcase_add_test(tests, uniform_elements_come_from_their_words);
    tcase_add_test(tests, no_split_changes_a_fill);
    tcase_add_test(tests, float_normals_are_the_doubles_rounded);
    tcase_add_test(tests, uniform_distribution);
    tcase_add_test(tests, normal_distribution);
    tcase_add_test(tests, uniform_stays_below_its_end);
    tcase_add_test(tests, attempts_and_keys_give_other_numbers);
    tcase_add_test(tests, permutations_hold_each_number_once);
    tcase_add_test(tests, permutations_are_equally_likely);
    tcase_add_test(tests, permutation_is_frozen);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
