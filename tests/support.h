/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests that use real plugins share. TENON_TEST_GOOD is the folder of the built plugins, TENON_TEST_PLUGINS the
 * one of the plugins made for tests, TENON_TEST_DATA the one of golden files; the build sets all three.
 */
#ifndef TESTS_SUPPORT_H
#define TESTS_SUPPORT_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "host/plugin/registry.h"

static inline __attribute__((unused)) const char *test_env(const char *name)
{
    const char *value = getenv(name);
    if (!value)
        ck_abort_msg("the environment lacks %s; run the tests through `meson test`", name);
    return value;
}

/* A registry of the built plugins and, when `extra` is not NULL, of those in $extra first. */
static inline __attribute__((unused)) tn_registry *test_registry(const char *extra)
{
    tn_registry *registry = NULL;
    tn_error err = {0};
    char path[8192];
    snprintf(path, sizeof path, "%s%s%s", extra ? test_env(extra) : "", extra ? ":" : "", test_env("TENON_TEST_GOOD"));
    setenv("TENON_PLUGIN_PATH", path, 1);
    if (tn_registry_open(NULL, &registry, &err) != TN_OK)
        ck_abort_msg("registry: %s", err.msg);
    return registry;
}

static inline __attribute__((unused)) int test_main(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

#define ck_ok(call, err)                                                                                               \
    do {                                                                                                               \
        int32_t status_ = (call);                                                                                      \
        if (status_ != TN_OK)                                                                                          \
            ck_abort_msg(#call ": %d: %s", (int)status_, (err).msg);                                                   \
    } while (0)

#endif
