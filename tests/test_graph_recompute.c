/* SPDX-License-Identifier: Apache-2.0
 *
 * Recomputed activations: gradients and statistics keep every bit, memory falls as promised, no call comes twice that
 * need not.
 */
#include "tests/graph.h"

#include "tests/malloc_count.h"

static const struct {
    const char *recompute, *nodes;
    int32_t replays; /* 1: some activations of open_chain too */
} policies[] = {{"sqrt", NULL, 1}, {"every", "1", 0}, {"every", "2", 0},
                {"every", "3", 1}, {"every", "5", 1}, {"every", "1000", 1}};
#define POLICIES (sizeof policies / sizeof *policies)

/* ---- the same bits ---- */

static const tn_setting mixed[] = {{"widths", "[17, 9, 33, 12, 8]"},
                                   {"normalizer", "batchnorm"},
                                   {"activation", "gelu"},
                                   {"regularizer", "{use: dropout, p: 0.3}"}};
static const tn_setting in_place[] = {{"widths", "[17, 9, 33, 12]"}, {"normalizer", "layernorm"}};

static const graph_choice models[] = {
    {.model = "mlp", .settings = mixed, .count = 4},
    {.model = "mlp", .settings = mixed, .count = 4, .real = 32},
    {.model = "mlp", .settings = in_place, .count = 2},
    {.model = "dag"}, /* outputs with several readers */
};
#define MODELS (sizeof models / sizeof *models)

/* Two micro-batches, of which the second is added, and two attempts: enough for statistics to go astray. */
static void train(graph_fixture *f)
{
    static const int64_t sizes[] = {40, 65, 13};
    for (int64_t i = 0; i < 3; i++) {
        graph_fill_from(f, 11, 65 * i, sizes[i]);
        const tn_graph_run run = {.n = sizes[i],
                                  .flags = TN_TRAIN | (i == 1 ? TN_ACCUMULATE : 0),
                                  .attempt = i / 2,
                                  .micro = i % 2,
                                  .seed = 1};
        graph_run(f, &run);
    }
}

static void check_same(graph_fixture *kept, graph_fixture *replayed, const char *policy, const char *nodes)
{
    int64_t bytes = kept->choice.real / 8;
    const tn_graph_buffer *a, *b;
    for (int64_t i = 0; i < kept->all->count; i++) {
        int64_t at = kept->all->at[i] * bytes;
        expect(
            !memcmp((char *)kept->all->g + at, (char *)replayed->all->g + at, (size_t)(kept->all->list[i].n * bytes)),
            "recompute %s %s changes the gradient of %s", policy, nodes ? nodes : "", kept->all->list[i].name);
    }
    size_t count = tn_graph_buffers(kept->graph, &a);
    ck_assert_uint_eq(tn_graph_buffers(replayed->graph, &b), count);
    for (size_t i = 0; i < count; i++)
        expect(!memcmp(a[i].tensor.data, b[i].tensor.data, (size_t)(a[i].tensor.shape[0] * bytes)),
               "recompute %s changes %s", policy, a[i].name);
    const tn_tensor *y = tn_graph_output(kept->graph);
    ck_assert_mem_eq(y->data, tn_graph_output(replayed->graph)->data, (size_t)(y->shape[0] * CLASSES * bytes));
}

START_TEST(gradients_and_statistics_keep_every_bit)
{
    for (size_t m = 0; m < MODELS; m++) {
        graph_fixture kept;
        graph_open(&kept, &models[m]);
        train(&kept);
        for (size_t i = 0; i < POLICIES; i++) {
            graph_choice choice = models[m];
            graph_fixture replayed;
            choice.recompute = policies[i].recompute;
            choice.segment = policies[i].nodes;
            choice.threads = 1 + (int32_t)i % 3;
            graph_open(&replayed, &choice);
            train(&replayed);
            check_same(&kept, &replayed, policies[i].recompute, policies[i].nodes);
            graph_close(&replayed);
        }
        graph_close(&kept);
    }
}
END_TEST

/* ---- what is called ---- */

#define CALLS_MOST 1024

typedef struct {
    unsigned flags;
    unsigned long long key;
    long long attempt;
} call;

typedef struct {
    int32_t forwards, backwards, replays;
    call forward[CALLS_MOST];
} calls;

static void note_call(void *host, int32_t level, const char *text)
{
    calls *c = host;
    char what[16];
    call one;
    (void)level;
    ck_assert_int_eq(sscanf(text, "%15s %x %llx %lld", what, &one.flags, &one.key, &one.attempt), 4);
    if (!strcmp(what, "backward")) {
        c->backwards++;
        return;
    }
    ck_assert_int_lt(c->forwards, CALLS_MOST);
    c->forward[c->forwards++] = one;
    c->replays += (one.flags & TN_FREEZE) != 0;
}

/* A chain of 2 * 40 + 1 nodes, all of the width of a sample. */
#define LAYERS 40
#define NODES  (2 * LAYERS + 1)

static void open_chain(graph_fixture *f, const char *recompute, const char *nodes, const tn_services *services)
{
    char widths[8 * LAYERS] = "[7";
    for (int i = 1; i < LAYERS; i++)
        strcat(widths, ", 7");
    strcat(widths, "]");
    const tn_setting settings[] = {{"widths", widths}, {"activation", "watched"}};
    const graph_choice choice = {.model = "mlp",
                                 .settings = settings,
                                 .count = 2,
                                 .recompute = recompute,
                                 .segment = nodes,
                                 .services = services};
    graph_open(f, &choice);
}

START_TEST(no_node_runs_forward_more_than_twice)
{
    for (size_t i = 0; i < POLICIES; i++) {
        calls seen = {0};
        const tn_services services = {.struct_size = sizeof services, .host = &seen, .log = note_call};
        graph_fixture f;
        open_chain(&f, policies[i].recompute, policies[i].nodes, &services);
        graph_fill(&f, 65);
        const tn_graph_run run = {.n = 65, .flags = TN_TRAIN, .attempt = 9, .seed = 1};
        graph_run(&f, &run);
        ck_assert_int_eq(seen.backwards, LAYERS);
        ck_assert_int_eq(seen.forwards, LAYERS + seen.replays);
        ck_assert_int_le(seen.replays, LAYERS);
        ck_assert_int_eq(seen.replays > 0, policies[i].replays);
        for (int32_t a = LAYERS; a < seen.forwards; a++) { /* replays: later, frozen, each once, the same numbers */
            int32_t first = 0, again = 0;
            ck_assert_uint_eq(seen.forward[a].flags, TN_TRAIN | TN_FREEZE);
            for (int32_t b = 0; b < seen.forwards; b++) {
                int same =
                    seen.forward[a].key == seen.forward[b].key && seen.forward[a].attempt == seen.forward[b].attempt;
                first += same && b < LAYERS;
                again += same && b >= LAYERS;
            }
            ck_assert_int_eq(first, 1);
            ck_assert_int_eq(again, 1);
        }
        graph_close(&f);
    }
}
END_TEST

START_TEST(evaluation_replays_nothing)
{
    calls seen = {0};
    const tn_services services = {.struct_size = sizeof services, .host = &seen, .log = note_call};
    graph_fixture f;
    tn_error err = {0};
    open_chain(&f, "sqrt", NULL, &services);
    graph_fill(&f, 65);
    graph_run(&f, &(tn_graph_run){.n = 65, .seed = 1});
    ck_assert_int_eq(seen.forwards, LAYERS);
    ck_ok(tn_graph_run_batch(f.graph, &(tn_graph_run){.n = 65, .flags = TN_TRAIN, .forward_only = 1}, NULL, &err), err);
    ck_assert_int_eq(seen.forwards, 2 * LAYERS);
    ck_assert_int_eq(seen.replays + seen.backwards, 0);
    graph_close(&f);
}
END_TEST

/* ---- memory ---- */

static int64_t live_nodes(const char *recompute, const char *nodes)
{
    graph_fixture f;
    open_chain(&f, recompute, nodes, NULL);
    int64_t bytes = tn_graph_memory_of(f.graph).activations, node = (65 * 7 * 8 + 63) / 64 * 64;
    graph_close(&f);
    return (bytes + node - 1) / node;
}

START_TEST(memory_falls_to_two_roots)
{
    int64_t root = (int64_t)ceil(sqrt(NODES)), kept = live_nodes(NULL, NULL), replayed = live_nodes("sqrt", NULL);
    ck_assert_int_ge(kept, NODES - 1);
    ck_assert_int_le(replayed, 2 * root + 3); /* and two gradients, and what is being computed */
    ck_assert_int_lt(live_nodes("every", "2"), kept);
    ck_assert_int_eq(live_nodes("every", "1"), kept);
}
END_TEST

/* ---- taps, allocation, refusals ---- */

typedef struct {
    int32_t count;
    double sums[2 * NODES];
} tapped;

static void listen(void *user, int64_t weight, const tn_tensor *x, const tn_tensor *dy, double seed)
{
    tapped *t = user;
    double *sum = &t->sums[t->count++];
    ck_assert_int_le(t->count, 2 * NODES);
    *sum = (double)weight + seed;
    for (int64_t i = 0; i < x->shape[0] * x->shape[1]; i++)
        *sum += (double)(i % 97) * ((double *)x->data)[i];
    for (int64_t i = 0; i < dy->shape[0] * dy->shape[1]; i++)
        *sum += (double)(i % 89) * ((double *)dy->data)[i];
}

START_TEST(taps_come_once_and_show_the_same)
{
    tapped seen[2] = {{0}};
    for (int k = 0; k < 2; k++) {
        graph_choice choice = models[0];
        graph_fixture f;
        choice.recompute = k ? "sqrt" : NULL;
        graph_open(&f, &choice);
        graph_fill(&f, 65);
        for (int micro = 0; micro < 2; micro++)
            graph_run(&f, &(tn_graph_run){
                              .n = 65, .flags = TN_TRAIN, .micro = micro, .seed = 1, .tap = listen, .user = &seen[k]});
        graph_close(&f);
    }
    ck_assert_int_eq(seen[0].count, 2 * 6); /* five hidden layers and the head, for each micro-batch */
    ck_assert_int_eq(seen[1].count, 2 * 6);
    ck_assert_mem_eq(seen[0].sums, seen[1].sums, sizeof seen[0].sums);
}
END_TEST

START_TEST(a_step_with_replays_allocates_nothing)
{
    graph_choice choice = models[1];
    graph_fixture f;
    tn_exact sums[TN_SUMS_MAX];
    tn_error err = {0};
    choice.recompute = "sqrt";
    choice.threads = 2;
    graph_open(&f, &choice);
    train(&f);
    graph_fill(&f, 65);
    for (size_t i = 0; i < TN_SUMS_MAX; i++)
        tn_exact_clear(&sums[i]);
    const tn_graph_run run = {.n = 65, .flags = TN_TRAIN, .seed = 1};
    int64_t before = malloc_count();
    int32_t status = tn_graph_run_batch(f.graph, &run, sums, &err);
    ck_assert_int_eq(malloc_count(), before);
    ck_ok(status, err);
    graph_close(&f);
}
END_TEST

START_TEST(policies_that_are_wrong_are_refused)
{
    static const struct {
        const char *fault, *words;
        int32_t status;
    } cases[] = {{"0", "", TN_OK},
                 {"1", "recompute wrong-policy: the first node has 2600 bytes", TN_E_INVALID}, /* 65 rows of 5 f64 */
                 {"2", "says 7 for a", TN_E_PLUGIN},
                 {"3", "replays head, which is not replayable", TN_E_PLUGIN}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        graph_choice choice = {.model = "dag", .recompute = "wrong-policy", .segment = cases[i].fault};
        graph_fixture f;
        tn_error err = {0};
        graph_prepare(&f, &choice);
        ck_assert_int_eq(graph_create(&f, &err), cases[i].status);
        ck_assert_msg(strstr(err.msg, cases[i].words) != NULL, "%s", err.msg);
        graph_close(&f);
    }
}
END_TEST

START_TEST(every_failed_allocation_is_an_error)
{
    const graph_choice choice = {.model = "dag", .real = 32, .recompute = "sqrt"};
    graph_fail_allocations(&choice, 30);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("graph_recompute");
    TCase *tests = tcase_create("graph_recompute");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, gradients_and_statistics_keep_every_bit);
    tcase_add_test(tests, no_node_runs_forward_more_than_twice);
    tcase_add_test(tests, evaluation_replays_nothing);
    tcase_add_test(tests, memory_falls_to_two_roots);
    tcase_add_test(tests, taps_come_once_and_show_the_same);
    tcase_add_test(tests, a_step_with_replays_allocates_nothing);
    tcase_add_test(tests, policies_that_are_wrong_are_refused);
    tcase_add_test(tests, every_failed_allocation_is_an_error);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
