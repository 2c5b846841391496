/* SPDX-License-Identifier: Apache-2.0
 *
 * rule.h: an update rule, optimizer/bad, for plugins that are wrong in one way: m = 0.9 m + scale g, d = -lr m. A file
 * takes what is here for the functions that it has no fault in.
 *
 *   #include "rule.h"
 *   static void update(const tn_piece *piece) { step(piece); ... }
 *   BAD_RULE("update-bounds", .begin = begin, .update = update)
 */
#ifndef TENON_TESTS_BAD_RULE_H
#define TENON_TESTS_BAD_RULE_H

#include <tenon/rule.h>

#ifndef BAD_HYPER
#define BAD_HYPER(X) X(real, lr, 0.01, "[0, inf)", "step size")
#endif
#ifndef BAD_SLOTS
#define BAD_SLOTS(S) S(m, like, zero, signed, "decayed sum of the gradient")
#endif
#ifndef BAD_FACTS
#define BAD_FACTS
#endif
TN_DECLARE_RULE(bad, BAD_HYPER, BAD_SLOTS)

typedef struct {
    tn_real lr, unused;
    double value; /* of the file's own */
} constants;

static TN_UNUSED void begin(const void *hyper, const tn_clock *clock, void *k)
{
    (void)clock;
    ((constants *)k)->lr = (tn_real)((const bad *)hyper)->lr;
}

static TN_UNUSED void step(const tn_piece *piece)
{
    const tn_real *g = (const tn_real *)piece->g;
    tn_real *m = (tn_real *)piece->slot[0], *d = (tn_real *)piece->d;
    for (int64_t i = 0; i < piece->n; i++) {
        m[i] = (tn_real)0.9 * m[i] + (tn_real)piece->scale * g[i];
        d[i] = -((const constants *)piece->k)->lr * m[i];
    }
}

#define BAD_RULE(id, ...)                                                                                              \
    static const tn_optimizer bad_table = {                                                                            \
        .struct_size = sizeof(tn_optimizer), .constants_bytes = sizeof(constants), __VA_ARGS__};                       \
    TN_LINK(bad, "optimizer", BAD_HYPER, BAD_SLOTS, "a test", TN_STAGE("rule") BAD_FACTS, bad_table)                   \
    TN_PLUGIN("org.tenon.test." id, "0.1.0", "Apache-2.0", bad)

#endif
