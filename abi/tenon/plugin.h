/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/plugin.h: what a plugin file carries.
 *
 * A plugin is one shared object. It exports one function, TN_ENTRY, and carries ELF notes (section
 * .note.tenon, segment PT_NOTE, owner "TENON"): one TN_NOTE_PLUGIN for the file and one TN_NOTE_COMPONENT for
 * each component. A note's descriptor is a tn_note head followed by JSON text. The host lists, explains and
 * validates from the notes alone and maps the file only when an experiment uses it; after mapping it compares
 * the note that each record points at with the bytes it read from the file.
 *
 * Facts stand in the note only, functions in the record only. A fact that the host does not know refuses the
 * component, so a new fact is a new minor.
 *
 * The JSON text of a component (keys may be absent; arrays may end in null, which is skipped):
 *   hyper   [{name, type, default, range, doc}]   see TN_ROW_* below; defaults are the author's own tokens
 *   paper, formula, licence                       text
 *   and the facts of its kind, listed in that kind's header
 */
#ifndef TENON_PLUGIN_H
#define TENON_PLUGIN_H

#include <tenon/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TN_ENTRY "tenon_plugin_v1" /* the number is TN_ABI_MAJOR */

#define TN_NOTE_OWNER     "TENON"
#define TN_NOTE_PLUGIN    1u /* ELF note types */
#define TN_NOTE_COMPONENT 2u
#define TN_NOTE_FORMAT    1u
#define TN_NOTE_MAX       65536u /* a larger descriptor is refused */

/* Instruction sets that the plugin's code was compiled to need, beyond the architecture's baseline. */
#define TN_ISA_SSE42  0x1u
#define TN_ISA_AVX    0x2u
#define TN_ISA_AVX2   0x4u
#define TN_ISA_FMA    0x8u
#define TN_ISA_F16C   0x10u
#define TN_ISA_AVX512 0x20u /* F, BW, DQ and VL together, or any one of them */

/* FROZEN for format 1. 4-byte aligned, no pointers, little-endian; every text ends in NUL and the bytes after it
 * are 0. In names '_' and '-' are the same; the host shows '-'. The plugin note says plugin, version and summary
 * and leaves kind, interface, name and device empty; the component notes of the file do the reverse. */
typedef struct tn_note {
    uint32_t size;      /* of the head and the text with its NUL, in bytes */
    uint32_t format;    /* TN_NOTE_FORMAT */
    uint32_t abi_major; /* TN_ABI_MAJOR */
    uint32_t abi_minor; /* TN_ABI_TARGET: the oldest host that has all that the code uses */
    uint32_t real;      /* 32 or 64: the floating type the code was compiled for; 0: it does not depend on one */
    uint32_t isa;       /* TN_ISA_* */
    uint32_t text_at;   /* offset of the text from the start of the head, in bytes */
    uint32_t reserved;
    char plugin[64];    /* reverse-DNS id, e.g. "org.tenon.adamw" */
    char version[32];   /* of the plugin, semantic */
    char kind[24];      /* "optimizer", "normalizer", ... */
    char interface[32]; /* the table behind it, e.g. "tenon.optimizer/0.1"; drafts are /0.n */
    char name[40];
    char device[16]; /* "cpu", "cuda" */
    char summary[128];
} tn_note;
TN_AT(tn_note, plugin, 32);
TN_AT(tn_note, version, 96);
TN_AT(tn_note, kind, 128);
TN_AT(tn_note, interface, 152);
TN_AT(tn_note, name, 184);
TN_AT(tn_note, device, 224);
TN_AT(tn_note, summary, 240);
TN_SIZE(tn_note, 368);

/* ---- hyper-parameters ----
 *
 * A row is (type, name, default, range, doc). The host parses and checks the values and lays them out in row
 * order as one struct, 8-byte aligned, which every call receives as `const void *hyper`:
 *
 *   type       in the struct          default            range
 *   real       double, schedulable    1e-3  .5  inf nan  "[0, 1)"  "(-inf, inf) or nan"
 *   fixed      double                 as real            as real
 *   integer    int64_t                100                "[1, inf)"
 *   flag       int64_t, 0 or 1        true false         ""
 *   choice     int64_t, the index     torch              "torch | paper"
 *   text       const char *           "abc"              ""            (NUL-terminated, lives as long as the run)
 *   integers   tn_integers            "[256, 128]"       bounds of each element
 *   component  int64_t, a child       none  relu         "activation"  (the kind; -1: none; see model.h)
 *
 * After the bounds a range may name the unit and the version that brought the row: "[0, inf) steps; since 1.2.0".
 * `real` rows may be changed between updates by a scheduler; all others stay as they are for the whole run. */
typedef struct tn_integers {
    const int64_t *values; /* NULL when count is 0 */
    int64_t count;
} tn_integers;
TN_SIZE(tn_integers, 16);

/* ---- the record ---- */

typedef struct tn_component {
    uint32_t struct_size;
    uint32_t reserved;
    const tn_note *note; /* the very bytes of the file's note */
    const void *table;   /* the interface's table, e.g. const tn_optimizer *; its first member is struct_size */
} tn_component;
TN_AT(tn_component, note, 8);
TN_AT(tn_component, table, 16);
TN_SIZE(tn_component, 24);

typedef struct tn_plugin {
    uint32_t struct_size;
    uint32_t component_count;
    const tn_note *note;
    const tn_component *const *components; /* component_count pointers */
} tn_plugin;
TN_AT(tn_plugin, note, 8);
TN_AT(tn_plugin, components, 16);
TN_SIZE(tn_plugin, 24);

/* The exported function. Returns the plugin's own static record, the same at each call, or NULL with `err`
 * filled. May be called again after either. [load] */
typedef const tn_plugin *tn_entry(tn_error *err);

#ifdef __cplusplus
}
#endif
#endif
