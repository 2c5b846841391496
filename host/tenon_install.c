/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon_install.c: the part of the C API that installs plugins.
 */
#include <stdio.h>
#include <string.h>

#include "host/handle.h"
#include "host/plugin/install.h"

static void add_names_json(tn_text *text, const char *names)
{
    const char *before = "";
    for (size_t length; *names; names += length + (names[length] == '\n')) {
        char line[256];
        length = strcspn(names, "\n");
        snprintf(line, sizeof line, "%.*s", (int)length, names);
        tn_text_add(text, before);
        tn_text_json(text, line);
        before = ",";
    }
}

int32_t tenon_install(tenon *handle, const char *file, uint32_t flags, char **ret, tn_error *err)
{
    tn_installed installed;
    tn_text text = {0};
    int32_t status = tn_install(file, (flags & TENON_FORCE) != 0, &handle->log, &installed, err);
    if (status != TN_OK)
        return status;
    if (flags & TENON_JSON) {
        tn_text_add(&text, "{\"path\":");
        tn_text_json(&text, installed.path);
        tn_text_add(&text, ",\"components\":[");
        add_names_json(&text, tn_text_string(&installed.names));
        tn_text_add(&text, "]}\n");
    } else {
        tn_text_addf(&text, "%s:\n%s", installed.path, tn_text_string(&installed.names));
    }
    tn_installed_free(&installed);
    return tn_handle_give(&text, TN_OK, ret, err);
}
