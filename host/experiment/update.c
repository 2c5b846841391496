/* SPDX-License-Identifier: Apache-2.0
 *
 * update.c: the links of an experiment's update chain.
 */
#include "host/experiment/reader.h"

#include <string.h>

#include "host/base/memory.h"
#include "host/base/text.h"

static int is_handle(const char *text)
{
    size_t length = strlen(text);
    return length > 0 && strspn(text, "0123456789") < length &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == length;
}

static int32_t check_handle(const tn_reader *r, const char *handle, tn_place place)
{
    if (!is_handle(handle))
        return tn_place_error(r->err, TN_E_INVALID, place,
                              "'%s' can not name a link: needed letters, digits, '-' and '_', not digits alone",
                              handle);
    for (const char *const *section = tn_reader_sections; *section; section++)
        if (tn_name_equal(*section, handle))
            return tn_place_error(r->err, TN_E_INVALID, place, "'%s' is a section; name the link otherwise with 'as:'",
                                  handle);
    for (size_t i = 0; i < r->e->update_count; i++)
        if (tn_name_equal(r->e->update[i]->handle, handle))
            return tn_place_error(r->err, TN_E_INVALID, place,
                                  "two links are called '%s'; give one another name with 'as:'", handle);
    return TN_OK;
}

/* What the link is called: its `as`, else its component's name. */
static int32_t link_handle(const tn_reader *r, const tn_seat *seat, const tn_yaml *node, const char **ret)
{
    const tn_yaml *as = tn_yaml_get(node, "as");
    const char *name;
    if (as && as->kind != TN_YAML_SCALAR)
        return tn_place_error(r->err, TN_E_INVALID, as->place, "'as' takes a name for the link");
    int32_t status = tn_build_name(&r->build, seat, node, node->place, &name);
    if (status)
        return status;
    *ret = as ? as->value : tn_build_short_name(name);
    return check_handle(r, *ret, as ? as->place : node->place);
}

static int32_t read_link(tn_reader *r, const tn_yaml *node)
{
    const tn_seat seat = {.kinds = TN_KINDS("optimizer", "transform", "average", "wrapper"),
                          .host_keys = (const char *const[]){"as", "on", NULL}};
    const char *handle = NULL;
    int32_t status = link_handle(r, &seat, node, &handle);
    if (status)
        return status;
    char *path = tn_format("update.%s", handle);
    status =
        path ? tn_build_instance(&r->build, &seat, node, node->place, path, handle, &r->e->update[r->e->update_count])
             : tn_place_no_memory(r->err);
    tn_free(path);
    if (status)
        return status;
    const tn_yaml *on = tn_yaml_get(node, "on");
    tn_instance *link = r->e->update[r->e->update_count++];
    return on ? tn_selector_read(on, &link->on, r->err) : TN_OK;
}

int32_t tn_reader_update(tn_reader *r)
{
    const tn_yaml *list = tn_yaml_get(r->root, "update");
    if (!list)
        return tn_reader_missing(r, "update");
    if (!list->count)
        return tn_place_error(r->err, TN_E_INVALID, list->place, "update needs a link, such as adamw");
    r->e->update = tn_alloc(list->count, sizeof *r->e->update);
    int32_t status = r->e->update ? TN_OK : tn_place_no_memory(r->err);
    for (const tn_yaml *node = list->first; node && !status; node = node->next)
        status = read_link(r, node);
    return status;
}
