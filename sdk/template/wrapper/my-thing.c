/* SPDX-License-Identifier: Apache-2.0
 *
 * Extragradient (Korpelevich 1976): the gradient is taken where a plain step of length `reach` would lead, and the rest
 * of the chain steps from where the parameters were.
 */
#include <tenon/rule.h>

#define HYPER(X) X(real, reach, 1e-2, "[0, inf)", "step size of the look ahead")
TN_DECLARE(my_thing, HYPER)

TN_CLONES static void my_thing_loop(int64_t n, tn_real factor, const tn_real *__restrict g, tn_real *__restrict d)
{
    for (int64_t i = 0; i < n; i++)
        d[i] = factor * g[i];
}

/* Stage source: d is how far from p the gradient is taken again. */
static void my_thing_update(const tn_piece *piece)
{
    double factor = -((const my_thing *)piece->hyper)->reach * piece->scale;
    my_thing_loop(piece->n, (tn_real)factor, (const tn_real *)piece->g, (tn_real *)piece->d);
}

static const tn_optimizer my_thing_table = {.struct_size = sizeof(tn_optimizer), .update = TN_CALL(my_thing_update)};
TN_LINK(my_thing, "wrapper", HYPER, TN_NO_SLOTS, "The gradient from where a plain step leads",
        TN_STAGE("source") TN_GRAIN("element") TN_SIGNALS("gradient2") TN_PAPER("Korpelevich 1976")
            TN_FORMULA("g = gradient at p - reach g"),
        my_thing_table)
TN_PLUGIN("org.example.my-thing", "0.1.0", "Apache-2.0", my_thing)
