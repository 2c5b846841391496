/* SPDX-License-Identifier: Apache-2.0
 *
 * host/experiment/instance: the hyper struct from settings, what each type of row takes and refuses, components within
 * components, and that a failed change changes nothing. `rows` is tests/extra/experiment-rows.c.
 */
#include <math.h>

#include "host/base/memory.h"
#include "host/experiment/instance.h"
#include "tests/extra/rows.h"
#include "tests/support.h"

static tn_registry *registry;

static void set_up(void) { registry = test_registry("TENON_TEST_PLUGINS"); }

static void tear_down(void) { tn_registry_close(registry); }

static tn_instance *make(const char *kind, const char *name)
{
    tn_instance *instance = NULL;
    tn_error err = {0};
    ck_ok(tn_instance_create(registry, kind, name, 32, "here", NULL, 0, &instance, &err), err);
    return instance;
}

/* Both parts are in the message of a refusal, which leaves the output alone. */
static void check_refused(int32_t code, const char *kind, const char *name, const tn_setting *settings, size_t n,
                          const char *part, const char *other)
{
    tn_instance *instance = (tn_instance *)&registry;
    tn_error err = {0};
    ck_assert_int_eq(tn_instance_create(registry, kind, name, 32, "here", settings, n, &instance, &err), code);
    ck_assert_int_eq(err.code, code);
    ck_assert_ptr_eq(instance, (tn_instance *)&registry);
    if (!strstr(err.msg, part) || !strstr(err.msg, other))
        ck_abort_msg("'%s' and '%s' are not both in: %s", part, other, err.msg);
}

START_TEST(defaults_fill_the_struct)
{
    tn_instance *instance = make("optimizer", "rows");
    const rows *h = instance->hyper;
    ck_assert_str_eq(instance->path, "here");
    ck_assert_str_eq(instance->handle, "rows");
    ck_assert_uint_eq(instance->hyper_size, offsetof(rows, end_));
    ck_assert_double_eq(h->step, 0.5);
    ck_assert(isnan(h->any_real));
    ck_assert_double_eq(h->unit, 0.125);
    ck_assert_int_eq(h->count, 3);
    ck_assert_int_eq(h->large, 0);
    ck_assert_int_eq(h->open, 1);
    ck_assert_int_eq(h->mode, 0);
    ck_assert_str_eq(h->label, "a \"b\"");
    ck_assert_int_eq(h->sizes.count, 2);
    ck_assert_int_eq(h->sizes.values[0], 2);
    ck_assert_int_eq(h->sizes.values[1], -3);
    ck_assert_int_eq(h->empty.count, 0);
    ck_assert_ptr_null(h->empty.values);
    ck_assert_int_eq(h->first, 0);
    ck_assert_int_eq(h->second, -1);
    ck_assert_int_eq(h->third, 1);
    ck_assert_uint_eq(instance->child_count, 2);
    ck_assert_str_eq(instance->children[0]->info->name, "relu");
    ck_assert_str_eq(instance->children[0]->path, "here.first");
    ck_assert_str_eq(instance->children[1]->info->name, "layernorm");
    tn_instance_free(instance);
}
END_TEST

START_TEST(settings_fill_the_struct)
{
    const tn_setting settings[] = {{"step", "1e-3"},
                                   {"any-real", "inf"},
                                   {"unit", "0.25"},
                                   {"count", "0x10"},
                                   {"large", "-9223372036854775808"},
                                   {"open", "false"},
                                   {"mode", "fan-in"},
                                   {"label", "no"},
                                   {"sizes", "[]"},
                                   {"empty", "7"},
                                   {"first", "none"},
                                   {"second", "{use: dropout, p: 0.25}"},
                                   {"third", "batchnorm"}};
    tn_instance *instance = NULL;
    tn_error err = {0};
    ck_ok(tn_instance_create(registry, "optimizer", "rows", 64, "here", settings, sizeof settings / sizeof *settings,
                             &instance, &err),
          err);
    const rows *h = instance->hyper;
    ck_assert_double_eq(h->step, 0.001);
    ck_assert(isinf(h->any_real) && h->any_real > 0);
    ck_assert_double_eq(h->unit, 0.25);
    ck_assert_int_eq(h->count, 16);
    ck_assert_int_eq(h->large, INT64_MIN);
    ck_assert_int_eq(h->open, 0);
    ck_assert_int_eq(h->mode, 2);
    ck_assert_str_eq(h->label, "no");
    ck_assert_int_eq(h->sizes.count, 0);
    ck_assert_int_eq(h->empty.count, 1);
    ck_assert_int_eq(h->empty.values[0], 7);
    ck_assert_int_eq(h->first, -1);
    ck_assert_uint_eq(instance->child_count, 2);
    const tn_instance *dropout = instance->children[h->second], *norm = instance->children[h->third];
    ck_assert_double_eq(*tn_instance_real(dropout, tn_instance_row(dropout, "p")), 0.25);
    ck_assert_uint_eq(dropout->info->real, 64);
    ck_assert_str_eq(norm->info->name, "batchnorm");
    tn_instance_free(instance);
}
END_TEST

START_TEST(each_type_takes_its_own)
{
    static const struct {
        const char *row, *text, *message; /* NULL: taken */
    } cases[] = {
        {"step", "1E-3", NULL},
        {"step", "+1e-3", NULL},
        {"step", "0x10", NULL},
        {"step", "5e-324", NULL},
        {"step", "0", NULL},
        {"step", "\"1e-3\"",
         "'step' of optimizer 'rows' (real) takes a number in [0, inf); found the text \"1e-3\"; remove the quotes"},
        {"step", ".5", "'.5'; write a digit on both sides"},
        {"step", "1.", "write a digit on both sides"},
        {"step", "1_000e-6", "write numbers without '_'"},
        {"step", "1e400", "does not fit"},
        {"step", "1e-400", "does not fit"},
        {"step", "inf", "[0, inf); found 'inf'"},
        {"step", "nan", "found 'nan'"},
        {"step", "-0.1", "found '-0.1'"},
        {"step", "0,5", "found '0,5'"},
        {"step", "", "found nothing"},
        {"step", "[1]", "found a list"},
        {"step", "{a: 1}", "found a mapping"},
        {"step", "one", "found 'one'"},
        {"step", ".inf", "found '.inf'"},
        {"any_real", "inf", NULL},
        {"any_real", "nan", NULL},
        {"any_real", "-inf", "found '-inf'"},
        {"unit", "0", "(fixed) takes a number in (0, 1]; found '0'"},
        {"count", "100", NULL},
        {"count", "101", "an integer in [1, 100] things; since 1.2.0; found '101'"},
        {"count", "1e1", "found '1e1'"},
        {"count", "5.0", "found '5.0'"},
        {"count", "\"5\"", "remove the quotes"},
        {"count", "'x'", "the text \"x\""},
        {"large", "9223372036854775807", NULL},
        {"large", "9223372036854775808", "does not fit"},
        {"open", "true", NULL},
        {"open", "no", "(flag) takes true or false; found 'no'"},
        {"open", "1", "found '1'"},
        {"open", "'true'", "the text \"true\""},
        {"mode", "paper", NULL},
        {"mode", "'paper'", NULL},
        {"mode", "papr", "one of torch | paper | fan_in; found 'papr'; did you mean 'paper'?"},
        {"label", "\"\"", NULL},
        {"label", "1e-3", NULL},
        {"label", "~", NULL},
        {"label", "", "write \"\" for the empty text"},
        {"label", "[a]", "found a list"},
        {"label", "\xff", "is not UTF-8"},
        {"label", "\"a\\0b\"", "NUL"},
        {"sizes", "[1, 0x2, -5]", NULL},
        {"sizes", "[1, 6]", "a list of integers, each in [-5, 5]; found '6'"},
        {"sizes", "[[1]]", "found a list"},
        {"first", "gelu", NULL},
        {"first", "{use: gelu}", NULL},
        {"first", "{}", NULL},
        {"second", "{use: dropout}", NULL},
        {"first", "dropout", "'dropout' is a component of kind regularizer, not activation"},
        {"first", "rel", "no activation is called 'rel'; did you mean 'relu'?"},
        {"first", "{use: gelu, x: 1}", "unknown key 'x' of activation 'gelu'"},
        {"first", "{use: none, x: 1}", "unknown key 'x' of 'none'"},
        {"first", "[gelu]", "found a list"},
        {"first", "{use: [gelu]}", "found a list"},
        {"second", "{p: 0.5}", "needs 'use:' with the name of a regularizer"},
        {"first", "*a", "has no anchor"},
        {"first", "{a: 1", "not valid YAML"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tn_setting setting = {cases[i].row, cases[i].text};
        tn_instance *instance = NULL;
        tn_error err = {0};
        int32_t status = tn_instance_create(registry, NULL, "rows", 32, "here", &setting, 1, &instance, &err);
        if (cases[i].message ? !status || !strstr(err.msg, cases[i].message) : status)
            ck_abort_msg("%s=%s: %d: '%s' is not: %s", cases[i].row, cases[i].text, (int)status, err.msg,
                         cases[i].message);
        if (status)
            ck_assert_ptr_nonnull(strstr(err.msg, "here: setting '"));
        tn_instance_free(instance);
    }
}
END_TEST

START_TEST(refuses_what_it_does_not_know)
{
    const tn_setting typing = {"siezs", "1"}, twice[] = {{"open", "true"}, {"open", "false"}}, use = {"use", "adam"};
    check_refused(TN_E_INVALID, "optimizer", "rows", &typing, 1, "unknown key 'siezs'", "did you mean 'sizes'?");
    check_refused(TN_E_INVALID, "optimizer", "rows", twice, 2, "'open'", "twice");
    check_refused(TN_E_INVALID, "optimizer", "rows", &use, 1, "'use'", "can not be given");
    check_refused(TN_E_NOT_FOUND, "optimizer", "adamv", NULL, 0, "'adamv'", "did you mean 'adam'?");
    check_refused(TN_E_NOT_FOUND, "loss", "adamw", NULL, 0, "of kind optimizer", "not loss");
    check_refused(TN_E_NOT_FOUND, "no-kind", "adamw", NULL, 0, "optimizer", "not no-kind");
    check_refused(TN_E_NOT_FOUND, "no-kind", "nothing", NULL, 0, "no no-kind is called 'nothing'",
                  "no plugin of that kind");
    check_refused(TN_E_INVALID, NULL, "twin", NULL, 0, "transform", "average");
    check_refused(TN_E_INVALID, "model", "endless", NULL, 0, "inner.inner", "more than 16 components");
}
END_TEST

START_TEST(set_changes_one_row)
{
    tn_instance *instance = make("optimizer", "rows");
    const rows *h = instance->hyper;
    tn_error err = {0};
    ck_ok(tn_instance_set(instance, registry, "any-real", "2", &err), err);
    ck_assert_double_eq(h->any_real, 2);
    ck_ok(tn_instance_set(instance, registry, "label", "x", &err), err);
    ck_assert_str_eq(h->label, "x");
    ck_ok(tn_instance_set(instance, registry, "sizes", "[1, 2, 3]", &err), err);
    ck_assert_int_eq(h->sizes.values[2], 3);
    /* components: in place, taken out (the others move up), put in again */
    ck_ok(tn_instance_set(instance, registry, "first", "gelu", &err), err);
    ck_assert_int_eq(h->first, 0);
    ck_assert_str_eq(instance->children[0]->info->name, "gelu");
    ck_ok(tn_instance_set(instance, registry, "first", "none", &err), err);
    ck_assert_int_eq(h->first, -1);
    ck_assert_int_eq(h->third, 0);
    ck_assert_uint_eq(instance->child_count, 1);
    ck_ok(tn_instance_set(instance, registry, "second", "{use: dropout, p: 0}", &err), err);
    ck_ok(tn_instance_set(instance, registry, "first", "relu", &err), err);
    ck_assert_uint_eq(instance->child_count, 3);
    ck_assert_str_eq(instance->children[h->first]->info->name, "relu");
    ck_assert_str_eq(instance->children[h->second]->info->name, "dropout");
    ck_assert_str_eq(instance->children[h->third]->info->name, "layernorm");
    ck_ok(tn_instance_set(instance, registry, "second", "none", &err), err);
    ck_ok(tn_instance_set(instance, registry, "second", "none", &err), err);
    ck_assert_uint_eq(instance->child_count, 2);
    tn_instance_free(instance);
}
END_TEST

START_TEST(a_failed_set_changes_nothing)
{
    static const tn_setting cases[] = {{"step", "-1"},
                                       {"label", ""},
                                       {"sizes", "[1, 2, 99]"},
                                       {"first", "nothing"},
                                       {"open", "maybe"},
                                       {"mode", "x"},
                                       {"third", "{use: batchnorm, momentum: 2}"},
                                       {"absent", "1"}};
    tn_instance *instance = make("optimizer", "rows");
    rows before = *(const rows *)instance->hyper;
    tn_instance *child = instance->children[0], *other = instance->children[1];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tn_error err = {0};
        ck_assert_int_ne(tn_instance_set(instance, registry, cases[i].name, cases[i].value, &err), TN_OK);
        ck_assert_ptr_nonnull(strstr(err.msg, "here"));
        ck_assert_int_eq(tn_instance_set(instance, registry, cases[i].name, cases[i].value, NULL), err.code);
        ck_assert_mem_eq(instance->hyper, &before, offsetof(rows, end_));
        ck_assert_uint_eq(instance->child_count, 2);
        ck_assert_ptr_eq(instance->children[0], child);
        ck_assert_ptr_eq(instance->children[1], other);
    }
    tn_instance_free(instance);
}
END_TEST

START_TEST(rows_go_by_name)
{
    tn_instance *instance = make("optimizer", "rows");
    ck_assert_str_eq(tn_instance_row(instance, "any-real")->name, "any_real");
    ck_assert_ptr_eq(tn_instance_row(instance, "any_real"), tn_instance_row(instance, "any-real"));
    ck_assert_ptr_null(tn_instance_row(instance, "any"));
    ck_assert_int_eq(tn_instance_integer(instance, tn_instance_row(instance, "count")), 3);
    *tn_instance_real(instance, tn_instance_row(instance, "step")) = 7;
    ck_assert_double_eq(((const rows *)instance->hyper)->step, 7);
    tn_instance_free(instance);
    tn_instance_free(NULL);
}
END_TEST

/* The one that is freed anew at each round is the new one; the registry's notes are parsed by then. */
START_TEST(every_allocation_may_fail)
{
    const tn_setting settings[] = {{"label", "x"}, {"sizes", "[1, 2]"}, {"second", "{use: dropout, p: 0.25}"}};
    tn_instance *instance = NULL, *kept = make("optimizer", "rows");
    tn_error err = {0};
    int64_t n = 0, failures = 0;
    for (int reached = 1; reached; n++) {
        int64_t before = tn_memory_count();
        tn_memory_fail_at(n);
        int32_t status = tn_instance_create(registry, "optimizer", "rows", 32, "here", settings, 3, &instance, &err);
        reached = tn_memory_count() - before > n;
        tn_memory_fail_at(-1);
        ck_assert_int_eq(status, reached ? TN_E_MEMORY : TN_OK);
        failures += status != TN_OK;
    }
    ck_assert_int_gt(failures, 20);
    tn_instance_free(instance);
    for (int reached = 1, i = 0; reached; i++) {
        rows before = *(const rows *)kept->hyper;
        int64_t count = tn_memory_count();
        tn_memory_fail_at(i);
        int32_t status = tn_instance_set(kept, registry, "second", "dropout", &err);
        reached = tn_memory_count() - count > i;
        tn_memory_fail_at(-1);
        ck_assert_int_eq(status, reached ? TN_E_MEMORY : TN_OK);
        if (status)
            ck_assert_mem_eq(kept->hyper, &before, offsetof(rows, end_));
    }
    tn_instance_free(kept);
}
END_TEST

/* ---- selectors ---- */

static int admits(tn_selector on, int32_t role, int32_t axes, const char *name)
{
    const tn_parameter parameter = {.struct_size = sizeof parameter, .role = role, .name = name, .ndim = axes};
    return tn_selector_admits(&on, &parameter);
}

START_TEST(a_selector_admits_what_all_conditions_admit)
{
    char *hidden[] = {"hidden.*"}, *two[] = {"head.?ias", "*.norm.*"};
    const tn_selector any = {0}, biases = {.roles = 1u << TN_ROLE_BIAS},
                      both = {.roles = 1u << TN_ROLE_BIAS | 1u << TN_ROLE_NORM},
                      others = {.roles = 1u << TN_ROLE_OTHER}, named = {.names = hidden, .name_count = 1},
                      either = {.names = two, .name_count = 2}, matrices = {.least_axes = 2, .most_axes = 2},
                      flat = {.least_axes = 0, .most_axes = 1}, all = {1u << TN_ROLE_WEIGHT, hidden, 1, 2, 4};
    const tn_parameter parameter = {.struct_size = sizeof parameter, .name = "x"};
    ck_assert(tn_selector_admits(NULL, &parameter));
    ck_assert(admits(any, TN_ROLE_HEAD, 0, ""));
    ck_assert(admits(biases, TN_ROLE_BIAS, 1, "x") && !admits(biases, TN_ROLE_WEIGHT, 1, "x"));
    ck_assert(admits(both, TN_ROLE_BIAS, 1, "x") && admits(both, TN_ROLE_NORM, 1, "x"));
    ck_assert(!admits(both, TN_ROLE_OTHER, 1, "x") && admits(others, TN_ROLE_OTHER, 1, "x"));
    ck_assert(!admits(others, 40, 1, "x") && !admits(others, -1, 1, "x"));
    ck_assert(admits(named, 0, 1, "hidden.0.linear.weight") && !admits(named, 0, 1, "head.hidden.weight"));
    ck_assert(!admits(named, 0, 1, "Hidden.0") && !admits(named, 0, 1, "hidden"));
    ck_assert(admits(either, 0, 1, "head.bias") && admits(either, 0, 1, "hidden.1.norm.gain"));
    ck_assert(!admits(either, 0, 1, "head.bbias") && !admits(either, 0, 1, "norm.gain"));
    ck_assert(admits(matrices, 0, 2, "x") && !admits(matrices, 0, 1, "x") && !admits(matrices, 0, 3, "x"));
    ck_assert(admits(flat, 0, 0, "x") && admits(flat, 0, 1, "x") && !admits(flat, 0, 2, "x"));
    ck_assert(admits(all, TN_ROLE_WEIGHT, 3, "hidden.0.weight") && !admits(all, TN_ROLE_BIAS, 3, "hidden.0.weight"));
    ck_assert(!admits(all, TN_ROLE_WEIGHT, 1, "hidden.0.weight") && !admits(all, TN_ROLE_WEIGHT, 3, "head.weight"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("instance");
    TCase *tests = tcase_create("instance");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, defaults_fill_the_struct);
    tcase_add_test(tests, settings_fill_the_struct);
    tcase_add_test(tests, each_type_takes_its_own);
    tcase_add_test(tests, refuses_what_it_does_not_know);
    tcase_add_test(tests, set_changes_one_row);
    tcase_add_test(tests, a_failed_set_changes_nothing);
    tcase_add_test(tests, rows_go_by_name);
    tcase_add_test(tests, every_allocation_may_fail);
    tcase_add_test(tests, a_selector_admits_what_all_conditions_admit);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
