/* SPDX-License-Identifier: Apache-2.0
 *
 * info.h: all that a note says of one component, parsed from its head and JSON text (tenon/plugin.h). The
 * plugin is not mapped. Experiments are validated against this alone.
 *
 * Thread rule: parsing is re-entrant; a finished tn_component_info is read-only.
 */
#ifndef TENON_HOST_PLUGIN_INFO_H
#define TENON_HOST_PLUGIN_INFO_H

#include <jansson.h>

#include <tenon/plugin.h>

#include "host/base/number.h"

#define TN_TYPE_REAL      1 /* double, schedulable */
#define TN_TYPE_FIXED     2 /* double */
#define TN_TYPE_INTEGER   3 /* int64_t */
#define TN_TYPE_FLAG      4 /* int64_t, 0 or 1 */
#define TN_TYPE_CHOICE    5 /* int64_t, index into choices */
#define TN_TYPE_TEXT      6 /* const char * */
#define TN_TYPE_INTEGERS  7 /* tn_integers */
#define TN_TYPE_COMPONENT 8 /* int64_t; range_text is the kind */

/* One hyper-parameter. */
typedef struct tn_row {
    char *name; /* a C identifier, as the author wrote it */
    int32_t type;
    char *default_text; /* parses as `type` and lies in the range */
    char *range_text;   /* as written, with unit and version */
    char *doc;
    tn_range range; /* of the number types and of each of `integers`; else without bounds */
    char **choices; /* of TN_TYPE_CHOICE: choice_count words */
    size_t choice_count;
    size_t offset; /* in the hyper struct, in bytes */
    size_t size;   /* 8, or 16 for integers */
} tn_row;

/* Texts that the note does not state are "", never NULL. */
typedef struct tn_component_info {
    char *kind, *name, *device, *interface; /* name with '-' for '_' */
    char *plugin, *version;                 /* of the file */
    char *summary, *paper, *formula;
    char *licence; /* the component's, else the plugin's */
    uint32_t real; /* 32, 64, or 0: any */
    uint32_t abi_major, abi_minor;
    uint32_t isa; /* TN_ISA_* */
    tn_row *rows;
    size_t row_count;
    size_t hyper_size; /* of the hyper struct: the sum of the rows' sizes, in bytes */
    json_t *facts;     /* the other facts, e.g. stage and slots; an object whose arrays do not end in null */
} tn_component_info;

/* Parses the whole notes of a component and of its plugin (tn_note_bytes). `file` is for messages. The caller frees
 * *ret with tn_info_free. TN_E_PLUGIN with NOTE_INVALID or NOTE_UNKNOWN and the row or fact and token at fault;
 * TN_E_MEMORY. */
int32_t tn_info_parse(const char *file, const tn_note *plugin, const tn_note *component, tn_component_info **ret,
                      tn_error *err);
/* Accepts NULL. */
void tn_info_free(tn_component_info *info);

/* "f32", "f64", or for a component of any real type `any`. */
const char *tn_real_name(uint32_t real, const char *any);

/* A text of the facts, or of an object in them such as a slot; `otherwise` where it is not there. Lives as long as the
 * facts. */
const char *tn_fact_text(const json_t *object, const char *key, const char *otherwise);

/* "real", "fixed", ...; static. */
const char *tn_type_name(int32_t type);

#endif
