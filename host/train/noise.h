/* SPDX-License-Identifier: Apache-2.0
 *
 * noise.h: the gradient noise scale (McCandlish et al., arXiv:1812.06162, appendix A.1), from the gradients that an
 * update has anyway: those of its parts, micro-batches and processes, and that of the whole.
 */
#ifndef TENON_HOST_TRAIN_NOISE_H
#define TENON_HOST_TRAIN_NOISE_H

#include "host/base/error.h"

/* Estimates of the square of the true gradient's norm, and of the trace of the covariance of one sample's gradient. */
typedef struct tn_noise {
    double gradient, noise;
} tn_noise;

/* Of a batch of `samples` in `parts` parts, 2 or more: `small` is the mean over the parts, each weighed by its samples,
 * of the squared norm of the part's mean gradient; `big` that of the whole. Either may come out below 0. NaN for fewer
 * parts. [any] */
tn_noise tn_noise_estimate(double small, double big, double samples, int64_t parts);

/* Adds an estimate to exponential means, which begin as 0; one that is not finite is left out. [any] */
void tn_noise_add(tn_noise *means, const tn_noise *estimate);

/* The noise scale, in samples; NaN until both means are above 0. [any] */
double tn_noise_scale(const tn_noise *means);

#endif
