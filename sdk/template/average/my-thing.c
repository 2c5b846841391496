/* SPDX-License-Identifier: Apache-2.0
 *
 * Stochastic weight averaging (Izmailov, Podoprikhin, Garipov, Vetrov and Wilson, UAI 2018, arXiv:1803.05407): the
 * plain mean of the parameters after the updates from number `begin` on; before, the parameters themselves.
 */
#include <tenon/rule.h>

#define HYPER(X) X(integer, begin, 1, "[1, inf) updates", "first update whose parameters count")
#define SLOTS(S) S(mean, like, parameter, signed, "mean of the parameters")
TN_DECLARE_RULE(my_thing, HYPER, SLOTS)

typedef struct {
    tn_real weight; /* of the newest parameters */
} my_thing_constants;

static void my_thing_begin(const void *hyper, const tn_clock *clock, void *k)
{
    int64_t counted = clock->t - ((const my_thing *)hyper)->begin + 1;
    ((my_thing_constants *)k)->weight = counted > 1 ? (tn_real)(1 / (double)counted) : 1;
}

/* From p's side where its weight is 1, so that the mean then is p, bit for bit. */
TN_CLONES static void my_thing_loop(tn_real weight, int64_t n, const tn_real *__restrict p, tn_real *__restrict mean)
{
    for (int64_t i = 0; i < n; i++)
        mean[i] = weight < 1 ? mean[i] + weight * (p[i] - mean[i]) : p[i];
}

static void my_thing_update(const tn_piece *piece)
{
    const my_thing_slots *slots = (const my_thing_slots *)piece->slot;
    my_thing_loop(((const my_thing_constants *)piece->k)->weight, piece->n, (const tn_real *)piece->p,
                  (tn_real *)slots->mean);
}

static const tn_optimizer my_thing_table = {.struct_size = sizeof(tn_optimizer),
                                            .constants_bytes = (uint32_t)sizeof(my_thing_constants),
                                            .begin = TN_CALL(my_thing_begin),
                                            .update = TN_CALL(my_thing_update)};
TN_LINK(my_thing, "average", HYPER, SLOTS, "Plain mean of the parameters from an update on",
        TN_STAGE("after") TN_GRAIN("element") TN_VIEW(mean) TN_PAPER("arXiv:1803.05407")
            TN_FORMULA("mean = mean + (p - mean) / (t - begin + 1)"),
        my_thing_table)
TN_PLUGIN("org.example.my-thing", "0.1.0", "Apache-2.0", my_thing)
