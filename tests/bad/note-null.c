/* SPDX-License-Identifier: Apache-2.0
 *
 * Its component has no note.
 */
#define BAD_NAME "note-null"
#define BAD_NOTE (const tn_note *)0
#include "bad.h"
