/* SPDX-License-Identifier: Apache-2.0
 *
 * philox.h: random fills on the Philox of <tenon/sdk.h>. All are pure functions of their arguments and re-entrant.
 *
 * Element i of a logical tensor depends on (key, attempt, i) only, so any split into calls gives the same numbers.
 * The block of counter (attempt, b) is tn_philox(key, attempt, b): four words of 32 bits.
 */
#ifndef TENON_HOST_BASE_PHILOX_H
#define TENON_HOST_BASE_PHILOX_H

#include <tenon/base.h>

/* The key of one use: a hash of the run's seed, an instance's path ("body.3.attention") and a purpose ("initial").
 * Frozen: resumed runs depend on it. */
uint64_t tn_hash_key(uint64_t seed, const char *path, const char *purpose);

/* Fills ret[0..n-1] with elements first..first+n-1, uniform in [lo, hi). `real` is 32 (ret: float; element i from word
 * i%4 of block i/4, 24 bits) or 64 (ret: double; from words 2(i%2) and 2(i%2)+1 of block i/2, 53 bits). lo < hi as
 * numbers of that type; hi - lo is finite. */
void tn_random_uniform(uint64_t key, uint64_t attempt, int64_t first, int64_t n, double lo, double hi, uint32_t real,
                       void *ret);

/* As above, normal with that mean and standard deviation, by Box and Muller in double: elements 2b and 2b+1 are the
 * cosine and the sine of block b. Float is the same number rounded. |x - mean| <= 8.6 std. */
void tn_random_normal(uint64_t key, uint64_t attempt, int64_t first, int64_t n, double mean, double std, uint32_t real,
                      void *ret);

/* ret[0..n-1] becomes a permutation of 0..n-1, each equally likely; 0 <= n < 2^32. */
void tn_random_permutation(uint64_t key, uint64_t epoch, int64_t n, uint32_t *ret);

#endif
