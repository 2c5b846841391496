/* SPDX-License-Identifier: Apache-2.0
 *
 * Its component points at a note that the file does not list.
 */
#define BAD_NAME "note-lies"
#include <tenon/plugin.h>

/* As long as the true one, elsewhere in the file. */
static const struct {
    tn_note head;
    char body[512];
} other_note = {{400, TN_NOTE_FORMAT, TN_ABI_MAJOR, 0, 32, 0, sizeof(tn_note), 0, "", "", "optimizer",
                 "tenon.optimizer/0.2", "note-lies", "cpu", "another test"},
                "{}"};
#define BAD_NOTE &other_note.head
#include "bad.h"
