/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of the trainer: loss scales with one fault at choice from the second attempt on, and with other slots than
 * their notes name.
 */
#include <math.h>

#include <tenon/precision.h>
#include <tenon/sdk.h>

#define HYPER(X) X(choice, fault, nan, "nan | inf | zero | negative | three", "what is wrong")
TN_DECLARE(scale_wrong, HYPER)

static void scale_wrong_begin(const void *hyper, double *slots)
{
    (void)hyper;
    slots[0] = 0;
}

static double scale_wrong_scale(const void *hyper, const double *slots)
{
    const double faults[] = {NAN, INFINITY, 0, -2, 3};
    return slots[0] < 2 ? 1 : faults[((const scale_wrong *)hyper)->fault];
}

static void scale_wrong_observe(const void *hyper, int32_t overflow, double *slots)
{
    (void)hyper;
    (void)overflow;
    slots[0]++;
}

#define NAMED TN_FACT("slots", "[{\"name\":\"seen\",\"doc\":\"attempts\"}]")
#define SCALE(name, HYPER, slots)                                                                                      \
    static const tn_loss_scale name##_table = {sizeof(tn_loss_scale), slots, scale_wrong_begin, scale_wrong_scale,     \
                                               scale_wrong_observe};                                                   \
    TN_COMPONENT(name, "loss-scale", TN_LOSS_SCALE, 0u, HYPER, "Wrong", NAMED, name##_table);

TN_DECLARE(scale_more, TN_NO_HYPER)
TN_DECLARE(scale_less, TN_NO_HYPER)
TN_DECLARE(scale_below, TN_NO_HYPER)
SCALE(scale_wrong, HYPER, 1)
SCALE(scale_more, TN_NO_HYPER, 2)
SCALE(scale_less, TN_NO_HYPER, 0)
SCALE(scale_below, TN_NO_HYPER, -1)
TN_PLUGIN("org.tenon.test.scale-wrong", "0.1.0", "Apache-2.0", scale_wrong, scale_more, scale_less, scale_below)
