/* SPDX-License-Identifier: Apache-2.0
 *
 * Every layer, normalizer, activation and regularizer of the built plugins: what the contract promises of all, in loops
 * over the registry; then each one's values against golden/layers.json and the known faults by name.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <tenon/optimizer.h>
#include <tenon/sdk.h>

#include "tests/component.h"
#include "tests/layer_drive.h"

#define BACKWARD (TN_TRAIN | TN_WANT_DX | TN_WANT_DW)

typedef struct subject {
    tn_instance *instance;
    tn_layer layer;
} subject;

static tn_instance *loaded[512]; /* freed after each test */
static size_t loaded_count;

/* At the defaults, but for `out`: small layers are enough. */
static subject load(const char *kind, const char *name, uint32_t real)
{
    subject s = {.layer = {.struct_size = sizeof s.layer}};
    ck_assert_uint_lt(loaded_count, sizeof loaded / sizeof *loaded);
    s.instance = loaded[loaded_count++] = component_open(kind, name, real, &s.layer, sizeof s.layer);
    if (tn_instance_row(s.instance, "out"))
        component_set(s.instance, "out", "5");
    return s;
}

static void unload_all(void)
{
    while (loaded_count)
        tn_instance_free(loaded[--loaded_count]);
}

static int32_t try(const subject *s, int32_t ndim, const int64_t *shape, drive *ret, tn_error *err)
{
    int32_t status = TN_E_INVALID;
    for (int32_t inputs = 1; status == TN_E_INVALID && inputs <= DRIVE_PORTS; inputs++)
        status = drive_create(&s->layer, s->instance->info, s->instance->hyper, inputs, ndim, shape, ret, err);
    return status;
}

static void need(const subject *s, int32_t ndim, const int64_t *shape, drive *ret)
{
    tn_error err = {0};
    ck_assert_msg(try(s, ndim, shape, ret, &err) == TN_OK, "%s: %s", s->instance->info->name, err.msg);
}

static int may_run(const drive *d, uint32_t flags)
{
    tn_error err = {0};
    return !d->layer->check || d->layer->check(d->hyper, &d->x[0].view, flags, &err) == TN_OK;
}

/* ---- the loop ---- */

static const struct {
    int32_t ndim;
    int64_t shape[3];
} shapes[] = {{2, {1, 1}},  {2, {1, 7}},  {2, {1, 64}},  {2, {3, 1}},   {2, {3, 7}},    {2, {3, 64}},
              {2, {17, 1}}, {2, {17, 7}}, {2, {17, 64}}, {2, {5, 193}}, {3, {3, 2, 7}}, {3, {2, 5, 64}}};
#define SHAPES (sizeof shapes / sizeof *shapes)

/* Calls `examine` for each layer of the registry in `real` with each shape it takes; fails where it takes none. */
static void each_layer(uint32_t real, void (*examine)(drive *d))
{
    int layers = 0;
    for (size_t i = 0; i < tn_registry_count(test_plugins()); i++) {
        const tn_entry_info *entry = tn_registry_at(test_plugins(), i);
        if (entry->state != TN_FOUND || strcmp(entry->interface, TN_LAYER) != 0 || entry->real != real ||
            strcmp(entry->device, "cpu") != 0)
            continue;
        subject s = load(entry->kind, entry->name, real);
        int taken = 0;
        for (size_t k = 0; k < SHAPES; k++) {
            drive d;
            tn_error err = {0};
            if (try(&s, shapes[k].ndim, shapes[k].shape, &d, &err) == TN_OK) {
                taken++;
                examine(&d);
                drive_free(&d);
            } else
                ck_assert_msg(err.msg[0], "%s refuses a shape and gives no reason", entry->name);
        }
        ck_assert_msg(taken >= 3, "%s takes %d of the shapes", entry->name, taken);
        layers++;
    }
    ck_assert_int_ge(layers, 6);
}

/* ---- differences ---- */

static double objective(drive *d, uint32_t flags)
{
    double sum = 0;
    drive_forward(d, flags, 0, 0);
    for (int64_t i = 0; i < drive_elements(&d->y); i++)
        sum += drive_get(&d->dy, i) * drive_get(&d->y, i);
    return sum;
}

static double difference(drive *d, uint32_t flags, drive_tensor *t, int64_t i)
{
    const double h = 1e-4, at = drive_get(t, i);
    double value[4];
    for (int k = 0; k < 4; k++) {
        static const double step[] = {-2, -1, 1, 2};
        drive_set(t, i, at + step[k] * h);
        value[k] = objective(d, flags);
    }
    drive_set(t, i, at);
    return (8 * (value[2] - value[1]) - (value[3] - value[0])) / (12 * h);
}

static void check_slopes(drive *d, uint32_t flags, drive_tensor *t, const double *slopes, const char *what)
{
    int64_t n = drive_elements(t), step = n / 40 + 1;
    double largest = 1;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(slopes[i]));
    for (int64_t i = 0; i < n; i += step) {
        double numeric = difference(d, flags, t, i);
        if (!(fabs(numeric - slopes[i]) < 1e-7 * largest))
            ck_abort_msg("%s [%lld, %lld]: d/d%s[%lld] is %.12g, by differences %.12g", d->info->name,
                         (long long)d->x[0].shape[0], (long long)d->x[0].shape[1], what, (long long)i, slopes[i],
                         numeric);
    }
}

static double *read_all(const drive_tensor *t)
{
    int64_t n = drive_elements(t);
    double *values = malloc(((size_t)n + 1) * sizeof *values);
    ck_assert_ptr_nonnull(values);
    for (int64_t i = 0; i < n; i++)
        values[i] = drive_get(t, i);
    return values;
}

static void examine_slopes(drive *d)
{
    for (int64_t i = 0; i < drive_elements(&d->x[0]); i++)
        if (fabs(drive_get(&d->x[0], i)) < 1e-2)
            drive_set(&d->x[0], i, 0.5); /* off the kink of relu */
    for (int train = 0; train <= 1; train++) {
        uint32_t flags = train ? TN_TRAIN : 0;
        if (!may_run(d, flags))
            continue;
        drive_forward(d, flags, 0, 0);
        drive_backward(d, flags | TN_WANT_DX | TN_WANT_DW, 0, 0);
        double *dx[DRIVE_PORTS], *dw[DRIVE_PORTS];
        for (int i = 0; i < d->inputs; i++)
            dx[i] = read_all(&d->dx[i]);
        for (int i = 0; i < d->parameters; i++)
            dw[i] = read_all(&d->gradient[i]);
        for (int i = 0; i < d->inputs; i++) {
            check_slopes(d, flags, &d->x[i], dx[i], "x");
            free(dx[i]);
        }
        for (int i = 0; i < d->parameters; i++) {
            check_slopes(d, flags, &d->parameter[i], dw[i], d->parameter_name[i]);
            free(dw[i]);
        }
    }
}

START_TEST(backward_is_the_slope_of_forward) { each_layer(64, examine_slopes); }
END_TEST

/* ---- what may not change a bit ---- */

static void same_bits(const drive *d, const drive_tensor *t, const void *before, const char *what, const char *why)
{
    ck_assert_msg(memcmp(t->view.data, before, t->bytes) == 0, "%s [%lld, %lld] f%u: %s depends on %s", d->info->name,
                  (long long)d->x[0].shape[0], (long long)d->x[0].shape[1], d->real, what, why);
}

static void *copy_of(const drive_tensor *t)
{
    void *copy = malloc(t->bytes + 1);
    ck_assert_ptr_nonnull(copy);
    return memcpy(copy, t->view.data, t->bytes);
}

/* y, dx and gradients of one piece, to compare with. */
typedef struct {
    void *y, *dx[DRIVE_PORTS], *gradient[DRIVE_PORTS];
    double *slope[DRIVE_PORTS];
} outcome;

static outcome outcome_of(drive *d)
{
    outcome o = {.y = copy_of(&d->y)};
    for (int i = 0; i < d->inputs; i++)
        o.dx[i] = copy_of(&d->dx[i]);
    for (int i = 0; i < d->parameters; i++) {
        o.gradient[i] = copy_of(&d->gradient[i]);
        o.slope[i] = read_all(&d->gradient[i]);
    }
    return o;
}

static void free_outcome(outcome *o)
{
    free(o->y);
    for (int i = 0; i < DRIVE_PORTS; i++) {
        free(o->dx[i]);
        free(o->gradient[i]);
        free(o->slope[i]);
    }
}

static void check_gradients(const drive *d, const outcome *o)
{
    double tolerance = d->real == 64 ? 1e-12 : 1e-5;
    for (int i = 0; i < d->parameters; i++) {
        if (strcmp(drive_axis(d), "rows") != 0) {
            same_bits(d, &d->gradient[i], o->gradient[i], "a gradient", "the cut");
            continue;
        }
        for (int64_t j = 0; j < drive_elements(&d->gradient[i]); j++)
            ck_assert_double_eq_tol(drive_get(&d->gradient[i], j), o->slope[i][j],
                                    tolerance * fmax(1, fabs(o->slope[i][j])));
    }
}

static void examine_pieces(drive *d)
{
    static const int64_t element_cuts[] = {64, 128, 640}, other_cuts[] = {1, 2, 48};
    const int64_t *cuts = strcmp(drive_axis(d), "elements") ? other_cuts : element_cuts;
    for (int train = 0; train <= 1; train++) {
        uint32_t flags = train ? TN_TRAIN : 0;
        if (!may_run(d, flags))
            continue;
        drive_forward(d, flags, 0, 0);
        drive_backward(d, flags | TN_WANT_DX | TN_WANT_DW, 0, 0);
        outcome o = outcome_of(d);
        for (int k = 0; k < 3; k++) {
            drive_forward(d, flags, cuts[k], 0);
            drive_backward(d, flags | TN_WANT_DX | TN_WANT_DW, cuts[k], 0);
            same_bits(d, &d->y, o.y, "y", "the cut");
            for (int i = 0; i < d->inputs; i++)
                same_bits(d, &d->dx[i], o.dx[i], "dx", "the cut");
            check_gradients(d, &o);
        }
        free_outcome(&o);
    }
}

START_TEST(pieces_change_no_bit)
{
    each_layer(64, examine_pieces);
    each_layer(32, examine_pieces);
}
END_TEST

static void examine_wishes(drive *d)
{
    if (!may_run(d, TN_TRAIN))
        return;
    drive_forward(d, TN_TRAIN, 0, 0);
    drive_backward(d, BACKWARD, 0, 0);
    outcome o = outcome_of(d);
    for (int i = 0; i < d->parameters; i++)
        drive_randomise(&d->gradient[i], 7, 1, 2);
    outcome untouched = outcome_of(d);
    drive_backward(d, TN_TRAIN | TN_WANT_DX, 0, 0);
    for (int i = 0; i < d->inputs; i++)
        same_bits(d, &d->dx[i], o.dx[i], "dx", "whether dw is wanted");
    for (int i = 0; i < d->parameters; i++)
        same_bits(d, &d->gradient[i], untouched.gradient[i], "a gradient that is not wanted", "the call");
    drive_backward(d, TN_TRAIN | TN_WANT_DW, 0, 0);
    for (int i = 0; i < d->parameters; i++)
        same_bits(d, &d->gradient[i], o.gradient[i], "a gradient", "whether dx is wanted");
    free_outcome(&untouched);
    free_outcome(&o);
}

START_TEST(dx_and_dw_by_themselves)
{
    each_layer(64, examine_wishes);
    each_layer(32, examine_wishes);
}
END_TEST

/* ACC-07: set whatever was there; two equal micro-batches give twice one, to the bit. */
static void examine_accumulation(drive *d)
{
    if (!may_run(d, TN_TRAIN))
        return;
    drive_forward(d, TN_TRAIN, 0, 0);
    drive_backward(d, BACKWARD, 0, 0);
    outcome o = outcome_of(d);
    drive_backward(d, BACKWARD | TN_ACCUMULATE, 0, 0);
    for (int i = 0; i < d->parameters; i++)
        for (int64_t j = 0; j < drive_elements(&d->gradient[i]); j++) {
            ck_assert_double_finite(o.slope[i][j]);
            ck_assert_double_eq(drive_get(&d->gradient[i], j), 2 * o.slope[i][j]);
        }
    for (int i = 0; i < d->inputs; i++)
        same_bits(d, &d->dx[i], o.dx[i], "dx", "TN_ACCUMULATE");
    free_outcome(&o);
}

START_TEST(acc_07_gradients_are_set_or_added)
{
    each_layer(64, examine_accumulation);
    each_layer(32, examine_accumulation);
}
END_TEST

static void examine_in_place(drive *d)
{
    if (!json_is_true(json_object_get(d->info->facts, "in_place")))
        return;
    ck_assert_int_eq(d->inputs, 1);
    drive_forward(d, TN_TRAIN, 0, 0);
    drive_backward(d, BACKWARD, 0, 0);
    outcome o = outcome_of(d);
    drive_forward(d, TN_TRAIN, 128, 1);
    same_bits(d, &d->y, o.y, "y", "being x");
    drive_backward(d, BACKWARD, 128, 1);
    same_bits(d, &d->dx[0], o.dx[0], "dx", "being dy");
    free_outcome(&o);
}

START_TEST(in_place_works)
{
    each_layer(64, examine_in_place);
    each_layer(32, examine_in_place);
}
END_TEST

/* A batch below the planned one leaves the rest alone, and a row does not depend on what comes after it. */
static void examine_small_batch(drive *d)
{
    int64_t planned = d->x[0].shape[0], n = (planned + 1) / 2;
    if (n == planned || !may_run(d, TN_TRAIN))
        return;
    drive_forward(d, TN_TRAIN, 0, 0);
    void *all = copy_of(&d->y);
    drive_batch(d, n);
    drive_forward(d, TN_TRAIN, 0, 0);
    drive_backward(d, BACKWARD, 0, 0);
    size_t used = (size_t)drive_elements(&d->y) * (d->real / 8);
    for (size_t i = used; i < d->y.bytes; i++)
        if (((unsigned char *)d->y.view.data)[i] != 0xFF)
            ck_abort_msg("%s writes behind the batch", d->info->name);
    if (strcmp(drive_axis(d), "columns") != 0)
        ck_assert_msg(memcmp(all, d->y.view.data, used) == 0, "%s: y depends on the rows that follow", d->info->name);
    drive_batch(d, planned);
    free(all);
}

START_TEST(batches_below_the_planned_one)
{
    each_layer(64, examine_small_batch);
    each_layer(32, examine_small_batch);
}
END_TEST

/* ---- buffers ---- */

/* A second look at a batch computes the same and leaves what training counts. */
static void examine_frozen(drive *d)
{
    if (!may_run(d, TN_TRAIN))
        return;
    void *buffer[DRIVE_PORTS], *saved[DRIVE_PORTS];
    for (int i = 0; i < d->buffers; i++) {
        drive_randomise(&d->buffer[i], 60 + (uint64_t)i, 0.5, 1.5);
        buffer[i] = copy_of(&d->buffer[i]);
    }
    drive_forward(d, TN_TRAIN | TN_FREEZE, 0, 0);
    void *y = copy_of(&d->y);
    for (int i = 0; i < d->saveds; i++)
        saved[i] = copy_of(&d->saved[i]);
    for (int i = 0; i < d->buffers; i++)
        same_bits(d, &d->buffer[i], buffer[i], d->buffer_name[i], "a frozen call");
    drive_forward(d, TN_TRAIN, 0, 0);
    same_bits(d, &d->y, y, "y", "whether buffers are frozen");
    for (int i = 0; i < d->saveds; i++) {
        same_bits(d, &d->saved[i], saved[i], "what is saved", "whether buffers are frozen");
        free(saved[i]);
    }
    for (int i = 0; i < d->buffers; i++) {
        ck_assert_int_ne(memcmp(d->buffer[i].view.data, buffer[i], d->buffer[i].bytes), 0);
        free(buffer[i]);
    }
    free(y);
}

START_TEST(frozen_calls_leave_buffers)
{
    each_layer(64, examine_frozen);
    each_layer(32, examine_frozen);
}
END_TEST

/* The k-th batch of a refresh, of samples that `key` names. */
static void refresh(drive *d, int64_t k, uint64_t key)
{
    d->refresh = k;
    drive_randomise(&d->x[0], key, -2, 2);
    drive_forward(d, TN_TRAIN, 0, 0);
}

/* Of three batches: the mean of what each alone would have left, whatever was there. */
static void examine_refresh(drive *d)
{
    if (!may_run(d, TN_TRAIN) || d->buffers == 0)
        return;
    double *alone[2][DRIVE_PORTS], tolerance = d->real == 64 ? 1e-14 : 1e-6;
    for (uint64_t key = 0; key < 2; key++) {
        refresh(d, 1, 70 + key);
        for (int i = 0; i < d->buffers; i++)
            alone[key][i] = read_all(&d->buffer[i]);
    }
    for (int i = 0; i < d->buffers; i++)
        memset(d->buffer[i].view.data, 0xFF, d->buffer[i].bytes);
    for (int64_t k = 1; k <= 3; k++)
        refresh(d, k, 70 + (uint64_t)(k % 2));
    for (int i = 0; i < d->buffers; i++) {
        for (int64_t j = 0; j < drive_elements(&d->buffer[i]); j++) {
            double wanted = (alone[0][i][j] + 2 * alone[1][i][j]) / 3, got = drive_get(&d->buffer[i], j);
            expect(fabs(got - wanted) <= tolerance * fmax(1, fabs(wanted)), "%s: %s[%lld] is %.17g, the mean %.17g",
                   d->info->name, d->buffer_name[i], (long long)j, got, wanted);
        }
        free(alone[0][i]);
        free(alone[1][i]);
    }
}

START_TEST(refreshed_buffers_are_means)
{
    each_layer(64, examine_refresh);
    each_layer(32, examine_refresh);
}
END_TEST

/* ---- f32 against f64 ---- */

static void copy_values(drive_tensor *to, drive_tensor *from)
{
    for (int64_t i = 0; i < drive_elements(from); i++)
        drive_set(to, i, drive_get(from, i));
}

static void check_near(const drive *d, const drive_tensor *narrow, const drive_tensor *wide, const char *what)
{
    double largest = 1;
    for (int64_t i = 0; i < drive_elements(wide); i++)
        largest = fmax(largest, fabs(drive_get(wide, i)));
    for (int64_t i = 0; i < drive_elements(wide); i++)
        ck_assert_msg(fabs(drive_get(narrow, i) - drive_get(wide, i)) < 3e-6 * largest,
                      "%s: %s[%lld] is %.9g in f32 and %.9g in f64", d->info->name, what, (long long)i,
                      drive_get(narrow, i), drive_get(wide, i));
}

static void examine_precision(drive *narrow)
{
    subject s = load(narrow->info->kind, narrow->info->name, 64);
    tn_error err = {0};
    drive wide;
    if (!may_run(narrow, TN_TRAIN))
        return;
    ck_assert_int_eq(drive_create(&s.layer, s.instance->info, s.instance->hyper, narrow->inputs, narrow->x[0].view.ndim,
                                  narrow->x[0].shape, &wide, &err),
                     TN_OK);
    for (int i = 0; i < narrow->inputs; i++)
        copy_values(&wide.x[i], &narrow->x[i]);
    for (int i = 0; i < narrow->parameters; i++)
        copy_values(&wide.parameter[i], &narrow->parameter[i]);
    copy_values(&wide.dy, &narrow->dy);
    for (int k = 0; k < 2; k++) {
        drive_forward(k ? &wide : narrow, TN_TRAIN, 0, 0);
        drive_backward(k ? &wide : narrow, BACKWARD, 0, 0);
    }
    check_near(narrow, &narrow->y, &wide.y, "y");
    for (int i = 0; i < narrow->inputs; i++)
        check_near(narrow, &narrow->dx[i], &wide.dx[i], "dx");
    for (int i = 0; i < narrow->parameters; i++)
        check_near(narrow, &narrow->gradient[i], &wide.gradient[i], narrow->parameter_name[i]);
    drive_free(&wide);
}

START_TEST(f32_is_close_to_f64) { each_layer(32, examine_precision); }
END_TEST

/* ---- golden values ---- */

static void set_values(json_t *one, const char *key, int32_t index, drive_tensor *t)
{
    char name[32];
    snprintf(name, sizeof name, index < 0 ? "%s" : "%s%d", key, index);
    json_t *values = json_object_get(one, name);
    ck_assert_int_eq((int64_t)json_array_size(values), drive_elements(t));
    for (int64_t i = 0; i < drive_elements(t); i++)
        drive_set(t, i, json_number_value(json_array_get(values, (size_t)i)));
}

static void check_values(json_t *one, const char *key, int32_t index, const drive_tensor *t)
{
    char name[32];
    snprintf(name, sizeof name, index < 0 ? "%s" : "%s%d", key, index);
    json_t *values = json_object_get(one, name);
    double tolerance = t->view.dtype.bits == 64 ? 1e-12 : 4e-6;
    ck_assert_int_eq((int64_t)json_array_size(values), drive_elements(t));
    for (int64_t i = 0; i < drive_elements(t); i++) {
        double right = json_number_value(json_array_get(values, (size_t)i));
        ck_assert_msg(fabs(drive_get(t, i) - right) <= tolerance * fmax(1, fabs(right)),
                      "%s: %s[%lld] is %.15g, needs %.15g", json_string_value(json_object_get(one, "name")), name,
                      (long long)i, drive_get(t, i), right);
    }
}

static void golden_case(json_t *one, uint32_t real)
{
    const char *key;
    json_t *text, *extents = json_object_get(one, "shape");
    int64_t shape[TN_MAX_DIMS];
    uint32_t train = json_is_true(json_object_get(one, "train")) ? TN_TRAIN : 0;
    subject s =
        load(json_string_value(json_object_get(one, "kind")), json_string_value(json_object_get(one, "use")), real);
    drive d;
    json_object_foreach(json_object_get(one, "settings"), key, text)
        component_set(s.instance, key, json_string_value(text));
    for (size_t i = 0; i < json_array_size(extents); i++)
        shape[i] = json_integer_value(json_array_get(extents, i));
    need(&s, (int32_t)json_array_size(extents), shape, &d);
    set_values(one, "x", -1, &d.x[0]);
    set_values(one, "dy", -1, &d.dy);
    for (int32_t i = 0; i < d.parameters; i++)
        set_values(one, "parameter", i, &d.parameter[i]);
    for (int32_t i = 0; i < d.buffers; i++)
        set_values(one, "buffer", i, &d.buffer[i]);
    drive_forward(&d, train, 0, 0);
    drive_backward(&d, train | TN_WANT_DX | TN_WANT_DW, 0, 0);
    check_values(one, "y", -1, &d.y);
    check_values(one, "dx", -1, &d.dx[0]);
    for (int32_t i = 0; i < d.parameters; i++)
        check_values(one, "gradient", i, &d.gradient[i]);
    for (int32_t i = 0; i < d.buffers; i++)
        check_values(one, "after", i, &d.buffer[i]);
    drive_free(&d);
}

START_TEST(golden_values)
{
    json_t *cases = test_golden("layers.json", "layers"), *one;
    size_t i;
    ck_assert_uint_ge(json_array_size(cases), 10);
    json_array_foreach(cases, i, one) {
        golden_case(one, 64);
        golden_case(one, 32);
    }
    json_decref(cases);
}
END_TEST

/* ---- activations ---- */

/* y (or with `slope` dx for dy = 1) of one number. */
static double apply(const subject *s, double x, int slope)
{
    int64_t shape[] = {1, 1};
    drive d;
    need(s, 2, shape, &d);
    drive_set(&d.x[0], 0, x);
    drive_set(&d.dy, 0, 1);
    drive_forward(&d, TN_TRAIN, 0, 0);
    drive_backward(&d, BACKWARD, 0, 0);
    double value = drive_get(slope ? &d.dx[0] : &d.y, 0);
    drive_free(&d);
    return value;
}

START_TEST(act_01_gelu_is_the_exact_one)
{
    static const double x[] = {1, -1, 2.5, -3}, y[] = {0.8413447461, -0.1586552539, 2.484475837, -0.004049694095};
    subject wide = load("activation", "gelu", 64), narrow = load("activation", "gelu", 32);
    for (int i = 0; i < 4; i++) {
        ck_assert_double_eq_tol(apply(&wide, x[i], 0), y[i], 1e-9);
        ck_assert_double_eq_tol(apply(&narrow, x[i], 0), y[i], 1e-6);
    }
    ck_assert_double_eq_tol(apply(&wide, 1, 0), 0.8413447460685429, 1e-15);
    ck_assert_double_eq_tol(apply(&wide, -0.7517915, 0), -0.1699712, 1e-7);
    ck_assert_double_eq_tol(apply(&wide, -0.7517915, 1), 0, 1e-7);
    ck_assert_double_eq_tol(apply(&wide, sqrt(2), 1), 1.1289042, 1e-7);
    ck_assert_double_eq(apply(&wide, 0, 0), 0);
    ck_assert_double_eq(apply(&wide, 40, 0), 40);
    ck_assert_double_eq(apply(&wide, -40, 1), 0);
}
END_TEST

START_TEST(relu_at_zero_and_nan)
{
    for (uint32_t real = 32; real <= 64; real += 32) {
        subject s = load("activation", "relu", real);
        ck_assert_double_eq(apply(&s, 0, 1), 0);
        ck_assert_double_eq(apply(&s, -0.0, 1), 0);
        ck_assert_double_eq(apply(&s, 3, 1), 1);
        ck_assert_double_eq(apply(&s, -3, 0), 0);
        ck_assert_double_nan(apply(&s, NAN, 0));
        ck_assert(isinf(apply(&s, INFINITY, 0)));
        ck_assert_double_eq(apply(&s, -INFINITY, 0), 0);
    }
}
END_TEST

/* ---- normalizers ---- */

static void fill(drive_tensor *t, const double *values)
{
    for (int64_t i = 0; i < drive_elements(t); i++)
        drive_set(t, i, values[i]);
}

static void fill_one(drive_tensor *t, double value)
{
    for (int64_t i = 0; i < drive_elements(t); i++)
        drive_set(t, i, value);
}

/* A normalizer with gain 1 and shift 0. */
static void plain_normalizer(const subject *s, int64_t rows, int64_t columns, drive *d)
{
    int64_t shape[] = {rows, columns};
    need(s, 2, shape, d);
    fill_one(&d->parameter[0], 1);
    fill_one(&d->parameter[1], 0);
}

START_TEST(nrm_01_one_value_a_channel)
{
    tn_error err = {0};
    int64_t shape[] = {1, 1};
    subject s = load("normalizer", "batchnorm", 64);
    drive d;
    need(&s, 2, shape, &d);
    ck_assert_int_eq(s.layer.check(s.instance->hyper, &d.x[0].view, TN_TRAIN, &err), TN_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "[1, 1]"));
    ck_assert_int_eq(s.layer.check(s.instance->hyper, &d.x[0].view, 0, &err), TN_OK);
    drive_set(&d.x[0], 0, 7);
    drive_forward(&d, TN_TRAIN, 0, 0); /* a host that does not ask */
    ck_assert_double_eq(drive_get(&d.buffer[1], 0), 1);
    ck_assert_double_eq(drive_get(&d.y, 0), drive_get(&d.parameter[1], 0));
    drive_free(&d);
}
END_TEST

START_TEST(nrm_02_biased_output_unbiased_running_variance)
{
    static const double x[] = {1, 2, 3, 4},
                        y[] = {-1.3416354199689269, -0.447211806656309, 0.447211806656309, 1.3416354199689269};
    for (uint32_t real = 32; real <= 64; real += 32) {
        double tolerance = real == 64 ? 1e-15 : 2e-7;
        subject s = load("normalizer", "batchnorm", real);
        drive d;
        plain_normalizer(&s, 4, 1, &d);
        fill(&d.x[0], x);
        drive_forward(&d, TN_TRAIN, 0, 0);
        for (int i = 0; i < 4; i++)
            ck_assert_double_eq_tol(drive_get(&d.y, i), y[i], 2 * tolerance);
        ck_assert_double_eq_tol(drive_get(&d.buffer[0], 0), 0.25, tolerance);
        ck_assert_double_eq_tol(drive_get(&d.buffer[1], 0), 0.9 + 0.1 * 5 / 3, 2 * tolerance);
        drive_backward(&d, BACKWARD, 0, 0);
        ck_assert_double_eq_tol(drive_get(&d.dx[0], 0) + drive_get(&d.dx[0], 1) + drive_get(&d.dx[0], 2) +
                                    drive_get(&d.dx[0], 3),
                                0, 4 * tolerance);
        drive_free(&d);
    }
}
END_TEST

START_TEST(nrm_04_large_means)
{
    static const double x[] = {40000, 40001, 40002, 40003},
                        y[] = {-1.34163542, -0.4472118067, 0.4472118067, 1.34163542};
    subject s = load("normalizer", "layernorm", 32), batch = load("normalizer", "batchnorm", 32);
    drive d;
    plain_normalizer(&s, 1, 4, &d);
    fill(&d.x[0], x);
    drive_forward(&d, TN_TRAIN, 0, 0);
    for (int i = 0; i < 4; i++)
        ck_assert_double_eq_tol(drive_get(&d.y, i), y[i], 1e-6);
    drive_free(&d);
    plain_normalizer(&s, 1, 256, &d);
    fill_one(&d.x[0], 1234);
    drive_forward(&d, TN_TRAIN, 0, 0);
    for (int i = 0; i < 256; i++)
        ck_assert_double_eq(drive_get(&d.y, i), 0);
    drive_free(&d);
    plain_normalizer(&batch, 4, 1, &d);
    fill(&d.x[0], x);
    drive_forward(&d, TN_TRAIN, 0, 0);
    for (int i = 0; i < 4; i++)
        ck_assert_double_eq_tol(drive_get(&d.y, i), y[i], 1e-6);
    drive_free(&d);
}
END_TEST

/* Squares of these leave no digit of the variance in a double. */
START_TEST(nrm_04_larger_means_in_f64)
{
    static const double x[] = {1e9, 1e9 + 1, 1e9 + 2, 1e9 + 3},
                        y[] = {-1.3416354199689269, -0.447211806656309, 0.447211806656309, 1.3416354199689269};
    static const char *const names[] = {"layernorm", "batchnorm"};
    for (int k = 0; k < 2; k++) {
        subject s = load("normalizer", names[k], 64);
        drive d;
        plain_normalizer(&s, k ? 4 : 1, k ? 1 : 4, &d);
        fill(&d.x[0], x);
        drive_forward(&d, TN_TRAIN, 0, 0);
        for (int i = 0; i < 4; i++)
            ck_assert_double_eq_tol(drive_get(&d.y, i), y[i], 1e-12);
        drive_free(&d);
    }
}
END_TEST

/* Also backward, where the mean of three values is no float. */
START_TEST(nrm_04_large_means_backward)
{
    static const double x[] = {40000, 40001, 40003}, dy[] = {1, 0, 0};
    subject narrow = load("normalizer", "layernorm", 32), wide = load("normalizer", "layernorm", 64);
    drive a, b;
    plain_normalizer(&narrow, 1, 3, &a);
    plain_normalizer(&wide, 1, 3, &b);
    for (int k = 0; k < 2; k++) {
        drive *d = k ? &b : &a;
        fill(&d->x[0], x);
        fill(&d->dy, dy);
        drive_forward(d, TN_TRAIN, 0, 0);
        drive_backward(d, BACKWARD, 0, 0);
    }
    for (int i = 0; i < 3; i++)
        ck_assert_double_eq_tol(drive_get(&a.dx[0], i), drive_get(&b.dx[0], i), 1e-6);
    drive_free(&a);
    drive_free(&b);
}
END_TEST

START_TEST(nrm_05_large_values)
{
    static const double x[] = {1e30, -1e30};
    subject s = load("normalizer", "layernorm", 32), batch = load("normalizer", "batchnorm", 32);
    for (int k = 0; k < 2; k++) {
        drive d;
        plain_normalizer(k ? &batch : &s, k ? 2 : 1, k ? 1 : 2, &d);
        fill(&d.x[0], x);
        drive_forward(&d, TN_TRAIN, 0, 0);
        ck_assert_double_eq_tol(drive_get(&d.y, 0), 1, 1e-6);
        ck_assert_double_eq_tol(drive_get(&d.y, 1), -1, 1e-6);
        drive_free(&d);
    }
}
END_TEST

START_TEST(batchnorm_evaluation_leaves_the_statistics)
{
    subject s = load("normalizer", "batchnorm", 64);
    drive d;
    plain_normalizer(&s, 5, 70, &d);
    drive_forward(&d, TN_TRAIN, 0, 0);
    void *mean = copy_of(&d.buffer[0]), *variance = copy_of(&d.buffer[1]);
    drive_forward(&d, 0, 16, 0);
    drive_backward(&d, TN_WANT_DX | TN_WANT_DW, 16, 0);
    same_bits(&d, &d.buffer[0], mean, "the running mean", "evaluation");
    same_bits(&d, &d.buffer[1], variance, "the running variance", "evaluation");
    free(mean);
    free(variance);
    drive_free(&d);
}
END_TEST

START_TEST(normalizers_without_affine)
{
    static const char *const names[] = {"layernorm", "batchnorm"};
    for (int k = 0; k < 2; k++) {
        subject s = load("normalizer", names[k], 64);
        drive with, without;
        plain_normalizer(&s, 6, 40, &with);
        drive_forward(&with, TN_TRAIN, 0, 0);
        drive_backward(&with, BACKWARD, 0, 0);
        int64_t shape[] = {6, 40};
        component_set(s.instance, "affine", "false");
        need(&s, 2, shape, &without);
        ck_assert_int_eq(without.parameters, 0);
        drive_forward(&without, TN_TRAIN, 0, 0);
        drive_backward(&without, BACKWARD, 0, 0);
        for (int64_t i = 0; i < 240; i++) {
            ck_assert_double_eq_tol(drive_get(&without.y, i), drive_get(&with.y, i), 1e-15);
            ck_assert_double_eq_tol(drive_get(&without.dx[0], i), drive_get(&with.dx[0], i), 1e-14);
        }
        drive_free(&with);
        drive_free(&without);
    }
}
END_TEST

/* ---- dropout ---- */

START_TEST(reg_01_the_ends_of_p)
{
    static const struct {
        const char *p;
        uint32_t train;
        double factor;
    } cases[] = {{"1", TN_TRAIN, 0}, {"0", TN_TRAIN, 1}, {"0.5", 0, 1}, {"1", 0, 1}};
    int64_t shape[] = {3, 67};
    for (size_t k = 0; k < 4; k++)
        for (uint32_t real = 32; real <= 64; real += 32) {
            subject s = load("regularizer", "dropout", real);
            drive d;
            component_set(s.instance, "p", cases[k].p);
            need(&s, 2, shape, &d);
            drive_set(&d.x[0], 5, -0.0);
            drive_set(&d.x[0], 6, cases[k].factor ? NAN : INFINITY);
            drive_forward(&d, cases[k].train, 64, 0);
            drive_backward(&d, cases[k].train | TN_WANT_DX, 64, 0);
            if (cases[k].factor)
                same_bits(&d, &d.y, d.x[0].view.data, "y", "p");
            for (int64_t i = 0; i < 201; i++) {
                ck_assert_double_eq(drive_get(&d.dx[0], i), cases[k].factor * drive_get(&d.dy, i));
                ck_assert(cases[k].factor || drive_get(&d.y, i) == 0);
            }
            drive_free(&d);
        }
}
END_TEST

START_TEST(reg_01_p_outside_is_refused)
{
    static const char *const outside[] = {"-0.1", "1.1", "nan", "inf"};
    subject s = load("regularizer", "dropout", 64);
    for (int k = 0; k < 4; k++) {
        tn_error err = {0};
        ck_assert_int_eq(tn_instance_set(s.instance, test_plugins(), "p", outside[k], &err), TN_E_INVALID);
        ck_assert_msg(strstr(err.msg, "[0, 1]") != NULL, "%s", err.msg);
    }
}
END_TEST

/* Element i depends on word i % 4 of Philox(key, attempt, i / 4) and on nothing else. */
START_TEST(dropout_masks_are_philox)
{
    int64_t shape[] = {7, 93}, n = 7 * 93;
    for (uint32_t real = 32; real <= 64; real += 32) {
        subject s = load("regularizer", "dropout", real);
        drive d;
        component_set(s.instance, "p", "0.25");
        need(&s, 2, shape, &d);
        d.context.attempt = (1LL << 40) + 5;
        drive_forward(&d, TN_TRAIN, 192, 0);
        drive_backward(&d, BACKWARD, 64, 0);
        for (int64_t i = 0; i < n; i++) {
            tn_random4 random = tn_philox(d.context.key, (uint64_t)d.context.attempt, (uint64_t)i / 4);
            double factor = random.v[i % 4] >= 0x40000000u ? 1 / 0.75 : 0;
            ck_assert_double_eq_tol(drive_get(&d.y, i), factor * drive_get(&d.x[0], i), 1e-6);
            ck_assert_double_eq_tol(drive_get(&d.dx[0], i), factor * drive_get(&d.dy, i), 1e-6);
        }
        drive_free(&d);
    }
}
END_TEST

START_TEST(dropout_statistics)
{
    static const double p[] = {0.1, 0.3, 0.9};
    static const char *const text[] = {"0.1", "0.3", "0.9"};
    int64_t shape[] = {100, 2000}, n = 200000;
    for (int k = 0; k < 3; k++) {
        subject s = load("regularizer", "dropout", 32);
        drive d;
        double sum = 0, neighbours = 0, scale = 1 / (1 - p[k]);
        component_set(s.instance, "p", text[k]);
        need(&s, 2, shape, &d);
        fill_one(&d.x[0], 1);
        drive_forward(&d, TN_TRAIN, 0, 0);
        for (int64_t i = 0; i < n; i++) {
            double y = drive_get(&d.y, i);
            ck_assert(y == 0 || fabs(y - scale) < 1e-6);
            sum += y;
            neighbours += i > 0 ? (y - 1) * (drive_get(&d.y, i - 1) - 1) : 0;
        }
        double variance = p[k] / (1 - p[k]);
        ck_assert_double_eq_tol(sum / (double)n, 1, 4 * sqrt(variance / (double)n));
        ck_assert_double_eq_tol(neighbours / (double)n, 0, 4 * variance / sqrt((double)n));
        void *before = copy_of(&d.y);
        d.context.attempt++;
        drive_forward(&d, TN_TRAIN, 0, 0);
        ck_assert_msg(memcmp(before, d.y.view.data, d.y.bytes) != 0, "the next attempt has the same mask");
        free(before);
        drive_free(&d);
    }
}
END_TEST

/* ---- what is planned, what is refused ---- */

START_TEST(linear_plan)
{
    int64_t shape[] = {4, 3, 8};
    subject s = load("layer", "linear", 32);
    drive d;
    need(&s, 3, shape, &d);
    ck_assert_int_eq(d.parameters, 2);
    ck_assert_str_eq(d.parameter_name[0], "weight");
    ck_assert_int_eq(d.weight[0].role, TN_ROLE_WEIGHT);
    ck_assert_int_eq(d.weight[0].fan_in_axis, 1);
    ck_assert_int_eq(d.weight[0].fan_out_axis, 0);
    ck_assert_int_eq(d.parameter[0].shape[0], 5);
    ck_assert_int_eq(d.parameter[0].shape[1], 8);
    ck_assert_str_eq(d.parameter_name[1], "bias");
    ck_assert_int_eq(d.weight[1].role, TN_ROLE_BIAS);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(d.weight[i].init, TN_INIT_FAN_UNIFORM);
        ck_assert_double_eq(d.weight[i].a, 1);
        ck_assert_double_eq(d.weight[i].b, 8);
    }
    ck_assert_int_eq(d.y.view.ndim, 3);
    ck_assert_int_eq(d.y.shape[2], 5);
    drive_free(&d);
    component_set(s.instance, "bias", "false");
    component_set(s.instance, "head", "true");
    need(&s, 3, shape, &d);
    ck_assert_int_eq(d.parameters, 1);
    ck_assert_int_eq(d.weight[0].role, TN_ROLE_HEAD);
    drive_forward(&d, TN_TRAIN, 0, 0);
    drive_backward(&d, BACKWARD, 0, 0);
    ck_assert_double_finite(drive_get(&d.y, 59));
    drive_free(&d);
}
END_TEST

START_TEST(normalizer_plan)
{
    static const char *const names[] = {"layernorm", "batchnorm"};
    int64_t shape[] = {4, 8};
    for (int k = 0; k < 2; k++) {
        subject s = load("normalizer", names[k], 32);
        drive d;
        need(&s, 2, shape, &d);
        ck_assert_int_eq(d.parameters, 2);
        ck_assert_str_eq(d.parameter_name[0], "weight");
        ck_assert_str_eq(d.parameter_name[1], "bias");
        for (int i = 0; i < 2; i++) {
            ck_assert_int_eq(d.weight[i].role, TN_ROLE_NORM);
            ck_assert_int_eq(d.weight[i].init, TN_INIT_CONSTANT);
            ck_assert_double_eq(d.weight[i].a, 1 - i);
            ck_assert_int_eq(drive_elements(&d.parameter[i]), 8);
        }
        ck_assert_int_eq(d.buffers, k ? 2 : 0);
        if (k) {
            ck_assert_str_eq(d.buffer_name[0], "running_mean");
            ck_assert_str_eq(d.buffer_name[1], "running_var");
            ck_assert_double_eq(drive_get(&d.buffer[0], 7), 0);
            ck_assert_double_eq(drive_get(&d.buffer[1], 7), 1);
        }
        drive_free(&d);
    }
}
END_TEST

static void refused(const char *kind, const char *name, int32_t inputs, int32_t ndim, const int64_t *shape,
                    const char *part)
{
    subject s = load(kind, name, 64);
    tn_error err = {0};
    drive d;
    ck_assert_int_eq(drive_create(&s.layer, s.instance->info, s.instance->hyper, inputs, ndim, shape, &d, &err),
                     TN_E_INVALID);
    ck_assert_msg(strstr(err.msg, part) && strstr(err.msg, name), "\"%s\" lacks \"%s\"", err.msg, part);
}

START_TEST(refusals_name_the_shape)
{
    int64_t flat[] = {4}, images[] = {4, 3, 2, 2}, empty[] = {4, 0};
    refused("layer", "linear", 1, 1, flat, "[4]");
    refused("layer", "linear", 1, 2, empty, "[4, 0]");
    refused("normalizer", "layernorm", 1, 1, flat, "[4]");
    refused("normalizer", "layernorm", 1, 2, empty, "[4, 0]");
    refused("normalizer", "batchnorm", 1, 4, images, "[4, 3, 2, 2]");
    refused("activation", "relu", 2, 4, images, "2 inputs");
    refused("activation", "gelu", 1, 0, flat, "[]");
    refused("regularizer", "dropout", 3, 4, images, "3 inputs");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("layers");
    TCase *all = tcase_create("every layer"), *each = tcase_create("each layer");
    tcase_add_checked_fixture(all, NULL, unload_all);
    tcase_add_checked_fixture(each, NULL, unload_all);
    tcase_set_timeout(all, 120);
    tcase_add_test(all, backward_is_the_slope_of_forward);
    tcase_add_test(all, pieces_change_no_bit);
    tcase_add_test(all, dx_and_dw_by_themselves);
    tcase_add_test(all, acc_07_gradients_are_set_or_added);
    tcase_add_test(all, in_place_works);
    tcase_add_test(all, batches_below_the_planned_one);
    tcase_add_test(all, frozen_calls_leave_buffers);
    tcase_add_test(all, refreshed_buffers_are_means);
    tcase_add_test(all, f32_is_close_to_f64);
    tcase_set_timeout(each, 60);
    tcase_add_test(each, golden_values);
    tcase_add_test(each, act_01_gelu_is_the_exact_one);
    tcase_add_test(each, relu_at_zero_and_nan);
    tcase_add_test(each, nrm_01_one_value_a_channel);
    tcase_add_test(each, nrm_02_biased_output_unbiased_running_variance);
    tcase_add_test(each, nrm_04_large_means);
    tcase_add_test(each, nrm_04_larger_means_in_f64);
    tcase_add_test(each, nrm_04_large_means_backward);
    tcase_add_test(each, nrm_05_large_values);
    tcase_add_test(each, batchnorm_evaluation_leaves_the_statistics);
    tcase_add_test(each, normalizers_without_affine);
    tcase_add_test(each, reg_01_the_ends_of_p);
    tcase_add_test(each, reg_01_p_outside_is_refused);
    tcase_add_test(each, dropout_masks_are_philox);
    tcase_add_test(each, dropout_statistics);
    tcase_add_test(each, linear_plan);
    tcase_add_test(each, normalizer_plan);
    tcase_add_test(each, refusals_name_the_shape);
    suite_add_tcase(suite, all);
    suite_add_tcase(suite, each);
    return test_main(suite);
}
