/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/sdk.h: helpers for authors. Everything here is compiled into the plugin; nothing crosses the ABI.
 *
 *   real numbers     tn_real, tn_sqrt, tn_exp, ...       the type the file is compiled for (-DTN_REAL=64: double)
 *   tables           TN_DECLARE                          one X-macro table -> a struct and the note's text
 *   facts            TN_PAPER, TN_STAGE, TN_ROUND, ...   further text of the note
 *   components       TN_COMPONENT, TN_PLUGIN             the note, the records, the exported function
 *   entries in C++   TN_CALL                             no exception leaves them
 *
 * Update rules are made shorter still by <tenon/rule.h>, layers by <tenon/layers.h>.
 */
#ifndef TENON_SDK_H
#define TENON_SDK_H

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <tenon/plugin.h>

/* ---- the real type ---- */

#ifndef TN_REAL
#define TN_REAL 32
#endif
#if TN_REAL == 64
typedef double tn_real;
#define TN_MATH_(function) function
#else
typedef float tn_real;
#define TN_MATH_(function) function##f
#endif
static const tn_dtype tn_real_dtype_ = {TN_FLOAT, TN_REAL, 1};

/* Code for the host and, under nvcc, for the device too. */
#ifdef __CUDACC__
#define TN_BOTH static inline __host__ __device__
#else
#define TN_BOTH static inline
#endif
#define TN_UNUSED __attribute__((unused))

TN_BOTH TN_UNUSED tn_real tn_sqrt(tn_real x) { return TN_MATH_(sqrt)(x); }
TN_BOTH TN_UNUSED tn_real tn_abs(tn_real x) { return TN_MATH_(fabs)(x); }
TN_BOTH TN_UNUSED tn_real tn_sign(tn_real x) { return (tn_real)((x > 0) - (x < 0)); }

/* Hot loops are compiled three times and chosen when the file is loaded. `flatten` pulls helpers into each of the
 * three: one that stayed a call would be the baseline's (gcc only; clang refuses the pair). Not under nvcc; not in
 * executables. */
#if defined __x86_64__ && defined __clang__ && !defined __CUDACC__ && !defined TN_NO_CLONES
#define TN_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#elif defined __x86_64__ && defined __GNUC__ && !defined __CUDACC__ && !defined TN_NO_CLONES
#define TN_CLONES __attribute__((flatten, target_clones("default", "avx2", "avx512f")))
#else
#define TN_CLONES
#endif

/* Numbers that a loop keeps apart: named, so that the order of additions is the same for any vector width. */
#define TN_LANES ((int64_t)16)

/* ---- errors ---- */

static inline TN_UNUSED __attribute__((format(printf, 3, 4))) int32_t tn_fail(tn_error *err, int32_t code,
                                                                              const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        err->code = code;
        vsnprintf(err->msg, sizeof err->msg, format, args);
        va_end(args);
    }
    return code;
}

/* ---- random numbers: Philox4x32-10 (Salmon et al., SC 2011). Counter in, 128 random bits out. ---- */

typedef struct tn_random4 {
    uint32_t v[4];
} tn_random4;

TN_BOTH TN_UNUSED tn_random4 tn_philox(uint64_t key, uint64_t counter_low, uint64_t counter_high)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    tn_random4 c = {
        {(uint32_t)counter_low, (uint32_t)(counter_low >> 32), (uint32_t)counter_high, (uint32_t)(counter_high >> 32)}};
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)c.v[0] * 0xD2511F53u, b = (uint64_t)c.v[2] * 0xCD9E8D57u;
        uint32_t x0 = (uint32_t)(b >> 32) ^ c.v[1] ^ k0, x2 = (uint32_t)(a >> 32) ^ c.v[3] ^ k1;
        c.v[0] = x0;
        c.v[1] = (uint32_t)b;
        c.v[2] = x2;
        c.v[3] = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

/* Uniform in [0, 1): the top 24 bits, so every value is exact in float. */
TN_BOTH TN_UNUSED float tn_uniform(uint32_t bits) { return (float)(bits >> 8) * 0x1p-24f; }

/* ---- entries ----
 *
 * TN_CALL(function) in a table is the function itself in C; in C++ <tenon/sdk.hpp> makes it one that lets no exception
 * out. The tables that macros make have it already. */

#define TN_CALL(function) function
#ifdef __cplusplus
/* What a table leaves out is 0, here as in C. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#ifdef __clang__
#pragma GCC diagnostic ignored "-Wc++20-designator"
#endif
#endif

/* ---- tables: X(type, name, default, range, doc), see plugin.h ---- */

#define TN_FIELD_real      double
#define TN_FIELD_fixed     double
#define TN_FIELD_integer   int64_t
#define TN_FIELD_flag      int64_t
#define TN_FIELD_choice    int64_t
#define TN_FIELD_text      const char *
#define TN_FIELD_integers  tn_integers
#define TN_FIELD_component int64_t

#define TN_ROW_FIELD(type, name, default_, range, doc) TN_FIELD_##type name;

/* Quotes round a default's token; text and integers bring their own. */
#define TN_QUOTE_real      "\""
#define TN_QUOTE_fixed     "\""
#define TN_QUOTE_integer   "\""
#define TN_QUOTE_flag      "\""
#define TN_QUOTE_choice    "\""
#define TN_QUOTE_text      ""
#define TN_QUOTE_integers  ""
#define TN_QUOTE_component "\""
#define TN_ROW_TEXT(type, name, default_, range, doc)                                                                  \
    "{\"name\":\"" #name "\",\"type\":\"" #type "\",\"default\":" TN_QUOTE_##type #default_ TN_QUOTE_##type            \
        ",\"range\":\"" range "\",\"doc\":\"" doc "\"},"
#define TN_NO_HYPER(X)

/* struct NAME { the hyper-parameters }. The trailing member keeps an empty table legal; the host never writes it. */
#define TN_DECLARE(name, HYPER)                                                                                        \
    typedef struct name {                                                                                              \
        HYPER(TN_ROW_FIELD)                                                                                            \
        char end_[8];                                                                                                  \
    } name;

/* Scalars that schedulers and loss scales keep: S(name, doc), one double each in the order of the table.
 * TN_DECLARE_SCALARS(NAME, SCALARS) -> struct NAME, as which to read `slots`; TN_SCALARS_FACT(SCALARS) tells the note.
 */
#define TN_SCALAR_FIELD(name, doc) double name;
#define TN_SCALAR_TEXT(name, doc)  "{\"name\":\"" #name "\",\"doc\":\"" doc "\"},"
#define TN_DECLARE_SCALARS(name, SCALARS)                                                                              \
    typedef struct name {                                                                                              \
        SCALARS(TN_SCALAR_FIELD)                                                                                       \
    } name;
#define TN_SCALARS_FACT(SCALARS) ",\"slots\":[" SCALARS(TN_SCALAR_TEXT) "null]"

/* ---- facts: each is text that begins with a comma ----
 *
 * Prose (ranges, docs, papers, formulas) is pasted between JSON's quotes: adjacent literals join as in C, but a quote,
 * a backslash or a line feed inside would need JSON's escape ("\\\""). The host refuses a note that is no JSON. */

#define TN_FACT(key, json)      ",\"" key "\":" json
#define TN_TEXT_FACT(key, text) ",\"" key "\":\"" text "\""
#define TN_PAPER(text)          TN_TEXT_FACT("paper", text)
#define TN_FORMULA(text)        TN_TEXT_FACT("formula", text)

/* ---- notes ---- */

#if TN_ABI_TARGET > TN_ABI_MINOR
#error "TN_ABI_TARGET is newer than these headers"
#endif

#ifdef __SSE4_2__
#define TN_ISA_0_ TN_ISA_SSE42
#else
#define TN_ISA_0_ 0u
#endif
#ifdef __AVX__
#define TN_ISA_1_ TN_ISA_AVX
#else
#define TN_ISA_1_ 0u
#endif
#ifdef __AVX2__
#define TN_ISA_2_ TN_ISA_AVX2
#else
#define TN_ISA_2_ 0u
#endif
#ifdef __FMA__
#define TN_ISA_3_ TN_ISA_FMA
#else
#define TN_ISA_3_ 0u
#endif
#ifdef __F16C__
#define TN_ISA_4_ TN_ISA_F16C
#else
#define TN_ISA_4_ 0u
#endif
#ifdef __AVX512F__
#define TN_ISA_5_ TN_ISA_AVX512
#else
#define TN_ISA_5_ 0u
#endif
#define TN_ISA_HERE_ (TN_ISA_0_ | TN_ISA_1_ | TN_ISA_2_ | TN_ISA_3_ | TN_ISA_4_ | TN_ISA_5_)

#if defined __clang__ && !defined __CUDACC__
#define TN_NOTE_ATTRIBUTES_ section(".note.tenon"), used, aligned(4), no_sanitize("address")
#else
#define TN_NOTE_ATTRIBUTES_ section(".note.tenon"), used, aligned(4)
#endif
#ifdef __cplusplus
#define TN_C_ extern "C"
#else
#define TN_C_
#endif
#pragma GCC diagnostic ignored "-Woverlength-strings" /* notes are longer than ISO C's 4095 characters */

#define TN_FITS_(text, size) TN_STATIC_ASSERT(sizeof(text) <= (size), "too long for a note: " text)
#define TN_NOTE_(symbol, type, plugin, version, kind, interface, name, device, real, summary, text)                    \
    TN_FITS_(plugin, 64);                                                                                              \
    TN_FITS_(version, 32);                                                                                             \
    TN_FITS_(kind, 24);                                                                                                \
    TN_FITS_(interface, 32);                                                                                           \
    TN_FITS_(device, 16);                                                                                              \
    TN_FITS_(name, 40);                                                                                                \
    TN_FITS_(summary, 128);                                                                                            \
    TN_STATIC_ASSERT(sizeof(tn_note) + sizeof(text) <= TN_NOTE_MAX, "the note of " name " is too long");               \
    static const struct {                                                                                              \
        uint32_t owner_size, size, kind_of_note;                                                                       \
        char owner[8];                                                                                                 \
        tn_note head;                                                                                                  \
        char body[(sizeof(text) + 3) & ~(size_t)3];                                                                    \
    } symbol __attribute__((TN_NOTE_ATTRIBUTES_)) = {                                                                  \
        sizeof TN_NOTE_OWNER,                                                                                          \
        (uint32_t)(sizeof(tn_note) + sizeof(text)),                                                                    \
        type,                                                                                                          \
        TN_NOTE_OWNER,                                                                                                 \
        {(uint32_t)(sizeof(tn_note) + sizeof(text)), TN_NOTE_FORMAT, TN_ABI_MAJOR, TN_ABI_TARGET, real, TN_ISA_HERE_,  \
         (uint32_t)sizeof(tn_note), 0u, plugin, version, kind, interface, name, device, summary},                      \
        text}

#ifdef __CUDACC__
#define TN_DEVICE_HERE_ "cuda"
#else
#define TN_DEVICE_HERE_ "cpu"
#endif

/* A component: `name` is a C identifier ('_' reads as '-'), `table` the interface's static table. Defines
 * NAME_component. `real`: TN_REAL, or 0 if the component does not depend on the real type. */
#define TN_COMPONENT(name, kind, interface, real, HYPER, summary, facts, table)                                        \
    TN_NOTE_(name##_note, TN_NOTE_COMPONENT, "", "", kind, interface, #name, TN_DEVICE_HERE_, real, summary,           \
             "{\"hyper\":[" HYPER(TN_ROW_TEXT) "null]" facts "}");                                                     \
    static const tn_component name##_component = {sizeof(tn_component), 0, &name##_note.head, &(table)}

/* The file: id, version, licence, then the components it holds (1 to 8). */
#define TN_PLUGIN(id, version, licence, ...)                                                                           \
    TN_NOTE_(tn_plugin_note_, TN_NOTE_PLUGIN, id, version, "", "", "", "", 0u, "", "{\"licence\":" #licence "}");      \
    static const tn_component *const tn_components_[] = {TN_EACH_(TN_RECORD_, __VA_ARGS__)};                           \
    static const tn_plugin tn_plugin_ = {sizeof(tn_plugin), sizeof tn_components_ / sizeof *tn_components_,            \
                                         &tn_plugin_note_.head, tn_components_};                                       \
    TN_C_ __attribute__((visibility("default"))) const tn_plugin *tenon_plugin_v1(tn_error *err);                      \
    TN_C_ const tn_plugin *tenon_plugin_v1(tn_error *err)                                                              \
    {                                                                                                                  \
        (void)err;                                                                                                     \
        return &tn_plugin_;                                                                                            \
    }
#define TN_RECORD_(name) &name##_component,

#define TN_EACH_(f, ...)                           TN_EACH_N_(__VA_ARGS__, 8, 7, 6, 5, 4, 3, 2, 1, 0)(f, __VA_ARGS__)
#define TN_EACH_N_(a, b, c, d, e, g, h, i, n, ...) TN_EACH_PASTE_(n)
#define TN_EACH_PASTE_(n)                          TN_EACH_##n##_

#define TN_EACH_1_(f, a)      f(a)
#define TN_EACH_2_(f, a, ...) f(a) TN_EACH_1_(f, __VA_ARGS__)
#define TN_EACH_3_(f, a, ...) f(a) TN_EACH_2_(f, __VA_ARGS__)
#define TN_EACH_4_(f, a, ...) f(a) TN_EACH_3_(f, __VA_ARGS__)
#define TN_EACH_5_(f, a, ...) f(a) TN_EACH_4_(f, __VA_ARGS__)
#define TN_EACH_6_(f, a, ...) f(a) TN_EACH_5_(f, __VA_ARGS__)
#define TN_EACH_7_(f, a, ...) f(a) TN_EACH_6_(f, __VA_ARGS__)
#define TN_EACH_8_(f, a, ...) f(a) TN_EACH_7_(f, __VA_ARGS__)

#if defined __cplusplus && !defined __CUDACC__ && defined __cpp_exceptions && __cplusplus >= 201703L
#include <tenon/sdk.hpp>
#endif

#endif
