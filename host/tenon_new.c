/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon_new.c: the part of the C API that makes plugins to begin with.
 */
#include <string.h>

#include "host/base/take.h"
#include "host/handle.h"
#include "host/plugin/template.h"

/* Each file's name, with `before` in front of all but the first. */
static void add_files(tn_text *text, const char *files, const char *before, int json)
{
    const char *between = "";
    for (size_t length; *files; files += length + (files[length] == '\n')) {
        char name[256];
        length = strcspn(files, "\n");
        snprintf(name, sizeof name, "%.*s", (int)length, files);
        tn_text_add(text, between);
        if (json)
            tn_text_json(text, name);
        else
            tn_text_add(text, name);
        between = before;
    }
}

static void add_json(tn_text *text, const char *kind, const char *name, const tn_templated *made)
{
    tn_text plugin = {0};
    tn_text_addf(&plugin, "%s-%s.so", kind, name);
    tn_text_add(text, "{\"folder\":");
    tn_text_json(text, made->folder);
    tn_text_add(text, ",\"plugin\":");
    tn_text_json(text, tn_text_string(&plugin));
    tn_text_add(text, ",\"files\":[");
    add_files(text, tn_text_string(&made->files), ",", 1);
    tn_text_add(text, "],\"pkgconfig\":");
    if (made->pkgconfig)
        tn_text_json(text, made->pkgconfig);
    else
        tn_text_add(text, "null");
    tn_text_add(text, "}\n");
    text->failed |= plugin.failed;
    tn_text_free(&plugin);
}

/* A line of a shell. */
static void add_quoted(tn_text *text, const char *before, const char *word)
{
    tn_text_addf(text, "%s'", before);
    for (; *word; word++) {
        if (*word == '\'')
            tn_text_add(text, "'\\''");
        else
            tn_text_char(text, *word);
    }
    tn_text_add(text, "'\n");
}

static void add_words(tn_text *text, const char *kind, const char *name, const tn_templated *made)
{
    tn_text_addf(text, "%s: ", made->folder);
    add_files(text, tn_text_string(&made->files), " ", 0);
    tn_text_add(text, "\nnext:\n");
    if (made->pkgconfig)
        add_quoted(text, "  export PKG_CONFIG_PATH=", made->pkgconfig);
    add_quoted(text, "  cd ", made->folder);
    tn_text_addf(text, "  ./build.sh    # makes %s-%s.so\n", kind, name);
    tn_text_add(text, "  ./test.sh     # checks it, explains it, trains with it\n");
}

int32_t tenon_new(tenon *handle, const char *kind, const char *name, const tenon_new_options *options, char **ret,
                  tn_error *err)
{
    tenon_new_options given = {0};
    tn_templated made;
    tn_text text = {0};
    (void)handle;
    if (options)
        tn_take(&given, sizeof given, options);
    const tn_template what = {kind, name, given.language, given.folder};
    int32_t status = tn_template_write(&what, &made, err);
    if (status != TN_OK)
        return status;
    (given.flags & TENON_JSON ? add_json : add_words)(&text, kind, name, &made);
    tn_templated_free(&made);
    return tn_handle_give(&text, TN_OK, ret, err);
}
