/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_experiment.c: experiments and overrides of any bytes; what is accepted must read back from its resolved text.
 * A libFuzzer target; plugins come from TENON_PLUGIN_PATH:
 *   clang -fsanitize=fuzzer,address,undefined ... fuzz_experiment.c host/{base,plugin,experiment}/... -lfyaml -ljansson
 * An input is the file's text, then overrides, each behind a byte 0xFF.
 */
#include <stdlib.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/experiment/experiment.h"

#define OVERRIDES_MAX 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static tn_registry *registry(void)
{
    static tn_registry *opened;
    if (!opened && tn_registry_open(NULL, &opened, NULL))
        abort();
    return opened;
}

static void check_round_trip(const tn_experiment *e)
{
    tn_experiment *again;
    tn_error err;
    if (tn_experiment_parse(registry(), "resolved", e->resolved, strlen(e->resolved), NULL, 0, &again, &err) ||
        strcmp(again->resolved, e->resolved) != 0)
        abort();
    tn_experiment_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = tn_alloc(size + 1, 1);
    const char *overrides[OVERRIDES_MAX];
    size_t count = 0, end = size;
    tn_experiment *e;
    tn_error err;
    memcpy(copy, data, size);
    for (size_t i = size; i-- > 0;)
        if (data[i] == 0xFF) {
            copy[i] = 0;
            end = i;
        }
    for (size_t i = end; i < size && count < OVERRIDES_MAX; i++)
        if (data[i] == 0xFF)
            overrides[count++] = copy + i + 1;
    if (tn_experiment_parse(registry(), "fuzz.yaml", copy, end, overrides, count, &e, &err) == TN_OK) {
        check_round_trip(e);
        tn_experiment_free(e);
    }
    tn_free(copy);
    return 0;
}
