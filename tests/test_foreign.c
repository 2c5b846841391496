/* SPDX-License-Identifier: Apache-2.0
 *
 * host/foreign: signatures and expressions, libraries and symbols, calls of every shape, derivatives, what a trial
 * finds, and the three components in experiments. The library is tests/foreign/functions.c.
 */
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <tenon/layer.h>
#include <tenon/scheduler.h>
#include <time.h>
#include <unistd.h>

#include "host/base/memory.h"
#include "host/experiment/experiment.h"
#include "host/foreign/internal.h"
#include "host/foreign/library.h"
#include "tests/component.h"
#include "tests/update.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const char *library(void) { return test_env("TENON_TEST_FOREIGN"); }

/* ---- signatures ---- */

static const struct {
    const char *text;
    int32_t purpose;
    size_t at; /* of the byte at fault */
    const char *part;
} wrong[] = {
    {"", TN_FOR_ELEMENTS, 0, "the type of the result is needed here; found the end"},
    {"  (f32)", TN_FOR_ELEMENTS, 2, "the type of the result is needed here; found '('"},
    {"float(float)", TN_FOR_ELEMENTS, 0, "there is no type 'float'; did you mean f32?"},
    {"f32(f23)", TN_FOR_ELEMENTS, 4, "there is no type 'f23'; did you mean f32?"},
    {"f32(x : f23)", TN_FOR_ELEMENTS, 8, "there is no type 'f23'; did you mean f32?"},
    {"f32(f32", TN_FOR_ELEMENTS, 7, "',' or ')' is needed here; found the end"},
    {"f32 f32", TN_FOR_ELEMENTS, 4, "'(' is needed here; found 'f32'"},
    {"f32(f32) x", TN_FOR_ELEMENTS, 9, "nothing may follow the ')'; found 'x'"},
    {"f32(f32))", TN_FOR_ELEMENTS, 8, "nothing may follow the ')'"},
    {"f32*(f32)", TN_FOR_ELEMENTS, 3, "a result can not be a pointer"},
    {"f32(void)", TN_FOR_ELEMENTS, 4, "no argument can be void; a function without arguments is written f64()"},
    {"f32()", TN_FOR_ELEMENTS, 4, "no argument takes the element"},
    {"f32(f32,)", TN_FOR_ELEMENTS, 8, "a type is needed here; found ')'"},
    {"f32(f32, f32)", TN_FOR_ELEMENTS, 9, "argument 1 takes the element already"},
    {"f32(c: f32 = 1, f32, y: f32)", TN_FOR_ELEMENTS, 21, "argument 2 takes the element already"},
    {"f32(x: i32)", TN_FOR_ELEMENTS, 4, "elements are f32 or f64, not i32"},
    {"i32(f32)", TN_FOR_ELEMENTS, 0, "elements are f32 or f64, not i32"},
    {"f32(x: f32*)", TN_FOR_ELEMENTS, 4, "pointers go with a function that returns void"},
    {"f32(x: f32, x: f32 = 2)", TN_FOR_ELEMENTS, 12, "two arguments are called 'x'"},
    {"f64(n: i32 = 2.5, x: f64)", TN_FOR_ELEMENTS, 13, "2.5 is no i32"},
    {"f64(n: u32 = -1, x: f64)", TN_FOR_ELEMENTS, 13, "-1 is no u32"},
    {"f32(f32, c: f32 = 1e60)", TN_FOR_ELEMENTS, 18, "1e+60 is no f32"},
    {"f64(f64, c: f64 = 2 * )", TN_FOR_ELEMENTS, 22, "a number, a name, '-' or '(' is needed here"},
    {"f64(f64, c: f64 = step)", TN_FOR_ELEMENTS, 18, "there is no 'step' to compute with; known: pi"},
    {"f64(f64, c: f64 = 1e)", TN_FOR_ELEMENTS, 18, "'1e' is no number"},
    {"f64(f64, c: f64 = (1 + 2)", TN_FOR_ELEMENTS, 25, "',' or ')' is needed here; found the end"},
    {"f64(f64, a: f64 = 1, b: f64 = 1, c: f64 = 1, d: f64 = 1, e: f64 = 1, f: f64 = 1, g: f64 = 1, h: f64 = 1)",
     TN_FOR_ELEMENTS, 93, "too many arguments; at most 8"},
    {"void(f32)", TN_FOR_ELEMENTS, 0, "void returns nothing; a function of one element returns f32 or f64"},
    {" void(n: i64, x: f32*)", TN_FOR_ELEMENTS, 21, "a pointer y must take the results"},
    {"void(x: f32*, y: f32*)", TN_FOR_ELEMENTS, 21, "an integer n must tell"},
    {"void(n: f64, x: f32*, y: f32*)", TN_FOR_ELEMENTS, 5, "an integer n, the pointers x and y"},
    {"void(n: i64, x: f32*, z: f32*)", TN_FOR_ELEMENTS, 22, "an integer n, the pointers x and y"},
    {"void(n: i64, x: f32*, y: f64*)", TN_FOR_ELEMENTS, 22, "x and y need the same type"},
    {"void(n: i64, x: i32*, y: i32*)", TN_FOR_ELEMENTS, 13, "elements are f32 or f64, not i32"},
    {"void(n: i64, x: f32* = 3, y: f32*)", TN_FOR_ELEMENTS, 23, "a pointer takes no value"},
    {"void(step: f64)", TN_FOR_SCHEDULE, 0, "a scheduler's function must return a number"},
    {"f64(f64)", TN_FOR_SCHEDULE, 4, "the argument needs a name of the position"},
    {"f64(step: f64, horizn: f64)", TN_FOR_SCHEDULE, 15,
     "there is no 'horizn' to compute with; did you mean 'horizon'"},
    {"f64(step: f64*)", TN_FOR_SCHEDULE, 4, "no pointers"},
    {"f64(x: f64 = pi * (progress)", TN_FOR_SCHEDULE, 28, "',' or ')' is needed here"},
    {"f64(x: f64 = pi * progess)", TN_FOR_SCHEDULE, 18, "did you mean 'progress'"},
    {"f64(x: f64 = ((step))", TN_FOR_SCHEDULE, 21, "',' or ')' is needed here"},
    {"f64(x: f64 = (step]", TN_FOR_SCHEDULE, 18, "')' is needed here"},
    {"f64(\xC3\xA9: f64)", TN_FOR_SCHEDULE, 4, "a type is needed here; found '\xC3\xA9'"},
};

START_TEST(a_wrong_signature_is_refused_at_the_byte)
{
    tn_signature signature = {.count = -7};
    tn_error err = {0};
    size_t at = 12345;
    ck_assert_int_eq(tn_signature_parse(wrong[_i].text, wrong[_i].purpose, 32, &signature, &at, &err), TN_E_INVALID);
    ck_assert_msg(strstr(err.msg, wrong[_i].part) != NULL, "%s: %s", wrong[_i].text, err.msg);
    ck_assert_msg(at == wrong[_i].at, "%s: at %zu, not %zu: %s", wrong[_i].text, at, wrong[_i].at, err.msg);
    ck_assert_int_eq(signature.count, -7);
}
END_TEST

START_TEST(f32_is_refused_under_f64)
{
    tn_signature signature;
    tn_error err = {0};
    size_t at;
    ck_assert_int_eq(tn_signature_parse("f32(f32)", TN_FOR_ELEMENTS, 64, &signature, &at, &err), TN_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "a function of f32 would lose it"));
    ck_assert_uint_eq(at, 0);
    ck_assert_int_eq(tn_signature_parse("f64( x : f32)", TN_FOR_ELEMENTS, 64, &signature, &at, &err), TN_E_INVALID);
    ck_assert_uint_eq(at, 5);
    ck_ok(tn_signature_parse("f32(step: f32)", TN_FOR_SCHEDULE, 64, &signature, &at, &err), err);
}
END_TEST

START_TEST(signatures_say_what_is_passed)
{
    tn_signature s;
    tn_error err = {0};
    size_t at;
    ck_ok(tn_signature_parse(" f64 ( n : i32 = 6 / 2 , f64 ) ", TN_FOR_ELEMENTS, 32, &s, &at, &err), err);
    ck_assert(s.count == 2 && s.x == 1 && s.y == -1 && s.n == -1 && s.result == TN_NUMBER_F64);
    ck_assert_str_eq(s.argument[0].name, "n");
    ck_assert_int_eq(s.argument[0].type, TN_NUMBER_I32);
    ck_assert_double_eq(tn_expression_value(&s.argument[0].value, NULL), 3);
    ck_ok(tn_signature_parse("void(y: f64*, c: f64 = 2, n: u64)", TN_FOR_ELEMENTS, 64, &s, &at, &err), err);
    ck_assert(s.x == -1 && s.y == 0 && s.n == 2 && s.result == TN_NUMBER_VOID);
    ck_ok(tn_signature_parse("i64(horizon: i64, a: f32 = step / 2)", TN_FOR_SCHEDULE, 32, &s, &at, &err), err);
    const double position[TN_POSITION_COUNT] = {5, 7};
    ck_assert_double_eq(tn_expression_value(&s.argument[0].value, position), 7);
    ck_assert_double_eq(tn_expression_value(&s.argument[1].value, position), 2.5);
}
END_TEST

/* ---- expressions ---- */

START_TEST(expressions_have_the_usual_order)
{
    static const char *const names[] = {"x", "y", NULL};
    static const struct {
        const char *text;
        double value; /* at x = 3, y = 0.5 */
    } cases[] = {{"1 - y*y", 0.75}, {"2 + 3 * x", 11},    {"(2 + 3) * x", 15},
                 {"12 / x / 2", 2}, {"10 - 3 - 2", 5},    {"-x * -y", 1.5},
                 {"--x", 3},        {"-(x - 1)", -2},     {"-(2 + x)", -5},
                 {"2 - -1", 3},     {"1e-1 * 0x10", 1.6}, {"pi", M_PI},
                 {".5 + 1.", 1.5},  {"-2 * x + y", -5.5}, {"x / (y - 0.5)", INFINITY}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        tn_expression e;
        tn_error err = {0};
        size_t at = 0;
        const double values[] = {3, 0.5};
        ck_ok(tn_expression_parse(cases[i].text, &at, names, &e, &err), err);
        ck_assert_uint_eq(at, strlen(cases[i].text));
        expect(tn_expression_value(&e, values) == cases[i].value, "%s: %g", cases[i].text,
               tn_expression_value(&e, values));
        float x[TN_EXPRESSION_RUN], y[TN_EXPRESSION_RUN], out[TN_EXPRESSION_RUN];
        for (int k = 0; k < TN_EXPRESSION_RUN; k++) {
            x[k] = 3;
            y[k] = 0.5F;
        }
        tn_expression_f32(&e, TN_EXPRESSION_RUN, (const float *const[]){x, y}, out);
        expect(out[0] == (float)cases[i].value && out[TN_EXPRESSION_RUN - 1] == out[0], "%s: %g", cases[i].text,
               (double)out[0]);
    }
}
END_TEST

START_TEST(expressions_have_limits)
{
    tn_expression e;
    tn_error err = {0};
    char text[512] = "1";
    size_t at = 0;
    for (int i = 0; i < 15; i++)
        strcat(text, "+1");
    ck_ok(tn_expression_parse(text, &at, NULL, &e, &err), err);
    ck_assert_double_eq(tn_expression_value(&e, NULL), 16);
    at = 0;
    ck_assert_int_eq(tn_expression_parse(strcat(text, "+1"), &at, NULL, &e, &err), TN_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "too long"));
    memset(text, '(', 200);
    strcpy(text + 200, "1");
    at = 0;
    ck_assert_int_eq(tn_expression_parse(text, &at, NULL, &e, &err), TN_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "more than 16"));
    ck_assert_uint_eq(at, 16);
    strcpy(text,
           "1-(1-(1-(1-(1-(1-(1-(1-(1-(1-(1-(1-(1-(1-(1-(1)))))))))))))))"); /* as many operands as there can be */
    at = 0;
    ck_ok(tn_expression_parse(text, &at, NULL, &e, &err), err);
    ck_assert_double_eq(tn_expression_value(&e, NULL), 0);
    float out[TN_EXPRESSION_RUN];
    tn_expression_f32(&e, TN_EXPRESSION_RUN, NULL, out);
    ck_assert_float_eq(out[17], 0);
}
END_TEST

/* ---- libraries ---- */

START_TEST(sonames_come_from_system_directories_only)
{
    char *path = NULL;
    tn_error err = {0};
    ck_ok(tn_foreign_find("libm.so.6", &path, &err), err);
    ck_assert_msg(path[0] == '/' && strstr(path, "libm"), "%s", path);
    tn_free(path);
    const char *name = strrchr(library(), '/') + 1;
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s", (int)(name - library() - 1), library());
    setenv("LD_LIBRARY_PATH", folder, 1);
    ck_assert_int_eq(chdir(folder), 0);
    ck_assert_refused(tn_foreign_find(name, &path, &err), TN_E_NOT_FOUND, err, "there is no library", name);
    char relative[PATH_MAX + 8];
    snprintf(relative, sizeof relative, "./%s", name);
    ck_assert_refused(tn_foreign_find(relative, &path, &err), TN_E_INVALID, err, "'./", "no absolute path");
    ck_assert_refused(tn_foreign_find("", &path, &err), TN_E_INVALID, err, "''", "libm.so.6");
    ck_ok(tn_foreign_find(library(), &path, &err), err);
    ck_assert_str_eq(path, library());
    tn_free(path);
}
END_TEST

START_TEST(files_are_checked_before_they_are_mapped)
{
    char *path;
    tn_error err = {0};
    make_directory();
    write_text(in_test("text.so"), "INPUT ( libm.so.6 )");
    ck_assert_refused(tn_foreign_find(in_test("text.so"), &path, &err), TN_E_PLUGIN, err, "NOT_ELF", "text.so");
    ck_assert_refused(tn_foreign_find(in_test("none.so"), &path, &err), TN_E_NOT_FOUND, err, "", "No such file");
    ck_assert_int_eq(chmod(in_test("text.so"), 0666), 0);
    ck_assert_refused(tn_foreign_find(in_test("text.so"), &path, &err), TN_E_PLUGIN, err, "UNTRUSTED_PATH", "text.so");
    void (*address)(void);
    ck_assert_refused(tn_foreign_open(in_test("text.so"), "f", NULL, &address, &err), TN_E_PLUGIN, err,
                      "UNTRUSTED_PATH", "text.so");
    remove_directory();
}
END_TEST

START_TEST(symbols_are_functions_of_the_file_itself)
{
    tn_error err = {0};
    ck_ok(tn_foreign_exports(library(), "square", &err), err);
    ck_assert_refused(tn_foreign_exports(library(), "sqare", &err), TN_E_NOT_FOUND, err, library(),
                      "did you mean 'square'?");
    ck_assert_refused(tn_foreign_exports(library(), "some_data", &err), TN_E_PLUGIN, err, library(), "is data");
    ck_assert_refused(tn_foreign_exports(library(), "pow", &err), TN_E_NOT_FOUND, err, library(),
                      "exports no function");
    char *path;
    ck_ok(tn_foreign_find("libm.so.6", &path, &err), err);
    ck_ok(tn_foreign_exports(path, "tanhf", &err), err); /* chosen by processor in the GNU library */
    tn_free(path);
}
END_TEST

/* ---- calls ---- */

static void prepare(const char *symbol, const char *signature, int32_t purpose, tn_function *ret)
{
    tn_signature s;
    tn_error err = {0};
    void (*address)(void);
    size_t at;
    ck_ok(tn_signature_parse(signature, purpose, 32, &s, &at, &err), err);
    ck_ok(tn_foreign_open(library(), symbol, NULL, &address, &err), err);
    ck_ok(tn_function_prepare(&s, address, ret, &err), err);
}

/* f over numbers of both types is what `expected` gives, and x is left alone. */
static void check_calls(const char *symbol, const char *signature, double (*expected)(double))
{
    enum { N = 1100 }; /* more than a conversion takes at once */
    static float x[N], y[N];
    static double wide_x[N], wide_y[N];
    tn_function f;
    prepare(symbol, signature, TN_FOR_ELEMENTS, &f);
    for (int i = 0; i < N; i++)
        wide_x[i] = x[i] = (float)(i - N / 2) / 64;
    tn_function_f32(&f, N, x, y);
    tn_function_f64(&f, N, wide_x, wide_y);
    for (int i = 0; i < N; i++) {
        double y_i = expected((i - N / 2) / 64.0);
        expect((double)y[i] == y_i && wide_y[i] == y_i, "%s(%g): %g and %g, not %g", symbol, wide_x[i], (double)y[i],
               wide_y[i], y_i);
        expect((double)x[i] == wide_x[i] && wide_x[i] == (i - N / 2) / 64.0, "%s: x[%d] has changed", symbol, i);
    }
    tn_function_f32(&f, 0, x, y);
    tn_function_f64(&f, 0, NULL, NULL);
}

static double halved(double x) { return x / 2; }
static double squared(double x) { return x * x; }
static double and_three(double x) { return x + 3; }
static double from_three(double x) { return 3 - x; }
static double doubled(double x) { return 2 * x; }
static double of_many(double x) { return 0.5 * x + 4294967295.0 - 7 + 9; }

START_TEST(every_shape_of_element_calls)
{
    check_calls("half_f", "f32(f32)", halved);
    check_calls("square", "f64(f64)", squared);
    check_calls("add_f", "f32(f32, c: f32 = 3)", and_three);
    check_calls("take_f", "f32(c: f32 = 3, x: f32)", from_three);
    check_calls("add", "f64(f64, c: f64 = 1 + 2)", and_three);
    check_calls("take", "f64(c: f64 = 3, x: f64)", from_three);
    check_calls("power", "f64(n: i32 = 2, x: f64)", squared);
    check_calls("to_float", "f32(f64)", doubled);
    check_calls("twice_f", "void(n: i64, x: f32*, y: f32*)", doubled);
    check_calls("scale_in_place", "void(y: f64*, c: f64 = 2, n: i32)", doubled);
}
END_TEST

START_TEST(every_type_is_passed)
{
    tn_function f;
    double x = 1, y;
    prepare("mixed", "f64(a: f32 = 0.5, b: u32 = 4294967295, x: f64, c: i64 = -7, d: u64 = 9)", TN_FOR_ELEMENTS, &f);
    tn_function_f64(&f, 1, &x, &y);
    ck_assert_double_eq(y, of_many(1));
    prepare("ratio", "f64(step: i64, horizon: f64)", TN_FOR_SCHEDULE, &f);
    ck_assert_double_eq(tn_function_at(&f, (const double[TN_POSITION_COUNT]){3.75, 4}), 0.75);
    prepare("whole", "i32(step: i32)", TN_FOR_SCHEDULE, &f);
    ck_assert_double_eq(tn_function_at(&f, (const double[TN_POSITION_COUNT]){12}), -12);
    ck_assert_double_eq(tn_function_at(&f, (const double[TN_POSITION_COUNT]){1e12}), -2147483647.0);
    prepare("constant", "f64()", TN_FOR_SCHEDULE, &f);
    ck_assert_double_eq(tn_function_at(&f, (const double[TN_POSITION_COUNT]){0}), 0.25);
}
END_TEST

/* ---- instances ---- */

/* An activation of the test's library, bound; settings are pairs that end in NULL. Else TN_OK is not returned. */
static int32_t open_with(const char *kind, uint32_t real, const char *const *pairs, void *table, size_t size,
                         tn_instance **ret, tn_error *err)
{
    tn_setting settings[8];
    char quoted[256]; /* a ':' would begin a mapping */
    size_t count = 0;
    for (; pairs[2 * count]; count++) {
        settings[count] = (tn_setting){pairs[2 * count], pairs[2 * count + 1]};
        if (strcmp(pairs[2 * count], "signature") == 0) {
            snprintf(quoted, sizeof quoted, "\"%s\"", pairs[2 * count + 1]);
            settings[count].value = quoted;
        }
    }
    *ret = NULL;
    int32_t status = tn_instance_create(test_plugins(), kind, "ffi", real, "place", settings, count, ret, err);
    return status ? status : tn_instance_load(*ret, test_plugins(), table, size, err);
}

#define PAIRS(...) ((const char *const[]){"library", library(), __VA_ARGS__, NULL})
#define LIBM(...)  ((const char *const[]){__VA_ARGS__, NULL})

enum { ELEMENTS = 700 };

/* y and dx of an activation, at x from -3.5 in steps of 0.01 and dy = 2; wide numbers of its own real type. */
typedef struct {
    double x[ELEMENTS], y[ELEMENTS], dx[ELEMENTS];
} curve;

static void take(uint32_t real, const void *from, double *to)
{
    for (int i = 0; i < ELEMENTS; i++)
        to[i] = real == 32 ? (double)((const float *)from)[i] : ((const double *)from)[i];
}

static void run_activation(const tn_instance *instance, const tn_layer *layer, curve *ret)
{
    static _Alignas(64) double x[ELEMENTS], y[ELEMENTS], dy[ELEMENTS], dx[ELEMENTS];
    int64_t shape[] = {7, ELEMENTS / 7}, strides[] = {ELEMENTS / 7, 1};
    for (int i = 0; i < ELEMENTS; i++) {
        double at = -3.5 + 0.01 * i;
        if (instance->real == 32) {
            ((float *)x)[i] = (float)at;
            ((float *)dy)[i] = 2;
        } else {
            x[i] = at;
            dy[i] = 2;
        }
    }
    const tn_tensor like = {
        .dtype = {TN_FLOAT, (uint8_t)instance->real, 1}, .ndim = 2, .shape = shape, .strides = strides};
    tn_tensor tensor[4] = {like, like, like, like};
    tensor[0].data = x, tensor[1].data = y, tensor[2].data = dy, tensor[3].data = dx;
    tn_layer_call call = {.struct_size = sizeof call,
                          .hyper = instance->hyper,
                          .x = &tensor[0],
                          .y = &tensor[1],
                          .dy = &tensor[2],
                          .dx = &tensor[3],
                          .flags = TN_WANT_DX};
    for (call.lo = 0; call.lo < ELEMENTS; call.lo += 320) {
        call.n = ELEMENTS - call.lo < 320 ? ELEMENTS - call.lo : 320;
        layer->forward(&call);
        layer->backward(&call);
    }
    take(instance->real, x, ret->x);
    take(instance->real, y, ret->y);
    take(instance->real, dx, ret->dx);
}

static void check_tanh(uint32_t real, const char *const *pairs, double value_error, double slope_error)
{
    tn_layer layer;
    tn_instance *instance;
    tn_error err = {0};
    static curve c;
    ck_ok(open_with("activation", real, pairs, &layer, sizeof layer, &instance, &err), err);
    run_activation(instance, &layer, &c);
    for (int i = 0; i < ELEMENTS; i++) {
        double y = tanh(c.x[i]), slope = 2 * (1 - y * y);
        expect(fabs(c.y[i] - y) <= value_error, "tanh(%g): %.17g, not %.17g", c.x[i], c.y[i], y);
        expect(fabs(c.dx[i] - slope) <= slope_error, "tanh'(%g): %.17g, not %.17g", c.x[i], c.dx[i], slope);
    }
    tn_instance_free(instance);
}

START_TEST(derivatives_come_as_expression_symbol_or_differences)
{
    const double ulp = 0x1p-24; /* of numbers in [0.5, 1): tanhf is within two */
    check_tanh(32, LIBM("symbol", "tanhf", "signature", "f32(f32)", "derivative", "1 - y * y"), 2 * ulp, 8 * ulp);
    check_tanh(32, LIBM("symbol", "tanhf", "signature", "f32(f32)"), 2 * ulp, 1e-5);
    check_tanh(32, LIBM("symbol", "tanh", "signature", "f64(f64)"), ulp, 2 * ulp);
    check_tanh(64, LIBM("symbol", "tanh", "signature", "f64(f64)"), 0, 2e-11);
    check_tanh(64, LIBM("symbol", "tanh", "signature", "f64(f64)", "derivative", "(1 - y) * (1 + y)"), 0, 2e-15);
    static curve c;
    tn_layer layer;
    tn_instance *instance;
    tn_error err = {0};
    ck_ok(open_with("activation", 32, PAIRS("symbol", "square", "signature", "f64(f64)", "derivative", "square_slope"),
                    &layer, sizeof layer, &instance, &err),
          err);
    run_activation(instance, &layer, &c);
    for (int i = 0; i < ELEMENTS; i++)
        expect(c.dx[i] == (double)(float)(4 * c.x[i]), "square'(%g): %g", c.x[i], c.dx[i]);
    tn_instance_free(instance);
}
END_TEST

START_TEST(forward_is_the_function_itself)
{
    static curve c;
    tn_layer layer;
    tn_instance *instance;
    tn_error err = {0};
    ck_ok(open_with("activation", 32, LIBM("symbol", "tanhf", "signature", "f32(f32)"), &layer, sizeof layer, &instance,
                    &err),
          err);
    run_activation(instance, &layer, &c);
    for (int i = 0; i < ELEMENTS; i++)
        expect(c.y[i] == (double)tanhf((float)c.x[i]), "tanhf(%g): %.9g", c.x[i], c.y[i]);
    tn_instance_free(instance);
}
END_TEST

static const struct {
    const char *kind, *symbol, *signature, *derivative;
    int32_t status;
    const char *code, *part;
} caught[] = {
    {"activation", "crash", "f64(f64)", NULL, TN_E_PLUGIN, "FOREIGN_CRASH", "crash was ended by SIGSEGV at x = 3.0"},
    {"transform", "crash_at_nan", "f64(f64)", NULL, TN_E_PLUGIN, "FOREIGN_CRASH", "SIGSEGV at x = "},
    {"transform", "leave", "f64(f64)", NULL, TN_E_PLUGIN, "FOREIGN_CRASH", "exit code 7 at x = 1.0"},
    {"transform", "unsteady", "f64(f64)", NULL, TN_E_PLUGIN, "FOREIGN_UNSTEADY", "unsteady(-3.9"},
    {"scheduler", "unsteady_step", "f64(step: f64)", NULL, TN_E_PLUGIN, "FOREIGN_UNSTEADY", "unsteady_step at step"},
    {"transform", "beyond", "void(n: i64, x: f64*, y: f64*)", NULL, TN_E_PLUGIN, "FOREIGN_CRASH",
     "behind the end of 'y'"},
    {"transform", "into_x", "void(n: i64, x: f64*, y: f64*)", NULL, TN_E_PLUGIN, "FOREIGN_CRASH",
     "'x', which is lent for reading only"},
    {"transform", "by_length", "void(n: i64, x: f64*, y: f64*)", NULL, TN_E_PLUGIN, "FOREIGN_UNSTEADY", "by_length("},
    {"activation", "square", "f64(f64)", "x", TN_E_INVALID, "FOREIGN_DERIVATIVE", "`derivative: x` gives"},
    {"activation", "square", "f64(f64)", "half_f", TN_E_INVALID, "FOREIGN_DERIVATIVE", "`derivative: half_f` gives"},
    {"activation", "kink", "f64(f64)", NULL, TN_E_INVALID, "FOREIGN_DERIVATIVE", "two widths give"},
    {"activation", "crash_at_nan", "f64(f64)", "crash", TN_E_PLUGIN, "FOREIGN_CRASH", ""},
};

START_TEST(a_trial_finds)
{
    tn_layer table;
    tn_instance *instance;
    tn_error err = {0};
    const char *derivative = caught[_i].derivative;
    int32_t status = open_with(caught[_i].kind, 64,
                               PAIRS("symbol", caught[_i].symbol, "signature", caught[_i].signature,
                                     derivative ? "derivative" : NULL, derivative),
                               &table, sizeof table, &instance, &err);
    ck_assert_msg(status == caught[_i].status, "%s: %s", tn_status_name(status), err.msg);
    ck_assert_msg(strstr(err.msg, caught[_i].code) && strstr(err.msg, caught[_i].part), "%s", err.msg);
    ck_assert_msg(strncmp(err.msg, "place: ", 7) == 0, "%s", err.msg);
    ck_assert_ptr_null(instance->foreign);
    tn_instance_free(instance);
}
END_TEST

START_TEST(a_trial_ends)
{
    tn_layer table;
    tn_instance *instance;
    tn_error err = {0};
    time_t start = time(NULL);
    ck_assert_int_eq(open_with("transform", 64, PAIRS("symbol", "hang", "signature", "f64(f64)"), &table, sizeof table,
                               &instance, &err),
                     TN_E_PLUGIN);
    ck_assert_int_le(time(NULL) - start, 20);
    ck_assert_msg(strstr(err.msg, "hang did not return within 10 seconds at x = 2.0"), "%s", err.msg);
    tn_instance_free(instance);
}
END_TEST

START_TEST(a_kink_needs_a_derivative)
{
    tn_layer table;
    tn_instance *instance;
    tn_error err = {0};
    ck_ok(open_with("activation", 64, PAIRS("symbol", "kink", "signature", "f64(f64)", "derivative", "kink_slope"),
                    &table, sizeof table, &instance, &err),
          err);
    tn_instance_free(instance);
    ck_ok(open_with("activation", 64, PAIRS("symbol", "kink", "signature", "f64(f64)", "low", "0.1"), &table,
                    sizeof table, &instance, &err),
          err);
    tn_instance_free(instance);
    ck_ok(open_with("activation", 32, LIBM("symbol", "fabsf", "signature", "f32(f32)", "derivative", "x / y"), &table,
                    sizeof table, &instance, &err),
          err);
    tn_instance_free(instance);
}
END_TEST

/* ---- schedules ---- */

static double value_at(const tn_instance *instance, const tn_scheduler *table, int64_t step, int64_t horizon)
{
    const tn_position at = {.struct_size = sizeof at, .step = step, .horizon = horizon, .base = 0.3, .epoch = 2};
    return table->value(instance->hyper, &at, NULL);
}

START_TEST(cos_is_the_cosine_schedule)
{
    tn_scheduler ours, theirs;
    tn_instance *foreign, *cosine = component_open("scheduler", "cosine", 0, &theirs, sizeof theirs);
    tn_error err = {0};
    ck_ok(open_with("scheduler", 32,
                    LIBM("symbol", "cos", "signature", "f64(x: f64 = pi * progress)", "value", "base * (1 + f) / 2"),
                    &ours, sizeof ours, &foreign, &err),
          err);
    for (int64_t step = 0; step < 50; step++) {
        double a = value_at(foreign, &ours, step, 50), b = value_at(cosine, &theirs, step, 50);
        expect(fabs(a - b) <= 1e-16, "step %d: %.17g, not %.17g", (int)step, a, b);
    }
    tn_instance_free(foreign);
    tn_instance_free(cosine);
}
END_TEST

START_TEST(positions_go_by_name)
{
    tn_scheduler table;
    tn_instance *instance;
    tn_error err = {0};
    ck_ok(open_with("scheduler", 32, PAIRS("symbol", "ratio", "signature", "f64(step: i64, horizon: f64)"), &table,
                    sizeof table, &instance, &err),
          err);
    ck_assert_double_eq(value_at(instance, &table, 3, 12), 0.25);
    ck_assert_double_eq(value_at(instance, &table, 12, 12), 1);
    component_set(instance, "value", "f * epoch + base - step");
    ck_ok(tn_instance_load(instance, test_plugins(), &table, sizeof table, &err), err);
    ck_assert_double_eq(value_at(instance, &table, 3, 12), 0.25 * 2 + 0.3 - 3);
    ck_assert_int_eq(tn_instance_set(instance, test_plugins(), "value", "f *", &err), TN_E_INVALID);
    ck_assert_int_eq(tn_instance_set(instance, test_plugins(), "symbol", "none", &err), TN_E_NOT_FOUND);
    ck_assert_str_eq(((const tn_ffi_scheduler *)instance->hyper)->value, "f * epoch + base - step");
    ck_assert_str_eq(((const tn_ffi_scheduler *)instance->hyper)->symbol, "ratio");
    ck_assert_double_eq(value_at(instance, &table, 3, 12), 0.25 * 2 + 0.3 - 3); /* what was refused changes nothing */
    tn_instance_free(instance);
}
END_TEST

/* ---- transforms ---- */

START_TEST(a_transform_goes_over_scaled_gradients)
{
    for (uint32_t real = 32; real <= 64; real += 32) {
        world *w = world_new(real, 3);
        world_vector(w, 5000);
        world_vector(w, 3);
        world_arenas(w);
        world_fill(w, w->parameters.p, 1);
        world_fill(w, w->parameters.g, 2);
        const tn_setting settings[] = {{"library", library()}, {"symbol", "square"}, {"signature", "f64(f64)"}};
        ck_ok(tn_instance_create(w->registry, "transform", "ffi", real, "update.ffi", settings, COUNT(settings),
                                 &w->links[w->link_count++], &w->err),
              w->err);
        world_link(w, "sgd", "lr", "1");
        world_chain(w);
        world_step(w, 0.5);
        for (int64_t i = 0; i < 2; i++)
            for (int64_t j = 0; j < w->list[i].n; j++) {
                double g = 0.5 * world_get(w, w->parameters.g, i, j), p = world_noise(i, j, 1), got = world_p(w, i, j);
                p = real == 32 ? (double)((float)p - (float)(g * g)) : p - g * g;
                expect(got == p, "%d %d: %.17g, not %.17g", (int)i, (int)j, got, p);
            }
        world_free(w);
    }
}
END_TEST

/* ---- experiments ---- */

#define REST "data: idx\nloss: cross-entropy\nupdate: adamw\ntrain: {epochs: 1}\n"

static const struct {
    const char *text; /* with '@' before the character at fault */
    int32_t status;
    const char *part;
} refused[] = {
    {"model:\n  activation: {use: ffi, symbol: tanhf, signature: \"f32(@f23)\"}\n  use: mlp\n", TN_E_INVALID,
     "signature: there is no type 'f23'"},
    {"model: {use: mlp, activation: {use: ffi, symbol: tanhf, signature: '@float(float)'}}\n", TN_E_INVALID,
     "did you mean f32?"},
    {"model:\n  use: mlp\n  activation:\n    use: ffi\n    symbol: tanhf\n    signature: f32(f32, @f32)\n",
     TN_E_INVALID, "argument 1 takes the element already"},
    {"model:\n  use: mlp\n  activation:\n    use: ffi\n    symbol: tanhf\n    signature: f32(f32@\n", TN_E_INVALID,
     "',' or ')' is needed here"},
    {"model: {use: mlp, activation: {use: ffi, symbol: tanhf, signature: \"@void(f32)\"}}\n", TN_E_INVALID,
     "void returns nothing"},
    {"model: {use: mlp, activation: {use: ffi, symbol: tanhf, signature: \"f32(f32) @-> f32\"}}\n", TN_E_INVALID,
     "nothing may follow"},
    {"model: mlp\nschedule:\n  adamw.lr: {use: ffi, symbol: cos, signature: \"f64(step: f64, @horzion: f64)\"}\n",
     TN_E_INVALID, "did you mean 'horizon'"},
    {"model: mlp\nschedule:\n  adamw.lr: {use: ffi, symbol: cos, signature: \"f64(x: f64 = @\xC3\xA9)\"}\n",
     TN_E_INVALID, "a number, a name"},
    {"# \xC3\xA9\nmodel: {use: mlp, activation: {use: ffi, symbol: tanhf, signature: \"f32(@\xC3\xA9)\"}}\n",
     TN_E_INVALID, "a type is needed here"},
    {"model: {use: mlp, activation: {use: ffi, symbol: @tahnf, signature: \"f32(f32)\"}}\n", TN_E_NOT_FOUND,
     "did you mean 'tanhf'?"},
    {"model: {use: mlp, activation: {use: ffi, symbol: tanhf, library: @libm.so, signature: \"f32(f32)\"}}\n",
     TN_E_PLUGIN, "sonames end in a number"},
    {"model: {use: mlp, activation: {use: ffi, symbol: tanhf, library: @x/libm.so.6, signature: \"f32(f32)\"}}\n",
     TN_E_INVALID, "no absolute path"},
    {"model: {use: mlp, activation: {use: ffi, symbol: tanhf, signature: \"f32(f32)\", derivative: \"1 - y @y\"}}\n",
     TN_E_INVALID, "derivative: an operator is needed here"},
    {"model: {use: mlp, activation: {use: ffi, symbol: tanhf, signature: \"f32(f32)\", derivative: @tanfh}}\n",
     TN_E_NOT_FOUND, "did you mean 'tanhf'?"},
    {"model: {use: mlp, activation: {use: ffi, symbol: tanhf, signature: \"f32(f32)\", low: @5}}\n", TN_E_INVALID,
     "low must be less than high"},
    {"model: {use: mlp, activation: @{use: ffi, signature: \"f32(f32)\"}}\n", TN_E_INVALID,
     "symbol needs the name of a function"},
    {"model: {use: mlp, activation: @{use: ffi, symbol: tanhf}}\n", TN_E_INVALID,
     "signature needs the type of the function, such as f32(f32)"},
    {"model: mlp\nprecision: f64\nupdate: [{use: ffi, symbol: tanhf, signature: \"@f32(f32)\"}, adamw]\n", TN_E_INVALID,
     "a function of f32 would lose it"},
};

/* The text without its '@', and where that was: line and column, both from 1. */
static size_t strip(const char *text, char *out, size_t *ret_line, size_t *ret_column)
{
    size_t n = 0;
    *ret_line = *ret_column = 1;
    const char *mark = strchr(text, '@');
    for (const char *at = text; *at; at++) {
        if (at < mark) {
            *ret_column += ((unsigned char)*at & 0xC0) != 0x80;
            if (*at == '\n') {
                ++*ret_line;
                *ret_column = 1;
            }
        }
        if (at != mark)
            out[n++] = *at;
    }
    out[n] = 0;
    return n;
}

/* The character above the caret of the message's last line. */
static const char *above_caret(const char *message)
{
    const char *caret_line = strrchr(message, '\n'), *above = caret_line;
    while (above[-1] != '\n')
        above--;
    size_t column = strchr(caret_line, '^') - caret_line - 1;
    for (; column > 0; column--)
        do
            above++;
        while (((unsigned char)*above & 0xC0) == 0x80);
    return above;
}

START_TEST(an_experiment_shows_the_character)
{
    char text[1024], prefix[64];
    size_t line, column;
    tn_error err = {0};
    tn_experiment *e;
    size_t size = strip(refused[_i].text, text, &line, &column);
    const char *rest =
        strstr(refused[_i].text, "update:") ? "data: idx\nloss: cross-entropy\ntrain: {epochs: 1}\n" : REST;
    size += (size_t)snprintf(text + size, sizeof text - size, "%s", rest);
    int32_t status = tn_experiment_parse(test_plugins(), "x.yaml", text, size, NULL, 0, &e, &err);
    ck_assert_msg(status == refused[_i].status, "%s: %s", tn_status_name(status), err.msg);
    snprintf(prefix, sizeof prefix, "x.yaml:%zu:%zu: ", line, column);
    ck_assert_msg(strncmp(err.msg, prefix, strlen(prefix)) == 0, "not %s%s", prefix, err.msg);
    ck_assert_msg(strstr(err.msg, refused[_i].part) != NULL, "%s", err.msg);
    const char *fault = strchr(refused[_i].text, '@') + 1, *shown = above_caret(err.msg);
    ck_assert_msg(*fault == *shown, "the caret is below '%s': %s", shown, err.msg);
}
END_TEST

START_TEST(an_override_tells_the_character)
{
    tn_error err = {0};
    tn_experiment *e;
    const char *override = "model.activation={use: ffi, symbol: tanhf, signature: \"f32(f23)\"}";
    ck_assert_int_eq(tn_experiment_parse(test_plugins(), "x.yaml", "model: mlp\n" REST, strlen("model: mlp\n" REST),
                                         &override, 1, &e, &err),
                     TN_E_INVALID);
    ck_assert_msg(strstr(err.msg, "signature, character 5: there is no type 'f23'"), "%s", err.msg);
}
END_TEST

START_TEST(resolved_text_reads_back)
{
    tn_error err = {0};
    tn_experiment *e, *again;
    const char *text = "model: {use: mlp, activation: {use: ffi, symbol: tanhf, signature: \"f32(x: f32)\"}}\n"
                       "schedule: {adamw.lr: [{use: linear, steps: 5}, {use: ffi, symbol: cos, signature: \"f64(step: "
                       "f64)\", value: \"1 + f\"}]}\n" REST;
    ck_ok(tn_experiment_parse(test_plugins(), "x.yaml", text, strlen(text), NULL, 0, &e, &err), err);
    ck_ok(tn_experiment_parse(test_plugins(), "x.yaml", e->resolved, strlen(e->resolved), NULL, 0, &again, &err), err);
    ck_assert_str_eq(e->resolved, again->resolved);
    ck_assert_ptr_nonnull(strstr(e->resolved, "f32(x: f32)"));
    tn_experiment_free(e);
    tn_experiment_free(again);
}
END_TEST

/* ---- the registry ---- */

START_TEST(they_are_listed_as_any_other)
{
    static const char *const kinds[] = {"activation", "scheduler", "transform"};
    tn_error err = {0};
    for (size_t i = 0; i < COUNT(kinds); i++) {
        const tn_entry_info *entry;
        tn_text text = {0};
        ck_ok(tn_registry_find(test_plugins(), kinds[i], "ffi", "cpu", 64, &entry, &err), err);
        ck_assert(entry->own && entry->state == TN_FOUND && entry->path[0] == '/');
        ck_ok(tn_registry_list_text(test_plugins(), kinds[i], 0, &text, &err), err);
        ck_assert_ptr_nonnull(strstr(text.data, "ffi"));
        tn_text_free(&text);
        ck_ok(tn_registry_info_text(test_plugins(), entry, &text, &err), err);
        ck_assert_ptr_nonnull(strstr(text.data, "signature"));
        tn_text_free(&text);
        ck_ok(tn_registry_info_json(test_plugins(), entry, &text, &err), err);
        json_error_t why;
        json_t *json = json_loads(text.data, JSON_REJECT_DUPLICATES, &why);
        ck_assert_msg(json != NULL, "%s", why.text);
        ck_assert_str_eq(json_string_value(json_object_get(json, "plugin")), "org.tenon.ffi");
        json_decref(json);
        tn_text_free(&text);
    }
}
END_TEST

START_TEST(memory_may_run_out)
{
    test_plugins();
    for (int64_t nth = 0;; nth++) {
        tn_layer table;
        tn_instance *instance;
        tn_error err = {0};
        tn_memory_fail_at(nth);
        int32_t status = open_with("activation", 32, PAIRS("symbol", "half_f", "signature", "f32(f32)"), &table,
                                   sizeof table, &instance, &err);
        tn_memory_fail_at(-1);
        tn_instance_free(instance);
        if (status == TN_OK) {
            ck_assert_int_gt(nth, 10);
            break;
        }
        ck_assert_msg(status == TN_E_MEMORY, "%s: %s", tn_status_name(status), err.msg);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("foreign");
    TCase *tests = tcase_create("foreign");
    tcase_add_loop_test(tests, a_wrong_signature_is_refused_at_the_byte, 0, COUNT(wrong));
    tcase_add_test(tests, f32_is_refused_under_f64);
    tcase_add_test(tests, signatures_say_what_is_passed);
    tcase_add_test(tests, expressions_have_the_usual_order);
    tcase_add_test(tests, expressions_have_limits);
    tcase_add_test(tests, sonames_come_from_system_directories_only);
    tcase_add_test(tests, files_are_checked_before_they_are_mapped);
    tcase_add_test(tests, symbols_are_functions_of_the_file_itself);
    tcase_add_test(tests, every_shape_of_element_calls);
    tcase_add_test(tests, every_type_is_passed);
    tcase_add_test(tests, derivatives_come_as_expression_symbol_or_differences);
    tcase_add_test(tests, forward_is_the_function_itself);
    tcase_add_loop_test(tests, a_trial_finds, 0, COUNT(caught));
    tcase_add_test(tests, a_trial_ends);
    tcase_add_test(tests, a_kink_needs_a_derivative);
    tcase_add_test(tests, cos_is_the_cosine_schedule);
    tcase_add_test(tests, positions_go_by_name);
    tcase_add_test(tests, a_transform_goes_over_scaled_gradients);
    tcase_add_loop_test(tests, an_experiment_shows_the_character, 0, COUNT(refused));
    tcase_add_test(tests, an_override_tells_the_character);
    tcase_add_test(tests, resolved_text_reads_back);
    tcase_add_test(tests, they_are_listed_as_any_other);
    tcase_add_test(tests, memory_may_run_out);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
