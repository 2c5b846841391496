/* SPDX-License-Identifier: Apache-2.0
 *
 * selector.c: which parameters `on:` of a link admits.
 */
#include <fnmatch.h>

#include "host/experiment/instance.h"

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
