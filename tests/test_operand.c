/* SPDX-License-Identifier: Apache-2.0
 *
 * host/update/operand: where elements lie, what is copied, which bits are stored; and rules whose state is in eight
 * bits, against golden/codecs.json.
 */
#include <math.h>

#include "host/base/memory.h"
#include "host/update/operand.h"
#include "tests/component.h"
#include "tests/malloc_count.h"
#include "tests/update.h"

typedef struct stored {
    tn_instance *c;
    tn_codec table;
    tn_codec_use use;
} stored;

static void stored_open(stored *s, const char *name, uint32_t real)
{
    tn_error err = {0};
    ck_ok(tn_instance_create(test_plugins(), "codec", name, real, "precision.state", NULL, 0, &s->c, &err), err);
    ck_ok(tn_codec_open(test_plugins(), s->c, &s->table, &s->use, &err), err);
}

static double at(uint32_t real, const void *data, int64_t i)
{
    return real == 32 ? (double)((const float *)data)[i] : ((const double *)data)[i];
}

static void put(uint32_t real, void *data, int64_t i, double value)
{
    if (real == 32)
        ((float *)data)[i] = (float)value;
    else
        ((double *)data)[i] = value;
}

static double noise(int64_t i) { return sin((double)(i * i % 9973)) * exp2((double)(i % 17) - 9); }

static _Alignas(64) char scratch[TN_CHUNK * 8];

/* ---- where elements lie ---- */

/* A block of n elements at `where` is used in place (1) or copied (0); stored back it is what was put into it. */
static void check_block(const tn_operand *o, int64_t where, int64_t n, int in_place, const char *what)
{
    uint32_t real = o->real;
    char *place = tn_operand_place(o, where), *block = tn_operand_load(o, where, n, scratch);
    expect((block == place) == in_place, "%s: %d elements at %d", what, (int)n, (int)where);
    expect((uintptr_t)block % 64 == 0, "%s: the block is at %p", what, (void *)block);
    expect(memcmp(block, place, (size_t)n * (real / 8)) == 0, "%s: other elements", what);
    for (int64_t i = 0; i < n; i++)
        put(real, block, i, noise(where + i) + 1);
    tn_operand_store(o, where, n, block);
    for (int64_t i = 0; i < n; i++) {
        double found = 0;
        memcpy(&found, place + i * (int64_t)(real / 8), real / 8);
        expect(at(real, &found, 0) == (real == 32 ? (float)(noise(where + i) + 1) : noise(where + i) + 1),
               "%s: element %d", what, (int)i);
    }
}

START_TEST(arenas_are_used_in_place)
{
    for (uint32_t real = 32; real <= 64; real += 32) {
        char *arena = tn_alloc_aligned(2048 * 8);
        tn_operand o = tn_operand_arena(real, arena, 3 * TN_CHUNK);
        check_block(&o, 3 * TN_CHUNK, 512, 1, "arena");
        check_block(&o, 3 * TN_CHUNK + 1024, 1, 1, "arena, ragged");
        check_block(&o, 3 * TN_CHUNK + 512, 509, 1, "arena, ragged");
        ck_assert_ptr_eq(tn_operand_place(&o, 3 * TN_CHUNK + 1024), arena + (size_t)1024 * (real / 8));
        tn_free(arena);
    }
}
END_TEST

/* An aligned array is used in place but for its ragged end, behind which is nothing. */
START_TEST(arrays_are_used_in_place_where_they_can_be)
{
    for (uint32_t real = 32; real <= 64; real += 32)
        for (size_t offset = 0; offset < 70; offset++) {
            char *block = tn_alloc_aligned(64 + 1000 * 8 + 64), *array = block + offset;
            tn_operand o = tn_operand_array(real, array, TN_CHUNK);
            memset(block, 0xFF, 64 + 1000 * 8 + 64);
            check_block(&o, TN_CHUNK, 512, offset % 64 == 0, "array");
            check_block(&o, TN_CHUNK + 512, 488, 0, "array, ragged");
            for (size_t i = offset + 1000 * (real / 8); i < 64 + 1000 * 8 + 64; i++)
                expect((unsigned char)block[i] == 0xFF, "byte %d behind an array is written", (int)i);
            tn_free(block);
        }
}
END_TEST

START_TEST(nothing_is_empty_but_fine)
{
    stored s;
    stored_open(&s, "blockwise8", 32);
    tn_operand all[] = {tn_operand_arena(32, scratch, 0), tn_operand_array(32, scratch + 4, 0),
                        tn_operand_stored(32, &s.use, 0, scratch, NULL, 0, 0, 0, NULL)};
    for (int i = 0; i < 3; i++)
        tn_operand_store(&all[i], 0, 0, tn_operand_load(&all[i], 0, 0, scratch));
    tn_instance_free(s.c);
}
END_TEST

/* ---- storage ---- */

START_TEST(storage_has_the_size_it_says)
{
    stored b, h;
    stored_open(&b, "blockwise8", 32);
    stored_open(&h, "bf16", 32);
    ck_assert_int_eq(tn_codec_bytes(NULL, 32, 7), 28);
    ck_assert_int_eq(tn_codec_bytes(NULL, 64, 7), 56);
    ck_assert_int_eq(tn_codec_bytes(&h.table, 32, 7), 14);
    ck_assert_int_eq(tn_codec_payload(&b.table, 32, 700), 700);
    ck_assert_int_eq(tn_codec_extra(&b.table, 700), 12);
    ck_assert_int_eq(tn_codec_bytes(&b.table, 32, 700), 704 + 12);
    ck_assert_int_eq(tn_codec_bytes(&b.table, 32, 0), 0);
    const tn_codec nibbles = {.struct_size = sizeof nibbles, .block = 64, .bits = 4, .extra_bytes = 2};
    ck_assert_int_eq(tn_codec_bytes(&nibbles, 32, 129), 80 + 6);
    ck_assert_int_eq(tn_codec_payload(&nibbles, 32, (int64_t)1 << 40), (int64_t)1 << 39);
    tn_instance_free(b.c);
    tn_instance_free(h.c);
}
END_TEST

/* Without a codec a stored operand is an array. */
START_TEST(no_codec_is_the_real_type)
{
    tn_codec table;
    tn_codec_use use = {&table, NULL};
    tn_error err = {0};
    ck_ok(tn_codec_open(test_plugins(), NULL, &table, &use, &err), err);
    ck_assert_ptr_null(use.table);
    tn_operand o = tn_operand_stored(32, &use, 0, scratch, NULL, 0, 512, 0, NULL);
    ck_assert_ptr_eq(tn_operand_load(&o, 0, 512, NULL), scratch);
}
END_TEST

START_TEST(codecs_that_do_not_fit_are_refused)
{
    const char *const names[] = {"uneven", "mute", "nibble", "fat"};
    const char *const parts[] = {"divisor of 512", "lacks decode", "whole bytes", "0 to 4096"};
    for (int i = 0; i < 4; i++) {
        tn_registry *registry = test_registry("TENON_TEST_PLUGINS");
        tn_instance *c = NULL;
        tn_codec table;
        tn_codec_use use;
        tn_error err = {0};
        ck_ok(tn_instance_create(registry, "codec", names[i], 32, "precision.state", NULL, 0, &c, &err), err);
        ck_assert_refused(tn_codec_open(registry, c, &table, &use, &err), TN_E_PLUGIN, err, "precision.state: codec",
                          parts[i]);
        ck_assert_ptr_null(use.table);
        tn_instance_free(c);
        tn_registry_close(registry);
    }
}
END_TEST

/* ---- cuts ---- */

#define LONG (5 * TN_CHUNK + 777)

/* n elements from lo on of one long tensor, stored into memory of their own, block by block. */
static char *store_slice(const stored *s, uint32_t real, uint32_t flags, int64_t lo, int64_t n, int64_t step)
{
    tn_context context = {.struct_size = sizeof context, .attempt = 3};
    char *memory = tn_alloc_aligned((size_t)tn_codec_bytes(&s->table, real, n) + 64);
    tn_operand o = tn_operand_stored(real, &s->use, flags, memory, NULL, lo, n, 9, &context);
    for (int64_t i = lo, m; i < lo + n; i += m) {
        m = lo + n - i < step ? lo + n - i : step;
        for (int64_t j = 0; j < m; j++)
            put(real, scratch, j, flags & TN_CODEC_NONNEGATIVE ? fabs(noise(i + j)) : noise(i + j));
        tn_operand_store(&o, i, m, scratch);
    }
    return memory;
}

/* Every way to cut a tensor on chunks stores the bits of the whole. */
static void check_cuts(const stored *s, uint32_t real, uint32_t flags)
{
    char *whole = store_slice(s, real, flags, 0, LONG, TN_CHUNK);
    int64_t scales = tn_codec_bytes(&s->table, real, LONG) - tn_codec_extra(&s->table, LONG);
    for (int64_t mask = 0; mask < 32; mask++)
        for (int64_t lo = 0, hi; lo < LONG; lo = hi) {
            for (hi = lo + TN_CHUNK; hi < LONG && !(mask >> (hi / TN_CHUNK - 1) & 1); hi += TN_CHUNK)
                ;
            int64_t n = (hi < LONG ? hi : LONG) - lo, payload = tn_codec_payload(&s->table, real, n);
            char *part = store_slice(s, real, flags, lo, n, 512);
            ck_assert_mem_eq(part, whole + lo * s->table.bits / 8, (size_t)payload);
            if (s->table.extra_bytes) {
                int64_t extra = tn_codec_extra(&s->table, n), begin = tn_codec_bytes(&s->table, real, n) - extra;
                ck_assert_mem_eq(part + begin, whole + scales + lo / s->table.block * s->table.extra_bytes,
                                 (size_t)extra);
            }
            tn_free(part);
        }
    tn_free(whole);
}

START_TEST(cuts_on_chunks_store_the_same_bits)
{
    const char *const names[] = {"blockwise8", "bf16", "fp16", "fp16"};
    for (uint32_t real = 32; real <= 64; real += 32)
        for (int i = 0; i < 4; i++)
            for (uint32_t flags = 0; flags <= TN_CODEC_NONNEGATIVE; flags++) {
                stored s;
                stored_open(&s, names[i], real);
                if (i == 3)
                    component_set(s.c, "rounding", "stochastic");
                check_cuts(&s, real, flags);
                tn_instance_free(s.c);
            }
}
END_TEST

/* Keys and attempts make other draws. */
START_TEST(draws_differ_by_key_and_attempt)
{
    stored s;
    stored_open(&s, "bf16", 32);
    component_set(s.c, "rounding", "stochastic");
    static char memory[3][1024];
    for (int i = 0; i < 3; i++) {
        tn_context context = {.struct_size = sizeof context, .attempt = i == 1, .key = 5};
        tn_operand o = tn_operand_stored(32, &s.use, 0, memory[i], NULL, 0, 512, i == 2, &context);
        for (int64_t j = 0; j < 512; j++)
            put(32, scratch, j, noise(j));
        tn_operand_store(&o, 0, 512, scratch);
    }
    ck_assert_mem_ne(memory[0], memory[1], 1024);
    ck_assert_mem_ne(memory[0], memory[2], 1024);
    tn_instance_free(s.c);
}
END_TEST

/* ---- a rule that knows nothing of it, with state in eight bits ---- */

#define ELEMENTS 700
#define STEPS    25

static double parameter_of(int64_t e) { return ((double)((e * 53) % 101) - 50) / 32; }

static double gradient_of(int64_t e, int64_t step)
{
    return ((double)((e * 37 + step * step * 11 + step * 59) % 199) - 79) / 128 * exp2(-2.0 * (double)(e % 5)) *
           (e % 13 != 4);
}

typedef struct rule {
    tn_instance *c;
    tn_optimizer table;
    uint32_t real;
    tn_operand slots[2]; /* m signed, v not */
    int32_t slot_count;
    _Alignas(64) char p[ELEMENTS * 8 + 128];
} rule;

static void rule_block(rule *r, const void *k, int64_t step, int64_t lo, int64_t n)
{
    static _Alignas(64) char g[4096], d[4096], p[4096], state[2][4096];
    int64_t padded = (n + 15) / 16 * 16;
    void *slot[2];
    for (int64_t i = 0; i < padded; i++) {
        put(r->real, g, i, i < n ? gradient_of(lo + i, step) : NAN);
        put(r->real, p, i, i < n ? at(r->real, r->p, lo + i) : NAN);
    }
    for (int32_t j = 0; j < r->slot_count; j++)
        slot[j] = tn_operand_load(&r->slots[j], lo, n, state[j]);
    const tn_piece piece = {.struct_size = sizeof piece,
                            .hyper = r->c->hyper,
                            .k = k,
                            .lo = lo,
                            .n = padded,
                            .scale = 1,
                            .g = g,
                            .p = p,
                            .d = d,
                            .slot = slot};
    r->table.update(&piece);
    for (int64_t i = 0; i < n; i++)
        put(r->real, r->p, lo + i, at(r->real, r->p, lo + i) + at(r->real, d, i));
    for (int32_t j = 0; j < r->slot_count; j++)
        tn_operand_store(&r->slots[j], lo, n, slot[j]);
}

static void rule_run(rule *r)
{
    _Alignas(64) char k[TN_CONSTANTS_MAX];
    for (int64_t e = 0; e < ELEMENTS; e++)
        put(r->real, r->p, e, parameter_of(e));
    for (int64_t step = 0; step < STEPS; step++) {
        const tn_clock clock = {sizeof clock, 0, step + 1, step, step, NULL};
        memset(k, 0, sizeof k);
        r->table.begin(r->c->hyper, &clock, k);
        rule_block(r, k, step, 0, 512);
        rule_block(r, k, step, 512, ELEMENTS - 512);
    }
}

static double mean_distance(uint32_t real, const void *p, const json_t *values)
{
    double sum = 0;
    for (int64_t e = 0; e < ELEMENTS; e++)
        sum += fabs(at(real, p, e) - json_number_value(json_array_get(values, (size_t)e)));
    return sum / ELEMENTS;
}

/* f64 takes the script's codes. f32 takes another where a number lies by its rounding beside the middle of two codes,
 * which moves few elements. What eight bits change: at most 10% of the way, where gradients in a block differ by 2^8.
 */
static void check_rule(const char *name, const char *const *settings)
{
    json_t *root = test_golden("codecs.json", "trajectories"), *rows = json_object_get(root, name);
    const json_t *values = json_object_get(rows, "stored"), *exact = json_object_get(rows, "exact");
    ck_assert_uint_eq(json_array_size(values), ELEMENTS);
    for (uint32_t real = 32; real <= 64; real += 32) {
        stored s;
        stored_open(&s, "blockwise8", real);
        rule r = {.real = real, .slot_count = strcmp(name, "adam") == 0 ? 2 : 1};
        r.c = component_open("optimizer", name, real, &r.table, sizeof r.table);
        for (const char *const *row = settings; *row; row += 2)
            component_set(r.c, row[0], row[1]);
        int64_t bytes = tn_codec_bytes(&s.table, real, ELEMENTS);
        char *memory = tn_alloc_aligned((size_t)(2 * bytes + 64));
        for (int32_t j = 0; j < r.slot_count; j++)
            r.slots[j] = tn_operand_stored(real, &s.use, j ? TN_CODEC_NONNEGATIVE : 0,
                                           memory + j * (bytes + 15) / 16 * 16, NULL, 0, ELEMENTS, 0, NULL);
        int64_t before = malloc_count();
        rule_run(&r);
        ck_assert_int_eq(malloc_count(), before);
        double off = mean_distance(real, r.p, values), way = 0;
        for (int64_t e = 0; e < ELEMENTS; e++)
            way += fabs(json_number_value(json_array_get(exact, (size_t)e)) - parameter_of(e)) / ELEMENTS;
        expect(off <= (real == 64 ? 1e-13 : 1e-5) * way, "%s f%u: %.3g off on average, moved %.3g", name, real, off,
               way);
        double apart = mean_distance(real, r.p, exact);
        expect(apart <= 0.1 * way && apart > 1e-4 * way, "%s f%u: eight bits change %.3g of %.3g", name, real, apart,
               way);
        tn_free(memory);
        tn_instance_free(s.c);
        tn_instance_free(r.c);
    }
    json_decref(root);
}

START_TEST(adam_with_state_in_eight_bits) { check_rule("adam", (const char *const[]){"lr", "0.01", NULL}); }
END_TEST

START_TEST(sgd_with_state_in_eight_bits)
{
    check_rule("sgd", (const char *const[]){"lr", "0.01", "momentum", "0.9", NULL});
}
END_TEST

/* A chain whose state is stored, over elements lo to lo + n of one long tensor, after some steps. */
static world *stepped(const stored *s, const char *const *links, int32_t threads, int64_t lo, int64_t n)
{
    static const tn_services services = {.struct_size = sizeof services};
    const int64_t whole = LONG;
    world *w = world_new(32, threads);
    world_slice(w, 1, &whole, lo, n);
    world_arenas(w);
    world_fill(w, w->parameters.p, 0);
    for (; *links; links++)
        world_link(w, *links);
    const tn_chain_options options = {.registry = w->registry,
                                      .links = w->links,
                                      .link_count = w->link_count,
                                      .parameters = &w->parameters,
                                      .pool = w->pool,
                                      .services = &services,
                                      .seed = 5,
                                      .state = s->use};
    ck_ok(tn_chain_create(&options, &w->chain, &w->err), w->err);
    for (uint64_t step = 1; step <= 3; step++) {
        world_fill(w, w->parameters.g, step);
        world_step(w, 1);
    }
    return w;
}

/* A slice's bytes are those of the whole from its first element on. */
static void compare_slice(const stored *s, const world *part, const world *whole)
{
    int64_t lo = part->list[0].lo, n = part->list[0].n, coded = 0;
    ck_assert_mem_eq(part->parameters.p, (float *)whole->parameters.p + lo, (size_t)n * sizeof(float));
    for (size_t j = 0; j < tn_chain_slot_count(part->chain); j++) {
        tn_chain_slot a, b;
        tn_chain_slot_at(part->chain, j, &a);
        tn_chain_slot_at(whole->chain, j, &b);
        ck_assert_str_eq(a.slot, b.slot);
        ck_assert_mem_eq(a.data, (char *)b.data + lo * a.bits / 8, (size_t)(n * a.bits / 8));
        if (a.bits != s->table.bits)
            continue;
        int64_t extra = tn_codec_extra(&s->table, n), all = tn_codec_extra(&s->table, LONG);
        ck_assert_int_eq(a.bytes, tn_codec_bytes(&s->table, 32, n));
        ck_assert_mem_eq((char *)a.data + a.bytes - extra,
                         (char *)b.data + b.bytes - all + lo / s->table.block * s->table.extra_bytes, (size_t)extra);
        coded++;
    }
    ck_assert_int_ge(coded, 1);
}

START_TEST(chains_store_the_same_state_for_any_shards)
{
    const char *const chains[][3] = {{"adamw", "ema"}, {"lion"}}, *const codecs[] = {"blockwise8", "bf16"};
    const int64_t cuts[] = {0, TN_CHUNK, 4 * TN_CHUNK, LONG};
    for (int c = 0; c < 2; c++)
        for (int i = 0; i < 2; i++) {
            stored s;
            stored_open(&s, codecs[c], 32);
            if (c)
                component_set(s.c, "rounding", "stochastic");
            world *whole = stepped(&s, chains[i], 2, 0, LONG);
            for (int k = 0; k < 3; k++) {
                world *part = stepped(&s, chains[i], 1 + k % 2, cuts[k], cuts[k + 1] - cuts[k]);
                compare_slice(&s, part, whole);
                world_free(part);
            }
            world_free(whole);
            tn_instance_free(s.c);
        }
}
END_TEST

static Suite *operand_suite(void)
{
    Suite *suite = suite_create("operand");
    TCase *tests = tcase_create("operand");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, arenas_are_used_in_place);
    tcase_add_test(tests, arrays_are_used_in_place_where_they_can_be);
    tcase_add_test(tests, nothing_is_empty_but_fine);
    tcase_add_test(tests, storage_has_the_size_it_says);
    tcase_add_test(tests, no_codec_is_the_real_type);
    tcase_add_test(tests, codecs_that_do_not_fit_are_refused);
    tcase_add_test(tests, cuts_on_chunks_store_the_same_bits);
    tcase_add_test(tests, draws_differ_by_key_and_attempt);
    tcase_add_test(tests, adam_with_state_in_eight_bits);
    tcase_add_test(tests, sgd_with_state_in_eight_bits);
    tcase_add_test(tests, chains_store_the_same_state_for_any_shards);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void) { return test_main(operand_suite()); }
