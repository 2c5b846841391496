/* SPDX-License-Identifier: Apache-2.0
 *
 * operand.c: operands that are not used in place: copies and codecs.
 */
#include "host/update/operand.h"

#include <string.h>

#define EXTRA_MAX 4096 /* bytes */
#define GRANULE   512  /* what a codec's block divides: blocks of elements begin on it */

/* Bytes before element n of a payload; n a multiple of the granule, or the end. */
static int64_t payload(int32_t bits, int64_t n) { return n / 8 * bits + (n % 8 * bits + 7) / 8; }

static int64_t padded(int64_t bytes) { return (bytes + 15) / 16 * 16; }

int64_t tn_codec_payload(const tn_codec *codec, uint32_t real, int64_t n)
{
    return payload(codec ? codec->bits : (int32_t)real, n);
}

int64_t tn_codec_extra(const tn_codec *codec, int64_t n)
{
    return codec ? (n + codec->block - 1) / codec->block * codec->extra_bytes : 0;
}

int64_t tn_codec_bytes(const tn_codec *codec, uint32_t real, int64_t n)
{
    int64_t extra = tn_codec_extra(codec, n), bytes = tn_codec_payload(codec, real, n);
    return extra ? padded(bytes) + extra : bytes;
}

tn_operand tn_operand_stored(uint32_t real, const tn_codec_use *use, uint32_t flags, const void *data,
                             const void *extra, int64_t lo, int64_t n, uint64_t key, const tn_context *context)
{
    const tn_codec *codec = use ? use->table : NULL;
    if (!codec)
        return tn_operand_array(real, data, lo);
    if (!extra && codec->extra_bytes)
        extra = (const char *)data + padded(tn_codec_payload(codec, real, n));
    return (tn_operand){.data = (char *)data,
                        .mask = -1,
                        .lo = lo,
                        .real = real,
                        .flags = flags,
                        .codec = codec,
                        .hyper = use->instance ? use->instance->hyper : NULL,
                        .extra = (char *)extra,
                        .key = key,
                        .context = context};
}

/* A call for n elements from element `at` on; `context` is the callee's own copy. */
static tn_codec_call call_of(const tn_operand *operand, int64_t at, int64_t n, void *real, tn_context *context)
{
    const tn_codec *codec = operand->codec;
    int64_t from = at - operand->lo;
    *context = operand->context ? *operand->context : (tn_context){.struct_size = sizeof *context};
    context->key = operand->key;
    return (tn_codec_call){
        .struct_size = sizeof(tn_codec_call),
        .flags = operand->flags,
        .hyper = operand->hyper,
        .context = context,
        .lo = at,
        .n = n,
        .stored = operand->data + payload(codec->bits, from),
        .extra = codec->extra_bytes ? operand->extra + from / codec->block * codec->extra_bytes : NULL,
        .real = real,
    };
}

void tn_operand_read(const tn_operand *operand, int64_t at, int64_t n, void *to)
{
    tn_context context;
    if (n <= 0)
        return;
    if (operand->codec) {
        const tn_codec_call call = call_of(operand, at, n, to, &context);
        operand->codec->decode(&call);
    } else {
        memcpy(to, tn_operand_place(operand, at), (size_t)n * (operand->real / 8));
    }
}

void tn_operand_write(const tn_operand *operand, int64_t at, int64_t n, const void *from)
{
    tn_context context;
    if (n <= 0)
        return;
    if (operand->codec) {
        const tn_codec_call call = call_of(operand, at, n, (void *)from, &context);
        operand->codec->encode(&call);
    } else {
        memcpy(tn_operand_place(operand, at), from, (size_t)n * (operand->real / 8));
    }
}

int32_t tn_codec_open(tn_registry *registry, const tn_instance *instance, tn_codec *table, tn_codec_use *ret,
                      tn_error *err)
{
    *ret = (tn_codec_use){0};
    if (!instance)
        return TN_OK;
    int32_t status = tn_registry_load(registry, instance->entry, table, sizeof *table, err);
    if (status)
        return status;
    if (!table->decode || !table->encode)
        return tn_error_set(err, TN_E_PLUGIN, "%s: codec '%s' lacks decode or encode, needed both; correct the plugin",
                            instance->path, instance->entry->name);
    if (table->block < 1 || GRANULE % table->block || table->bits < 1 || table->bits > 64 || table->extra_bytes < 0 ||
        table->extra_bytes > EXTRA_MAX)
        return tn_error_set(err, TN_E_PLUGIN,
                            "%s: codec '%s' has blocks of %d elements of %d bits and %d bytes, needed a divisor of "
                            "512, 1 to 64 and 0 to 4096; correct the plugin",
                            instance->path, instance->entry->name, table->block, table->bits, table->extra_bytes);
    if ((int64_t)table->block * table->bits % 8)
        return tn_error_set(err, TN_E_PLUGIN,
                            "%s: codec '%s' has blocks of %d elements of %d bits, needed whole bytes; correct the "
                            "plugin",
                            instance->path, instance->entry->name, table->block, table->bits);
    *ret = (tn_codec_use){table, instance};
    return TN_OK;
}
