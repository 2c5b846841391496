/* SPDX-License-Identifier: Apache-2.0
 *
 * support.h: what all tests share: the environment, plugins, a temporary folder, bits, checks, main. Failures end the
 * test.
 *
 * The build names folders in the environment: TENON_TEST_GOOD the built plugins, TENON_TEST_PLUGINS those made for
 * tests, TENON_TEST_BAD those made to be wrong, TENON_TEST_GOLDEN the golden files, TENON_TEST_DOCS the documentation.
 */
#ifndef TENON_TESTS_SUPPORT_H
#define TENON_TESTS_SUPPORT_H

#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/base/error.h"
#include "host/plugin/registry.h"

/* ---- checks ---- */

#define ck_ok(call, err)                                                                                               \
    do {                                                                                                               \
        int32_t status_ = (call);                                                                                      \
        if (status_ != TN_OK)                                                                                          \
            ck_abort_msg(#call ": %s: %s", tn_status_name(status_), (err).msg);                                        \
    } while (0)

/* The call failed with this status, its message begins with `reason` and holds `part`. */
#define ck_assert_refused(call, expected, err, reason, part)                                                           \
    do {                                                                                                               \
        int32_t status_ = (call);                                                                                      \
        ck_assert_msg(status_ == (expected), "%s, expected %s: %s", tn_status_name(status_), tn_status_name(expected), \
                      status_ ? (err).msg : "");                                                                       \
        ck_assert_int_eq((err).code, (expected));                                                                      \
        ck_assert_msg(strncmp((err).msg, reason, strlen(reason)) == 0, "no %s: %s", reason, (err).msg);                \
        ck_assert_msg(strstr((err).msg, part) != NULL, "no '%s': %s", part, (err).msg);                                \
    } while (0)

/* For loops over elements: Check's own assertions report each pass. */
#define expect(condition, ...)                                                                                         \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            ck_abort_msg(__VA_ARGS__);                                                                                 \
    } while (0)

/* ---- the environment ---- */

static inline const char *test_env(const char *name)
{
    const char *value = getenv(name);
    if (!value)
        ck_abort_msg("the environment lacks %s; run the tests through `meson test`", name);
    return value;
}

/* The file `name` of $variable, which can be read; valid for seven further calls. */
static inline const char *test_path(const char *variable, const char *name)
{
    static char paths[8][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof *paths, "%s/%s", test_env(variable), name);
    ck_assert_msg(access(path, R_OK) == 0, "%s: %s", path, strerror(errno));
    return path;
}

/* What a file of golden values holds behind `key`, or all of it (NULL). The caller owns it. */
static inline json_t *test_golden(const char *name, const char *key)
{
    json_error_t error;
    json_t *root = json_load_file(test_path("TENON_TEST_GOLDEN", name), JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(root != NULL, "%s: %s", name, error.text);
    if (!key)
        return root;
    json_t *value = json_incref(json_object_get(root, key));
    ck_assert_msg(value != NULL, "%s holds no '%s'", name, key);
    json_decref(root);
    return value;
}

/* ---- plugins ---- */

/* A registry of the built plugins and, when `extra` is not NULL, of those in $extra first. */
static inline tn_registry *test_registry(const char *extra)
{
    tn_registry *registry = NULL;
    tn_error err = {0};
    char path[8192];
    snprintf(path, sizeof path, "%s%s%s", extra ? test_env(extra) : "", extra ? ":" : "", test_env("TENON_TEST_GOOD"));
    setenv("TENON_PLUGIN_PATH", path, 1);
    ck_ok(tn_registry_open(NULL, &registry, &err), err);
    return registry;
}

/* The built plugins: one registry for the whole process. */
static inline tn_registry *test_plugins(void)
{
    static tn_registry *registry;
    if (!registry)
        registry = test_registry(NULL);
    return registry;
}

/* ---- a temporary folder, one at a time ---- */

static char test_directory[PATH_MAX];

static inline void make_directory(void)
{
    strcpy(test_directory, "/tmp/tenon-test-XXXXXX");
    ck_assert_msg(mkdtemp(test_directory) != NULL, "mkdtemp: %s", strerror(errno));
}

static inline int remove_one(const char *path, const struct stat *stat, int type, struct FTW *walk)
{
    (void)stat, (void)type, (void)walk;
    return remove(path);
}

static inline void remove_directory(void)
{
    ck_assert_int_eq(nftw(test_directory, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* directory/name; valid for seven further calls. */
static inline const char *in_test(const char *name)
{
    static char paths[8][2 * PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof *paths, "%s/%s", test_directory, name);
    return path;
}

static inline void write_bytes(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    ck_assert_msg(file != NULL, "%s: %s", path, strerror(errno));
    ck_assert_uint_eq(fwrite(bytes, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(path, 0600), 0);
}

static inline void write_text(const char *path, const char *text) { write_bytes(path, text, strlen(text)); }

/* ---- bits ---- */

static inline uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* xorshift64*: the tests' own source of bits. */
static inline uint64_t random_bits(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 2685821657736338717u;
}

/* ---- main ---- */

static inline int test_main(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

#endif
