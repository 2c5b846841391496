/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/base.h: what every other header of the contract builds on.
 *
 * Rules that hold for every entry of the contract, stated once here:
 *
 *  - Structs that may grow begin with `uint32_t struct_size`, set by the side that allocated the struct.
 *    The reader takes the smaller of its own and the other side's size; what is missing reads as zero, and
 *    zero is the documented default. Fields are only appended. Structs marked FROZEN never change.
 *  - Each side writes only into structs and buffers that it allocated or that were lent to it as outputs.
 *  - Pointers in arguments are borrowed for the call. Nothing that a plugin returns points anywhere but
 *    into its own static tables. A plugin keeps no memory between calls.
 *  - Text is UTF-8 and ends in NUL. Counts are in elements unless they say bytes.
 *  - A function that returns int32_t returns TN_OK or one of TN_E_*, and on failure fills the tn_error it
 *    was given (which may be NULL: then only the status counts). On failure its outputs are unspecified,
 *    but no state may have been half written.
 *  - No function of a plugin prints, exits, raises signals, starts threads or calls setlocale().
 *
 * Thread rules. Every entry ends in one of these tags:
 *   [load]   by one thread, while the host loads or plans; may be slow; may read files if its kind says so
 *   [main]   by one thread at a time for one instance, between steps
 *   [piece]  by any thread of the host's pool, many at a time, each with its own disjoint piece
 *   [any]    re-entrant: by any thread at any time
 */
#ifndef TENON_BASE_H
#define TENON_BASE_H

#include <stddef.h>
#include <stdint.h>

#define TN_ABI_MAJOR 1u
#define TN_ABI_MINOR 0u
/* Which newer fields a plugin sees; by default the oldest minor's, so the compiler makes the declared minor true. */
#ifndef TN_ABI_TARGET
#define TN_ABI_TARGET 0u
#endif

#ifdef __cplusplus
#define TN_STATIC_ASSERT(condition, text) static_assert(condition, text)
extern "C" {
#else
#define TN_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif
/* Layouts are pinned: every size, and the offsets that a change would move unseen. */
#define TN_AT(type, field, offset) TN_STATIC_ASSERT(offsetof(type, field) == (offset), #type "." #field)
#define TN_SIZE(type, size)        TN_STATIC_ASSERT(sizeof(type) == (size), #type)

/* ---- status ---- */

#define TN_STATUS_MAP(X)                                                                                               \
    X(TN_OK, 0, "done")                                                                                                \
    X(TN_E_INVALID, 1, "an argument or an experiment is wrong")                                                        \
    X(TN_E_UNSUPPORTED, 2, "the component does not offer this")                                                        \
    X(TN_E_MEMORY, 3, "out of memory")                                                                                 \
    X(TN_E_IO, 4, "the system refused to read or write")                                                               \
    X(TN_E_DATA, 5, "a file does not hold what it should")                                                             \
    X(TN_E_NUMERIC, 6, "a number left the finite range")                                                               \
    X(TN_E_PLUGIN, 7, "a plugin can not be used")                                                                      \
    X(TN_E_INTERNAL, 8, "a bug in tenon or in a component")                                                            \
    X(TN_E_STOPPED, 9, "stopped on request")                                                                           \
    X(TN_E_NOT_FOUND, 10, "no such component, file or name")

enum tn_status {
#define TN_STATUS_ENUM(name, value, text) name = value,
    TN_STATUS_MAP(TN_STATUS_ENUM)
#undef TN_STATUS_ENUM
};

/* FROZEN. Allocated by the caller; `code` repeats the returned status, `msg` says file or component, field,
 * what was found, what was needed, what to do. */
typedef struct tn_error {
    int32_t code;
    char msg[1024];
} tn_error;
TN_SIZE(tn_error, 1028);

/* ---- tensors: FROZEN, layout-identical to DLPack's DLDataType, DLDevice and DLTensor ---- */

#define TN_INT    0u
#define TN_UINT   1u
#define TN_FLOAT  2u
#define TN_BFLOAT 4u

typedef struct tn_dtype {
    uint8_t code, bits; /* TN_INT ...; bits of one lane */
    uint16_t lanes;
} tn_dtype;
TN_SIZE(tn_dtype, 4);

#define TN_CPU  1
#define TN_CUDA 2

typedef struct tn_device {
    int32_t type, id; /* TN_CPU or TN_CUDA; which of them, from 0 */
} tn_device;
TN_SIZE(tn_device, 8);

/* Row-major. The host always passes strides (in elements), byte_offset 0 and data aligned to 64 bytes; the
 * caller of libtenon may not, so whoever reads a foreign tensor accepts NULL strides and any offset. */
typedef struct tn_tensor {
    void *data;
    tn_device device;
    int32_t ndim;
    tn_dtype dtype;
    int64_t *shape;   /* ndim extents, each >= 0; a scalar has ndim 0 */
    int64_t *strides; /* ndim strides in elements */
    uint64_t byte_offset;
} tn_tensor;
TN_SIZE(tn_tensor, 48);
TN_AT(tn_tensor, ndim, 16);
TN_AT(tn_tensor, dtype, 20);
TN_AT(tn_tensor, shape, 24);
TN_AT(tn_tensor, byte_offset, 40);

#define TN_MAX_DIMS 8

/* ---- what the host lends to each call ---- */

/* Services of the host, valid for the call that lends them; `host` goes back as the first argument. */
typedef struct tn_services {
    uint32_t struct_size, reserved;
    void *host;
    /* Write one line to the host's log; level 0 debug, 1 info, 2 warning. [any] */
    void (*log)(void *host, int32_t level, const char *text);
    /* A table of the host by interface id, e.g. "tenon.compute/0.1"; NULL if this host has none. [any] */
    const void *(*interface)(void *host, const char *id);
} tn_services;
TN_AT(tn_services, host, 8);
TN_AT(tn_services, log, 16);
TN_AT(tn_services, interface, 24);
TN_SIZE(tn_services, 32);

/* The circumstances of a call. `attempt` always advances (random numbers, data order); `update` only when a
 * step commits. `key` is this instance's random key: a hash of (seed, instance path, purpose); a draw for
 * element i of the logical tensor uses the counter (attempt, i), so no split of the work changes it. */
typedef struct tn_context {
    uint32_t struct_size, reserved;
    int64_t attempt, update; /* from 0 */
    uint64_t key;
    const tn_services *services;
} tn_context;
TN_AT(tn_context, update, 16);
TN_AT(tn_context, key, 24);
TN_AT(tn_context, services, 32);
TN_SIZE(tn_context, 40);

#ifdef __cplusplus
}
#endif
#endif
