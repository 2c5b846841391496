/* SPDX-License-Identifier: Apache-2.0
 *
 * sinks.c: the sinks of a run and their files.
 */
#include "host/store/sinks.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "host/base/error.h"
#include "host/base/memory.h"

typedef struct {
    const tn_instance *instance;
    tn_sink table;
    FILE *file;
    char *path;
} open_sink;

struct tn_sinks {
    open_sink *list;
    size_t count;
};

static int32_t write_bytes(void *host, const void *bytes, int64_t count)
{
    return fwrite(bytes, 1, (size_t)count, host) == (size_t)count ? TN_OK : TN_E_IO;
}

static tn_writer writer_of(open_sink *sink)
{
    return (tn_writer){.struct_size = sizeof(tn_writer), .host = sink->file, .write = write_bytes};
}

static int32_t write_error(const open_sink *sink, tn_error *err)
{
    return tn_error_set(err, TN_E_IO, "%s: can not write: %s", sink->path, strerror(errno));
}

static int32_t open_one(tn_registry *registry, const tn_instance *instance, const char *folder, open_sink *sink,
                        tn_error *err)
{
    const char *file = tn_fact_text(instance->info->facts, "file", NULL);
    sink->instance = instance;
    if (!file || !*file || *file == '.' || strchr(file, '/'))
        return tn_error_set(err, TN_E_PLUGIN,
                            "sink %s: its note names the file \"%s\"; needed a plain name in the run's folder",
                            instance->info->name, file ? file : "");
    int32_t status = tn_registry_load(registry, instance->entry, &sink->table, sizeof sink->table, err);
    if (status != TN_OK)
        return status;
    if (!sink->table.record)
        return tn_error_set(err, TN_E_PLUGIN, "sink %s: its table lacks record", instance->info->name);
    sink->path = tn_format("%s/%s", folder, file);
    if (!sink->path)
        return tn_error_set(err, TN_E_MEMORY, "no memory for a path");
    sink->file = fopen(sink->path, "wxe");
    if (!sink->file)
        return tn_error_set(err, TN_E_IO, "sink %s: %s: can not create: %s", instance->info->name, sink->path,
                            strerror(errno));
    tn_writer writer = writer_of(sink);
    tn_error_clear(err);
    status = sink->table.begin ? sink->table.begin(instance->hyper, &writer, err) : TN_OK;
    return status == TN_OK ? TN_OK : tn_error_wrap(err, status, "sink %s", instance->info->name);
}

int32_t tn_sinks_open(tn_registry *registry, tn_instance *const *instances, size_t count, const char *folder,
                      tn_sinks **ret, tn_error *err)
{
    tn_sinks *sinks = tn_alloc(1, sizeof *sinks);
    if (!sinks || !(sinks->list = tn_alloc(count + 1, sizeof *sinks->list))) {
        tn_free(sinks);
        return tn_error_set(err, TN_E_MEMORY, "no memory for the sinks");
    }
    int32_t status = TN_OK;
    for (; sinks->count < count && status == TN_OK; sinks->count++)
        status = open_one(registry, instances[sinks->count], folder, &sinks->list[sinks->count], err);
    if (status != TN_OK)
        tn_sinks_close(sinks);
    else
        *ret = sinks;
    return status;
}

int32_t tn_sinks_record(tn_sinks *sinks, const tn_record *record, tn_error *err)
{
    for (size_t i = 0; i < sinks->count; i++) {
        open_sink *sink = &sinks->list[i];
        tn_writer writer = writer_of(sink);
        tn_error_clear(err);
        int32_t status = sink->table.record(sink->instance->hyper, record, &writer, err);
        if (status == TN_E_IO)
            return write_error(sink, err);
        if (status != TN_OK)
            return tn_error_wrap(err, status, "sink %s", sink->instance->info->name);
    }
    return TN_OK;
}

int32_t tn_sinks_flush(tn_sinks *sinks, tn_error *err)
{
    for (size_t i = 0; i < sinks->count; i++)
        if (fflush(sinks->list[i].file) != 0)
            return write_error(&sinks->list[i], err);
    return TN_OK;
}

void tn_sinks_close(tn_sinks *sinks)
{
    if (!sinks)
        return;
    for (size_t i = 0; i < sinks->count; i++) {
        if (sinks->list[i].file)
            fclose(sinks->list[i].file);
        tn_free(sinks->list[i].path);
    }
    tn_free(sinks->list);
    tn_free(sinks);
}
