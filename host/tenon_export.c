/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon_export.c: the part of the C API that hands parameters to other programs.
 */
#include <inttypes.h>
#include <string.h>

#include "host/base/take.h"
#include "host/handle.h"
#include "host/store/export.h"

static void add_json(tn_text *text, const tn_exported *made)
{
    tn_text_add(text, "{\"file\":");
    tn_text_json(text, made->file);
    tn_text_add(text, ",\"checkpoint\":");
    tn_text_json(text, made->checkpoint);
    tn_text_addf(text,
                 ",\"view\":\"%s\",\"attempt\":%" PRId64 ",\"updates\":%" PRId64 ",\"tensors\":%" PRId64
                 ",\"elements\":%" PRId64 "}\n",
                 made->averaged ? "eval" : "train", made->attempt, made->updates, made->tensors, made->elements);
}

static void add_words(tn_text *text, const tn_exported *made)
{
    tn_text_addf(text, "%-14s %" PRId64 " tensors, %" PRId64 " numbers, %s, after %" PRId64 " updates\n", "parameters",
                 made->tensors, made->elements, made->averaged ? "averaged" : "as they are", made->updates);
    tn_text_addf(text, "%-14s %s\n%-14s %s\n", "checkpoint", made->checkpoint, "file", made->file);
}

int32_t tenon_export(tenon *handle, const char *run, const tenon_export_options *options, char **ret, tn_error *err)
{
    tenon_export_options taken = {.struct_size = sizeof taken};
    tn_exported made;
    tn_text text = {0};
    if (options)
        tn_take(&taken, sizeof taken, options);
    if (taken.view && strcmp(taken.view, "eval") && strcmp(taken.view, "train"))
        return tn_error_set(err, TN_E_INVALID, "view is \"%s\", needed eval or train", taken.view);
    const tn_export_options how = {.registry = handle->registry,
                                   .log = &handle->log,
                                   .version = tenon_version(),
                                   .run = run,
                                   .file = taken.file,
                                   .train = taken.view && strcmp(taken.view, "train") == 0};
    int32_t status = tn_export(&how, &made, err);
    if (status != TN_OK)
        return status;
    (taken.flags & TENON_JSON ? add_json : add_words)(&text, &made);
    tn_exported_free(&made);
    return tn_handle_give(&text, TN_OK, ret, err);
}
