/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon_bench.c: the part of the C API that measures this machine and the host on it.
 */
#include "host/base/memory.h"
#include "host/base/take.h"
#include "host/bench/bench.h"
#include "host/handle.h"

int32_t tenon_bench(tenon *handle, const char *what, const tenon_bench_options *options, char **ret, tn_error *err)
{
    tenon_bench_options taken = {.struct_size = sizeof taken};
    tn_text text = {0};
    if (options)
        tn_take(&taken, sizeof taken, options);
    const tn_bench_options bench = {.registry = handle->registry,
                                    .log = &handle->log,
                                    .chains = taken.chains,
                                    .chain_count = taken.chain_count,
                                    .backend = taken.backend,
                                    .elements = taken.elements,
                                    .threads = taken.threads,
                                    .rounds = taken.rounds,
                                    .all = (taken.flags & TENON_ALL) != 0,
                                    .costs = (taken.flags & TENON_COSTS) != 0,
                                    .json = (taken.flags & TENON_JSON) != 0};
    int32_t status = tn_bench(&bench, what, &text, err);
    char *taken_text = status ? NULL : tn_text_take(&text);
    if (!status && !taken_text)
        status = tn_error_set(err, TN_E_MEMORY, "no memory for the text");
    if (!status)
        *ret = taken_text;
    tn_text_free(&text);
    return status;
}
