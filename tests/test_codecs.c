/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/codec: codes against golden/codecs.json; then every codec that the registry finds, by loops.
 */
#include <jansson.h>
#include <math.h>

#include <tenon/precision.h>
#include <tenon/sdk.h>

#include "tests/component.h"

typedef struct codec {
    tn_instance *c;
    tn_codec table;
    uint32_t real;
    tn_context context;
} codec;

static codec codec_open(const char *name, uint32_t real)
{
    codec k = {.real = real, .context = {.struct_size = sizeof(tn_context), .key = 77}};
    k.c = component_open("codec", name, real, &k.table, sizeof k.table);
    return k;
}

static double at(uint32_t real, const void *data, size_t i)
{
    return real == 32 ? (double)((const float *)data)[i] : ((const double *)data)[i];
}

static void put(uint32_t real, void *data, size_t i, double value)
{
    if (real == 32)
        ((float *)data)[i] = (float)value;
    else
        ((double *)data)[i] = value;
}

static tn_codec_call call_of(const codec *k, uint32_t flags, int64_t lo, int64_t n, void *stored, void *extra,
                             void *real)
{
    return (tn_codec_call){sizeof(tn_codec_call), flags, k->c->hyper, &k->context, lo, n, stored, extra, real};
}

static void encode(const codec *k, uint32_t flags, int64_t lo, int64_t n, void *stored, void *extra, void *real)
{
    const tn_codec_call call = call_of(k, flags, lo, n, stored, extra, real);
    k->table.encode(&call);
}

static void decode(const codec *k, uint32_t flags, int64_t lo, int64_t n, void *stored, void *extra, void *real)
{
    const tn_codec_call call = call_of(k, flags, lo, n, stored, extra, real);
    k->table.decode(&call);
}

static double number(const json_t *list, size_t i) { return json_number_value(json_array_get(list, i)); }

static json_t *golden(const char *part, const char *name)
{
    static json_t *root;
    root = root ? root : test_golden("codecs.json", NULL);
    return json_object_get(json_object_get(root, part), name);
}

/* ---- 16-bit floats ---- */

static const struct {
    const char *name;
    int fraction, smallest;
} formats[] = {{"fp16", 10, -14}, {"bf16", 7, -126}};

static double value_of(int format, unsigned code)
{
    int fraction = formats[format].fraction, exponent = (int)(code & 0x7FFF) >> fraction;
    unsigned f = code & ((1u << fraction) - 1);
    double x =
        ldexp(exponent ? f + (1u << fraction) : f, (exponent ? exponent - 1 : 0) + formats[format].smallest - fraction);
    if (exponent == (0x7FFF >> fraction))
        x = f ? NAN : INFINITY;
    return code & 0x8000 ? -x : x;
}

static void compare_codes(const codec *k, const json_t *row)
{
    const json_t *x = json_object_get(row, "x"), *codes = json_object_get(row, "codes");
    ck_assert_uint_gt(json_array_size(x), 20);
    for (size_t i = 0; i < json_array_size(x); i++) {
        double real = 0;
        uint16_t code = 0xAAAA;
        put(k->real, &real, 0, number(x, i));
        encode(k, 0, (int64_t)i, 1, &code, NULL, &real);
        expect(code == (uint16_t)number(codes, i), "%s f%u: %.17g is 0x%04x, needed 0x%04x", k->c->entry->name, k->real,
               number(x, i), code, (unsigned)number(codes, i));
    }
}

START_TEST(floats_are_rounded_once_to_the_nearest)
{
    for (int f = 0; f < 2; f++)
        for (uint32_t real = 32; real <= 64; real += 32) {
            codec k = codec_open(formats[f].name, real);
            json_t *rows = golden("floats", formats[f].name);
            compare_codes(&k, json_object_get(rows, "both"));
            if (real == 64)
                compare_codes(&k, json_object_get(rows, "double"));
            tn_instance_free(k.c);
        }
}
END_TEST

/* Every code is read as its number and stored as itself, wherever in a vector it lies and however it is aligned. */
START_TEST(floats_of_every_code)
{
    static double real[65536];
    static unsigned char bytes[2 * 65536 + 1];
    static uint16_t back[65536];
    uint16_t *codes = (uint16_t *)malloc(sizeof back);
    for (int f = 0; f < 2; f++)
        for (uint32_t bits = 32; bits <= 64; bits += 32) {
            codec k = codec_open(formats[f].name, bits);
            for (unsigned c = 0; c < 65536; c++)
                codes[c] = (uint16_t)c;
            memcpy(bytes + 1, codes, sizeof back);
            decode(&k, 0, 0, 65536, bytes + 1, NULL, real);
            memset(bytes, 0, sizeof bytes);
            encode(&k, 0, 0, 65535, bytes + 1, NULL, real);
            encode(&k, 0, 65535, 1, bytes + 1 + 2 * 65535, NULL, (char *)real + 65535 * (bits / 8));
            memcpy(back, bytes + 1, sizeof back);
            for (unsigned c = 0; c < 65536; c++) {
                double needed = value_of(f, c), found = at(bits, real, c);
                unsigned infinity = 0x8000u - (1u << formats[f].fraction);
                if (isnan(needed)) {
                    expect(isnan(found) && !signbit(found) == !(c & 0x8000), "%s: 0x%04x is %g", formats[f].name, c,
                           found);
                    expect((back[c] & 0x7FFF) > infinity && (back[c] & 0x8000) == (c & 0x8000), "%s: 0x%04x to 0x%04x",
                           formats[f].name, c, back[c]);
                } else {
                    expect(bits_of(found) == bits_of(needed), "%s: 0x%04x is %.17g, needed %.17g", formats[f].name, c,
                           found, needed);
                    expect(back[c] == c, "%s: 0x%04x to 0x%04x", formats[f].name, c, back[c]);
                }
            }
            tn_instance_free(k.c);
        }
    free(codes);
}
END_TEST

/* Not infinity, though all of the payload that is kept is 0. */
START_TEST(floats_keep_every_nan)
{
    const uint32_t small = 0xFF800001u;
    const uint64_t large = 0xFFF0000000000001u;
    for (int f = 0; f < 2; f++)
        for (uint32_t bits = 32; bits <= 64; bits += 32) {
            codec k = codec_open(formats[f].name, bits);
            uint16_t code;
            double real = 0;
            memcpy(&real, bits == 32 ? (const void *)&small : (const void *)&large, bits / 8);
            encode(&k, 0, 0, 1, &code, NULL, &real);
            expect(isnan(value_of(f, code)) && code & 0x8000, "%s f%u: 0x%04x", formats[f].name, bits, code);
            tn_instance_free(k.c);
        }
}
END_TEST

#define DRAWS 40000

/* The mean of many draws of one element is the value; each is a neighbour; what is exact stays. */
static void draw_one(const codec *k, int format, double x)
{
    double real = 0, sum = 0, low = 0, high = 0;
    int seen = 0;
    put(k->real, &real, 0, x);
    x = at(k->real, &real, 0);
    codec own = *k;
    for (own.context.attempt = 0; own.context.attempt < DRAWS; own.context.attempt++) {
        uint16_t code = 0;
        encode(&own, 0, 5, 1, &code, NULL, &real);
        double value = value_of(format, code);
        low = seen ? fmin(low, value) : value;
        high = seen ? fmax(high, value) : value;
        seen = 1;
        sum += value - x;
    }
    double place = high - low;
    if (place == 0) { /* exact, or so near that a draw of 32 bits does not see it */
        expect(fabs(low - x) <= ldexp(value_of(format, 1), -32), "%s %.17g is always %.17g", k->c->entry->name, x, low);
        return;
    }
    expect(low <= x && x <= high, "%s %.17g: %.17g to %.17g", k->c->entry->name, x, low, high);
    uint16_t code = 0;
    codec nearest = *k;
    component_set(nearest.c, "rounding", "nearest");
    encode(&nearest, 0, 5, 1, &code, NULL, &real);
    component_set(nearest.c, "rounding", "stochastic");
    double other = fabs(value_of(format, (unsigned)code + 1) - value_of(format, code));
    expect(place <= other * 1.001 || place <= 2 * ldexp(1, -24), "%s %.17g: %.17g to %.17g are no neighbours",
           k->c->entry->name, x, low, high);
    double deviation = place * sqrt((x - low) / place * (1 - (x - low) / place) / DRAWS);
    expect(fabs(sum / DRAWS) < 4.5 * deviation, "%s %.17g: mean is off by %.3g, standard deviation %.3g",
           k->c->entry->name, x, sum / DRAWS, deviation);
}

START_TEST(stochastic_rounding_has_the_value_as_mean)
{
    for (int f = 0; f < 2; f++)
        for (uint32_t real = 32; real <= 64; real += 32) {
            codec k = codec_open(formats[f].name, real);
            component_set(k.c, "rounding", "stochastic");
            double tiny = ldexp(1, formats[f].smallest - formats[f].fraction);
            double numbers[] = {1.0001,     -1.37,       3.14159e3, 1,         0,       -0.1,
                                tiny * 0.3, -tiny * 7.9, 65504,     -0x1p-126, 1 + tiny};
            for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
                draw_one(&k, f, numbers[i]);
            tn_instance_free(k.c);
        }
}
END_TEST

/* Outside the finite range there are no two neighbours: as to the nearest. */
START_TEST(stochastic_rounding_at_the_ends)
{
    const struct {
        int format;
        double x;
        unsigned code;
    } rows[] = {{0, 65519, 0x7BFF},     {0, 65520, 0x7C00},      {0, -1e9, 0xFC00},       {0, INFINITY, 0x7C00},
                {1, -INFINITY, 0xFF80}, {1, 0x1.FFp127, 0x7F80}, {1, 0x1.FEFp127, 0x7F7F}};
    for (uint32_t bits = 32; bits <= 64; bits += 32)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            codec k = codec_open(formats[rows[i].format].name, bits);
            component_set(k.c, "rounding", "stochastic");
            double real[2] = {0};
            put(bits, real, 0, rows[i].x);
            put(bits, real, 1, NAN);
            for (k.context.attempt = 0; k.context.attempt < 64; k.context.attempt++) {
                uint16_t codes[2];
                encode(&k, 0, 0, 2, codes, NULL, real);
                ck_assert_uint_eq(codes[0], rows[i].code);
                expect(isnan(value_of(rows[i].format, codes[1])), "nan became 0x%04x", codes[1]);
            }
            tn_instance_free(k.c);
        }
}
END_TEST

/* ---- blockwise8 ---- */

static void compare_blocks(const codec *k, uint32_t flags, const json_t *row)
{
    static double real[700], back[700];
    static unsigned char codes[700];
    double extra[3] = {0};
    const json_t *x = json_object_get(row, "x"), *needed = json_object_get(row, "codes"),
                 *scales = json_object_get(row, "scales"), *values = json_object_get(row, "values");
    ck_assert_uint_eq(json_array_size(x), 700);
    for (size_t i = 0; i < 700; i++)
        put(k->real, real, i, number(x, i));
    encode(k, flags, 0, 700, codes, extra, real);
    decode(k, flags, 0, 700, codes, extra, back);
    for (size_t b = 0; b < 3; b++)
        ck_assert_double_eq(at(k->real, extra, b), number(scales, b));
    for (size_t i = 0; i < 700; i++) {
        double scale = number(scales, i / 256), value = number(values, (size_t)number(needed, i)) * scale;
        expect(codes[i] == (unsigned char)number(needed, i), "f%u element %d: %.17g is 0x%02x, needed 0x%02x", k->real,
               (int)i, number(x, i), codes[i], (unsigned)number(needed, i));
        expect(fabs(at(k->real, back, i) - value) <= (k->real == 32 ? 2e-7 : 1e-15) * fabs(value) + 1e-44,
               "f%u element %d: %.17g, needed %.17g", k->real, (int)i, at(k->real, back, i), value);
    }
}

START_TEST(blockwise8_takes_the_nearest_of_all_values)
{
    for (uint32_t real = 32; real <= 64; real += 32) {
        codec k = codec_open("blockwise8", real);
        compare_blocks(&k, 0, golden("blocks", "signed"));
        compare_blocks(&k, TN_CODEC_NONNEGATIVE, golden("blocks", "unsigned"));
        tn_instance_free(k.c);
    }
}
END_TEST

/* One block through the codec; n <= 256. */
static void through(const codec *k, uint32_t flags, int64_t n, double *x)
{
    unsigned char codes[256];
    double real[256], extra = 0;
    for (int64_t i = 0; i < n; i++)
        put(k->real, real, (size_t)i, x[i]);
    encode(k, flags, 0, n, codes, &extra, real);
    memset(real, 0xFF, sizeof real);
    decode(k, flags, 0, n, codes, &extra, real);
    for (int64_t i = 0; i < n; i++)
        x[i] = at(k->real, real, (size_t)i);
}

static void bits_are(const double *found, const double *needed, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        expect(bits_of(found[i]) == bits_of(needed[i]), "element %d: %.17g, needed %.17g", (int)i, found[i], needed[i]);
}

START_TEST(blockwise8_is_exact_where_it_must_be)
{
    for (uint32_t real = 32; real <= 64; real += 32) {
        codec k = codec_open("blockwise8", real);
        double largest = real == 32 ? 0x1.FFFFFEp127 : 0x1.FFFFFFFFFFFFFp1023, least = real == 32 ? 0x1p-149 : 5e-324;
        double zeros[3] = {0, -0.0, 0}, alone[1] = {-0.1f}, ends[3] = {-largest, 0, 0}, small[2] = {0, -least};
        double gap[3] = {0, -0.0, -3};
        through(&k, 0, 3, zeros);
        bits_are(zeros, (double[]){0, 0, 0}, 3);
        through(&k, 0, 1, alone);
        bits_are(alone, (double[]){-0.1f}, 1);
        through(&k, 0, 3, ends);
        bits_are(ends, (double[]){-largest, 0, 0}, 3);
        through(&k, 0, 2, small);
        bits_are(small, (double[]){0, -least}, 2);
        through(&k, 0, 3, gap); /* a negative scale makes no -0 */
        bits_are(gap, (double[]){0, 0, -3}, 3);
        double both[2] = {-5, 5}; /* one of two that differ in sign is the scale: the other is the last code below 1 */
        through(&k, 0, 2, both);
        ck_assert_double_eq(both[1], 5);
        ck_assert_double_eq_tol(both[0], -5 * (1 - 0.45 / 64), 1e-5);
        tn_instance_free(k.c);
    }
}
END_TEST

START_TEST(blockwise8_keeps_what_is_above_zero_there)
{
    for (uint32_t real = 32; real <= 64; real += 32) {
        codec k = codec_open("blockwise8", real);
        double x[5] = {2, 1e-30, 0, -1e-3, real == 32 ? 0x1p-149 : 5e-324};
        through(&k, TN_CODEC_NONNEGATIVE, 5, x);
        double least = 2e-6 * (0.1 + 0.225);
        ck_assert_double_eq(x[0], 2);
        ck_assert_double_eq_tol(x[1], least, 1e-12);
        ck_assert_double_eq_tol(x[4], least, 1e-12);
        ck_assert_double_eq(x[2], 0);
        ck_assert_double_eq(x[3], 0);
        double y[2] = {2, 1e-8}; /* signed: nearer to 0 */
        through(&k, 0, 2, y);
        ck_assert_double_eq(y[1], 0);
        double negative[2] = {-1, -2};
        through(&k, TN_CODEC_NONNEGATIVE, 2, negative);
        bits_are(negative, (double[]){0, 0}, 2);
        tn_instance_free(k.c);
    }
}
END_TEST

START_TEST(blockwise8_shows_what_is_not_finite_in_its_block_only)
{
    const double bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    static double real[600];
    static unsigned char codes[600];
    for (uint32_t bits = 32; bits <= 64; bits += 32)
        for (uint32_t flags = 0; flags <= TN_CODEC_NONNEGATIVE; flags++)
            for (int b = 0; b < 4; b++) {
                codec k = codec_open("blockwise8", bits);
                double extra[3] = {0};
                for (size_t i = 0; i < 600; i++)
                    put(bits, real, i, 0.5);
                put(bits, real, 256 + 99, bad[b]);
                encode(&k, flags, 0, 600, codes, extra, real);
                decode(&k, flags, 0, 600, codes, extra, real);
                for (size_t i = 256; i < 512; i++)
                    expect(codes[i] == 0, "element %d: 0x%02x", (int)i, codes[i]);
                for (size_t i = 0; i < 600; i++)
                    expect(i / 256 == 1 ? isnan(at(bits, real, i)) : at(bits, real, i) == 0.5, "element %d: %g", (int)i,
                           at(bits, real, i));
                tn_instance_free(k.c);
            }
}
END_TEST

/* ---- every codec ---- */

#define MANY 2000

static int is_codec(const tn_entry_info *entry)
{
    return entry->state == TN_FOUND && strcmp(entry->interface, TN_CODEC) == 0;
}

static void fill(uint32_t real, uint32_t flags, void *data)
{
    for (size_t i = 0; i < MANY; i++) {
        double x = ((double)(random_bits() >> 11) * 0x1p-53 - 0.5) * exp2((double)(random_bits() % 24) - 12);
        put(real, data, i, flags & TN_CODEC_NONNEGATIVE ? fabs(x) : x);
    }
}

/* Stored again, what was read is the same number; zeros are; numbers of a kind stay of a kind. */
static void check_again(const codec *k, uint32_t flags)
{
    static double real[MANY], once[MANY], twice[MANY], stored[MANY], extra[MANY];
    fill(k->real, flags, real);
    put(k->real, real, 7, 0);
    encode(k, flags, 0, MANY, stored, extra, real);
    decode(k, flags, 0, MANY, stored, extra, once);
    encode(k, flags, 0, MANY, stored, extra, once);
    decode(k, flags, 0, MANY, stored, extra, twice);
    expect(at(k->real, once, 7) == 0, "%s: 0 became %g", k->c->entry->name, at(k->real, once, 7));
    for (size_t i = 0; i < MANY; i++) {
        double x = at(k->real, real, i), y = at(k->real, once, i);
        expect(bits_of(y) == bits_of(at(k->real, twice, i)), "%s: %.17g, then %.17g", k->c->entry->name, y,
               at(k->real, twice, i));
        expect(x * y >= 0 && isfinite(y), "%s: %.17g became %.17g", k->c->entry->name, x, y);
    }
}

/* Cuts on blocks change no stored bit, in any order, and nothing is written beyond a piece. */
static void check_cuts(const codec *k, uint32_t flags)
{
    static double real[MANY];
    static unsigned char whole[MANY * 8], cut[MANY * 8], scales[MANY * 8], cut_scales[MANY * 8];
    int64_t block = k->table.block, cuts[] = {0, block, 3 * block, 512, 1536, MANY}, end = MANY * k->table.bits / 8;
    fill(k->real, flags, real);
    memset(whole, 0x5A, sizeof whole);
    memset(scales, 0x5A, sizeof scales);
    memcpy(cut, whole, sizeof cut);
    memcpy(cut_scales, scales, sizeof scales);
    encode(k, flags, 0, MANY, whole, scales, real);
    expect(whole[end] == 0x5A, "%s writes behind its end", k->c->entry->name);
    for (int i = 4; i >= 0; i--) {
        int64_t lo = cuts[i], n = cuts[i + 1] - lo;
        if (n > 0)
            encode(k, flags, lo, n, cut + lo * k->table.bits / 8, cut_scales + lo / block * k->table.extra_bytes,
                   (char *)real + lo * (k->real / 8));
    }
    ck_assert_mem_eq(whole, cut, sizeof whole);
    ck_assert_mem_eq(scales, cut_scales, sizeof scales);
}

/* Calls `check` with every codec, real type and flag, at its defaults and at each word of its choices. */
static void each(void (*check)(const codec *k, uint32_t flags))
{
    int seen = 0;
    for (size_t i = 0; i < tn_registry_count(test_plugins()); i++) {
        const tn_entry_info *entry = tn_registry_at(test_plugins(), i);
        if (!is_codec(entry))
            continue;
        for (uint32_t flags = 0; flags <= TN_CODEC_NONNEGATIVE; flags++) {
            codec k = codec_open(entry->name, entry->real);
            check(&k, flags);
            if (tn_instance_row(k.c, "rounding")) {
                component_set(k.c, "rounding", "stochastic");
                check(&k, flags);
            }
            tn_instance_free(k.c);
            seen++;
        }
    }
    ck_assert_int_ge(seen, 12);
}

START_TEST(codecs_read_again_what_they_stored) { each(check_again); }
END_TEST

START_TEST(codecs_do_not_see_cuts) { each(check_cuts); }
END_TEST

static Suite *codecs_suite(void)
{
    Suite *suite = suite_create("codecs");
    TCase *tests = tcase_create("floats");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, floats_are_rounded_once_to_the_nearest);
    tcase_add_test(tests, floats_of_every_code);
    tcase_add_test(tests, floats_keep_every_nan);
    tcase_add_test(tests, stochastic_rounding_has_the_value_as_mean);
    tcase_add_test(tests, stochastic_rounding_at_the_ends);
    suite_add_tcase(suite, tests);
    tests = tcase_create("blockwise8");
    tcase_add_test(tests, blockwise8_takes_the_nearest_of_all_values);
    tcase_add_test(tests, blockwise8_is_exact_where_it_must_be);
    tcase_add_test(tests, blockwise8_keeps_what_is_above_zero_there);
    tcase_add_test(tests, blockwise8_shows_what_is_not_finite_in_its_block_only);
    suite_add_tcase(suite, tests);
    tests = tcase_create("all");
    tcase_add_test(tests, codecs_read_again_what_they_stored);
    tcase_add_test(tests, codecs_do_not_see_cuts);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void) { return test_main(codecs_suite()); }
