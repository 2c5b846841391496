/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds of a plugin of two rules that are to be held against an earlier one (FAULT 0). By FAULT: 1 a default is
 * another, 2 a row is gone, 3 a row has another type, 4 a slot begins as another, 5 the second rule is gone, 6 a row is
 * new; and in a new version 7 a choice is gone, 8 a row is gone, 9 the second rule is gone. REPAIRED: in a version that
 * may.
 */
#include <tenon/rule.h>

#ifndef FAULT
#define FAULT 0
#endif
#if defined REPAIRED
#define VERSION "2.0.0"
#elif FAULT >= 7
#define VERSION "1.3.0"
#else
#define VERSION "1.2.0"
#endif

#if FAULT == 1
#define ROW_LR(X) X(real, lr, 2e-3, "[0, inf)", "step size")
#else
#define ROW_LR(X) X(real, lr, 1e-3, "[0, inf)", "step size")
#endif
#if FAULT == 2 || FAULT == 8
#define ROW_SCALE(X)
#elif FAULT == 3
#define ROW_SCALE(X) X(fixed, scale, 1, "[0, inf)", "factor of the step")
#else
#define ROW_SCALE(X) X(real, scale, 1, "[0, inf)", "factor of the step")
#endif
#if FAULT == 6
#define ROW_MORE(X) X(real, more, 0, "[0, 1)", "not used yet")
#else
#define ROW_MORE(X)
#endif
#if FAULT == 7
#define ROW_FORM(X) X(choice, form, torch, "torch", "which formula")
#else
#define ROW_FORM(X) X(choice, form, torch, "torch | paper", "which formula")
#endif
#define HYPER(X) ROW_LR(X) ROW_SCALE(X) ROW_MORE(X) ROW_FORM(X)
#if FAULT == 4
#define SLOTS(S) S(m, like, parameter, signed, "momentum")
#else
#define SLOTS(S) S(m, like, zero, signed, "momentum")
#endif
#define OTHER_HYPER(X) X(real, lr, 1e-3, "[0, inf)", "step size")

TN_DECLARE_RULE(against_one, HYPER, SLOTS)
typedef struct {
    tn_real lr;
} against_one_constants;

static void against_one_begin(const against_one *h, double t, against_one_constants *k)
{
    (void)t;
    k->lr = (tn_real)h->lr;
}
TN_BOTH tn_real against_one_element(against_one_constants k, tn_real p, tn_real g, tn_real *m)
{
    (void)p;
    *m = (tn_real)0.5 * *m + g;
    return -k.lr * *m;
}
TN_ELEMENT_RULE(against_one, HYPER, SLOTS, "A test", TN_FORMULA("p -= lr m"))

#if FAULT == 5 || FAULT == 9
TN_PLUGIN("org.tenon.test.file-against", VERSION, "Apache-2.0", against_one)
#else
TN_DECLARE_RULE(against_two, OTHER_HYPER, TN_NO_SLOTS)
typedef struct {
    tn_real lr;
} against_two_constants;

static void against_two_begin(const against_two *h, double t, against_two_constants *k)
{
    (void)t;
    k->lr = (tn_real)h->lr;
}
TN_BOTH tn_real against_two_element(against_two_constants k, tn_real p, tn_real g)
{
    (void)p;
    return -k.lr * g;
}
TN_ELEMENT_RULE(against_two, OTHER_HYPER, TN_NO_SLOTS, "A test", TN_FORMULA("p -= lr g"))
TN_PLUGIN("org.tenon.test.file-against", VERSION, "Apache-2.0", against_one, against_two)
#endif
