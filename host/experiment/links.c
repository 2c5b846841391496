/* SPDX-License-Identifier: Apache-2.0
 *
 * links.c: the links of an update chain from text of their own: the section `update` of an experiment that is nothing
 * else.
 */
#include "host/experiment/links.h"

#include <string.h>

#include "host/base/memory.h"
#include "host/experiment/reader.h"

/* A tree whose section `update` is the text's list. */
static int32_t parse(tn_reader *r)
{
    tn_yaml *node, *list;
    int32_t status = tn_yaml_parse(&r->tree, &r->text, &node, r->err);
    if (status)
        return status;
    list = node;
    int empty = node->kind == TN_YAML_SCALAR && !node->quoted && !*node->value;
    if (node->kind != TN_YAML_SEQUENCE) {
        status = tn_yaml_new(&r->tree, TN_YAML_SEQUENCE, NULL, node->place, &list, r->err);
        if (!status && !empty)
            tn_yaml_append(list, node);
    }
    if (!status)
        status = tn_yaml_new(&r->tree, TN_YAML_MAPPING, NULL, node->place, &r->root, r->err);
    return status ? status : tn_yaml_put(&r->tree, r->root, "update", node->place, list, r->err);
}

int32_t tn_links_parse(tn_registry *registry, const char *text, uint32_t real, tn_instance ***ret, size_t *ret_count,
                       tn_error *err)
{
    tn_experiment links = {0};
    tn_reader r = {
        .build = {registry, real, 0, err}, .text = {"update", text, strlen(text), 1}, .e = &links, .err = err};
    int32_t status = parse(&r);
    if (!status)
        status = tn_reader_update(&r);
    tn_yaml_free(&r.tree);
    if (status) {
        tn_links_free(links.update, links.update_count);
        return status;
    }
    *ret = links.update;
    *ret_count = links.update_count;
    return TN_OK;
}

void tn_links_free(tn_instance **links, size_t count)
{
    for (size_t i = 0; i < count; i++)
        tn_instance_free(links[i]);
    tn_free(links);
}
