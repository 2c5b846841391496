/* SPDX-License-Identifier: Apache-2.0
 *
 * The chain on operands that are no arenas: a caller's scattered arrays, and p, g and state behind codecs.
 */
#include "host/update/internal.h"
#include "tests/update.h"

/* ---- codecs ---- */

typedef struct codec {
    tn_codec table;
    tn_instance *instance;
    tn_codec_use use;
} codec;

static codec *codec_open(const char *name, uint32_t real, const char *rounding)
{
    codec *c = calloc(1, sizeof *c);
    tn_error err;
    const tn_setting setting = {"rounding", rounding};
    ck_ok(tn_instance_create(test_plugins(), "codec", name, real, "precision.codec", &setting, rounding != NULL,
                             &c->instance, &err),
          err);
    ck_ok(tn_codec_open(test_plugins(), c->instance, &c->table, &c->use, &err), err);
    return c;
}

static void codec_close(codec *c)
{
    tn_instance_free(c->instance);
    free(c);
}

/* Elements of a slot or array behind a codec, as real numbers. */
static void decode(const codec *c, uint32_t real, const void *stored, int64_t lo, int64_t n, void *to)
{
    tn_operand operand = tn_operand_stored(real, &c->use, 0, stored, NULL, lo, n, 0, NULL);
    for (int64_t at = lo; at < lo + n; at += TN_CHUNK)
        tn_operand_read(&operand, at, tn_smaller(TN_CHUNK, lo + n - at), (char *)to + (size_t)(at - lo) * (real / 8));
}

static void encode(const codec *c, uint32_t real, void *stored, int64_t n, const void *from)
{
    tn_operand operand = tn_operand_stored(real, &c->use, 0, stored, NULL, 0, n, 0, NULL);
    for (int64_t at = 0; at < n; at += TN_CHUNK)
        tn_operand_write(&operand, at, tn_smaller(TN_CHUNK, n - at), (const char *)from + (size_t)at * (real / 8));
}

/* ---- worlds ---- */

#define SIZES 6
static const int64_t sizes[SIZES] = {70001, 1, 0, 17, 5000, 4096};

static world *vectors(uint32_t real, int32_t threads)
{
    world *w = world_new(real, threads);
    for (size_t i = 0; i < SIZES; i++)
        world_vector(w, sizes[i]);
    world_arenas(w);
    world_fill(w, w->parameters.p, 1);
    return w;
}

static void add_links(world *w, const char *const *links)
{
    for (; *links; links++)
        world_link(w, *links);
}

static const char *const plain[] = {"clip-norm", "adamw", "ema", NULL};
static const char *const rounds[] = {"clip-norm", "center", "lamb", "cautious", "unit-step", "ema", NULL};

static void use_test_links(void)
{
    static const char *const files[] = {"links.so", "links-f64.so", "links-rounds.so", "links-rounds-f64.so"};
    tn_error err;
    for (size_t i = 0; i < 4; i++)
        ck_ok(tn_registry_add_file(test_plugins(), test_path("TENON_TEST_PLUGINS", files[i]), &err), err);
}

/* ---- scattered arrays ---- */

typedef struct scattered {
    void *p[SIZES], *g[SIZES];
    char memory[2][(70001 + 5000 + 4096 + 17 + 1 + 64) * sizeof(double)];
} scattered;

/* One behind the other, from an odd address on, so every kind of alignment is there. */
static void scatter(scattered *s, uint32_t real)
{
    char *p = s->memory[0] + real / 8, *g = s->memory[1] + 3 * real / 8;
    for (size_t i = 0; i < SIZES; i++) {
        s->p[i] = p;
        s->g[i] = g;
        p += (size_t)sizes[i] * (real / 8);
        g += (size_t)sizes[i] * (real / 8);
    }
}

static void copy_all(const world *w, const void *arena, void *const *to)
{
    size_t real = w->parameters.real / 8;
    for (int64_t i = 0; i < SIZES; i++)
        memcpy(to[i], (const char *)arena + (size_t)w->at[i] * real, (size_t)sizes[i] * real);
}

START_TEST(scattered_arrays_get_the_bits_of_arenas)
{
    use_test_links();
    for (uint32_t real = 32; real <= 64; real += 32)
        for (int32_t threads = 1; threads <= 3; threads += 2) {
            const char *const *links = threads == 1 ? plain : rounds;
            world *arena = vectors(real, 1), *w = vectors(real, threads);
            scattered *s = calloc(1, sizeof *s);
            add_links(arena, links);
            add_links(w, links);
            scatter(s, real);
            copy_all(w, w->parameters.p, s->p);
            w->parameters.p_of = s->p;
            w->parameters.g_of = s->g;
            tn_free(w->parameters.p);
            w->parameters.p = NULL; /* nobody looks there */
            world_chain(arena);
            world_chain(w);
            for (uint64_t step = 0; step < 3; step++) {
                world_fill(arena, arena->parameters.g, 2 + step);
                copy_all(arena, arena->parameters.g, s->g);
                world_step(arena, 0.5);
                world_step(w, 0.5);
            }
            for (int64_t i = 0; i < SIZES; i++)
                ck_assert_mem_eq(s->p[i], (char *)arena->parameters.p + (size_t)arena->at[i] * (real / 8),
                                 (size_t)sizes[i] * (real / 8));
            for (size_t i = 0; i < tn_chain_slot_count(w->chain); i++) {
                tn_chain_slot a, b;
                tn_chain_slot_at(arena->chain, i, &a);
                tn_chain_slot_at(w->chain, i, &b);
                ck_assert_mem_eq(a.data, b.data, (size_t)a.bytes);
            }
            free(s);
            world_free(arena);
            world_free(w);
        }
}
END_TEST

START_TEST(a_bad_gradient_in_scattered_arrays_changes_no_bit)
{
    world *w = vectors(32, 2);
    scattered *s = calloc(1, sizeof *s), *before = malloc(sizeof *before);
    scatter(s, 32);
    copy_all(w, w->parameters.p, s->p);
    w->parameters.p_of = s->p;
    w->parameters.g_of = s->g;
    add_links(w, plain);
    world_chain(w);
    world_step(w, 1);
    ((float *)s->g[3])[16] = NAN;
    memcpy(before, s, sizeof *s);
    uint64_t hash = world_hash(w);
    world_try_step(w, 1);
    ck_assert(!w->result.committed && w->result.bad_parameter == 3);
    ck_assert_mem_eq(before->memory, s->memory, sizeof s->memory);
    ck_assert(hash == world_hash(w));
    free(s);
    free(before);
    world_free(w);
}
END_TEST

/* ---- state behind a codec ---- */

/* Each step by hand: what the codec leaves of the state is what the next step starts from. */
START_TEST(state_is_stored_through_its_codec)
{
    static const char *const codecs[] = {"bf16", "blockwise8"};
    for (size_t c = 0; c < 2; c++) {
        use_test_links();
        codec *state = codec_open(codecs[c], 32, NULL);
        world *w = vectors(32, 2), *by_hand = vectors(32, 1);
        w->state = state->use;
        world_link(w, "heavy-ball");
        world_link(w, "sgd", "lr", "1");
        world_link(w, "unit-step"); /* so heavy-ball runs dry, too */
        world_link(by_hand, "heavy-ball");
        world_link(by_hand, "sgd", "lr", "1");
        world_link(by_hand, "unit-step");
        world_chain(w);
        world_chain(by_hand);
        for (uint64_t step = 0; step < 3; step++) {
            world_fill(w, w->parameters.g, 2 + step);
            world_fill(by_hand, by_hand->parameters.g, 2 + step);
            world_step(w, 1);
            world_step(by_hand, 1);
            for (int64_t i = 0; i < SIZES; i++) {
                void *ball = world_slot(by_hand, "heavy-ball", "ball", i).data;
                char *stored = calloc((size_t)sizes[i] + 64, 8);
                encode(state, 32, stored, sizes[i], ball);
                decode(state, 32, stored, 0, sizes[i], ball);
                tn_chain_slot slot = world_slot(w, "heavy-ball", "ball", i);
                ck_assert_int_eq(slot.bytes, tn_codec_bytes(state->use.table, 32, sizes[i]));
                ck_assert_int_eq(slot.bits, state->table.bits);
                ck_assert_mem_eq(slot.data, stored, (size_t)slot.bytes);
                ck_assert_mem_eq((float *)w->parameters.p + w->at[i], (float *)by_hand->parameters.p + w->at[i],
                                 (size_t)sizes[i] * sizeof(float));
                free(stored);
            }
        }
        ck_assert_int_lt(tn_chain_bytes(w->chain), tn_chain_bytes(by_hand->chain) * 3 / 5);
        world_free(w);
        world_free(by_hand);
        codec_close(state);
    }
}
END_TEST

START_TEST(a_slot_that_starts_as_the_parameter_is_encoded)
{
    codec *state = codec_open("bf16", 64, NULL);
    world *w = vectors(64, 1);
    double *p = malloc(70001 * sizeof *p), *z = malloc(70001 * sizeof *z);
    char *stored = malloc(70001 * 2);
    w->state = state->use;
    world_link(w, "sgd");
    world_link(w, "schedule-free");
    world_chain(w);
    memcpy(p, w->parameters.p, 70001 * sizeof *p);
    encode(state, 64, stored, 70001, p);
    ck_assert_mem_eq(world_slot(w, "schedule-free", "z", 0).data, stored, 70001 * 2);
    /* The view is read as it lies, so it is not. */
    ck_assert_int_eq(world_slot(w, "schedule-free", "x", 0).bits, 64);
    ck_assert_mem_eq(tn_chain_view(w->chain), p, 70001 * sizeof *p);
    world_free(w);
    free(p), free(z), free(stored);
    codec_close(state);
}
END_TEST

static uint64_t coded(const char *name, int32_t threads)
{
    codec *state = codec_open(name, 32, NULL);
    world *w = vectors(32, threads);
    w->state = state->use;
    add_links(w, rounds);
    world_chain(w);
    for (uint64_t step = 0; step < 3; step++) {
        world_fill(w, w->parameters.g, 2 + step);
        w->present[step] = 0;
        world_step(w, 0.5);
        w->present[step] = 1;
    }
    uint64_t hash = world_hash(w);
    world_put(w, w->parameters.g, 4, 4999, NAN);
    world_try_step(w, 1);
    ck_assert(!w->result.committed && hash == world_hash(w));
    ck_assert(isfinite(world_p(w, 0, 70000)));
    world_free(w);
    codec_close(state);
    return hash;
}

START_TEST(codecs_keep_their_promises_with_rounds_and_threads)
{
    use_test_links();
    static const char *const codecs[] = {"bf16", "blockwise8"};
    for (size_t c = 0; c < 2; c++) {
        uint64_t one = coded(codecs[c], 1);
        ck_assert(one == coded(codecs[c], 2) && one == coded(codecs[c], 3));
    }
}
END_TEST

/* Blocks restart at each chunk, so a slice's are those of the whole. */
START_TEST(slices_of_coded_state_are_stored_as_in_the_whole)
{
    codec *state = codec_open("blockwise8", 32, NULL);
    const int64_t n = 9 * TN_CHUNK + 777, cut = 4 * TN_CHUNK;
    world *whole = world_new(32, 1), *halves[2];
    for (int h = -1; h < 2; h++) {
        world *w = h < 0 ? whole : (halves[h] = world_new(32, 2));
        world_slice(w, 1, &n, h == 1 ? cut : 0, h == 0 ? cut : -1);
        w->state = state->use;
        world_arenas(w);
        world_fill(w, w->parameters.p, 1);
        world_link(w, "adamw");
        world_chain(w);
        for (uint64_t step = 0; step < 3; step++) {
            world_fill(w, w->parameters.g, 2 + step);
            world_step(w, 1);
        }
    }
    const char *all = world_slot(whole, "adamw", "v", 0).data;
    ck_assert_mem_eq(all, world_slot(halves[0], "adamw", "v", 0).data, (size_t)cut);
    ck_assert_mem_eq(all + cut, world_slot(halves[1], "adamw", "v", 0).data, (size_t)(n - cut));
    ck_assert_mem_eq((float *)whole->parameters.p + cut, halves[1]->parameters.p, (size_t)(n - cut) * sizeof(float));
    for (int h = -1; h < 2; h++)
        world_free(h < 0 ? whole : halves[h]);
    codec_close(state);
}
END_TEST

/* ---- what golden/codecs.py says of rules with state in eight bits ---- */

#define GOLDEN       700
#define GOLDEN_STEPS 25

static void golden_gradient(world *w, int64_t step)
{
    for (int64_t e = 0; e < GOLDEN; e++) {
        int64_t noise = (e * 37 + step * step * 11 + step * 59) % 199 - 79;
        world_put(w, w->parameters.g, 0, e, e % 13 == 4 ? 0 : ldexp((double)noise / 128, (int)(-2 * (e % 5))));
    }
}

static double golden_parameter(int64_t e) { return (double)((e * 53) % 101 - 50) / 32; }

/* Mean distance of p to a list of the golden file, in units of how far p is moved there. */
static double golden_distance(const world *w, const json_t *values)
{
    double off = 0, way = 0;
    ck_assert_uint_eq(json_array_size(values), GOLDEN);
    for (int64_t e = 0; e < GOLDEN; e++) {
        double needed = json_number_value(json_array_get(values, (size_t)e));
        off += fabs(world_p(w, 0, e) - needed);
        way += fabs(needed - golden_parameter(e));
    }
    return off / way;
}

/* Every v is one of the unsigned code's values, and 0 only where no gradient was: that is what the flag is for. */
static void check_unsigned(const world *w, const codec *state)
{
    double v[GOLDEN];
    tn_chain_slot slot = world_slot(w, "adam", "v", 0);
    tn_operand operand = tn_operand_stored(64, &state->use, TN_CODEC_NONNEGATIVE, slot.data, NULL, 0, GOLDEN, 0, NULL);
    tn_operand_read(&operand, 0, GOLDEN, v);
    for (int64_t e = 0; e < GOLDEN; e++)
        expect(e % 13 == 4 ? v[e] == 0 : v[e] > 0, "v[%d] is %g", (int)e, v[e]);
}

/* The chain tells the codec of each slot whether it can be negative: m by the code with signs, v by the other. */
START_TEST(adam_in_eight_bits_follows_its_golden_trajectory)
{
    json_t *root = test_golden("codecs.json", "trajectories"), *rows = json_object_get(root, "adam");
    for (uint32_t real = 32; real <= 64; real += 32) {
        codec *state = codec_open("blockwise8", real, NULL);
        world *w = world_new(real, 2);
        world_vector(w, GOLDEN);
        world_arenas(w);
        for (int64_t e = 0; e < GOLDEN; e++)
            world_put(w, w->parameters.p, 0, e, golden_parameter(e));
        w->state = state->use;
        world_link(w, "adam", "lr", "0.01");
        world_chain(w);
        for (int64_t step = 0; step < GOLDEN_STEPS; step++) {
            golden_gradient(w, step);
            world_step(w, 1);
        }
        double off = golden_distance(w, json_object_get(rows, "stored"));
        expect(off <= (real == 64 ? 1e-13 : 1e-5), "f%u: %.3g of the way off", real, off);
        if (real == 64)
            check_unsigned(w, state);
        world_free(w);
        codec_close(state);
    }
    json_decref(root);
}
END_TEST

/* ---- draws ---- */

#define DRAWN 4000

/* How many of two rows of 16-bit codes differ. */
static int64_t differing(const void *a, const void *b)
{
    int64_t n = 0;
    for (int64_t i = 0; i < DRAWN; i++)
        n += memcmp((const char *)a + 2 * i, (const char *)b + 2 * i, 2) != 0;
    return n;
}

/* Two parameters of the same numbers under gradients of 1: after a step of adam all m and v are 0.1. */
static world *equals(codec *c, uint64_t seed, int64_t attempt)
{
    world *w = world_new(32, 2);
    world_vector(w, DRAWN);
    world_vector(w, DRAWN);
    world_arenas(w);
    w->seed = seed;
    w->attempt = attempt;
    w->state = c->use;
    for (int64_t i = 0; i < 2; i++) {
        world_set_p(w, i, 1);
        world_set_g(w, i, 1);
    }
    world_link(w, "adam", "beta2", "0.9");
    world_chain(w);
    world_step(w, 1);
    return w;
}

/* 0.1 lies between two codes of either format, no nearer than a fifth of the way to one: of two draws of their own at
 * least 2 1/5 4/5 = 32% differ, of one and the same none. */
START_TEST(slots_are_rounded_by_draws_of_their_own)
{
    static const char *const names[] = {"bf16", "fp16"};
    for (int k = 0; k < 2; k++) {
        codec *c = codec_open(names[k], 32, "stochastic");
        world *w = equals(c, 1, 0), *again = equals(c, 1, 0), *later = equals(c, 1, 1), *seed = equals(c, 2, 0);
        const void *m = world_slot(w, "adam", "m", 0).data;
        ck_assert_int_eq(differing(m, world_slot(again, "adam", "m", 0).data), 0);
        ck_assert_int_gt(differing(m, world_slot(w, "adam", "m", 1).data), DRAWN / 4);
        ck_assert_int_gt(differing(m, world_slot(w, "adam", "v", 0).data), DRAWN / 4);
        ck_assert_int_gt(differing(m, world_slot(later, "adam", "m", 0).data), DRAWN / 4);
        ck_assert_int_gt(differing(m, world_slot(seed, "adam", "m", 0).data), DRAWN / 4);
        world_free(w), world_free(again), world_free(later), world_free(seed);
        codec_close(c);
    }
}
END_TEST

/* The same slot of two links of one component: the second one's gradient is the first one's. */
START_TEST(links_are_rounded_by_draws_of_their_own)
{
    use_test_links();
    codec *c = codec_open("bf16", 32, "stochastic");
    world *w = world_new(32, 1);
    world_vector(w, DRAWN);
    world_arenas(w);
    world_set_p(w, 0, 1);
    world_set_g(w, 0, 0.1);
    w->state = c->use;
    world_link(w, "heavy-ball");
    world_link(w, "heavy-ball");
    world_link(w, "sgd");
    tn_free(w->links[1]->handle);
    w->links[1]->handle = tn_strdup("second");
    world_chain(w);
    world_step(w, 1);
    ck_assert_int_gt(differing(world_slot(w, "heavy-ball", "ball", 0).data, world_slot(w, "second", "ball", 0).data),
                     DRAWN / 4);
    world_free(w);
    codec_close(c);
}
END_TEST

/* Of p stored narrowly: two parameters, and two attempts. */
START_TEST(parameters_are_rounded_by_draws_of_their_own)
{
    static const char *const names[] = {"bf16", "fp16"};
    for (int k = 0; k < 2; k++) {
        static uint16_t stored[2][2][DRAWN];
        for (int64_t attempt = 0; attempt < 2; attempt++) {
            codec *c = codec_open(names[k], 32, "stochastic");
            world *w = world_new(32, 2);
            void *of[] = {stored[attempt][0], stored[attempt][1]};
            memset(stored[attempt], 0, sizeof stored[attempt]);
            w->p = c->use;
            w->parameters.p_of = of;
            w->attempt = attempt;
            world_vector(w, DRAWN);
            world_vector(w, DRAWN);
            world_arenas(w);
            world_set_g(w, 0, -0.1);
            world_set_g(w, 1, -0.1);
            world_link(w, "sgd", "lr", "1"); /* from 0 to 0.1 */
            world_chain(w);
            world_step(w, 1);
            ck_assert_int_gt(differing(stored[attempt][0], stored[attempt][1]), DRAWN / 4);
            world_free(w);
            codec_close(c);
        }
        ck_assert_int_gt(differing(stored[0][0], stored[1][0]), DRAWN / 4);
    }
}
END_TEST

/* ---- p and g behind codecs ---- */

/* bf16 without a master: p is decoded, stepped, encoded; averages see it as stored. */
START_TEST(parameters_without_a_master_are_stored_narrow)
{
    codec *narrow = codec_open("bf16", 32, NULL);
    world *w = vectors(32, 2), *by_hand = vectors(32, 1);
    char *stored[SIZES], *expected = malloc(70001 * 2);
    for (int64_t i = 0; i < SIZES; i++) {
        stored[i] = malloc((size_t)sizes[i] * 2 + 1);
        encode(narrow, 32, stored[i], sizes[i], (float *)w->parameters.p + w->at[i]);
        decode(narrow, 32, stored[i], 0, sizes[i], (float *)by_hand->parameters.p + w->at[i]);
    }
    w->p = narrow->use;
    w->parameters.p_of = (void *const *)stored;
    world_link(w, "sgd", "lr", "0.1");
    world_link(w, "ema", "decay", "0");
    world_link(by_hand, "sgd", "lr", "0.1");
    world_chain(w);
    world_chain(by_hand);
    for (uint64_t step = 0; step < 3; step++) {
        world_fill(w, w->parameters.g, 2 + step);
        world_fill(by_hand, by_hand->parameters.g, 2 + step);
        world_step(w, 1);
        world_step(by_hand, 1);
        for (int64_t i = 0; i < SIZES; i++) {
            float *p = (float *)by_hand->parameters.p + w->at[i];
            encode(narrow, 32, expected, sizes[i], p);
            ck_assert_mem_eq(stored[i], expected, (size_t)sizes[i] * 2);
            decode(narrow, 32, expected, 0, sizes[i], p);
            ck_assert_mem_eq((const float *)tn_chain_view(w->chain) + w->at[i], p, (size_t)sizes[i] * sizeof *p);
        }
    }
    for (int64_t i = 0; i < SIZES; i++)
        free(stored[i]);
    free(expected);
    world_free(w);
    world_free(by_hand);
    codec_close(narrow);
}
END_TEST

/* Rounding by chance goes on where nearest stands still, and is the same for any threads. */
START_TEST(stochastic_rounding_moves_p_on_average)
{
    double means[2];
    uint16_t first[2][3000];
    for (int32_t threads = 1; threads <= 2; threads++) {
        codec *narrow = codec_open("bf16", 32, "stochastic");
        world *w = world_new(32, threads);
        static uint16_t stored[70000];
        static float p[70000];
        void *of[] = {stored};
        world_vector(w, 70000);
        world_arenas(w);
        world_set_g(w, 0, 1);
        w->p = narrow->use;
        w->parameters.p_of = of;
        for (int i = 0; i < 70000; i++)
            stored[i] = 0x3F80;               /* 1 */
        world_link(w, "sgd", "lr", "0.0001"); /* a fortieth of the place below 1 */
        world_chain(w);
        for (int step = 0; step < 10; step++)
            world_step(w, 1);
        decode(narrow, 32, stored, 0, 70000, p);
        means[threads - 1] = 0;
        for (int i = 0; i < 70000; i++)
            means[threads - 1] += p[i] / 70000;
        memcpy(first[threads - 1], stored, sizeof first[0]);
        world_free(w);
        codec_close(narrow);
    }
    ck_assert_double_eq_tol(means[0], 1 - 0.001, 1e-4);
    ck_assert(means[0] == means[1]);
    ck_assert_mem_eq(first[0], first[1], sizeof first[0]);
}
END_TEST

START_TEST(narrow_gradients_are_read_and_checked)
{
    codec *narrow = codec_open("fp16", 32, NULL);
    world *w = vectors(32, 2), *wide = vectors(32, 1);
    char *stored[SIZES];
    w->g = narrow->use;
    w->parameters.g_of = (void *const *)stored;
    add_links(w, plain);
    add_links(wide, plain);
    world_chain(w);
    world_chain(wide);
    world_fill(wide, wide->parameters.g, 2);
    for (int64_t i = 0; i < SIZES; i++) {
        stored[i] = malloc((size_t)sizes[i] * 2 + 1);
        encode(narrow, 32, stored[i], sizes[i], (float *)wide->parameters.g + w->at[i]);
        decode(narrow, 32, stored[i], 0, sizes[i], (float *)wide->parameters.g + w->at[i]);
    }
    world_step(w, 0.25);
    world_step(wide, 0.25);
    for (int64_t i = 0; i < SIZES; i++)
        ck_assert_mem_eq((float *)w->parameters.p + w->at[i], (float *)wide->parameters.p + w->at[i],
                         (size_t)sizes[i] * sizeof(float));
    ((uint16_t *)stored[4])[4999] = 0x7C00; /* inf */
    uint64_t before = world_hash(w);
    world_try_step(w, 1);
    ck_assert(!w->result.committed && w->result.bad_parameter == 4 && world_hash(w) == before);
    for (int64_t i = 0; i < SIZES; i++)
        free(stored[i]);
    world_free(w);
    world_free(wide);
    codec_close(narrow);
}
END_TEST

START_TEST(block_scales_have_no_room_in_an_arena)
{
    codec *blocks = codec_open("blockwise8", 32, NULL);
    world *w = vectors(32, 1);
    w->p = blocks->use;
    world_link(w, "sgd");
    ck_assert_refused(world_try_chain(w), TN_E_UNSUPPORTED, w->err, "update: p lies in an arena", "precision.codec");
    world_free(w);
    codec_close(blocks);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chain operands");
    TCase *tests = tcase_create("chain operands");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, scattered_arrays_get_the_bits_of_arenas);
    tcase_add_test(tests, a_bad_gradient_in_scattered_arrays_changes_no_bit);
    tcase_add_test(tests, state_is_stored_through_its_codec);
    tcase_add_test(tests, a_slot_that_starts_as_the_parameter_is_encoded);
    tcase_add_test(tests, codecs_keep_their_promises_with_rounds_and_threads);
    tcase_add_test(tests, slices_of_coded_state_are_stored_as_in_the_whole);
    tcase_add_test(tests, parameters_without_a_master_are_stored_narrow);
    tcase_add_test(tests, stochastic_rounding_moves_p_on_average);
    tcase_add_test(tests, narrow_gradients_are_read_and_checked);
    tcase_add_test(tests, adam_in_eight_bits_follows_its_golden_trajectory);
    tcase_add_test(tests, slots_are_rounded_by_draws_of_their_own);
    tcase_add_test(tests, links_are_rounded_by_draws_of_their_own);
    tcase_add_test(tests, parameters_are_rounded_by_draws_of_their_own);
    tcase_add_test(tests, block_scales_have_no_room_in_an_arena);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
