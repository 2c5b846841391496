/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules for whole matrices in chains: muon and kfac beside adamw, routed by `on:`; clip-norm before and kl-clip behind
 * them; skipped steps, stops, and several processes.
 */
#include "host/experiment/build.h"
#include "tests/malloc_count.h"
#include "tests/matrix.h"
#include "tests/processes.h"

static int32_t no_gradient(void *user, double *ret_loss, tn_error *err)
{
    (void)user;
    (void)ret_loss;
    return tn_error_set(err, TN_E_INTERNAL, "nobody asks");
}

static const tn_signals taps = {.gradient = no_gradient, .taps = 1};

/* Restricts the last link to roles. */
static void on_roles(world *w, uint32_t roles)
{
    tn_selector *on = tn_alloc(1, sizeof *on);
    ck_assert_ptr_nonnull(on);
    on->roles = roles;
    w->links[w->link_count - 1]->on = on;
}

#define ROLE(name) (1u << TN_ROLE_##name)

static void chain_open(world *w, products *c, tn_comm *comm)
{
    products_open(c, w->pool);
    w->compute = &c->host;
    w->comm = comm;
    w->signals = &taps;
    world_chain(w);
}

static void chain_free(world *w, products *c)
{
    ck_assert_int_eq(c->host.failed, 0);
    tn_instance_free(c->library);
    world_free(w);
}

static void into_chain(void *user, int64_t weight, const tn_tensor *x, const tn_tensor *dy, double seed)
{
    tn_chain_tap(user, weight, x, dy, seed);
}

/* ---- a small model: two linear layers, a norm, a fused weight with heads, a convolution ---- */

static const int64_t head_rows[] = {26, 26, 26, 26, 26};

static void add(world *w, int32_t role, int32_t ndim, const int64_t *shape, int32_t rank, int32_t size, int64_t index)
{
    int64_t n = 1, chunks, lo, end;
    for (int32_t a = 0; a < ndim; a++)
        n *= shape[a];
    chunks = (n + TN_CHUNK - 1) / TN_CHUNK;
    if (chunks > 1) {
        lo = chunks * rank / size * TN_CHUNK;
        end = chunks * (rank + 1) / size * TN_CHUNK;
        end = end < n ? end : n;
    } else {
        lo = 0;
        end = index % size == rank ? n : 0;
    }
    world_slice(w, ndim, shape, lo, end - lo);
    w->list[w->parameters.count - 1].role = role;
}

static world *model(uint32_t real, int32_t threads, int32_t rank, int32_t size)
{
    const int64_t fused[] = {130, 97}, conv[] = {8, 3, 5}, tall[] = {97, 12}, vector[] = {97}, gain[] = {12};
    world *w = world_new(real, threads);
    add(w, TN_ROLE_WEIGHT, 2, fused, rank, size, 0);
    add(w, TN_ROLE_BIAS, 1, vector, rank, size, 1);
    add(w, TN_ROLE_WEIGHT, 3, conv, rank, size, 2);
    add(w, TN_ROLE_NORM, 1, gain, rank, size, 3);
    add(w, TN_ROLE_WEIGHT, 2, tall, rank, size, 4);
    add(w, TN_ROLE_WEIGHT, 2, fused, rank, size, 5);
    w->list[0].part_count = 5;
    w->list[0].part_rows = head_rows;
    world_arenas(w);
    world_fill(w, w->parameters.p, 1);
    return w;
}

static void add_links(world *w)
{
    world_link(w, "clip-norm", "max_norm", "0.5");
    world_link(w, "muon", "lr", "0.05");
    on_roles(w, ROLE(WEIGHT));
    world_link(w, "adamw", "lr", "0.01");
}

static void steps(world *w, uint64_t first, uint64_t end)
{
    for (uint64_t t = first; t < end; t++) {
        world_fill(w, w->parameters.g, 2 + t);
        w->present[2] = t != 1;
        world_step(w, 0.75);
        w->present[2] = 1;
    }
}

/* Without clipping a route's parameters step as in a chain of their own. */
START_TEST(routes_part_matrices_from_vectors)
{
    products c, d;
    world *both = model(64, 2, 0, 1), *alone = model(64, 2, 0, 1);
    world_link(both, "muon", "lr", "0.05");
    on_roles(both, ROLE(WEIGHT));
    world_link(both, "adamw", "lr", "0.01");
    world_link(alone, "adamw", "lr", "0.01");
    chain_open(both, &c, NULL);
    chain_open(alone, &d, NULL);
    steps(both, 0, 3);
    steps(alone, 0, 3);
    for (int64_t i = 0; i < both->parameters.count; i++)
        for (int64_t j = 0; j < both->list[i].n; j++) {
            int same = world_p(both, i, j) == world_p(alone, i, j);
            expect(same == (both->list[i].role != TN_ROLE_WEIGHT), "parameter %d, element %d", (int)i, (int)j);
        }
    ck_assert_int_eq(tn_chain_slot_count(both->chain), 4 + 2 * 2);
    chain_free(both, &c);
    chain_free(alone, &d);
}
END_TEST

START_TEST(a_matrix_rule_on_all_is_refused)
{
    products c;
    world *w = model(32, 1, 0, 1);
    world_link(w, "muon");
    products_open(&c, w->pool);
    w->compute = &c.host;
    ck_assert_refused(world_try_chain(w), TN_E_INVALID, w->err, "update.muon: parameter 'p1' has one axis", "`on:`");
    w->compute = NULL;
    on_roles(w, ROLE(WEIGHT));
    world_link(w, "adamw");
    ck_assert_refused(world_try_chain(w), TN_E_UNSUPPORTED, w->err, "update.muon: ", "backend");
    chain_free(w, &c);
}
END_TEST

static uint64_t hash_of(uint32_t real, int32_t threads)
{
    products c;
    world *w = model(real, threads, 0, 1);
    add_links(w);
    chain_open(w, &c, NULL);
    steps(w, 0, 3);
    uint64_t hash = world_hash(w);
    chain_free(w, &c);
    return hash;
}

START_TEST(threads_do_not_change_bits)
{
    for (uint32_t real = 32; real <= 64; real += 32) {
        uint64_t one = hash_of(real, 1);
        ck_assert_uint_eq(hash_of(real, 2), one);
        ck_assert_uint_eq(hash_of(real, 3), one);
    }
}
END_TEST

START_TEST(skipped_steps_change_no_bit_and_none_allocates)
{
    products c;
    world *w = model(32, 1, 0, 1);
    add_links(w);
    chain_open(w, &c, NULL);
    steps(w, 0, 2);
    uint64_t before = world_hash(w);
    world_fill(w, w->parameters.g, 9);
    world_put(w, w->parameters.g, 4, 7, NAN);
    world_try_step(w, 1);
    ck_assert_int_eq(w->result.committed, 0);
    ck_assert_int_eq(w->result.bad_parameter, 4);
    ck_assert_uint_eq(world_hash(w), before);
    world_fill(w, w->parameters.g, 9);
    int64_t count = malloc_count();
    int32_t status = tn_chain_step(w->chain, &(tn_step){.scale = 1, .attempt = 9}, &w->result, &w->err);
    int64_t after = malloc_count();
    ck_ok(status, w->err);
    ck_assert_int_eq(after, count);
    ck_assert_int_eq(w->result.committed, 1);
    ck_assert_uint_ne(world_hash(w), before);
    chain_free(w, &c);
}
END_TEST

/* ---- products that fail ---- */

static int32_t failing_gemm(const tn_gemm *gemm, tn_error *err)
{
    (void)gemm;
    return tn_error_set(err, TN_E_IO, "the card fell off the bus");
}

static uint64_t hash_of_p(const world *w)
{
    return world_hash_bytes(0, w->parameters.p, (size_t)w->parameters.elements * (w->parameters.real / 8));
}

/* Of several processes one fails, and all stop. */
static void failing_step(tn_comm *comm, void *arg)
{
    products c;
    int32_t size = tn_comm_size(comm), rank = tn_comm_rank(comm);
    world *w = model(32, 2, rank, size);
    (void)arg;
    add_links(w);
    chain_open(w, &c, comm);
    steps(w, 0, 1);
    uint64_t before = hash_of_p(w);
    world_fill(w, w->parameters.g, 9);
    c.backend.gemm = rank == size - 1 ? failing_gemm : c.backend.gemm;
    int32_t status = tn_chain_step(w->chain, &(tn_step){.scale = 1, .attempt = 1}, &w->result, &w->err);
    if (rank == size - 1)
        ck_assert_refused(status, TN_E_IO, w->err, "update.muon: matrix product: ", "the card fell off the bus");
    else
        ck_assert_refused(status, TN_E_IO, w->err, "update.muon: ", "another process");
    ck_assert_uint_eq(hash_of_p(w), before);
    chain_free(w, &c);
}

START_TEST(a_product_that_fails_stops_the_step_before_p)
{
    failing_step(NULL, NULL);
    processes_run(2, failing_step, NULL);
}
END_TEST

/* ---- kfac ---- */

static const json_t *windows_of(const json_t *golden) { return json_object_get(golden, "windows"); }

static void set_rows(world *w, const json_t *settings)
{
    const char *row;
    json_t *value;
    json_object_foreach((json_t *)settings, row, value)
        component_set(w->links[w->link_count - 1], row, json_string_value(value));
}

/* Two linear layers for kfac and a norm between, for adamw. */
static world *net(const json_t *golden, int32_t processes, products *c, tn_comm *comm)
{
    const int64_t gain[] = {4};
    world *w = world_new(64, 1);
    add_linear(w, "one", 4, 3);
    add_linear(w, "two", 3, 4);
    world_slice(w, 1, gain, 0, -1);
    w->list[4].role = TN_ROLE_NORM;
    for (int64_t i = 0; i < w->parameters.count; i++)
        w->list[i].replicas = processes;
    world_arenas(w);
    world_fill(w, w->parameters.p, 1);
    for (size_t l = 0; l < 2; l++)
        put_pair(w, w->parameters.p, 2 * (int64_t)l, json_array_get(json_object_get(golden, "p0"), l));
    world_link(w, "kfac");
    set_rows(w, json_object_get(golden, "settings"));
    on_roles(w, ROLE(WEIGHT) | ROLE(BIAS));
    world_link(w, "adamw");
    chain_open(w, c, comm);
    return w;
}

static void window(world *w, const json_t *golden, size_t t, int64_t lo, int64_t n)
{
    const json_t *layers = json_object_get(json_array_get(windows_of(golden), t), "layers");
    int32_t wants = tn_chain_tapping(w->chain);
    ck_assert_int_eq(wants, t % 2 ? TN_TAP_NONE : TN_TAP_SAMPLED);
    world_set_g(w, 4, 0.5);
    for (int64_t l = 0; l < 2; l++) {
        put_pair(w, w->parameters.g, 2 * l, json_array_get(layers, (size_t)l));
        if (wants)
            golden_tap(w, 2 * l, json_array_get(layers, (size_t)l), lo, n, 0.25, into_chain, w->chain);
    }
    world_step(w, 1);
}

static void expect_net(const world *w, const json_t *golden, size_t t)
{
    const json_t *p = json_object_get(json_array_get(windows_of(golden), t), "p");
    for (size_t l = 0; l < 2; l++)
        expect_pair(w, 2 * (int64_t)l, json_array_get(p, l), 1e-10);
}

START_TEST(kfac_follows_its_golden_trajectory)
{
    json_t *golden = test_golden("matrix.json", "kfac");
    products c;
    world *w = net(golden, 1, &c, NULL);
    for (size_t t = 0; t < json_array_size(windows_of(golden)); t++) {
        window(w, golden, t, 0, 7);
        expect_net(w, golden, t);
    }
    ck_assert(world_p(w, 4, 0) != world_noise(4, 0, 1));
    chain_free(w, &c);
    json_decref(golden);
}
END_TEST

START_TEST(a_product_that_fails_in_a_tap_stops_the_step)
{
    json_t *golden = test_golden("matrix.json", "kfac");
    products c;
    world *w = net(golden, 1, &c, NULL);
    int32_t (*gemm)(const tn_gemm *gemm, tn_error *err) = c.backend.gemm;
    const json_t *layers = json_object_get(json_array_get(windows_of(golden), 0), "layers");
    uint64_t before = hash_of_p(w);
    for (int64_t i = 0; i < w->parameters.count; i++)
        world_set_g(w, i, 0.5);
    ck_assert_int_eq(tn_chain_tapping(w->chain), TN_TAP_SAMPLED);
    c.backend.gemm = failing_gemm;
    golden_tap(w, 0, json_array_get(layers, 0), 0, 7, 0.25, into_chain, w->chain);
    c.backend.gemm = gemm;
    ck_assert_refused(tn_chain_step(w->chain, &(tn_step){.scale = 1}, &w->result, &w->err), TN_E_IO, w->err,
                      "update.kfac: matrix product: ", "the card fell off the bus");
    ck_assert_uint_eq(hash_of_p(w), before);
    chain_free(w, &c);
    json_decref(golden);
}
END_TEST

/* Two layers, each with a kfac of its own. */
static world *two_kfacs(const char *first, const char *second, products *c)
{
    world *w = world_new(64, 1);
    add_linear(w, "one", 4, 3);
    add_linear(w, "two", 3, 4);
    w->list[2].role = TN_ROLE_HEAD;
    w->parameters.count = 3; /* the second without its bias, which would be on the first link */
    world_arenas(w);
    world_link(w, "kfac", "fisher", first);
    on_roles(w, ROLE(WEIGHT) | ROLE(BIAS));
    world_link(w, "kfac", "fisher", second);
    w->links[1]->handle[0] = 'z'; /* two links of one name are refused */
    products_open(c, w->pool);
    w->compute = &c->host;
    w->signals = &taps;
    return w;
}

START_TEST(links_that_want_two_kinds_of_taps_are_refused)
{
    products c;
    world *w = two_kfacs("sampled", "empirical", &c);
    ck_assert_refused(world_try_chain(w), TN_E_UNSUPPORTED, w->err, "update.kfac wants taps of kind 1 for update 1 and",
                      "kind 2");
    chain_free(w, &c);
    w = two_kfacs("empirical", "empirical", &c);
    world_chain(w);
    ck_assert_int_eq(tn_chain_tapping(w->chain), TN_TAP_TARGETS);
    chain_free(w, &c);
}
END_TEST

/* What no look ahead can see: clocks that came apart. */
START_TEST(two_kinds_of_taps_in_one_window_fail_the_step)
{
    products c;
    world *w = two_kfacs("sampled", "sampled", &c);
    int64_t extents[2][2] = {{5, 3}, {5, 4}}, strides[2][2] = {{3, 1}, {4, 1}};
    _Alignas(64) double data[20] = {1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4};
    const tn_tensor x = {data, {TN_CPU, 0}, 2, {TN_FLOAT, 64, 1}, extents[0], strides[0], 0};
    const tn_tensor dy = {data, {TN_CPU, 0}, 2, {TN_FLOAT, 64, 1}, extents[1], strides[1], 0};
    world_chain(w);
    component_set(w->links[1], "fisher", "empirical");
    world_fill(w, w->parameters.g, 2);
    ck_assert_int_eq(tn_chain_tapping(w->chain), TN_TAP_SAMPLED);
    tn_chain_tap(w->chain, 0, &x, &dy, 1);
    ck_assert_refused(tn_chain_step(w->chain, &(tn_step){.scale = 1}, &w->result, &w->err), TN_E_UNSUPPORTED, w->err,
                      "update.kfac: layer 'two' wants taps of kind 2 ", "tapped for kind 1");
    chain_free(w, &c);
}
END_TEST

START_TEST(stopping_and_going_on_does_not_change_bits)
{
    json_t *golden = test_golden("matrix.json", "kfac");
    products c, d;
    world *a = net(golden, 1, &c, NULL), *b = net(golden, 1, &d, NULL);
    for (size_t t = 0; t < 3; t++)
        window(a, golden, t, 0, 7);
    memcpy(b->parameters.p, a->parameters.p, (size_t)a->parameters.elements * 8);
    for (size_t i = 0; i < tn_chain_slot_count(a->chain); i++) {
        tn_chain_slot from, to;
        tn_chain_slot_at(a->chain, i, &from);
        tn_chain_slot_at(b->chain, i, &to);
        ck_assert_str_eq(from.slot, to.slot);
        ck_assert_int_eq(from.persistent, strstr(from.slot, "_sum") == NULL);
        if (from.persistent)
            memcpy(to.data, from.data, (size_t)from.bytes);
    }
    memcpy(tn_chain_clocks(b->chain), tn_chain_clocks(a->chain), (size_t)a->parameters.count * sizeof(int64_t));
    *tn_chain_update(b->chain) = *tn_chain_update(a->chain);
    for (size_t t = 3; t < 7; t++) {
        window(a, golden, t, 0, 7);
        window(b, golden, t, 0, 7);
    }
    for (int64_t i = 0; i < a->parameters.count; i++)
        for (int64_t j = 0; j < a->list[i].n; j++)
            ck_assert(world_p(a, i, j) == world_p(b, i, j));
    chain_free(a, &c);
    chain_free(b, &d);
    json_decref(golden);
}
END_TEST

static world *clipped(const json_t *golden, const char *kappa, int32_t processes, products *c, tn_comm *comm)
{
    const json_t *right = json_object_get(golden, "clipped"), *settings = json_object_get(right, "settings");
    world *w = world_new(64, 1);
    const char *lr = json_string_value(json_object_get(settings, "lr"));
    add_linear(w, "one", 2, 3);
    w->list[0].replicas = w->list[1].replicas = processes;
    world_arenas(w);
    put_pair(w, w->parameters.p, 0, json_object_get(golden, "p0"));
    put_pair(w, w->parameters.g, 0, json_object_get(golden, "g"));
    for (int64_t j = 0; j < 6; j++) /* to be read with scale 1/4 */
        world_put(w, w->parameters.g, 0, j, 4 * world_get(w, w->parameters.g, 0, j));
    for (int64_t j = 0; j < 2; j++)
        world_put(w, w->parameters.g, 1, j, 4 * world_get(w, w->parameters.g, 1, j));
    world_link(w, "kfac", "lr", lr, "damping", json_string_value(json_object_get(settings, "damping")));
    world_link(w, "kl-clip", "lr", lr, "kappa", kappa);
    chain_open(w, c, comm);
    return w;
}

static void clipped_step(tn_comm *comm, void *arg)
{
    const json_t *golden = arg, *right = json_object_get(golden, "clipped");
    int32_t rank = tn_comm_rank(comm), size = tn_comm_size(comm);
    products c;
    world *w = clipped(golden, json_string_value(json_object_get(json_object_get(right, "settings"), "kappa")), size,
                       &c, comm);
    tn_chain_tapping(w->chain);
    golden_tap(w, 0, golden, rank * 4, size == 1 ? 8 : 4, 1, into_chain, w->chain);
    world_step(w, 0.25);
    expect_pair(w, 0, json_object_get(right, "p"), 1e-10);
    ck_assert_double_eq_tol(world_report(w, "kl-clip.size"), json_real_value(json_object_get(right, "size")), 1e-10);
    ck_assert_double_eq_tol(world_report(w, "kl-clip.nu"), json_real_value(json_object_get(right, "nu")), 1e-10);
    chain_free(w, &c);
}

START_TEST(kl_clip_bounds_the_whole_step)
{
    json_t *golden = test_golden("matrix.json", "least_squares");
    clipped_step(NULL, golden);
    processes_run(2, clipped_step, golden);
    json_decref(golden);
}
END_TEST

START_TEST(kl_clip_passes_small_and_ascending_steps)
{
    json_t *golden = test_golden("matrix.json", "least_squares");
    products c[3];
    double p[3][6];
    for (int k = 0; k < 3; k++) { /* within the bound; a huge bound; without a gradient the step is 0 */
        world *w = clipped(golden, k == 1 ? "1e9" : "1e-3", 1, &c[k], NULL);
        tn_chain_tapping(w->chain);
        golden_tap(w, 0, golden, 0, 8, 1, into_chain, w->chain);
        if (k == 2) {
            world_set_g(w, 0, 0);
            world_set_g(w, 1, 0);
        }
        world_step(w, 0.25);
        ck_assert_int_eq(tn_chain_slot_count(w->chain), 6); /* no momentum, no buffer */
        for (int64_t j = 0; j < 6; j++)
            p[k][j] = world_p(w, 0, j);
        ck_assert_int_eq(world_report(w, "kl-clip.nu") == 1, k > 0);
        chain_free(w, &c[k]);
    }
    for (size_t j = 0; j < 6; j++) {
        double p0 = number(json_object_get(json_object_get(golden, "p0"), "w"), j);
        ck_assert(p[2][j] == p0);
        ck_assert(fabs(p[0][j] - p0) < fabs(p[1][j] - p0));
    }
    json_decref(golden);
}
END_TEST

/* ---- several processes ---- */

typedef struct team {
    int32_t size;
    uint32_t real;
    const world *one;
} team;

static void muon_body(tn_comm *comm, void *arg)
{
    const team *t = arg;
    products c;
    world *w = model(t->real, 1, tn_comm_rank(comm), t->size);
    add_links(w);
    chain_open(w, &c, comm);
    steps(w, 0, 3);
    for (int64_t i = 0; i < w->parameters.count; i++)
        for (int64_t j = 0; j < w->list[i].n; j++)
            expect(world_p(w, i, j) == world_p(t->one, i, w->list[i].lo + j), "rank %d, parameter %d, element %d",
                   tn_comm_rank(comm), (int)i, (int)j);
    chain_free(w, &c);
}

START_TEST(muon_on_shards_has_the_bits_of_one_process)
{
    for (uint32_t real = 32; real <= 64; real += 32)
        for (int32_t size = 2; size <= 3; size++) {
            products c;
            world *one = model(real, 2, 0, 1);
            add_links(one);
            chain_open(one, &c, NULL);
            steps(one, 0, 3);
            processes_run(size, muon_body, &(team){size, real, one});
            chain_free(one, &c);
        }
}
END_TEST

static void kfac_body(tn_comm *comm, void *arg)
{
    const json_t *golden = arg;
    int32_t rank = tn_comm_rank(comm);
    products c;
    world *w = net(golden, 2, &c, comm);
    for (size_t t = 0; t < json_array_size(windows_of(golden)); t++) {
        window(w, golden, t, rank ? 3 : 0, rank ? 4 : 3);
        expect_net(w, golden, t);
    }
    chain_free(w, &c);
}

START_TEST(kfac_on_replicas_is_that_of_the_joint_samples)
{
    json_t *golden = test_golden("matrix.json", "kfac");
    processes_run(2, kfac_body, golden);
    json_decref(golden);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("matrix_chain");
    TCase *tests = tcase_create("matrix_chain");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, routes_part_matrices_from_vectors);
    tcase_add_test(tests, a_matrix_rule_on_all_is_refused);
    tcase_add_test(tests, threads_do_not_change_bits);
    tcase_add_test(tests, skipped_steps_change_no_bit_and_none_allocates);
    tcase_add_test(tests, a_product_that_fails_stops_the_step_before_p);
    tcase_add_test(tests, a_product_that_fails_in_a_tap_stops_the_step);
    tcase_add_test(tests, kfac_follows_its_golden_trajectory);
    tcase_add_test(tests, links_that_want_two_kinds_of_taps_are_refused);
    tcase_add_test(tests, two_kinds_of_taps_in_one_window_fail_the_step);
    tcase_add_test(tests, stopping_and_going_on_does_not_change_bits);
    tcase_add_test(tests, kl_clip_bounds_the_whole_step);
    tcase_add_test(tests, kl_clip_passes_small_and_ascending_steps);
    tcase_add_test(tests, muon_on_shards_has_the_bits_of_one_process);
    tcase_add_test(tests, kfac_on_replicas_is_that_of_the_joint_samples);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
