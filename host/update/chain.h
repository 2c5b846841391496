/* SPDX-License-Identifier: Apache-2.0
 *
 * chain.h: the update chain: links in stages, driven over cache-sized blocks of the parameters.
 */
#ifndef TENON_HOST_UPDATE_CHAIN_H
#define TENON_HOST_UPDATE_CHAIN_H

#include "host/base/log.h"
#include "host/base/pool.h"
#include "host/experiment/instance.h"
#include "host/base/compute.h"
#include "host/parallel/comm.h"
#include "host/update/parameters.h"

#include <tenon/backend.h>
#include <tenon/matrix.h>
#include <tenon/precision.h>

typedef struct tn_chain tn_chain;

/* What a link may ask of whoever computes gradients. Entries that are not offered are NULL: then a link that needs one
 * is refused. All over the same window, samples and random numbers as this step's gradient, statistics frozen. */
typedef struct tn_signals {
    void *user;
    /* The gradient at the parameters as they are now, into g and present; *ret_loss: the mean loss, over all processes.
     */
    int32_t (*gradient)(void *user, double *ret_loss, tn_error *err);
    /* ret = Hessian of the mean loss times v; both in the parameters' layout. */
    int32_t (*product)(void *user, const void *v, void *ret, tn_error *err);
    int32_t taps; /* 1: whoever computes gradients calls tn_chain_tap as tn_chain_tapping asks */
} tn_signals;

/* A codec with the hyper-parameters it is used with. */
typedef struct tn_codec_use {
    const tn_codec *table;
    const tn_instance *instance;
} tn_codec_use;

typedef struct tn_chain_options {
    tn_registry *registry;
    tn_instance *const *links; /* in the experiment's order; must outlive the chain; hyper is read at each step */
    size_t link_count;
    const tn_parameters *parameters; /* must outlive the chain; p, g and present may change between steps */
    tn_pool *pool;
    const tn_services *services;
    uint64_t seed;
    int32_t check_finite; /* 1: read the gradients before the first write even when no link asks for a round */
    /* The processes that step together; NULL: one. Each holds of every parameter the slice lo, n (0 for none) of the
     * same list; slices are disjoint and cover the parameter, or each is whole (replicas = size). */
    tn_comm *comm;
    tn_compute_host *compute;  /* for matrix links; NULL: such links are refused */
    const tn_signals *signals; /* NULL: none */
    tn_codec_use p, g, state;  /* how p, g and like-shaped slots are stored; without table: in the real type */
} tn_chain_options;

/* A scalar that a link reports: "clip-norm.norm". */
typedef struct tn_report {
    const char *name; /* lives as long as the chain */
    double value;
} tn_report;

typedef struct tn_step_result {
    int32_t committed;     /* 0: skipped; then no bit of p, slots or clocks changed */
    int64_t bad_parameter; /* when skipped: the first parameter whose gradient is not finite, else -1 */
    const char *rejected;  /* when skipped: the handle of the rule that found no step; lives as long as the chain */
} tn_step_result;

/* One state tensor, for checkpoints, plans and tests. */
typedef struct tn_chain_slot {
    const char *link;  /* the link's handle */
    const char *slot;  /* the slot's name */
    int64_t parameter; /* index, or -1 for a global slot */
    const char *shape; /* as in tn_slot: like, rows, ..., item */
    void *data;
    int64_t elements;
    int64_t bytes; /* as stored, block scales of a codec included */
    int32_t bits;  /* of an element as stored */
    int32_t persistent;
    int32_t replicated; /* 1: every process holds all of it */
} tn_chain_slot;

/* Loads the links, checks their order (source, gradient, rule, update, write, after), gives each parameter its one
 * rule, plans and initialises all state. Refuses what this host does not drive, naming link and word. With several
 * processes all call it, and options.comm may fail it. [main] */
int32_t tn_chain_create(const tn_chain_options *options, tn_chain **ret, tn_error *err);
void tn_chain_destroy(tn_chain *chain);

/* Would this link plan the same state under the hyper-parameters that its instance holds now? State is planned once, so
 * a schedule must not lead elsewhere. TN_OK for an instance that is no link. TN_E_INVALID names link and slot. [main]
 */
int32_t tn_chain_check_plan(const tn_chain *chain, const tn_instance *instance, tn_error *err);

typedef struct tn_step {
    double scale; /* each gradient is read as scale * g */
    double loss;  /* the mean loss at p, for links that ask for it; else not read */
    int64_t attempt;
} tn_step;

/* One update from the gradients at hand. With several processes all call it, with the same step and presence. On
 * failure before the vote nothing has changed but perhaps g and present; behind a rule for whole matrices, whose state
 * goes on after the vote, a step that a later sum skips, or that a product or comm fails, leaves that state advanced.
 * Allocates nothing. [main] */
int32_t tn_chain_step(tn_chain *chain, const tn_step *step, tn_step_result *ret, tn_error *err);

/* Instead of a step: the attempt changes nothing. Reports have no values until the next step. [main] */
void tn_chain_skip(tn_chain *chain, int64_t attempt);

/* Before a window's gradient: which taps the coming update wants, TN_TAP_*; clears the tapped slots. [main] */
int32_t tn_chain_tapping(tn_chain *chain);
/* One micro-batch of the layer whose weight is parameter `weight`: x [n, columns], dy [n, rows], dy being `seed` times
 * each sample's gradient. Layers that no link taps are ignored. [main] */
void tn_chain_tap(tn_chain *chain, int64_t weight, const tn_tensor *x, const tn_tensor *dy, double seed);

/* The evaluation view's parameters in the arenas' layout: a slot of the last link that declares one, or p. */
const void *tn_chain_view(const tn_chain *chain);

/* Reports of the last step. */
size_t tn_chain_reports(const tn_chain *chain, const tn_report **ret);

/* Clocks: committed updates of the run, and of each parameter (count entries, writable for restore). */
int64_t *tn_chain_update(tn_chain *chain);
int64_t *tn_chain_clocks(tn_chain *chain);

size_t tn_chain_slot_count(const tn_chain *chain);
void tn_chain_slot_at(const tn_chain *chain, size_t index, tn_chain_slot *ret);
/* Bytes of state held, padding included. */
int64_t tn_chain_bytes(const tn_chain *chain);
/* Bytes that a step in which all gradients are present moves between memory and the chain, from what is planned: see
 * traffic.c. 0 for a minimizer, whose requests are its own. */
int64_t tn_chain_bytes_moved(const tn_chain *chain);

#endif
