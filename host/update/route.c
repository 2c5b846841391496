/* SPDX-License-Identifier: Apache-2.0
 *
 * route.c: which parameters each link is on, and the order of the links.
 */
#include <string.h>

#include "host/base/memory.h"
#include "host/base/text.h"
#include "host/update/internal.h"

/* ---- the order of the links ---- */

static int32_t check_handle(const tn_chain *chain, size_t i, tn_error *err)
{
    for (size_t j = 0; j < i; j++)
        if (tn_name_equal(chain->links[j].instance->handle, chain->links[i].instance->handle))
            return tn_error_set(err, TN_E_INVALID,
                                "%s: a link before it is also called '%s'; give one of them another name with `as:`",
                                chain->links[i].instance->path, chain->links[i].instance->handle);
    return TN_OK;
}

static int32_t check_stage(const tn_link *before, const tn_link *link, tn_error *err)
{
    if (before->stage <= link->stage)
        return TN_OK;
    return tn_error_set(err, TN_E_INVALID,
                        "%s stands behind %s, needed the order source, gradient, rule, update, write, after; move it",
                        link->instance->path, before->instance->path);
}

static int32_t check_writers(const tn_chain *chain, const tn_link *a, const tn_link *b, tn_error *err)
{
    for (int64_t i = 0; i < chain->parameters->count && a->stage == TN_LINK_WRITE && b->stage == TN_LINK_WRITE; i++)
        if (a->active[i] && b->active[i])
            return tn_error_set(err, TN_E_INVALID,
                                "%s and %s both write the parameter '%s', needed at most one; remove one, or keep them "
                                "apart with `on:`",
                                a->instance->path, b->instance->path, chain->parameters->list[i].name);
    return TN_OK;
}

/* A minimizer moves p by itself, at once. */
static int32_t check_minimizer(const tn_chain *chain, const tn_link *link, tn_error *err)
{
    for (size_t i = 0; i < chain->link_count && tn_is_minimizer(link->instance); i++)
        if (&chain->links[i] != link && chain->links[i].stage != TN_LINK_AFTER)
            return tn_error_set(err, TN_E_INVALID,
                                "%s moves the parameters by itself, needed no other links than averages of stage "
                                "after; remove %s",
                                link->instance->path, chain->links[i].instance->path);
    return TN_OK;
}

int32_t tn_route_order(const tn_chain *chain, tn_error *err)
{
    int32_t status = TN_OK;
    for (size_t i = 0; i < chain->link_count && !status; i++) {
        status = check_handle(chain, i, err);
        if (!status && i)
            status = check_stage(&chain->links[i - 1], &chain->links[i], err);
        if (!status)
            status = check_minimizer(chain, &chain->links[i], err);
        for (size_t j = 0; j < i && !status; j++)
            status = check_writers(chain, &chain->links[j], &chain->links[i], err);
    }
    return status;
}

/* ---- routes ---- */

/* The rule that takes what no other does; *ret_rules: how many rules there are. */
static int32_t find_default(const tn_chain *chain, tn_link **ret, size_t *ret_rules, tn_error *err)
{
    tn_link *rest = NULL;
    size_t rules = 0;
    for (tn_link *link = chain->links; link < chain->links + chain->link_count; link++) {
        rules += link->stage == TN_LINK_RULE;
        if (link->stage != TN_LINK_RULE || link->instance->on)
            continue;
        if (rest)
            return tn_error_set(err, TN_E_INVALID,
                                "%s and %s are both rules for all parameters, needed exactly one; remove one, or say "
                                "with `on:` which parameters it is for",
                                rest->instance->path, link->instance->path);
        rest = link;
    }
    *ret = rest;
    *ret_rules = rules;
    return rules ? TN_OK
                 : tn_error_set(err, TN_E_INVALID,
                                "update: no link is a rule, needed exactly one for each parameter; add one, such as "
                                "adamw");
}

static int32_t no_rule(const tn_parameter *parameter, tn_error *err)
{
    return tn_error_set(err, TN_E_INVALID,
                        "parameter '%s' (%d axes): no rule is on it, needed one; add a rule without `on:`, which takes "
                        "what the others leave, or widen the `on:` of one",
                        parameter->name, parameter->ndim);
}

/* Whose `on:` admits the parameter, else the default. */
static int32_t route_rules(const tn_chain *chain, tn_link *rest, int64_t i, tn_error *err)
{
    const tn_parameter *parameter = &chain->parameters->list[i];
    tn_link *rule = NULL;
    for (tn_link *link = chain->links; link < chain->links + chain->link_count; link++) {
        if (link->stage != TN_LINK_RULE || !link->instance->on || !tn_selector_admits(link->instance->on, parameter))
            continue;
        if (rule)
            return tn_error_set(err, TN_E_INVALID,
                                "parameter '%s' is on both rules, %s and %s, needed one; narrow the `on:` of one",
                                parameter->name, rule->instance->path, link->instance->path);
        rule = link;
    }
    rule = rule ? rule : rest;
    if (!rule)
        return no_rule(parameter, err);
    rule->active[i] = 1;
    return TN_OK;
}

static int32_t check_route(const tn_chain *chain, const tn_link *link, tn_error *err)
{
    if (link->first >= 0 || chain->parameters->count == 0)
        return TN_OK;
    if (!link->instance->on)
        return tn_error_set(err, TN_E_INVALID,
                            "%s: the rules with `on:` leave it none of the %d parameters; narrow the `on:` of one or "
                            "remove the link",
                            link->instance->path, (int)chain->parameters->count);
    return tn_error_set(err, TN_E_INVALID,
                        "%s: its `on:` admits none of the %d parameters, the first of which is '%s'; correct it or "
                        "remove the link",
                        link->instance->path, (int)chain->parameters->count, chain->parameters->list[0].name);
}

static void summarise(const tn_chain *chain, tn_link *link)
{
    link->first = -1;
    for (int64_t i = chain->parameters->count - 1; i >= 0; i--)
        if (link->active[i]) {
            link->first = i;
            link->shared |= chain->size > 1 && chain->parameters->list[i].replicas < chain->size;
        }
}

int32_t tn_route(tn_chain *chain, tn_error *err)
{
    tn_link *rest = NULL, *end = chain->links + chain->link_count;
    size_t rules = 0, count = (size_t)chain->parameters->count;
    int32_t status = find_default(chain, &rest, &rules, err);
    for (tn_link *link = chain->links; link < end && !status; link++) {
        if (!(link->active = tn_alloc(count, 1)))
            return tn_link_no_memory(link, err);
        for (size_t i = 0; i < count && link->stage != TN_LINK_RULE; i++)
            link->active[i] = tn_selector_admits(link->instance->on, &chain->parameters->list[i]) != 0;
    }
    for (size_t i = 0; i < count && !status; i++)
        status = route_rules(chain, rest, (int64_t)i, err);
    for (tn_link *link = chain->links; link < end && !status; link++) {
        summarise(chain, link);
        status = check_route(chain, link, err);
    }
    return status;
}
