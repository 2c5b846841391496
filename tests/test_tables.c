/* SPDX-License-Identifier: Apache-2.0
 *
 * test_tables.c: plugins of tests/bad whose tables are wrong behind a right note: each is refused when a run opens, or
 * at the step that finds out, with the component and the field in the message, and never by a crash. (Tables of
 * strategies: test_parallel and test_parallel_tensor.)
 */
#include "tests/small_run.h"

static void begin(void)
{
    static const char *const files[] = {"tables-matrix",     "tables-rounds",   "tables-codecs", "tables-layers",
                                        "tables-minimizers", "tables-policies", "tables-empty"};
    setup();
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char name[64];
        tn_error err;
        snprintf(name, sizeof name, "%s.so", files[i]);
        ck_ok(tn_registry_add_file(registry, test_path("TENON_TEST_BAD", name), &err), err);
    }
}

typedef struct {
    const char *override, *component, *said;
    int32_t status;
} wrong;

#define RULE(text) "update=[{use: " text ", as: rule, on: {axes: 2}}, {use: adamw, as: rest}]"
#define LINK(text) "update=[{use: " text ", as: wrong}, {use: adamw, as: rule}]"

static const wrong cases[] = {
    {RULE("no-apply-rule"), "update.rule", "no apply", TN_E_PLUGIN},
    {RULE("wrong-scratch, bytes: -1"), "update.rule", "asks for -1 bytes of scratch", TN_E_PLUGIN},
    {RULE("wrong-scratch, bytes: 9223372036854775807"), "update.rule", "bytes of scratch", TN_E_PLUGIN},
    {RULE("tap-without-tapping"), "update.rule", "only one of tapping and tap", TN_E_PLUGIN},
    {RULE("tapped-without-tap"), "update.rule", "slot 'left' is tapped, but the link has no tap", TN_E_PLUGIN},
    {RULE("taps-of-matrices"), "update.rule", "needs grain layer", TN_E_PLUGIN},
    {RULE("unheard-taps"), "update.rule", "tapping returns 77", TN_E_PLUGIN},
    {RULE("sizeless-matrix"), "update.rule", "apply", TN_E_PLUGIN},
    {RULE("matrix-of-elements"), "update.rule", "table tn_matrix", TN_E_PLUGIN},

    {LINK("many-rows"), "many-rows", "a round's rows must be", TN_E_PLUGIN},
    {LINK("minus-columns"), "minus-columns", "a round's columns must be", TN_E_PLUGIN},
    {LINK("empty-round"), "empty-round", "a round needs scalars, rows or columns", TN_E_PLUGIN},
    {"update=[{use: adamw, as: rule}, {use: late-round, as: wrong}]", "update.wrong", "rounds", TN_E_PLUGIN},
    {RULE("constants"), "update.rule", "constants", TN_E_PLUGIN},
    {RULE("idle-rule"), "update.rule", "without update", TN_E_PLUGIN},

    {"update=[{use: minimizer-without-plan, as: rule}]", "update.rule", "plan", TN_E_PLUGIN},
    {"update=[{use: minimizer-without-advance, as: rule}]", "update.rule", "advance", TN_E_PLUGIN},
    {"update=[{use: minimizer-of-memory, as: rule}]", "update.rule", "memory", TN_E_PLUGIN},
    {"update=[{use: minimizer-of-slots, as: rule}]", "update.rule", "slot", TN_E_PLUGIN},
    {"update=[{use: minimizer-that-is-mute, as: rule}]", "update.rule", "request", TN_E_PLUGIN},

    {"precision={state: block-0}", "block-0", "blocks of 0 elements", TN_E_PLUGIN},
    {"precision={state: block-3}", "block-3", "blocks of 3 elements", TN_E_PLUGIN},
    {"precision={state: block-4096}", "block-4096", "blocks of 4096 elements", TN_E_PLUGIN},
    {"precision={storage: bits-7}", "bits-7", "7 bits, needed whole bytes", TN_E_PLUGIN},
    {"precision={state: bits-minus}", "bits-minus", "-8 bits", TN_E_PLUGIN},
    {"precision={state: bits-128}", "bits-128", "128 bits", TN_E_PLUGIN},
    {"precision={state: extra-minus}", "extra-minus", "-4 bytes", TN_E_PLUGIN},
    {"precision={storage: no-encode}", "no-encode", "encode", TN_E_PLUGIN},

    {"model.normalizer={use: odd-rounds, sums: -1}", "hidden.0.norm", "-1 sums", TN_E_PLUGIN},
    {"model.normalizer={use: odd-rounds, sums: 9223372036854775807}", "hidden.0.norm",
     "9223372036854775807 sums a round", TN_E_PLUGIN},
    {"model.normalizer={use: odd-rounds, later: 1000}", "hidden.0.norm", "1001 sums a round, more than the 1",
     TN_E_PLUGIN},
    {"model.normalizer=minus-rounds", "minus-rounds", "less than 0", TN_E_PLUGIN},
    {"model.normalizer=many-rounds", "many-rounds", "2147483647 rounds", TN_E_PLUGIN},
    {"model.normalizer=mute-rounds", "mute-rounds", "lacks count or partial", TN_E_PLUGIN},
    {"model.normalizer=sizeless-rounds", "sizeless-rounds", "lacks count or partial", TN_E_PLUGIN},
    {"model.normalizer=no-infer", "no-infer", "infer", TN_E_PLUGIN},
    {"model.normalizer=no-forward", "no-forward", "forward", TN_E_PLUGIN},
    {"model.normalizer=no-backward", "no-backward", "backward", TN_E_PLUGIN},

    {"precision={loss_scale: {use: odd-scale, value: nan}}", "odd-scale", "scale nan", TN_E_PLUGIN},
    {"precision={loss_scale: {use: odd-scale, value: 0}}", "odd-scale", "scale 0", TN_E_PLUGIN},
    {"precision={loss_scale: {use: odd-scale, value: -2}}", "odd-scale", "scale -2", TN_E_PLUGIN},
    {"precision={loss_scale: {use: odd-scale, value: 3}}", "odd-scale", "scale 3", TN_E_PLUGIN},
    {"precision={loss_scale: {use: odd-scale, value: inf}}", "odd-scale", "scale inf", TN_E_PLUGIN},
    {"precision={loss_scale: minus-slots}", "minus-slots", "-1 slots", TN_E_PLUGIN},
    {"precision={loss_scale: many-slots}", "many-slots", "2147483647 slots", TN_E_PLUGIN},
    {"precision={loss_scale: no-scale}", "no-scale", "lacks begin, scale or observe", TN_E_PLUGIN},

    {"recompute={use: odd-plan, word: 7}", "odd-plan", "7", TN_E_PLUGIN},
    {"recompute={use: odd-plan, word: -2147483648}", "odd-plan", "-2147483648", TN_E_PLUGIN},
    {"recompute={use: odd-plan, word: 1}", "odd-plan", "not replayable", TN_E_PLUGIN},
    {"recompute=no-plan", "no-plan", "plan", TN_E_PLUGIN},

    {"loss=empty-loss", "empty-loss", "evaluate", TN_E_PLUGIN},
    {"schedule={rule.lr: {use: empty-scheduler}}", "empty-scheduler", "value", TN_E_PLUGIN},
    {"sinks=[empty-sink]", "empty-sink", "needed a plain name", TN_E_PLUGIN},
    {"model=empty-model", "empty-model", "build", TN_E_PLUGIN},
    {"data=empty-data", "empty-data", "describe", TN_E_PLUGIN},
    {"backend=empty-backend", "empty-backend", "gemm", TN_E_UNSUPPORTED},
    {"parallel={collective: empty-collective}", "empty-collective", "world", TN_E_PLUGIN},
    {"update=[{use: empty-rule, as: rule}]", "update.rule", "stage", TN_E_PLUGIN},
};
#define CASES ((int)(sizeof cases / sizeof *cases))

/* Sinks are opened with the folder. */
static int32_t train(outcome *o, tn_log *log, const char *const *overrides, tn_error *err)
{
    int32_t status = open_run(o, log, overrides, 1, err);
    if (status == TN_OK)
        status = tn_trainer_record_in(o->trainer, test_directory, err);
    return status == TN_OK ? tn_trainer_run(o->trainer, err) : status;
}

START_TEST(wrong_tables_are_refused)
{
    const wrong *c = &cases[_i];
    static outcome o;
    static tn_log log;
    tn_error err = {0};
    ck_assert_refused(train(&o, &log, &c->override, &err), c->status, err, "", c->component);
    ck_assert_msg(strstr(err.msg, c->said) != NULL, "%s: no '%s': %s", c->override, c->said, err.msg);
    close_run(&o);
    const char *good = "train.epochs=1"; /* the process is none the worse */
    run(&o, &good, 1);
    close_run(&o);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tables");
    TCase *tests = tcase_create("tables");
    tcase_add_checked_fixture(tests, begin, teardown);
    tcase_add_loop_test(tests, wrong_tables_are_refused, 0, CASES);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
