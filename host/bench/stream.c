/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.c: reads and writes of memory, and nothing else: what is read is added up by `or`, and what is written back is
 * what was there. The loop takes a cache line of each array in turn, which is the fastest order for plain loads and
 * stores; the number of arrays is a constant in each of its versions.
 */
#include <string.h>

#include "host/bench/internal.h"

#define PIECE 262144 /* bytes of each array that a thread takes at a time: as long as a chain's stretches in f32 */

/* 64 bytes; where there are no such vectors the compiler takes several. */
typedef uint64_t line __attribute__((vector_size(64), aligned(64), may_alias));

#define INLINE static inline __attribute__((always_inline))

/* `from` and `to` in lines. */
INLINE void pass(const tn_stream *s, int both, int reads, int writes, int64_t from, int64_t to)
{
    line zero = {0}, *a[TN_STREAM_ARRAYS];
    zero += s->zero;
    for (int j = 0; j < both + reads + writes; j++)
        a[j] = (line *)s->array[j];
    line seen = zero;
    for (int64_t i = from; i < to; i++) {
        line sum = zero;
        for (int j = both; j < both + reads; j++)
            sum |= a[j][i];
        seen |= sum;
        sum &= zero;
        for (int j = 0; j < both; j++)
            a[j][i] ^= sum;
        for (int j = both + reads; j < both + reads + writes; j++)
            a[j][i] = sum;
    }
    __asm__ volatile("" : : "m"(seen));
}

#define CASE(both, reads, writes)                                                                                      \
    case ((both) << 8 | (reads) << 4 | (writes)):                                                                      \
        pass(s, both, reads, writes, from, to);                                                                        \
        break;
#define READS(both) CASE(both, 0, 0) CASE(both, 1, 0) CASE(both, 2, 0) CASE(both, 3, 0)
INLINE void choose(const tn_stream *s, int64_t from, int64_t to)
{
    switch (s->both << 8 | s->reads << 4 | s->writes) {
        READS(0)
        READS(1)
        READS(2)
        READS(3)
        READS(4)
        READS(5)
        CASE(0, 4, 0)
        CASE(0, 5, 0)
        CASE(0, 6, 0)
        CASE(0, 0, 1)
        CASE(0, 1, 1)
        CASE(0, 2, 1)
        CASE(0, 3, 1)
        CASE(0, 4, 1)
        CASE(0, 1, 2)
        CASE(0, 1, 3)
    default:
        pass(s, s->both, s->reads, s->writes, from, to);
    }
}

static void plain(const tn_stream *s, int64_t from, int64_t to) { choose(s, from, to); }
#ifdef __x86_64__
__attribute__((target("avx2"))) static void avx2(const tn_stream *s, int64_t from, int64_t to) { choose(s, from, to); }
__attribute__((target("avx512f"))) static void avx512(const tn_stream *s, int64_t from, int64_t to)
{
    choose(s, from, to);
}
#endif

static void one_piece(void *arg, int64_t index, int32_t thread)
{
    const tn_stream *s = arg;
    int64_t from = index * PIECE, to = from + PIECE < s->bytes ? from + PIECE : s->bytes;
    (void)thread;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f")) {
        avx512(s, from / 64, to / 64);
        return;
    }
    if (__builtin_cpu_supports("avx2")) {
        avx2(s, from / 64, to / 64);
        return;
    }
#endif
    plain(s, from / 64, to / 64);
}

void tn_stream_run(void *arg)
{
    tn_stream *s = arg;
    tn_pool_run(s->pool, one_piece, s, ceil_div(s->bytes, PIECE));
}

double tn_stream_work(const tn_stream *stream)
{
    return (double)stream->bytes * (2 * stream->both + stream->reads + stream->writes);
}
