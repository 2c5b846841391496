/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_file.c: what is required of a plugin's file as a whole.
 */
#include "host/check/check.h"

#include <string.h>

#include "host/plugin/loader.h"

static bool is_file(const tn_check_subject *subject) { return !subject->entry; }

/* ---- notes ---- */

static void run_note(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_error err = {0};
    const tn_component_info *info;
    for (size_t i = 0; i < tn_registry_count(subject->registry); i++) {
        const tn_entry_info *entry = tn_registry_at(subject->registry, i);
        if (strcmp(entry->path, subject->path) != 0)
            continue;
        if (entry->state == TN_REFUSED)
            tn_check_fail(finding, "%s", entry->reason);
        else if (tn_registry_info(subject->registry, entry, &info, &err) != TN_OK)
            tn_check_fail(finding, "%s", err.msg);
    }
}

/* ---- the record ---- */

static void run_record(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_error err = {0};
    tn_library *library;
    tn_check_stage(subject, "loading it");
    if (tn_loader_open(subject->path, NULL, &library, &err) != TN_OK)
        tn_check_fail(finding, "%s", err.msg);
}

const tn_check_rule tn_check_file_rules[] = {
    {"file-note", "the notes parse and state only what this host knows, so that experiments can be checked unloaded",
     is_file, run_note},
    {"file-record", "the file loads, and its entry returns a record of its own that agrees with the notes", is_file,
     run_record},
    {0},
};
