/* SPDX-License-Identifier: Apache-2.0
 *
 * bad.h: a plugin of one component, optimizer/BAD_NAME, in which each part may be replaced before this file is
 * included, to be wrong in one way. With nothing replaced but BAD_NAME it is a good one.
 */
#ifndef TENON_TESTS_BAD_BAD_H
#define TENON_TESTS_BAD_BAD_H

#include <tenon/optimizer.h>
#include <tenon/sdk.h>

#ifndef BAD_INTERFACE
#define BAD_INTERFACE TN_OPTIMIZER
#endif
#ifndef BAD_TEXT
#define BAD_TEXT "{\"hyper\":[null],\"stage\":\"gradient\"}"
#endif
#ifndef BAD_TABLE_SIZE
#define BAD_TABLE_SIZE sizeof(tn_optimizer)
#endif
#ifndef BAD_TABLE
#define BAD_TABLE &bad_table
#endif
#ifndef BAD_NOTE
#define BAD_NOTE &bad_note.head
#endif
#ifndef BAD_COMPONENT_SIZE
#define BAD_COMPONENT_SIZE sizeof(tn_component)
#endif
#ifndef BAD_PLUGIN_SIZE
#define BAD_PLUGIN_SIZE sizeof(tn_plugin)
#endif
#ifndef BAD_COUNT
#define BAD_COUNT 1
#endif
#ifndef BAD_ENTRY
#define BAD_ENTRY tenon_plugin_v1
#endif
#ifndef BAD_BODY
#define BAD_BODY                                                                                                       \
    (void)err;                                                                                                         \
    return &bad_plugin;
#endif

static TN_UNUSED double bad_scale(const void *k)
{
    (void)k;
    return 0.5;
}

TN_NOTE_(bad_plugin_note, TN_NOTE_PLUGIN, "org.tenon.test." BAD_NAME, "0.1.0", "", "", "", "", 0u, "",
         "{\"licence\":\"Apache-2.0\"}");
TN_NOTE_(bad_note, TN_NOTE_COMPONENT, "", "", "optimizer", BAD_INTERFACE, BAD_NAME, "cpu", TN_REAL, "a test", BAD_TEXT);
static TN_UNUSED const tn_optimizer bad_table = {.struct_size = BAD_TABLE_SIZE, .scale = bad_scale};
static TN_UNUSED const tn_component bad_component = {BAD_COMPONENT_SIZE, 0, BAD_NOTE, BAD_TABLE};
static TN_UNUSED const tn_component *const bad_components[] = {&bad_component, &bad_component};
static TN_UNUSED const tn_plugin bad_plugin = {BAD_PLUGIN_SIZE, BAD_COUNT, &bad_plugin_note.head, bad_components};

__attribute__((visibility("default"))) const tn_plugin *BAD_ENTRY(tn_error *err);
const tn_plugin *BAD_ENTRY(tn_error *err) { BAD_BODY }

#endif
