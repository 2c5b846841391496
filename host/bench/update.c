/* SPDX-License-Identifier: Apache-2.0
 *
 * update.c: chains against streams of their own reads and writes, over the same pages.
 */
#include <string.h>

#include "host/base/memory.h"
#include "host/bench/internal.h"
#include "host/plugin/info.h"

#define SMALL 1000 /* elements of a small tensor, and how many there are */

static int32_t measure(tn_bench_run *run, const char *group, const char *name, tn_bench_chain *chain, tn_error *err)
{
    const tn_bench_side sides[] = {
        {name, tn_bench_chain_step, chain, tn_bench_chain_work(chain), 1},
        {tn_bench_chain_stream_name(chain), tn_bench_chain_stream, chain, tn_bench_chain_stream_work(chain), -1}};
    int32_t status = tn_bench_measure(run, group, sides, 2, err);
    return status ? status : tn_bench_chain_status(chain, err);
}

/* A link of its own making may be one that nothing here can drive: then `optional` lists it with the reason. */
static int32_t bench_chain(tn_bench_run *run, const char *group, const tn_bench_tensors *tensors, const char *links,
                           int optional, tn_error *err)
{
    tn_bench_chain *chain;
    tn_error refused = {0};
    int32_t status = tn_bench_chain_open(run, tensors, links, &chain, &refused);
    if (status && optional && status != TN_E_MEMORY)
        return tn_bench_skip(run, group, links, refused.msg, err);
    if (status) {
        *err = refused;
        return status;
    }
    status = tn_bench_chain_work(chain) > 0
                 ? measure(run, group, links, chain, err)
                 : tn_bench_skip(run, group, links, "a minimizer's passes over memory depend on its course", err);
    tn_bench_chain_free(chain);
    return status;
}

/* The chain in which a link of the registry is measured: a rule alone, others with adamw. The caller frees it; NULL
 * without memory. */
static char *chain_of(const tn_entry_info *entry, const tn_component_info *info)
{
    const char *stage = tn_fact_text(info->facts, "stage", "");
    if (!strcmp(stage, "rule"))
        return tn_strdup(entry->name);
    return tn_format(!strcmp(stage, "source") || !strcmp(stage, "gradient") ? "%2$s,%1$s" : "%1$s,%2$s", "adamw",
                     entry->name);
}

static int is_link(const tn_entry_info *entry)
{
    return entry->state == TN_FOUND && entry->real == 32 && !strcmp(entry->device, "cpu") &&
           !strncmp(entry->interface, "tenon.optimizer/", 16);
}

static int32_t bench_all(tn_bench_run *run, const char *group, const tn_bench_tensors *tensors, tn_error *err)
{
    tn_registry *registry = run->options->registry;
    int32_t status = TN_OK;
    for (size_t i = 0; i < tn_registry_count(registry) && !status; i++) {
        const tn_entry_info *entry = tn_registry_at(registry, i);
        const tn_component_info *info;
        tn_error refused = {0};
        if (!is_link(entry))
            continue;
        if (tn_registry_info(registry, entry, &info, &refused) != TN_OK) {
            status = tn_bench_skip(run, group, entry->name, refused.msg, err);
            continue;
        }
        char *links = chain_of(entry, info);
        status = links ? bench_chain(run, group, tensors, links, 1, err) : tn_bench_no_memory(err);
        tn_free(links);
    }
    return status;
}

static int32_t bench_group(tn_bench_run *run, const char *group, int64_t count, int64_t elements, tn_error *err)
{
    static const char *const usual[] = {"adamw", "clip-norm,adamw,ema"};
    const tn_bench_options *o = run->options;
    const char *const *chains = o->chain_count ? o->chains : usual;
    size_t chain_count = o->chain_count ? o->chain_count : o->all ? 0 : 2;
    tn_bench_tensors *tensors;
    int32_t status = tn_bench_tensors_create(count, elements, 0, &tensors, err);
    if (status)
        return status;
    for (size_t i = 0; i < chain_count && !status; i++)
        status = bench_chain(run, group, tensors, chains[i], 0, err);
    if (!status && o->all)
        status = bench_all(run, group, tensors, err);
    tn_bench_tensors_free(tensors);
    return status;
}

int32_t tn_bench_update(tn_bench_run *run, tn_error *err)
{
    int64_t large = tn_bench_fit(run, (int64_t)64 << 20, 8), small = large / SMALL < SMALL ? large / SMALL : SMALL;
    int32_t status = bench_group(run, "one tensor", 1, large, err);
    if (!status && small > 0)
        status = bench_group(run, "tensors of 1,000 elements, at most 1,000", small, SMALL, err);
    return status;
}
