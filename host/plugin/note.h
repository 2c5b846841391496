/* SPDX-License-Identifier: Apache-2.0
 *
 * note.h: the TENON notes of an ELF file (tenon/plugin.h), read without mapping it.
 *
 * Heads are read here, for listing; the JSON text behind a head is parsed by info.h. Every refusal begins with a
 * reason code and the file's name:
 *   NOTE_INVALID   a head does not hold what plugin.h says
 *   NOTE_FORMAT    a head of another format than TN_NOTE_FORMAT
 *   ABI_MAJOR      built for another major of the contract
 *   ABI_MINOR      needs a newer host of the same major
 *   WRONG_ISA      needs instructions that this processor does not have
 *   INTERFACE      of another draft or revision of an interface that the host knows
 *
 * Thread rule: re-entrant; one tn_notes is used by one thread at a time.
 */
#ifndef TENON_HOST_PLUGIN_NOTE_H
#define TENON_HOST_PLUGIN_NOTE_H

#include <tenon/plugin.h>

#include "host/plugin/elf.h"

#define TN_NOTES_MAX 64 /* TENON notes of one file */

typedef struct tn_note_item {
    uint32_t type;  /* TN_NOTE_PLUGIN or TN_NOTE_COMPONENT */
    uint32_t size;  /* of the descriptor, in bytes */
    uint64_t at;    /* offset of the descriptor in the file */
    tn_note head;   /* all zero if it could not be understood; else checked text, '-' for '_' in `name` */
    int32_t status; /* TN_OK, or why it can not be used */
    char *reason;   /* the message behind status; NULL if TN_OK */
} tn_note_item;

typedef struct tn_notes {
    tn_note_item *items;
    size_t count;
    size_t capacity;
} tn_notes;

/* All TENON notes: of the PT_NOTE segments or, if there are none, of the section .note.tenon. No notes is TN_OK with
 * count 0: an ordinary library. A note that can not be used is an item with its reason. Fails with TN_E_PLUGIN and
 * ELF_CORRUPT if the notes are damaged, TN_E_IO, TN_E_MEMORY. `ret` is the caller's: tn_notes_free. */
int32_t tn_notes_read(const tn_elf *elf, tn_notes *ret, tn_error *err);
void tn_notes_free(tn_notes *notes);

/* The note of the whole file, or NULL if there is none or more than one. */
const tn_note_item *tn_notes_plugin(const tn_notes *notes);

/* The whole descriptor of an item whose head was understood: item->size bytes, the last of which is NUL. The caller
 * frees *ret with tn_free. TN_E_PLUGIN if the file no longer holds it, TN_E_IO, TN_E_MEMORY. */
int32_t tn_note_bytes(const tn_source *source, const tn_note_item *item, tn_note **ret, tn_error *err);

/* The instruction sets among `needed` (TN_ISA_*, or bits not yet known) that this processor lacks. */
uint32_t tn_isa_missing(uint32_t needed);

/* 1 if `text` is UTF-8 without control characters, fit for a terminal. */
int tn_note_printable(const char *text);

/* 1 if `text` is a name: letters, digits, '.', '_' and '-', the last not first. */
int tn_note_word(const char *text);

#endif
