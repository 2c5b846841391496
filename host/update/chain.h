/* SPDX-License-Identifier: Apache-2.0
 *
 * chain.h: the update chain: links in stages, driven over cache-sized blocks of the parameters.
 */
#ifndef TENON_HOST_UPDATE_CHAIN_H
#define TENON_HOST_UPDATE_CHAIN_H

#include "host/base/log.h"
#include "host/base/pool.h"
#include "host/experiment/instance.h"
#include "host/update/parameters.h"

typedef struct tn_chain tn_chain;

typedef struct tn_chain_options {
    tn_registry *registry;
    tn_instance *const *links; /* in the experiment's order; must outlive the chain; hyper is read at each step */
    size_t link_count;
    const tn_parameters *parameters; /* must outlive the chain; p, g and present may change between steps */
    tn_pool *pool;
    const tn_services *services;
    uint64_t seed;
    int32_t check_finite; /* 1: read the gradients before the first write even when no link asks for a round */
} tn_chain_options;

/* A scalar that a link reports: "clip-norm.norm". */
typedef struct tn_report {
    const char *name; /* lives as long as the chain */
    double value;
} tn_report;

typedef struct tn_step_result {
    int32_t committed;     /* 0: skipped; then no bit of p, slots or clocks changed */
    int64_t bad_parameter; /* when skipped: the first parameter whose gradient is not finite, else -1 */
} tn_step_result;

/* One state tensor, for checkpoints, plans and tests. */
typedef struct tn_chain_slot {
    const char *link;  /* the link's handle */
    const char *slot;  /* the slot's name */
    int64_t parameter; /* index, or -1 for a global slot */
    void *data;        /* the parameter's part of the slot's arena */
    int64_t elements;
    int32_t persistent;
} tn_chain_slot;

/* Loads the links, checks their order (source, gradient, rule, update, write, after; exactly one rule), plans and
 * initialises all state. Refuses grains and stages that this host does not drive yet, naming link and word. [main] */
int32_t tn_chain_create(const tn_chain_options *options, tn_chain **ret, tn_error *err);
void tn_chain_destroy(tn_chain *chain);

/* Would this link plan the same state under the hyper-parameters that its instance holds now? State is planned once, so
 * a schedule must not lead elsewhere. TN_OK for an instance that is no link. TN_E_INVALID names link and slot. [main]
 */
int32_t tn_chain_check_plan(const tn_chain *chain, const tn_instance *instance, tn_error *err);

/* One update from the gradients at hand, each read as scale * g. Allocates nothing. [main] */
int32_t tn_chain_step(tn_chain *chain, double scale, int64_t attempt, tn_step_result *ret, tn_error *err);

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

#endif
