/* SPDX-License-Identifier: Apache-2.0
 *
 * component.h: one component under test: its table, and an instance at the defaults of its note, changed by text as an
 * experiment would. Failures end the test.
 */
#ifndef TENON_TESTS_COMPONENT_H
#define TENON_TESTS_COMPONENT_H

#include "host/experiment/instance.h"
#include "tests/support.h"

/* `real` 0: the component does not depend on it. `table` begins with struct_size. tn_instance_free when done. */
static inline tn_instance *component_open(const char *kind, const char *name, uint32_t real, void *table, size_t size)
{
    tn_instance *instance = NULL;
    tn_error err = {0};
    ck_ok(tn_instance_create(test_plugins(), kind, name, real ? real : 32, name, NULL, 0, &instance, &err), err);
    ck_assert_uint_eq(instance->info->real, real);
    ck_ok(tn_instance_load(instance, test_plugins(), table, size, &err), err);
    return instance;
}

static inline void component_set(tn_instance *instance, const char *row, const char *text)
{
    tn_error err = {0};
    ck_ok(tn_instance_set(instance, test_plugins(), row, text, &err), err);
}

#endif
