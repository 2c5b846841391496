/* SPDX-License-Identifier: Apache-2.0
 *
 * selector.c: which parameters `on:` of a link admits.
 */
#include <fnmatch.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/base/number.h"
#include "host/experiment/reader.h"
#include "host/experiment/value.h"

static const char *const roles[] = {"other", "weight", "bias", "norm", "embedding", "head"}; /* by TN_ROLE_* */

/* ---- admitting ---- */

static int has_name(const tn_selector *on, const char *name)
{
    for (size_t i = 0; i < on->name_count; i++)
        if (fnmatch(on->names[i], name, 0) == 0)
            return 1;
    return on->name_count == 0;
}

static int has_role(const tn_selector *on, int32_t role)
{
    return on->roles == 0 || (role >= 0 && role < 32 && (on->roles >> role & 1));
}

static int has_axes(const tn_selector *on, int32_t axes)
{
    return on->most_axes == 0 || (axes >= on->least_axes && axes <= on->most_axes);
}

int tn_selector_admits(const tn_selector *on, const tn_parameter *parameter)
{
    return !on || (has_role(on, parameter->role) && has_axes(on, parameter->ndim) && has_name(on, parameter->name));
}

/* ---- reading ---- */

static int32_t needs(const tn_yaml *node, const char *key, const char *what, tn_error *err)
{
    char found[TN_FOUND_MAX];
    tn_value_found(node, found);
    return tn_place_error(err, TN_E_INVALID, node->place, "'%s' of on takes %s; found %s", key, what, found);
}

/* The first of one scalar or of a list; *ret_count of them. */
static const tn_yaml *elements(const tn_yaml *node, size_t *ret_count)
{
    int is_list = node->kind == TN_YAML_SEQUENCE;
    *ret_count = is_list ? node->count : 1;
    return is_list ? node->first : node;
}

static int32_t read_role(const tn_yaml *node, tn_selector *on, tn_error *err)
{
    size_t role = 0;
    if (node->kind != TN_YAML_SCALAR)
        return needs(node, "role", "a role or a list of roles", err);
    while (role < TN_COUNT(roles) && !tn_name_equal(roles[role], node->value))
        role++;
    if (role == TN_COUNT(roles))
        return tn_place_unknown(err, TN_E_INVALID, node->place, node->value, roles, TN_COUNT(roles),
                                "on: no parameter has the role '%s'", node->value);
    on->roles |= 1u << role;
    return TN_OK;
}

static int32_t read_roles(const tn_yaml *node, tn_selector *on, tn_error *err)
{
    size_t count;
    const tn_yaml *element = elements(node, &count);
    int32_t status = count ? TN_OK : needs(node, "role", "a role or a list of roles", err);
    for (size_t i = 0; i < count && !status; i++, element = element->next)
        status = read_role(element, on, err);
    return status;
}

static int32_t read_names(const tn_yaml *node, tn_selector *on, tn_error *err)
{
    size_t count;
    const tn_yaml *element = elements(node, &count);
    if (!count)
        return needs(node, "name", "a parameter's name or a list of names", err);
    on->names = tn_alloc(count, sizeof *on->names);
    if (!on->names)
        return tn_place_no_memory(err);
    for (; on->name_count < count; on->name_count++, element = element->next) {
        if (element->kind != TN_YAML_SCALAR || !element->value[0])
            return needs(element, "name", "names of parameters, in which '*' and '?' stand for any characters", err);
        on->names[on->name_count] = tn_strdup(element->value);
        if (!on->names[on->name_count])
            return tn_place_no_memory(err);
    }
    return TN_OK;
}

static int32_t read_axes(const tn_yaml *node, tn_selector *on, tn_error *err)
{
    size_t count;
    int64_t bounds[2];
    const tn_yaml *element = elements(node, &count);
    for (size_t i = 0; i < count && count <= 2; i++, element = element->next)
        if (element->kind != TN_YAML_SCALAR || element->quoted || tn_parse_integer(element->value, &bounds[i]))
            count = 0;
    if (count == 1)
        bounds[1] = bounds[0];
    if (count < 1 || count > 2 || bounds[0] < 0 || bounds[0] > bounds[1] || bounds[1] < 1 || bounds[1] > TN_MAX_DIMS)
        return needs(node, "axes", "how many axes a parameter has, 1 to 8, or [least, most]", err);
    on->least_axes = (int32_t)bounds[0];
    on->most_axes = (int32_t)bounds[1];
    return TN_OK;
}

static int32_t read_conditions(const tn_yaml *node, tn_selector *on, tn_error *err)
{
    static const char *const known[] = {"role", "name", "axes"};
    const tn_yaml *role = tn_yaml_get(node, "role"), *name = tn_yaml_get(node, "name"),
                  *axes = tn_yaml_get(node, "axes");
    int32_t status = tn_build_check_keys(node, known, TN_COUNT(known), "on", err);
    if (!status && role)
        status = read_roles(role, on, err);
    if (!status && name)
        status = read_names(name, on, err);
    return !status && axes ? read_axes(axes, on, err) : status;
}

int32_t tn_selector_read(const tn_yaml *node, tn_selector **ret, tn_error *err)
{
    char found[TN_FOUND_MAX];
    *ret = NULL;
    if (tn_reader_is_none(node))
        return TN_OK;
    tn_value_found(node, found);
    if (node->kind != TN_YAML_MAPPING || !node->count)
        return tn_place_error(err, TN_E_INVALID, node->place,
                              "on takes a mapping with role, name or axes, such as {role: [norm, bias]}; found %s",
                              node->kind == TN_YAML_MAPPING ? "an empty one" : found);
    tn_selector *on = tn_alloc(1, sizeof *on);
    if (!on)
        return tn_place_no_memory(err);
    int32_t status = read_conditions(node, on, err);
    if (status)
        tn_selector_free(on);
    else
        *ret = on;
    return status;
}

void tn_selector_free(tn_selector *on)
{
    for (size_t i = 0; on && on->names && i < on->name_count; i++)
        tn_free(on->names[i]);
    if (on)
        tn_free(on->names);
    tn_free(on);
}

/* ---- printing ---- */

static void print_roles(const tn_selector *on, tn_text *text)
{
    const char *before = "role: [";
    for (size_t i = 0; i < TN_COUNT(roles); i++)
        if (on->roles >> i & 1) {
            tn_text_addf(text, "%s%s", before, roles[i]);
            before = ", ";
        }
    tn_text_char(text, ']');
}

static void print_names(const tn_selector *on, tn_text *text)
{
    for (size_t i = 0; i < on->name_count; i++) {
        tn_text_add(text, i ? ", " : "name: [");
        tn_text_json(text, on->names[i]);
    }
    tn_text_char(text, ']');
}

void tn_selector_print(const tn_selector *on, tn_text *text)
{
    tn_text_char(text, '{');
    if (on->roles)
        print_roles(on, text);
    if (on->roles && (on->name_count || on->most_axes))
        tn_text_add(text, ", ");
    if (on->name_count)
        print_names(on, text);
    if (on->name_count && on->most_axes)
        tn_text_add(text, ", ");
    if (on->most_axes && on->least_axes == on->most_axes)
        tn_text_addf(text, "axes: %d", on->most_axes);
    else if (on->most_axes)
        tn_text_addf(text, "axes: [%d, %d]", on->least_axes, on->most_axes);
    tn_text_char(text, '}');
}
