/* SPDX-License-Identifier: Apache-2.0
 *
 * Components that throw, each in another entry: the row `what` says what, `at` in which update, attempt or call. With
 * `what: none` they are plain gradient descent, a copy and an ordinary sink.
 */
#include <stdexcept>
#include <string>
#include <vector>

#include <tenon/layers.h>
#include <tenon/line.h>
#include <tenon/rule.h>
#include <tenon/schedule.h>

enum { NONE, STANDARD, MEMORY, STATUS, NUMBER };
#define WHAT(X)                                                                                                        \
    X(choice, what, none, "none | standard | memory | status | number", "what is thrown")                              \
    X(integer, at, 3, "[0, inf)", "in which attempt")

static void throw_it(int64_t what)
{
    std::vector<double> unwound(1000, 1.0); /* must be freed on the way out */
    if (what == STANDARD)
        throw std::runtime_error("the dice fell off the table, " + std::to_string(unwound.size()) + " times");
    if (what == MEMORY)
        throw std::bad_alloc();
    if (what == STATUS)
        throw tn::error(TN_E_DATA, "throwing: found %d, needed %d", 7, 8);
    if (what == NUMBER)
        throw 42;
}

/* ---- a rule: in update, which runs on all threads, or in begin, which is told the clock only ---- */

#define RULE_HYPER(X)                                                                                                  \
    X(real, lr, 0.01, "[0, inf)", "step size")                                                                         \
    X(flag, early, false, "", "throw in begin")                                                                        \
    WHAT(X)
TN_DECLARE(throwing, RULE_HYPER)

static void throwing_begin(const void *hyper, const tn_clock *clock, void *)
{
    const throwing &h = *static_cast<const throwing *>(hyper);
    if (h.early && clock->attempt == h.at)
        throw_it(h.what);
}

/* A lambda without captures does too. */
static constexpr auto throwing_update = [](const tn_piece *piece) {
    const auto &h = tn::hyper<throwing>(piece);
    const tn_real *g = static_cast<const tn_real *>(piece->g);
    if (!h.early && piece->context->attempt == h.at)
        throw_it(h.what);
    for (int64_t i = 0; i < piece->n; i++)
        static_cast<tn_real *>(piece->d)[i] = static_cast<tn_real>(-h.lr * piece->scale * g[i]);
};

static const tn_optimizer throwing_table = {.struct_size = sizeof(tn_optimizer),
                                            .constants_bytes = 8,
                                            .begin = TN_CALL(throwing_begin),
                                            .update = TN_CALL(+throwing_update)};
TN_LINK(throwing, "optimizer", RULE_HYPER, TN_NO_SLOTS, "Throws in an update", TN_STAGE("rule"), throwing_table)

/* ---- a layer, in forward or backward, in training or in evaluation ---- */

#define LAYER_HYPER(X)                                                                                                 \
    X(choice, where, forward, "forward | backward | evaluation | plan", "in which entry")                              \
    WHAT(X)
TN_DECLARE(throwing_layer, LAYER_HYPER)
enum { FORWARD, BACKWARD, EVALUATION, PLAN };

static int32_t throwing_layer_infer(const void *hyper, const tn_tensor *x, int32_t inputs,
                                    const tn_layer_planner *planner, tn_error *err)
{
    if (static_cast<const throwing_layer *>(hyper)->where == PLAN)
        throw_it(static_cast<const throwing_layer *>(hyper)->what);
    return tn_element_infer("throwing-layer", x, inputs, planner, err);
}

static void throwing_layer_copy(const tn_layer_call *call, int64_t where, const tn_tensor *from, const tn_tensor *to)
{
    const auto &h = tn::hyper<throwing_layer>(call);
    if (h.where == where && (where == EVALUATION || call->context->attempt == h.at))
        throw_it(h.what);
    std::memcpy(tn_reals(to) + call->lo, tn_reals(from) + call->lo, sizeof(tn_real) * static_cast<size_t>(call->n));
}

static void throwing_layer_forward(const tn_layer_call *call)
{
    throwing_layer_copy(call, call->flags & TN_TRAIN ? FORWARD : EVALUATION, call->x, call->y);
}

static void throwing_layer_backward(const tn_layer_call *call)
{
    if (tn_wants_dx(call))
        throwing_layer_copy(call, BACKWARD, call->dy, call->dx);
}

static const tn_layer throwing_layer_table = {.struct_size = sizeof(tn_layer),
                                              .infer = TN_CALL(throwing_layer_infer),
                                              .forward = TN_CALL(throwing_layer_forward),
                                              .backward = TN_CALL(throwing_layer_backward)};
TN_COMPONENT(throwing_layer, "activation", TN_LAYER, TN_REAL, LAYER_HYPER, "Throws in a call",
             TN_AXIS("elements") TN_KEEPS("none"), throwing_layer_table);

/* ---- a scheduler, which has nobody to tell: NaN ---- */

TN_DECLARE(throwing_schedule, WHAT)

static double throwing_schedule_value(const throwing_schedule *h, const tn_position *at)
{
    if (at->step == h->at)
        throw_it(h->what);
    return at->base;
}

TN_SCHEDULE(throwing_schedule, WHAT, "Throws at a position", "")

/* ---- a sink, whose entries take an error ---- */

TN_DECLARE(throwing_sink, WHAT)

static int32_t throwing_sink_record(const void *hyper, const tn_record *record, const tn_writer *writer, tn_error *)
{
    const auto &h = *static_cast<const throwing_sink *>(hyper);
    if (record->attempt == h.at)
        throw_it(h.what);
    std::string line = std::string(record->event) + "\n";
    return writer->write(writer->host, line.data(), static_cast<int64_t>(line.size()));
}

static const tn_sink throwing_sink_table = {
    .struct_size = sizeof(tn_sink), .begin = nullptr, .record = TN_CALL(throwing_sink_record)};
TN_COMPONENT(throwing_sink, "sink", TN_SINK, 0u, WHAT, "Throws at a record", TN_TEXT_FACT("file", "throwing.txt"),
             throwing_sink_table);

TN_PLUGIN("org.tenon.test-throws", "0.1.0", "Apache-2.0", throwing, throwing_layer, throwing_schedule, throwing_sink)
