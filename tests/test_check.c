/* SPDX-License-Identifier: Apache-2.0
 *
 * test_check.c: `tenon check`. Each rule has a plugin that breaks it, tests/bad/<id of the rule>.c: its own rule fires,
 * what else is hit stands in the table, and the same source with -DREPAIRED has no finding. Every built plugin passes.
 *
 *   test_check            the frame: children, guards, ids
 *   test_check bad N M    part N of M of the table
 *   test_check built N M  part N of M of the built plugins
 */
#include <glob.h>

#include "host/check/check.h"
#include "tests/support.h"

/* ---- one line a plugin ---- */

typedef struct {
    const char *file;    /* tests/bad/FILE.c, built as FILE.so and FILE-repaired.so */
    const char *rule;    /* which it breaks */
    const char *implied; /* other rules that are hit then, with blanks between; NULL: none */
    const char *against; /* tests/bad: an earlier build to hold it against; NULL: none */
} bad_row;

static const bad_row bads[] = {
    /* the file as a whole */
    {"file-note", "file-note", NULL, NULL},
    {"file-record", "file-record", NULL, NULL},
    {"elf-one-symbol", "elf-one-symbol", NULL, NULL},
    {"elf-leaked-symbols", "elf-leaked-symbols", NULL, NULL},
    {"elf-undefined-symbols", "elf-undefined-symbols", NULL, NULL},
    {"elf-undefined-symbols-2", "elf-undefined-symbols", "file-record", NULL},
    {"elf-executable-stack", "elf-executable-stack", NULL, NULL},
    {"elf-static-tls", "elf-static-tls", NULL, NULL},
    {"elf-soname", "elf-soname", NULL, NULL},
    {"load-entry-twice", "load-entry-twice", NULL, NULL},
    {"load-entry-twice-2", "load-entry-twice", NULL, NULL},
    {"load-entry-twice-3", "load-entry-twice", NULL, NULL},
    {"load-float-modes", "load-float-modes", "calls-process", NULL},
    {"load-float-modes-2", "load-float-modes", "calls-process", NULL},
    {"load-threads", "load-threads", NULL, NULL},
    {"load-signals", "load-signals", NULL, NULL},
    {"load-signals-2", "load-signals", NULL, NULL},
    {"load-process", "load-process", NULL, NULL},
    {"load-process-2", "load-process", NULL, NULL},
    {"load-process-3", "load-process", NULL, NULL},
    {"load-process-4", "load-process", NULL, NULL},
    {"load-process-5", "load-process", NULL, NULL},
    {"load-process-6", "load-process", NULL, NULL},
    {"load-process-7", "load-process", NULL, NULL},
    {"load-output", "load-output", "calls-process", NULL},
    {"calls-process", "calls-process", NULL, NULL},
    {"file-against-1", "file-against", NULL, "file-against"},
    {"file-against-2", "file-against", NULL, "file-against"},
    {"file-against-3", "file-against", NULL, "file-against"},
    {"file-against-4", "file-against", NULL, "file-against"},
    {"file-against-5", "file-against", NULL, "file-against"},
    {"file-against-6", "file-against", NULL, "file-against"},
    {"file-against-7", "file-against", NULL, "file-against"},
    {"file-against-8", "file-against", NULL, "file-against"},
    {"file-against-9", "file-against", NULL, "file-against"},
#if defined __x86_64__
    {"elf-text-relocations", "elf-text-relocations", NULL, NULL},
    {"load-float-modes-3", "load-float-modes", "calls-process", NULL},
    {"calls-process-2", "calls-process", NULL, NULL},
#endif
    /* links of an update, codecs, loss scales, schedulers */
    {"update-chain", "update-chain", NULL, NULL},
    {"update-repeat", "update-repeat", NULL, NULL},
    {"update-threads-1", "update-threads", NULL, NULL},
    {"update-threads-2", "update-threads", NULL, NULL},
    {"update-bounds-1", "update-bounds", NULL, NULL},
    {"update-bounds-2", "update-bounds", NULL, NULL},
    {"update-bounds-3", "update-bounds", NULL, NULL},
    {"codec-bounds", "update-bounds", NULL, NULL},
    {"update-inputs-1", "update-inputs", NULL, NULL},
    {"update-inputs-2", "update-inputs", NULL, NULL},
    {"loss-scale-inputs", "update-inputs", NULL, NULL},
    {"update-slices-1", "update-slices", NULL, NULL},
    {"update-slices-2", "update-slices", NULL, NULL},
    {"codec-slices", "update-slices", NULL, NULL},
    {"scheduler-slices", "update-slices", "update-threads", NULL},
    {"update-state", "update-state", NULL, NULL},
    {"scheduler-state", "update-state", "update-repeat update-threads update-slices update-locale", NULL},
    {"update-nonfinite-1", "update-nonfinite", NULL, NULL},
    {"update-nonfinite-2", "update-nonfinite", "update-repeat update-bounds", NULL},
    {"update-empty", "update-empty", NULL, NULL},
    {"update-clock", "update-clock", NULL, NULL},
    {"update-attempt", "update-attempt", NULL, NULL},
    {"update-nonnegative", "update-nonnegative", NULL, NULL},
    {"update-heap", "update-heap", NULL, NULL},
    {"codec-heap", "update-heap", NULL, NULL},
    {"update-leak-1", "update-leak", NULL, NULL},
    {"update-leak-2", "update-leak", NULL, NULL},
    {"update-locale", "update-locale", NULL, NULL},
    {"codec-again", "codec-again", NULL, NULL},
    {"codec-special-1", "codec-special", NULL, NULL},
    {"codec-special-2", "codec-special", "codec-again", NULL},
    {"loss-scale-repeat", "update-repeat", NULL, NULL},
    {"loss-scale-values", "loss-scale-values", NULL, NULL},
    {"loss-scale-overflow-1", "loss-scale-overflow", NULL, NULL},
    {"loss-scale-overflow-2", "loss-scale-overflow", NULL, NULL},
    {"scheduler-values", "scheduler-values", NULL, NULL},
    {"scheduler-far", "scheduler-far", NULL, NULL},
    {"round-bounds-1", "update-bounds", NULL, NULL},
    {"round-bounds-2", "update-bounds", NULL, NULL},
    {"round-bounds-3", "update-bounds", NULL, NULL},
    {"matrix-bounds-1", "update-bounds", NULL, NULL},
    {"matrix-bounds-2", "update-bounds", NULL, NULL},
    {"matrix-bounds-3", "update-bounds", NULL, NULL},
    {"minimizer-bounds", "update-bounds", NULL, NULL},
    {"round-inputs-1", "update-inputs", NULL, NULL},
    {"round-inputs-2", "update-inputs", NULL, NULL},
    {"round-inputs-3", "update-inputs", NULL, NULL},
    {"matrix-slices", "update-slices", NULL, NULL},
    {"minimizer-state", "update-state", NULL, NULL},
    {"minimizer-nonfinite-1", "update-nonfinite", NULL, NULL},
    {"minimizer-nonfinite-2", "update-nonfinite", NULL, NULL},
    /* models, data and what runs them */
    {"layer-tap", "layer-tap", NULL, NULL},
    {"layer-split", "layer-split", NULL, NULL},
    {"layer-rounds", "layer-rounds", NULL, NULL},
    {"collective-operations", "collective-operations", NULL, NULL},
    {"collective-ordered", "collective-ordered", NULL, NULL},
    {"collective-mismatch", "collective-mismatch", NULL, NULL},
    {"collective-absent", "collective-absent", NULL, NULL},
    {"collective-heap", "collective-heap", NULL, NULL},
    {"strategy-tables", "strategy-tables", NULL, NULL},
    {"strategy-repeat", "strategy-repeat", NULL, NULL},
    {"strategy-room", "strategy-room", NULL, NULL},
    {"recompute-table", "recompute-table", NULL, NULL},
    {"recompute-repeat", "recompute-repeat", NULL, NULL},
    {"backend-probe", "backend-probe", NULL, NULL},
    {"backend-products", "backend-products", NULL, NULL},
    {"backend-products-gap", "backend-products", NULL, NULL},
    {"backend-memory", "backend-memory", NULL, NULL},
    {"backend-beta", "backend-beta", NULL, NULL},
    {"backend-repeat", "backend-repeat", "backend-products backend-threads", NULL},
    {"backend-threads", "backend-threads", NULL, NULL},
    {"backend-refusals", "backend-refusals", NULL, NULL},
    {"backend-leak", "backend-leak", NULL, NULL},
    {"model-builds", "model-builds", NULL, NULL},
    {"model-builds-unread", "model-builds", "model-trains", NULL},
    {"model-repeat", "model-repeat", NULL, NULL},
    {"model-failure", "model-failure", NULL, NULL},
    {"model-trains", "model-trains", NULL, NULL},
    {"data-describe", "data-describe", NULL, NULL},
    {"data-memory", "data-memory", NULL, NULL},
    {"data-memory-gather", "data-memory", NULL, NULL},
    {"data-values", "data-values", NULL, NULL},
    {"data-order", "data-order", NULL, NULL},
    {"data-fresh", "data-fresh", NULL, NULL},
    {"data-threads", "data-threads", NULL, NULL},
    {"data-heap", "data-heap", NULL, NULL},
    {"data-leak", "data-leak", NULL, NULL},
    {"sink-file", "sink-file", NULL, NULL},
    {"sink-repeat", "sink-repeat", "sink-locale", NULL},
    {"sink-values", "sink-values", NULL, NULL},
    {"sink-locale", "sink-locale", NULL, NULL},
    {"sink-failure", "sink-failure", NULL, NULL},
    {"sink-memory", "sink-memory", NULL, NULL},
    {"sink-heap", "sink-heap", NULL, NULL},
    {"loss-shapes", "loss-shapes", NULL, NULL},
    {"loss-memory", "loss-memory", NULL, NULL},
    {"loss-outputs", "loss-outputs", NULL, NULL},
    {"loss-repeat", "loss-repeat", NULL, NULL},
    {"loss-pieces", "loss-pieces", NULL, NULL},
    {"loss-threads", "loss-threads", NULL, NULL},
    {"loss-heap", "loss-heap", NULL, NULL},
    {"loss-slopes", "loss-slopes", NULL, NULL},
    {"loss-curvature", "loss-curvature", NULL, NULL},
    {"loss-ignored", "loss-ignored", NULL, NULL},
    {"loss-label", "loss-label", NULL, NULL},
    {"loss-label-read", "loss-label", NULL, NULL},
    {"loss-nonfinite", "loss-nonfinite", "loss-label", NULL},
    {"loss-samples", "loss-samples", NULL, NULL},
    {"layer-plan", "layer-plan", NULL, NULL},
    {"layer-memory", "layer-memory", NULL, NULL},
    {"layer-memory-written", "layer-memory", NULL, NULL},
    {"layer-outputs", "layer-outputs", NULL, NULL},
    {"layer-wishes", "layer-wishes", NULL, NULL},
    {"layer-repeat", "layer-repeat", NULL, NULL},
    {"layer-pieces", "layer-pieces", NULL, NULL},
    {"layer-batch", "layer-batch", NULL, NULL},
    {"layer-in-place", "layer-in-place", NULL, NULL},
    {"layer-threads", "layer-threads", NULL, NULL},
    {"layer-heap", "layer-heap", NULL, NULL},
    {"layer-leak", "layer-leak", NULL, NULL},
    {"layer-slopes", "layer-slopes", "layer-tangents", NULL},
    {"layer-slopes-f32", "layer-slopes", "layer-tangents", NULL},
    {"layer-tangents", "layer-tangents", NULL, NULL},
    {"layer-state", "layer-state", NULL, NULL},
    {"layer-freeze", "layer-freeze", "layer-memory", NULL},
    {"layer-refresh", "layer-refresh", "normalizer-evaluation", NULL},
    {"layer-nonfinite", "layer-nonfinite", NULL, NULL},
    {"layer-random", "layer-random", "regularizer-mean", NULL},
    {"regularizer-mean", "regularizer-mean", NULL, NULL},
    {"normalizer-names", "normalizer-names", NULL, NULL},
    {"normalizer-evaluation", "normalizer-evaluation", NULL, NULL},
};

#define BADS (sizeof bads / sizeof *bads)

static glob_t built;

static bool is_hit(const tn_check_finding *f)
{
    return f->verdict != TN_CHECK_PASSED && f->verdict != TN_CHECK_SKIPPED;
}

/* `against`: in tests/bad. */
static tn_check_report check_file(const char *path, const char *against)
{
    tn_check_report report = {0};
    tn_error err = {0};
    char old[256];
    snprintf(old, sizeof old, "%s.so", against ? against : "good-one");
    const tn_check_options options = {.path = path, .against = against ? test_path("TENON_TEST_BAD", old) : NULL};
    setenv("TENON_PLUGIN_PATH", test_env("TENON_TEST_GOOD"), 1);
    ck_ok(tn_check_run(&options, &report, &err), err);
    ck_assert_uint_gt(report.count, 0);
    return report;
}

static bool holds_id(const char *ids, const char *id)
{
    size_t length = strlen(id);
    for (const char *at = ids ? ids : ""; (at = strstr(at, id)); at += length)
        if ((at == ids || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
            return true;
    return false;
}

static bool fires(const tn_check_report *report, const char *rule)
{
    bool hit = false;
    for (size_t i = 0; i < report->count; i++)
        hit = hit || (strcmp(report->findings[i].rule, rule) == 0 && is_hit(&report->findings[i]));
    return hit;
}

static void expect_implied(const bad_row *row, const tn_check_report *report)
{
    char ids[1024];
    snprintf(ids, sizeof ids, "%s", row->implied ? row->implied : "");
    for (char *rest, *id = strtok_r(ids, " ", &rest); id; id = strtok_r(NULL, " ", &rest))
        expect(fires(report, id), "%s: %s is in the table as implied, and is not hit", row->file, id);
    for (size_t i = 0; i < report->count; i++) {
        const tn_check_finding *f = &report->findings[i];
        expect(!is_hit(f) || strcmp(f->rule, row->rule) == 0 || holds_id(row->implied, f->rule),
               "%s: %s is hit too, and is not in the table: %s: %s", row->file, f->rule, f->component, f->message);
    }
}

static void expect_clean(const char *path, const tn_check_report *report)
{
    for (size_t i = 0; i < report->count; i++) {
        const tn_check_finding *f = &report->findings[i];
        expect(!is_hit(f), "%s: %s: %s %s: %s", path, f->component, f->rule, tn_check_verdict_name(f->verdict),
               f->message);
    }
}

START_TEST(breaks_its_rule)
{
    const bad_row *row = &bads[_i];
    char name[256];
    snprintf(name, sizeof name, "%s.so", row->file);
    tn_check_report report = check_file(test_path("TENON_TEST_BAD", name), bads[_i].against);
    expect(fires(&report, row->rule), "%s: %s does not fire", row->file, row->rule);
    expect_implied(row, &report);
    tn_check_report_free(&report);
}
END_TEST

START_TEST(is_clean_when_repaired)
{
    char name[256];
    snprintf(name, sizeof name, "%s-repaired.so", bads[_i].file);
    tn_check_report report = check_file(test_path("TENON_TEST_BAD", name), bads[_i].against);
    expect_clean(name, &report);
    tn_check_report_free(&report);
}
END_TEST

START_TEST(built_plugin_passes)
{
    tn_check_report report = check_file(built.gl_pathv[_i], NULL);
    expect_clean(built.gl_pathv[_i], &report);
    tn_check_report_free(&report);
}
END_TEST

/* ---- the frame ---- */

START_TEST(every_rule_has_a_plugin_that_breaks_it)
{
    static const tn_check_rule *const tables[] = {tn_check_file_rules, tn_check_update_rules, tn_check_graph_rules,
                                                  tn_check_calls_rules};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        for (const tn_check_rule *rule = tables[t]; rule->id; rule++) {
            size_t at = 0;
            while (at < BADS && strcmp(bads[at].rule, rule->id) != 0)
                at++;
            expect(at < BADS, "rule %s has no plugin in tests/bad that breaks it", rule->id);
            expect(rule->says && strlen(rule->says) > 20, "rule %s says nothing", rule->id);
        }
    }
}
END_TEST

/* ---- main ---- */

static void add_part(Suite *suite, char **argv, size_t count, const char *name, const TTest *first, const TTest *second)
{
    int part = atoi(argv[2]), parts = atoi(argv[3]), all = (int)count;
    TCase *cases = tcase_create(name);
    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, first, all * (part - 1) / parts, all * part / parts);
    if (second)
        tcase_add_loop_test(cases, second, all * (part - 1) / parts, all * part / parts);
    suite_add_tcase(suite, cases);
}

static void add_frame(Suite *suite)
{
    TCase *cases = tcase_create("frame");
    tcase_add_test(cases, every_rule_has_a_plugin_that_breaks_it);
    suite_add_tcase(suite, cases);
}

static void find_built(void)
{
    char pattern[PATH_MAX];
    snprintf(pattern, sizeof pattern, "%s/*.so", getenv("TENON_TEST_GOOD"));
    if (glob(pattern, 0, NULL, &built) != 0)
        exit(1);
}

int main(int argc, char **argv)
{
    Suite *suite = suite_create("check");
    if (argc < 4)
        add_frame(suite);
    else if (!strcmp(argv[1], "bad"))
        add_part(suite, argv, BADS, "bad", breaks_its_rule, is_clean_when_repaired);
    else
        find_built(), add_part(suite, argv, built.gl_pathc, "built", built_plugin_passes, NULL);
    return test_main(suite);
}
