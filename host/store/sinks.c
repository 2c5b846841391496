/* SPDX-License-Identifier: Apache-2.0
 *
 * sinks.c: the sinks of a run and their files.
 */
#include "host/store/sinks.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
    return tn_error_set(
        err, TN_E_IO, "%s: can not write: %s%s", sink->path, strerror(errno),
        errno == ENOSPC || errno == EDQUOT ? "; make room, then `tenon resume` goes on from the last checkpoint" : "");
}

/* A new file (length < 0), or one that is there cut back to `length` bytes. */
static int32_t open_file(open_sink *sink, int64_t length, tn_error *err)
{
    const char *name = sink->instance->info->name;
    sink->file = fopen(sink->path, length < 0 ? "wxe" : "r+e");
    if (!sink->file)
        return tn_error_set(err, TN_E_IO, "sink %s: %s: can not %s: %s", name, sink->path,
                            length < 0 ? "create" : "go on with it", strerror(errno));
    if (length < 0)
        return TN_OK;
    if (fseeko(sink->file, 0, SEEK_END) != 0 || ftello(sink->file) < length)
        return tn_error_set(err, TN_E_DATA,
                            "sink %s: %s: has %lld bytes, had %lld at the checkpoint; it was changed since", name,
                            sink->path, (long long)ftello(sink->file), (long long)length);
    if (ftruncate(fileno(sink->file), (off_t)length) != 0 || fseeko(sink->file, (off_t)length, SEEK_SET) != 0)
        return tn_error_set(err, TN_E_IO, "sink %s: %s: can not cut it back: %s", name, sink->path, strerror(errno));
    return TN_OK;
}

/* A new file has its head. */
static int32_t begin(open_sink *sink, const tn_sinks_options *o, tn_error *err)
{
    tn_writer writer = writer_of(sink);
    const tn_record blank = {
        .struct_size = sizeof blank, .event = "", .columns = o->columns, .column_count = (int64_t)o->column_count};
    tn_error_clear(err);
    int32_t status = sink->table.begin ? sink->table.begin(sink->instance->hyper, &blank, &writer, err) : TN_OK;
    return status == TN_OK ? TN_OK : tn_error_wrap(err, status, "sink %s", sink->instance->info->name);
}

static int32_t open_one(const tn_sinks_options *o, size_t index, open_sink *sink, tn_error *err)
{
    const tn_instance *instance = sink->instance = o->instances[index];
    const char *file = tn_fact_text(instance->info->facts, "file", NULL);
    int64_t length = o->lengths ? o->lengths[index] : -1;
    if (!file || !*file || *file == '.' || strchr(file, '/'))
        return tn_error_set(err, TN_E_PLUGIN,
                            "sink %s: its note names the file \"%s\"; needed a plain name in the run's folder",
                            instance->info->name, file ? file : "");
    int32_t status = tn_registry_load(o->registry, instance->entry, &sink->table, sizeof sink->table, err);
    if (status != TN_OK)
        return status;
    if (!sink->table.record)
        return tn_error_set(err, TN_E_PLUGIN, "sink %s: its table lacks record", instance->info->name);
    sink->path = tn_format("%s/%s", o->folder, file);
    if (!sink->path)
        return tn_error_set(err, TN_E_MEMORY, "no memory for a path");
    status = open_file(sink, length, err);
    return status == TN_OK && length < 0 ? begin(sink, o, err) : status;
}

int32_t tn_sinks_open(const tn_sinks_options *o, tn_sinks **ret, tn_error *err)
{
    tn_sinks *sinks = tn_alloc(1, sizeof *sinks);
    if (!sinks || !(sinks->list = tn_alloc(o->count + 1, sizeof *sinks->list))) {
        tn_free(sinks);
        return tn_error_set(err, TN_E_MEMORY, "no memory for the sinks");
    }
    int32_t status = TN_OK;
    for (; sinks->count < o->count && status == TN_OK; sinks->count++)
        status = open_one(o, sinks->count, &sinks->list[sinks->count], err);
    if (status != TN_OK)
        tn_sinks_close(sinks);
    else
        *ret = sinks;
    return status;
}

int64_t tn_sinks_length(const tn_sinks *sinks, size_t index) { return (int64_t)ftello(sinks->list[index].file); }

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

int32_t tn_sinks_sync(tn_sinks *sinks, tn_error *err)
{
    int32_t status = tn_sinks_flush(sinks, err);
    for (size_t i = 0; i < sinks->count && status == TN_OK; i++)
        if (fdatasync(fileno(sinks->list[i].file)) != 0)
            status = write_error(&sinks->list[i], err);
    return status;
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
