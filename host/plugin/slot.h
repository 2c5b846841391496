/* SPDX-License-Identifier: Apache-2.0
 *
 * slot.h: the words of slots (tn_slot in optimizer.h), which notes and plans both say. Called by any thread.
 */
#ifndef TENON_HOST_PLUGIN_SLOT_H
#define TENON_HOST_PLUGIN_SLOT_H

#include <stddef.h>
#include <stdint.h>

/* Lists, with one blank between words. */
#define TN_SLOT_SHAPES "like rows columns scalar global item left right"
#define TN_SLOT_INITS  "zero one parameter"
#define TN_SLOT_FLAGS  "transient nonnegative tapped offloadable signed"

/* Places in TN_SLOT_SHAPES; matrices have those from TN_SHAPE_ITEM on, all others those before. */
enum {
    TN_SHAPE_LIKE,
    TN_SHAPE_ROWS,
    TN_SHAPE_COLUMNS,
    TN_SHAPE_SCALAR,
    TN_SHAPE_GLOBAL,
    TN_SHAPE_ITEM,
    TN_SHAPE_LEFT,
    TN_SHAPE_RIGHT,
    TN_SHAPES
};

/* Bits, by place in TN_SLOT_FLAGS. */
#define TN_SLOT_TRANSIENT   0x1
#define TN_SLOT_NONNEGATIVE 0x2
#define TN_SLOT_TAPPED      0x4

/* The place of the `n` bytes at `word` in a list with one blank between words; -1: not in it. */
int32_t tn_word_at(const char *list, const char *word, size_t n);

/* The place of a shape, -1: unknown; and back, NULL for any other number. */
int32_t tn_slot_shape(const char *word);
const char *tn_slot_shape_name(int32_t shape);

/* 1 if it is one of TN_SLOT_INITS. */
int32_t tn_slot_init(const char *word);

/* TN_SLOT_* of words with blanks or commas between them; -1: one is unknown. NULL says nothing. */
int32_t tn_slot_flags(const char *words);

/* Whether a slot may be called so: not NULL, not empty, letters, digits and - _ . only. */
int32_t tn_slot_named(const char *name);

#endif
