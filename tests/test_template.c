/* SPDX-License-Identifier: Apache-2.0
 *
 * test_template.c: plugins to begin with, where memory runs out: nothing half is left behind. What they are and whether
 * they work is in test_new.py.
 */
#include <dirent.h>
#include <fcntl.h>

#include "host/base/memory.h"
#include "host/plugin/template.h"
#include "tests/support.h"

/* Templates stand beside the file that holds the host's code: here, this program. */
static void link_templates(void)
{
    char own[PATH_MAX], source[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 10);
    ck_assert_int_gt(n, 0);
    own[n] = 0;
    strcpy(strrchr(own, '/'), "/template");
    snprintf(source, sizeof source, "%s/../sdk/template", test_env("TENON_TEST_DOCS"));
    ck_assert_msg(symlink(source, own) == 0 || errno == EEXIST, "%s: %s", own, strerror(errno));
}

static int entries(const char *folder)
{
    int count = -2; /* . and .. */
    DIR *dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

START_TEST(no_memory_leaves_nothing)
{
    char folder[PATH_MAX];
    const char *const kinds[] = {"optimizer", "optimiser"}; /* the second one is refused, with a list */
    tn_error err;
    link_templates();
    make_directory();
    snprintf(folder, sizeof folder, "%s/new", test_directory);
    for (int which = 0; which < 2; which++) {
        const tn_template what = {kinds[which], "my-rule", "c++", folder};
        int32_t status = TN_E_MEMORY;
        int64_t failed = 0;
        for (int64_t nth = 0; status == TN_E_MEMORY; nth++) {
            tn_templated made;
            tn_memory_fail_at(nth);
            status = tn_template_write(&what, &made, &err);
            tn_memory_fail_at(-1);
            failed += status == TN_E_MEMORY;
            if (status == TN_E_MEMORY)
                ck_assert_int_eq(entries(test_directory), which);
            if (status == TN_OK) {
                ck_assert_str_eq(made.folder, folder);
                ck_assert_int_eq(entries(folder), 7);
                tn_templated_free(&made);
            }
        }
        ck_assert_int_eq(status, which ? TN_E_NOT_FOUND : TN_OK);
        ck_assert_int_eq(failed > 20, !which);
    }
    remove_directory();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("template");
    TCase *tests = tcase_create("template");
    tcase_add_test(tests, no_memory_leaves_nothing);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
