/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/matrix_rule.h: an update rule of grain matrix from an element's arithmetic and one function of matrices.
 *
 *   TN_DECLARE_RULE(muon, HYPER, SLOTS) and muon_constants, muon_begin, muon_element      as in <tenon/rule.h>;
 *                                                       what the element returns is what the matrices start from
 *   static int64_t muon_workspace(const void *hyper, int64_t rows, int64_t columns)       bytes of scratch an item
 *   static void muon_apply(const tn_matrix_call *call)                                    turns call->d into the step
 *   TN_MATRIX_RULE(muon, HYPER, SLOTS, "summary", facts, keep, h->split)
 *
 * The last argument is an expression of the hyper-parameters h: where it is not 0, each part of a fused weight
 * (tn_parameter.part_rows: q, k, v, heads) is an item of its own.
 */
#ifndef TENON_MATRIX_RULE_H
#define TENON_MATRIX_RULE_H

#include <tenon/dense.h>
#include <tenon/matrix.h>
#include <tenon/rule.h>

/* Items for the parts of a parameter, whole rows each; none where it has no parts. */
static inline TN_UNUSED int32_t tn_plan_parts(const tn_parameter *p, const tn_slot_planner *planner)
{
    tn_box box = {0, 0, 0, 1};
    int32_t status = TN_OK;
    for (int32_t a = 1; a < p->ndim; a++)
        box.columns *= p->shape[a];
    for (int32_t i = 0; i < p->part_count && status == TN_OK; i++) {
        box.rows = p->part_rows[i];
        status = planner->item(planner->host, &box, 1);
        box.row += box.rows;
    }
    return status;
}

#define TN_SLOT_PLANNED(name, shape, init, flags, doc) {sizeof(tn_slot), 0, #name, #shape, #init, #flags, doc},

/* The slots of a SLOTS table, in its order, for rules with a `plan` of their own. */
#define TN_PLAN_SLOTS(SLOTS, planner, status)                                                                          \
    do {                                                                                                               \
        static const tn_slot planned_[] = {SLOTS(TN_SLOT_PLANNED){0, 0, NULL, NULL, NULL, NULL, NULL}};                \
        for (const tn_slot *slot_ = planned_; slot_->name && (status) == TN_OK; slot_++)                               \
            (status) = (planner)->slot((planner)->host, slot_);                                                        \
    } while (0)

#define TN_MATRIX_RULE(name, HYPER, SLOTS, summary, facts, keep_, split_)                                              \
    TN_ELEMENT_UPDATE(name, name##_element, name##_constants, name##_slots, SLOTS)                                     \
    static void name##_begin_(const void *hyper, const tn_clock *clock, void *k)                                       \
    {                                                                                                                  \
        name##_begin((const name *)hyper, (double)clock->t, (name##_constants *)k);                                    \
    }                                                                                                                  \
    static int32_t name##_plan_(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner,      \
                                tn_error *err)                                                                         \
    {                                                                                                                  \
        const name *h = (const name *)hyper;                                                                           \
        int32_t status = TN_OK;                                                                                        \
        (void)err;                                                                                                     \
        (void)h;                                                                                                       \
        TN_PLAN_SLOTS(SLOTS, planner, status);                                                                         \
        return status == TN_OK && (split_) ? tn_plan_parts(parameter, planner) : status;                               \
    }                                                                                                                  \
    TN_STATIC_ASSERT(sizeof(name##_constants) <= TN_CONSTANTS_MAX, #name "_constants is too large");                   \
    static const tn_matrix name##_matrix_ = {                                                                          \
        sizeof(tn_matrix), 0, name##_workspace, TN_CALL(name##_apply), NULL, NULL};                                    \
    static const tn_optimizer name##_table = {sizeof(tn_optimizer),                                                    \
                                              (uint32_t)sizeof(name##_constants),                                      \
                                              TN_CALL(name##_plan_),                                                   \
                                              TN_CALL(name##_begin_),                                                  \
                                              NULL,                                                                    \
                                              NULL,                                                                    \
                                              TN_CALL(name##_update),                                                  \
                                              NULL,                                                                    \
                                              keep_,                                                                   \
                                              &name##_matrix_};                                                        \
    TN_COMPONENT(name, "optimizer", TN_OPTIMIZER, TN_REAL, HYPER, summary,                                             \
                 TN_STAGE("rule") TN_GRAIN("matrix") TN_SLOTS_FACT(SLOTS) facts, name##_table);

#endif
