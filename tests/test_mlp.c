/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/model/mlp: the graph it asks for, and what it refuses.
 */
#include <stdio.h>

#include <tenon/model.h>

#include "tests/component.h"

/* A builder that writes down what it is asked for: "kind/name instance settings <- input". */
typedef struct notes {
    char text[4096];
    const tn_instance *model;
    int64_t nodes;   /* given out so far */
    int64_t fail_at; /* the node that can not be built; 0: none */
} notes;

static int64_t note(notes *n, const char *what, const char *instance, const char *settings, const int64_t *inputs,
                    int64_t input_count)
{
    size_t used = strlen(n->text);
    ck_assert_int_eq(input_count, 1);
    ck_assert_int_ge(inputs[0], 0);
    if (++n->nodes == n->fail_at)
        return -TN_E_MEMORY;
    snprintf(n->text + used, sizeof n->text - used, "%s %s%s <- %lld\n", what, instance, settings,
             (long long)inputs[0]);
    return n->nodes;
}

static int64_t note_layer(void *host, const char *kind, const char *name, const char *instance,
                          const tn_setting *settings, int64_t setting_count, const int64_t *inputs, int64_t input_count)
{
    char what[64], set[64] = "";
    snprintf(what, sizeof what, "%s/%s", kind, name);
    for (int64_t i = 0; i < setting_count; i++)
        snprintf(set + strlen(set), sizeof set - strlen(set), " %s=%s", settings[i].name, settings[i].value);
    return note(host, what, instance, set, inputs, input_count);
}

static int64_t note_child(void *host, int64_t handle, const char *instance, const int64_t *inputs, int64_t input_count)
{
    const tn_instance *model = ((notes *)host)->model;
    char what[64];
    ck_assert_uint_lt((size_t)handle, model->child_count);
    snprintf(what, sizeof what, "%s/%s", model->children[handle]->info->kind, model->children[handle]->info->name);
    return note(host, what, instance, "", inputs, input_count);
}

typedef struct model {
    tn_model table;
    notes n;
    tn_error err;
} model;

static tn_instance *model_open(model *m, const char *widths)
{
    memset(m, 0, sizeof *m);
    tn_instance *instance = component_open("model", "mlp", 0, &m->table, sizeof m->table);
    component_set(instance, "widths", widths);
    m->n.model = instance;
    return instance;
}

static int64_t build(model *m, int32_t ndim, int64_t classes)
{
    static const int64_t shape[] = {128, 784, 1, 1};
    const tn_builder builder = {sizeof builder, 0, &m->n, note_layer, note_child, NULL};
    const tn_model_input input = {sizeof input, ndim, shape, classes, 0, 0, NULL};
    return m->table.build(m->n.model->hyper, &input, &builder, &m->err);
}

START_TEST(all_parts)
{
    model m;
    tn_instance *mlp = model_open(&m, "[256, 32]");
    component_set(mlp, "regularizer", "dropout");
    component_set(mlp, "activation", "gelu");
    component_set(mlp, "normalizer", "layernorm");
    ck_assert_int_eq(build(&m, 2, 10), 9);
    ck_assert_str_eq(m.n.text, "layer/linear hidden.0.linear out=256 head=false <- 0\n"
                               "normalizer/layernorm hidden.0.norm <- 1\n"
                               "activation/gelu hidden.0.activation <- 2\n"
                               "regularizer/dropout hidden.0.regularizer <- 3\n"
                               "layer/linear hidden.1.linear out=32 head=false <- 4\n"
                               "normalizer/layernorm hidden.1.norm <- 5\n"
                               "activation/gelu hidden.1.activation <- 6\n"
                               "regularizer/dropout hidden.1.regularizer <- 7\n"
                               "layer/linear head out=10 head=true <- 8\n");
    tn_instance_free(mlp);
}
END_TEST

START_TEST(few_parts)
{
    model m;
    tn_instance *mlp = model_open(&m, "[256]");
    ck_assert_int_eq(build(&m, 2, 3), 3);
    ck_assert_str_eq(m.n.text, "layer/linear hidden.0.linear out=256 head=false <- 0\n"
                               "activation/relu hidden.0.activation <- 1\n"
                               "layer/linear head out=3 head=true <- 2\n");
    tn_instance_free(mlp);
    mlp = model_open(&m, "[]");
    ck_assert_int_eq(build(&m, 2, 3), 1);
    ck_assert_str_eq(m.n.text, "layer/linear head out=3 head=true <- 0\n");
    tn_instance_free(mlp);
}
END_TEST

/* A head of one output a number of the target, from hosts that tell its shape. */
START_TEST(real_targets)
{
    static const int64_t shape[] = {128, 784}, target[] = {5, 2};
    model m;
    tn_instance *mlp = model_open(&m, "[]");
    const tn_builder builder = {sizeof builder, 0, &m.n, note_layer, note_child, NULL};
    tn_model_input input = {sizeof input, 2, shape, 0, 1, 0, target};
    ck_assert_int_eq(m.table.build(mlp->hyper, &input, &builder, &m.err), 1);
    ck_assert_str_eq(m.n.text, "layer/linear head out=5 head=true <- 0\n");
    input.target_ndim = 2;
    ck_assert_int_eq(m.table.build(mlp->hyper, &input, &builder, &m.err), -TN_E_INVALID);
    ck_assert_ptr_nonnull(strstr(m.err.msg, "targets of 2 axes"));
    input.target_ndim = 1;
    input.struct_size = 24; /* an older host */
    ck_assert_int_eq(m.table.build(mlp->hyper, &input, &builder, &m.err), -TN_E_INVALID);
    tn_instance_free(mlp);
}
END_TEST

START_TEST(refusals)
{
    model m;
    tn_instance *mlp = model_open(&m, "[256]");
    ck_assert_int_eq(build(&m, 4, 10), -TN_E_INVALID);
    ck_assert_ptr_nonnull(strstr(m.err.msg, "[128, 784, 1, 1]"));
    ck_assert_ptr_nonnull(strstr(m.err.msg, "flatten"));
    ck_assert_int_eq(build(&m, 1, 10), -TN_E_INVALID);
    ck_assert_int_eq(build(&m, 2, 0), -TN_E_INVALID);
    ck_assert_ptr_nonnull(strstr(m.err.msg, "0 classes"));
    ck_assert_str_eq(m.n.text, "");
    tn_instance_free(mlp);
}
END_TEST

/* Whatever node fails, it is the last one asked for and its status comes back. */
START_TEST(the_builder_fails)
{
    for (int64_t at = 1; at <= 5; at++) {
        model m;
        tn_instance *mlp = model_open(&m, "[256, 32]");
        m.n.fail_at = at;
        ck_assert_int_eq(build(&m, 2, 10), -TN_E_MEMORY);
        ck_assert_int_eq(m.n.nodes, at);
        tn_instance_free(mlp);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mlp");
    TCase *tcase = tcase_create("mlp");
    tcase_add_test(tcase, all_parts);
    tcase_add_test(tcase, few_parts);
    tcase_add_test(tcase, real_targets);
    tcase_add_test(tcase, refusals);
    tcase_add_test(tcase, the_builder_fails);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
