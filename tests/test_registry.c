/* SPDX-License-Identifier: Apache-2.0
 *
 * test_registry.c: what is found where, what shadows what, and what is said about it.
 */
#include "host/plugin/registry.h"

#include <jansson.h>

#include "host/base/memory.h"
#include "host/plugin/search.h"
#include "tests/plugin_files.h"

/* Nothing is searched but what a test says (and what lies beside the test's own program). */
static void begin(void)
{
    make_directory();
    setenv("XDG_DATA_HOME", in_test("data"), 1);
    setenv("HOME", in_test("home"), 1);
    unsetenv("TENON_PLUGIN_PATH");
    unsetenv("TENON_TRUST_UID");
}

static tn_registry *open_registry(const char *plugin_path)
{
    tn_registry *registry = NULL;
    tn_error err;
    if (plugin_path)
        setenv("TENON_PLUGIN_PATH", plugin_path, 1);
    ck_ok(tn_registry_open(&kept, &registry, &err), err);
    return registry;
}

/* The i-th entry of a file in the test's directory, of `count`. */
static const tn_entry_info *own_entry(const tn_registry *registry, size_t i, size_t count)
{
    const tn_entry_info *found = NULL;
    size_t n = 0;
    for (size_t j = 0; j < tn_registry_count(registry); j++) {
        const tn_entry_info *entry = tn_registry_at(registry, j);
        if (strncmp(entry->path, test_directory, strlen(test_directory)) == 0 && n++ == i)
            found = entry;
    }
    ck_assert_uint_eq(n, count);
    return found;
}

static const tn_entry_info *find_good(const tn_registry *registry, const char *kind, const char *name,
                                      const char *device, uint32_t real)
{
    const tn_entry_info *entry = NULL;
    tn_error err;
    ck_ok(tn_registry_find(registry, kind, name, device, real, &entry, &err), err);
    return entry;
}

/* A file that is listed as optimizer/NAME but holds no code. */
static void put_optimizer(const char *file, const char *name)
{
    tn_note head = component_head("optimizer", TN_OPTIMIZER, name);
    write_plugin(in_test(file), &head);
}

/* ---- where ---- */

static int is_in(const tn_search *search, const char *directory)
{
    for (size_t i = 0; i < search->count; i++) {
        if (strcmp(search->directories[i], directory) == 0)
            return 1 + (int)i;
    }
    return 0;
}

START_TEST(search_path)
{
    char path[8 * PATH_MAX];
    tn_search search;
    tn_error err;
    make_subdirectory("a");
    make_subdirectory("b");
    make_subdirectory("data");
    make_subdirectory("data/tenon");
    make_subdirectory("data/tenon/plugins");
    ck_assert_int_eq(symlink("a", in_test("to-a")), 0);
    ck_assert_int_eq(chdir(test_directory), 0);
    snprintf(path, sizeof path, "%s::b:./b:%s:%s:%s:%s/", in_test("b"), in_test("missing"), in_test("to-a"),
             in_test("a"), in_test("b"));
    setenv("TENON_PLUGIN_PATH", path, 1);
    ck_ok(tn_search_path(0, &kept, &search, &err), err);
    ck_assert_int_eq(is_in(&search, in_test("b")), 1);
    ck_assert_int_eq(is_in(&search, in_test("a")), 2);
    ck_assert_int_eq(is_in(&search, in_test("data/tenon/plugins")), 3);
    for (size_t i = 3; i < search.count; i++) /* the rest is beside this program */
        ck_assert_msg(strncmp(search.directories[i], test_directory, strlen(test_directory)) != 0, "%s",
                      search.directories[i]);
    ck_assert_ptr_nonnull(strstr(log_text, "2 TENON_PLUGIN_PATH: '' is not an absolute"));
    ck_assert_ptr_nonnull(strstr(log_text, "2 TENON_PLUGIN_PATH: 'b' is not an absolute"));
    ck_assert_ptr_nonnull(strstr(log_text, "2 TENON_PLUGIN_PATH: './b' is not an absolute"));
    ck_assert_ptr_nonnull(strstr(log_text, "missing: not searched for plugins"));
    tn_search_free(&search);

    ck_ok(tn_search_path(1, NULL, &search, &err), err); /* as in a setuid program */
    ck_assert(!is_in(&search, in_test("a")) && !is_in(&search, in_test("b")));
    ck_assert(!is_in(&search, in_test("data/tenon/plugins")));
    tn_search_free(&search);
}
END_TEST

START_TEST(directory_of_the_user)
{
    tn_search search;
    tn_error err;
    make_subdirectory("home");
    make_subdirectory("home/.local");
    make_subdirectory("home/.local/share");
    make_subdirectory("home/.local/share/tenon");
    make_subdirectory("home/.local/share/tenon/plugins");
    ck_ok(tn_search_path(0, &kept, &search, &err), err);
    ck_assert(!is_in(&search, in_test("home/.local/share/tenon/plugins")));
    tn_search_free(&search);
    setenv("XDG_DATA_HOME", "relative", 1);
    ck_ok(tn_search_path(0, &kept, &search, &err), err);
    ck_assert_int_eq(is_in(&search, in_test("home/.local/share/tenon/plugins")), 1);
    tn_search_free(&search);
}
END_TEST

START_TEST(directory_beside_the_program)
{
    char own[PATH_MAX], path[PATH_MAX];
    tn_search search;
    tn_error err;
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    ck_assert_int_gt(n, 0);
    own[n] = 0;
    *strrchr(own, '/') = 0;
    ck_assert_int_lt(snprintf(path, sizeof path, "%s/tenon", own), (int)sizeof path);
    int made = mkdir(path, 0700) == 0;
    strcat(path, "/1");
    int inner = mkdir(path, 0700) == 0;
    ck_ok(tn_search_path(1, NULL, &search, &err), err);
    int found = is_in(&search, path);
    if (inner)
        rmdir(path);
    *strrchr(path, '/') = 0;
    if (made)
        rmdir(path);
    ck_assert_int_gt(found, 0);
    tn_search_free(&search);
}
END_TEST

START_TEST(no_directory_is_no_error)
{
    tn_registry *registry = open_registry(in_test("missing"));
    own_entry(registry, 0, 0);
    ck_assert_ptr_nonnull(strstr(log_text, "missing: not searched for plugins")); /* but worth a word */
    tn_registry_close(registry);
    tn_registry_close(NULL);
}
END_TEST

/* ---- what ---- */

START_TEST(files_of_a_directory)
{
    make_subdirectory("deeper");
    make_subdirectory("directory.so");
    put_optimizer("b.so", "beta_two");
    put_optimizer("a.so", "alpha");
    put_optimizer("deeper/c.so", "gamma");
    put_optimizer("d.so.1", "delta");
    copy_file(plain_library(), in_test("plain.so"));
    write_bytes(in_test("text.so"), "text", 4);
    ck_assert_int_eq(mkfifo(in_test("fifo.so"), 0600), 0);
    ck_assert_int_eq(symlink("gone", in_test("gone.so")), 0);
    tn_registry *registry = open_registry(test_directory);
    static const struct {
        const char *name, *file;
        int32_t state;
        const char *reason;
    } expected[] = {{"alpha", "a.so", TN_FOUND, ""},
                    {"beta-two", "b.so", TN_FOUND, ""},
                    {"", "directory.so", TN_REFUSED, "NOT_REGULAR: "},
                    {"", "fifo.so", TN_REFUSED, "NOT_REGULAR: "},
                    {"", "gone.so", TN_REFUSED, "ENOENT: "},
                    {"", "plain.so", TN_NOT_PLUGIN, ""},
                    {"", "text.so", TN_REFUSED, "NOT_ELF: "}};
    for (size_t i = 0; i < 7; i++) {
        const tn_entry_info *entry = own_entry(registry, i, 7);
        ck_assert_str_eq(entry->name, expected[i].name);
        ck_assert_str_eq(entry->path, in_test(expected[i].file));
        ck_assert_int_eq(entry->state, expected[i].state);
        ck_assert_msg(strncmp(entry->reason, expected[i].reason, strlen(expected[i].reason)) == 0, "%s", entry->reason);
    }
    const tn_entry_info *entry = own_entry(registry, 1, 7);
    ck_assert_str_eq(entry->kind, "optimizer");
    ck_assert_str_eq(entry->device, "cpu");
    ck_assert_uint_eq(entry->real, 32);
    ck_assert_str_eq(entry->plugin, "org.tenon.test");
    ck_assert_str_eq(entry->version, "1.2.3");
    ck_assert_str_eq(entry->summary, "a test");
    ck_assert_str_eq(entry->interface, TN_OPTIMIZER);
    tn_registry_close(registry);
}
END_TEST

START_TEST(listing_runs_no_code)
{
    copy_file(bad_plugin("abort-at-load"), in_test("abort-at-load.so"));
    copy_file(bad_plugin("exit-at-load"), in_test("exit-at-load.so"));
    copy_file(bad_plugin("isa-unknown"), in_test("isa-unknown.so"));
    tn_registry *registry = open_registry(test_directory);
    tn_text text = {0};
    tn_error err;
    for (size_t i = 0; i < 2; i++) {
        const tn_entry_info *entry = own_entry(registry, i, 3);
        ck_assert_int_eq(entry->state, TN_FOUND);
        ck_ok(tn_registry_info_text(registry, entry, &text, &err), err);
    }
    ck_assert_int_eq(own_entry(registry, 2, 3)->state, TN_REFUSED);
    ck_ok(tn_registry_list_json(registry, NULL, 1, &text, &err), err);
    ck_assert(!is_mapped("-at-load.so") && !is_mapped("isa-unknown.so"));
    tn_text_free(&text);
    tn_registry_close(registry);
}
END_TEST

START_TEST(refused_components_say_why)
{
    static const struct {
        const char *name, *code;
    } cases[] = {{"abi-major-new", "ABI_MAJOR: "}, {"abi-major-old", "ABI_MAJOR: "},   {"abi-minor-new", "ABI_MINOR: "},
                 {"draft-old", "INTERFACE: "},     {"interface-wrong", "INTERFACE: "}, {"isa-unknown", "WRONG_ISA: "}};
    char file[64];
    for (size_t i = 0; i < 6; i++) {
        snprintf(file, sizeof file, "%s.so", cases[i].name);
        copy_file(bad_plugin(cases[i].name), in_test(file));
    }
    tn_registry *registry = open_registry(test_directory);
    for (size_t i = 0; i < 6; i++) {
        const tn_entry_info *entry = own_entry(registry, i, 6), *found;
        const tn_component_info *info;
        tn_optimizer table;
        tn_error err;
        ck_assert_str_eq(entry->name, cases[i].name);
        ck_assert_int_eq(entry->state, TN_REFUSED);
        ck_assert_refused(tn_registry_find(registry, NULL, cases[i].name, NULL, 0, &found, &err), TN_E_PLUGIN, err,
                          cases[i].code, cases[i].name);
        ck_assert_refused(tn_registry_info(registry, entry, &info, &err), TN_E_PLUGIN, err, cases[i].code, "");
        ck_assert_refused(tn_registry_load(registry, entry, &table, sizeof table, &err), TN_E_PLUGIN, err,
                          cases[i].code, "");
    }
    tn_registry_close(registry);
}
END_TEST

/* ---- which of several ---- */

START_TEST(first_in_order_shadows)
{
    char path[3 * PATH_MAX];
    make_subdirectory("1");
    make_subdirectory("2");
    make_subdirectory("data");
    make_subdirectory("data/tenon");
    make_subdirectory("data/tenon/plugins");
    put_optimizer("data/tenon/plugins/a.so", "same");
    put_optimizer("1/z.so", "same");
    put_optimizer("1/y.so", "same");
    put_optimizer("2/a.so", "same");
    snprintf(path, sizeof path, "%s:%s", in_test("2"), in_test("1"));
    tn_registry *registry = open_registry(path);
    static const char *const order[] = {"2/a.so", "1/y.so", "1/z.so", "data/tenon/plugins/a.so"};
    for (size_t i = 0; i < 4; i++) {
        const tn_entry_info *entry = own_entry(registry, i, 4);
        ck_assert_str_eq(entry->path, in_test(order[i]));
        ck_assert_int_eq(entry->state, i == 0 ? TN_FOUND : TN_SHADOWED);
        ck_assert_str_eq(entry->reason, i == 0 ? "" : in_test(order[0]));
    }
    ck_assert_ptr_eq(find_good(registry, "optimizer", "same", "cpu", 32), own_entry(registry, 0, 4));

    tn_error err; /* a named file comes before all */
    put_optimizer("named", "same");
    ck_ok(tn_registry_add_file(registry, in_test("named"), &err), err);
    ck_assert_str_eq(find_good(registry, "optimizer", "same", "cpu", 32)->path, in_test("named"));
    ck_assert_int_eq(own_entry(registry, 1, 5)->state, TN_SHADOWED);
    ck_assert_str_eq(own_entry(registry, 1, 5)->reason, in_test("named"));
    ck_ok(tn_registry_add_file(registry, in_test("1/z.so"), &err), err); /* one that was found already */
    own_entry(registry, 0, 5);
    tn_registry_close(registry);
}
END_TEST

START_TEST(refused_one_shadows_nobody)
{
    tn_note head = component_head("optimizer", TN_OPTIMIZER, "same");
    head.abi_major = 2;
    write_plugin(in_test("a.so"), &head);
    put_optimizer("b.so", "same");
    tn_registry *registry = open_registry(test_directory);
    ck_assert_int_eq(own_entry(registry, 0, 2)->state, TN_REFUSED);
    ck_assert_str_eq(find_good(registry, NULL, "same", NULL, 0)->path, in_test("b.so"));
    tn_registry_close(registry);
}
END_TEST

START_TEST(same_file_is_listed_once)
{
    char path[6 * PATH_MAX];
    make_subdirectory("real");
    put_optimizer("real/a.so", "alpha");
    ck_assert_int_eq(symlink("a.so", in_test("real/b.so")), 0);
    ck_assert_int_eq(link(in_test("real/a.so"), in_test("real/c.so")), 0);
    ck_assert_int_eq(symlink("real", in_test("linked")), 0);
    snprintf(path, sizeof path, "%s:%s:%s", in_test("linked"), in_test("real"), in_test("real"));
    tn_registry *registry = open_registry(path);
    ck_assert_str_eq(own_entry(registry, 0, 1)->path, in_test("real/a.so"));
    ck_assert_int_eq(own_entry(registry, 0, 1)->state, TN_FOUND);
    copy_file(in_test("real/a.so"), in_test("real/d.so"));
    tn_registry_close(registry);
    registry = open_registry(NULL);
    ck_assert_int_eq(own_entry(registry, 1, 2)->state, TN_SHADOWED);
    tn_registry_close(registry);
}
END_TEST

/* ---- trust ---- */

START_TEST(untrusted_files_are_not_found)
{
    make_subdirectory("in");
    put_optimizer("in/a.so", "alpha");
    put_optimizer("in/b.so", "beta");
    ck_assert_int_eq(chmod(in_test("in/a.so"), 0622), 0);
    tn_registry *registry = open_registry(in_test("in"));
    const tn_entry_info *entry;
    tn_error err;
    ck_assert_int_eq(own_entry(registry, 0, 2)->state, TN_REFUSED);
    ck_assert_int_eq(own_entry(registry, 1, 2)->state, TN_FOUND);
    ck_assert_refused(tn_registry_find(registry, NULL, "alpha", NULL, 0, &entry, &err), TN_E_PLUGIN, err,
                      "UNTRUSTED_PATH: ", "a.so: mode 0622");
    ck_ok(tn_registry_add_file(registry, in_test("in/a.so"), &err), err); /* named: warned about, but used */
    ck_assert_ptr_nonnull(strstr(log_text, "2 UNTRUSTED_PATH: "));
    ck_assert_int_eq(find_good(registry, NULL, "alpha", NULL, 0)->state, TN_FOUND);
    tn_registry_close(registry);
}
END_TEST

START_TEST(untrusted_directories_and_targets)
{
    make_subdirectory("open");
    make_subdirectory("in");
    put_optimizer("open/a.so", "alpha");
    ck_assert_int_eq(symlink("../open/a.so", in_test("in/a.so")), 0);
    ck_assert_int_eq(chmod(in_test("open"), 0777), 0);
    tn_registry *registry = open_registry(in_test("open"));
    ck_assert_int_eq(own_entry(registry, 0, 1)->state, TN_REFUSED);
    ck_assert_ptr_nonnull(strstr(own_entry(registry, 0, 1)->reason, "UNTRUSTED_PATH: "));
    tn_registry_close(registry);
    registry = open_registry(in_test("in")); /* the link is fine, its target is not */
    ck_assert_int_eq(own_entry(registry, 0, 1)->state, TN_REFUSED);
    ck_assert_ptr_nonnull(strstr(own_entry(registry, 0, 1)->reason, "mode 0777"));
    tn_registry_close(registry);
    ck_assert_int_eq(chmod(in_test("open"), 01777), 0);
    registry = open_registry(in_test("open")); /* others could add files */
    ck_assert_int_eq(own_entry(registry, 0, 1)->state, TN_REFUSED);
    tn_registry_close(registry);
    registry = open_registry(in_test("in")); /* but they can not replace this one */
    ck_assert_int_eq(own_entry(registry, 0, 1)->state, TN_FOUND);
    tn_registry_close(registry);
}
END_TEST

START_TEST(trusted_path_redeems_a_file)
{
    char path[2 * PATH_MAX + 1];
    make_subdirectory("open");
    make_subdirectory("in");
    put_optimizer("in/a.so", "alpha");
    ck_assert_int_eq(link(in_test("in/a.so"), in_test("open/a.so")), 0);
    ck_assert_int_eq(chmod(in_test("open"), 0777), 0);
    snprintf(path, sizeof path, "%s:%s", in_test("open"), in_test("in"));
    tn_registry *registry = open_registry(path);
    ck_assert_int_eq(own_entry(registry, 0, 1)->state, TN_FOUND);
    ck_assert_str_eq(own_entry(registry, 0, 1)->path, in_test("in/a.so"));
    tn_registry_close(registry);
}
END_TEST

START_TEST(trust_is_examined_again_when_loading)
{
    copy_file(bad_plugin("good-one"), in_test("a.so"));
    tn_registry *registry = open_registry(test_directory);
    tn_optimizer table;
    tn_error err;
    ck_assert_int_eq(chmod(in_test("a.so"), 0666), 0);
    ck_assert_refused(tn_registry_load(registry, own_entry(registry, 0, 1), &table, sizeof table, &err), TN_E_PLUGIN,
                      err, "UNTRUSTED_PATH: ", "a.so");
    ck_assert(!is_mapped(in_test("a.so")));
    tn_registry_close(registry);
}
END_TEST

/* ---- finding ---- */

START_TEST(find_by_name)
{
    tn_note head = component_head("optimizer", TN_OPTIMIZER, "weight_decay");
    write_plugin(in_test("a.so"), &head);
    head.real = 64;
    write_plugin(in_test("b.so"), &head);
    head = component_head("transform", TN_OPTIMIZER, "clip");
    head.real = 0;
    write_plugin(in_test("c.so"), &head);
    head = component_head("gadget", "org.example.gadget/1", "clip");
    write_plugin(in_test("d.so"), &head);
    tn_registry *registry = open_registry(test_directory);
    const tn_entry_info *entry;
    tn_error err;
    ck_assert_str_eq(find_good(registry, "optimizer", "weight-decay", "cpu", 64)->path, in_test("b.so"));
    ck_assert_str_eq(find_good(registry, "optimizer", "weight_decay", "cpu", 32)->path, in_test("a.so"));
    ck_assert_str_eq(find_good(registry, NULL, "weight_decay", NULL, 0)->path, in_test("a.so"));
    ck_assert_str_eq(find_good(registry, "transform", "clip", "cpu", 64)->path, in_test("c.so"));
    ck_assert_str_eq(find_good(registry, "transform", "clip", "cpu", 32)->path, in_test("c.so"));
    ck_assert_refused(tn_registry_find(registry, NULL, "clip", NULL, 0, &entry, &err), TN_E_INVALID, err, "'clip'",
                      "gadget/clip (cpu f32), transform/clip (cpu)");
    ck_assert_refused(tn_registry_find(registry, NULL, "weight-decoy", NULL, 0, &entry, &err), TN_E_NOT_FOUND, err,
                      "no component named 'weight-decoy'", "did you mean 'weight-decay'?");
    ck_assert_refused(tn_registry_find(registry, "optimizer", "clip", "cpu", 32, &entry, &err), TN_E_NOT_FOUND, err,
                      "no optimizer named 'clip' for cpu f32", "there is gadget/clip (cpu f32), transform/clip (cpu)");
    ck_assert_refused(tn_registry_find(registry, "optimizer", "weight_decay", "cuda", 0, &entry, &err), TN_E_NOT_FOUND,
                      err, "no optimizer named", "optimizer/weight-decay (cpu f32), optimizer/weight-decay (cpu f64)");
    ck_assert_refused(tn_registry_find(registry, "gadgt", "x", NULL, 0, &entry, &err), TN_E_NOT_FOUND, err,
                      "no component of the kind 'gadgt'", "did you mean 'gadget'?");
    ck_assert_refused(tn_registry_find(registry, "gadget", "weight-decoy", NULL, 0, &entry, &err), TN_E_NOT_FOUND, err,
                      "no gadget named", "see: tenon list");
    ck_assert_ptr_null(strstr(err.msg, "did you mean"));
    tn_registry_close(registry);
}
END_TEST

/* ---- files the user names ---- */

START_TEST(named_files_that_can_not_be_used)
{
    tn_registry *registry = open_registry(NULL);
    size_t before = tn_registry_count(registry);
    tn_error err;
    write_bytes(in_test("text"), "text", 4);
    ck_assert_refused(tn_registry_add_file(registry, in_test("text"), &err), TN_E_PLUGIN, err, "NOT_ELF: ", "text");
    ck_assert_refused(tn_registry_add_file(registry, in_test("gone"), &err), TN_E_NOT_FOUND, err, "ENOENT: ", "gone");
    ck_assert_refused(tn_registry_add_file(registry, plain_library(), &err), TN_E_PLUGIN, err, "NOT_PLUGIN: ", "libc");
    ck_assert_uint_eq(tn_registry_count(registry), before);
    ck_ok(tn_registry_add_file(registry, bad_plugin("abi-major-new"), &err), err); /* an entry, refused */
    ck_assert_uint_eq(tn_registry_count(registry), before + 1);
    tn_registry_close(registry);
}
END_TEST

/* ---- info and loading ---- */

START_TEST(info_and_load)
{
    copy_file(adamw_plugin(), in_test("adamw.so"));
    tn_registry *registry = open_registry(test_directory);
    const tn_entry_info *entry = find_good(registry, "optimizer", "adamw", "cpu", 32);
    const tn_component_info *info, *again;
    tn_optimizer table;
    tn_error err;
    ck_ok(tn_registry_info(registry, entry, &info, &err), err);
    ck_assert_uint_eq(info->row_count, 6);
    ck_assert_uint_eq(info->hyper_size, 48);
    ck_ok(tn_registry_info(registry, entry, &again, &err), err);
    ck_assert_ptr_eq(info, again);
    ck_assert(!is_mapped(in_test("adamw.so")));
    ck_ok(tn_registry_load(registry, entry, &table, sizeof table, &err), err);
    ck_assert(is_mapped(in_test("adamw.so")));
    ck_assert_uint_eq(table.struct_size, sizeof table);
    ck_assert(table.begin != NULL && table.update != NULL && table.plan == NULL);
    tn_registry_close(registry);
    ck_assert(is_mapped(in_test("adamw.so"))); /* for good */
}
END_TEST

START_TEST(unknown_facts_are_not_loaded)
{
    copy_file(bad_plugin("fact-unknown"), in_test("a.so"));
    copy_file(bad_plugin("default-outside"), in_test("b.so"));
    tn_registry *registry = open_registry(test_directory);
    tn_optimizer table;
    tn_error err;
    ck_assert_refused(
        tn_registry_load(registry, find_good(registry, NULL, "fact-unknown", NULL, 0), &table, sizeof table, &err),
        TN_E_PLUGIN, err, "NOTE_UNKNOWN: ", "teleports");
    ck_assert_refused(
        tn_registry_load(registry, find_good(registry, NULL, "default-outside", NULL, 0), &table, sizeof table, &err),
        TN_E_PLUGIN, err, "NOTE_INVALID: ", "default '-1', needed [0, inf)");
    ck_assert(!is_mapped(test_directory));
    tn_registry_close(registry);
}
END_TEST

START_TEST(files_that_change_between_list_and_load)
{
    static const char *const names[] = {"a.so", "b.so", "c.so"};
    for (size_t i = 0; i < 3; i++)
        copy_file(bad_plugin(i == 0 ? "good-one" : i == 1 ? "flush-to-zero" : "table-size-short"), in_test(names[i]));
    tn_registry *registry = open_registry(test_directory);
    const tn_component_info *info;
    tn_optimizer table;
    tn_error err;
    const tn_entry_info *replaced = find_good(registry, NULL, "good-one", NULL, 0);
    const tn_entry_info *cut = find_good(registry, NULL, "flush-to-zero", NULL, 0);
    const tn_entry_info *removed = find_good(registry, NULL, "table-size-short", NULL, 0);
    copy_file(adamw_plugin(), in_test("new"));
    ck_assert_int_eq(rename(in_test("new"), in_test("a.so")), 0);
    ck_assert_int_eq(truncate(in_test("b.so"), 4096), 0);
    ck_assert_int_eq(unlink(in_test("c.so")), 0);
    ck_assert_refused(tn_registry_info(registry, replaced, &info, &err), TN_E_PLUGIN, err, "STALE: ", "a.so");
    ck_assert_refused(tn_registry_load(registry, replaced, &table, sizeof table, &err), TN_E_PLUGIN, err,
                      "STALE: ", "a.so");
    ck_assert_refused(tn_registry_load(registry, cut, &table, sizeof table, &err), TN_E_PLUGIN, err, "STALE: ", "b.so");
    ck_assert_refused(tn_registry_load(registry, removed, &table, sizeof table, &err), TN_E_NOT_FOUND, err,
                      "ENOENT: ", "c.so");
    tn_registry_close(registry);
    registry = open_registry(NULL); /* a new scan sees what is there now */
    find_good(registry, "optimizer", "adamw", "cpu", 32);
    tn_registry_close(registry);
}
END_TEST

/* ---- what is shown ---- */

/* The shown object of a file in the test's directory. */
static json_t *shown_object(json_t *list, const char *file)
{
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) {
        if (strcmp(json_string_value(json_object_get(item, "path")), in_test(file)) == 0)
            return item;
    }
    return NULL;
}

START_TEST(list_as_json)
{
    put_optimizer("a.so", "alpha");
    put_optimizer("b.so", "alpha");
    copy_file(plain_library(), in_test("plain.so"));
    write_bytes(in_test("quo\"te.so"), "text", 4);
    tn_registry *registry = open_registry(test_directory);
    tn_text text = {0};
    tn_error err;
    ck_ok(tn_registry_list_json(registry, NULL, 1, &text, &err), err);
    json_t *list = json_loads(tn_text_string(&text), JSON_REJECT_DUPLICATES, NULL);
    ck_assert_ptr_nonnull(list);
    json_t *expected =
        json_pack("{s:s,s:s,s:s,s:i,s:s,s:s,s:s,s:s,s:s,s:s,s:s}", "kind", "optimizer", "name", "alpha", "device",
                  "cpu", "real", 32, "plugin", "org.tenon.test", "version", "1.2.3", "summary", "a test", "interface",
                  TN_OPTIMIZER, "path", in_test("b.so"), "state", "shadowed", "reason", in_test("a.so"));
    ck_assert(json_equal(shown_object(list, "b.so"), expected));
    ck_assert_str_eq(json_string_value(json_object_get(shown_object(list, "a.so"), "state")), "found");
    ck_assert_str_eq(json_string_value(json_object_get(shown_object(list, "plain.so"), "state")), "not a tenon plugin");
    ck_assert_str_eq(json_string_value(json_object_get(shown_object(list, "quo\"te.so"), "state")), "refused");
    json_decref(expected);
    json_decref(list);
    tn_text_free(&text);
    ck_ok(tn_registry_list_json(registry, NULL, 0, &text, &err), err);
    list = json_loads(tn_text_string(&text), 0, NULL);
    ck_assert_ptr_null(shown_object(list, "plain.so"));
    ck_assert_ptr_nonnull(shown_object(list, "b.so"));
    json_decref(list);
    tn_text_free(&text);
    ck_assert_refused(tn_registry_list_json(registry, "no-such-kind", 1, &text, &err), TN_E_NOT_FOUND, err,
                      "no component of the kind 'no-such-kind'", "tenon list");
    tn_text_free(&text);
    tn_registry_close(registry);
}
END_TEST

START_TEST(list_as_text)
{
    tn_note head = component_head("gadget", "org.example.gadget/1", "short");
    head.real = 0;
    write_plugin(in_test("a.so"), &head);
    head = component_head("gadget", "org.example.gadget/1", "a_longer_name");
    write_plugin(in_test("b.so"), &head);
    write_plugin(in_test("c.so"), &head);
    tn_registry *registry = open_registry(test_directory);
    tn_text text = {0};
    char expected[4 * PATH_MAX];
    tn_error err;
    ck_ok(tn_registry_list_text(registry, "gadget", 0, &text, &err), err);
    snprintf(expected, sizeof expected,
             "KIND    NAME           DEVICE  REAL  VERSION  SUMMARY\n"
             "gadget  a-longer-name  cpu     f32   1.2.3    a test\n"
             "gadget  short          cpu     -     1.2.3    a test\n"
             "shadowed: gadget/a-longer-name (cpu f32): %s by %s\n",
             in_test("c.so"), in_test("b.so"));
    ck_assert_str_eq(tn_text_string(&text), expected);
    tn_text_free(&text);
    tn_registry_close(registry);
}
END_TEST

START_TEST(info_as_json_and_text)
{
    copy_file(adamw_plugin(), in_test("adamw.so"));
    tn_registry *registry = open_registry(test_directory);
    const tn_entry_info *entry = find_good(registry, "optimizer", "adamw", "cpu", 32);
    tn_text text = {0};
    tn_error err;
    ck_ok(tn_registry_info_json(registry, entry, &text, &err), err);
    json_t *info = json_loads(tn_text_string(&text), JSON_REJECT_DUPLICATES, NULL);
    ck_assert_ptr_nonnull(info);
    json_t *lr = json_array_get(json_object_get(info, "hyper"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(lr, "default")), "1e-3");
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(info, "facts"), "grain")), "element");
    ck_assert_str_eq(json_string_value(json_object_get(info, "abi")), "1.0");
    ck_assert_str_eq(json_string_value(json_object_get(info, "licence")), "Apache-2.0");
    json_decref(info);
    tn_text_free(&text);
    ck_ok(tn_registry_info_text(registry, entry, &text, &err), err);
    static const char *const parts[] = {
        "optimizer/adamw (cpu f32): Adam with decoupled weight decay\n",
        "\nstage       rule\n",
        "\ngrain       element\n",
        "\nformula     p = ",
        "\nABI         1.0\n",
        "\nlr            real    1e-3     [0, inf)       step size\n",
        "\nslots\nname  shape  init  flags        doc\nm     like   zero  signed       mean of the gradient\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        ck_assert_msg(strstr(tn_text_string(&text), parts[i]) != NULL, "no '%s' in %s", parts[i],
                      tn_text_string(&text));
    tn_text_free(&text);
    tn_registry_close(registry);
}
END_TEST

/* ---- memory ---- */

static int32_t everything(tn_registry **ret)
{
    tn_text text = {0};
    const tn_entry_info *entry;
    const tn_component_info *info;
    int32_t status = tn_registry_open(NULL, ret, NULL);
    if (!status)
        status = tn_registry_add_file(*ret, in_test("named"), NULL);
    if (!status)
        status = tn_registry_find(*ret, NULL, "named", NULL, 0, &entry, NULL);
    if (!status)
        status = tn_registry_info(*ret, entry, &info, NULL);
    if (!status && tn_registry_find(*ret, NULL, "namd", NULL, 0, &entry, NULL) == TN_E_MEMORY)
        status = TN_E_MEMORY;
    if (!status)
        status = tn_registry_list_text(*ret, NULL, 1, &text, NULL);
    if (!status)
        status = tn_registry_list_json(*ret, NULL, 1, &text, NULL);
    tn_text_free(&text);
    return status;
}

START_TEST(out_of_memory_at_each_allocation)
{
    int32_t status = TN_E_MEMORY;
    make_subdirectory("in");
    put_optimizer("in/a.so", "alpha");
    put_optimizer("in/b.so", "alpha");
    put_optimizer("named", "named");
    write_bytes(in_test("in/text.so"), "text", 4);
    ck_assert_int_eq(symlink("gone", in_test("in/gone.so")), 0);
    ck_assert_int_eq(chmod(in_test("in/b.so"), 0666), 0);
    setenv("TENON_PLUGIN_PATH", in_test("in"), 1);
    int64_t n = 0;
    for (; status; n++) {
        tn_registry *registry = NULL;
        tn_memory_fail_at(n);
        status = everything(&registry);
        tn_memory_fail_at(-1);
        ck_assert_msg(status == TN_OK || status == TN_E_MEMORY, "%s", tn_status_name(status));
        ck_assert_int_lt(n, 20000);
        tn_registry_close(registry);
    }
    ck_assert_int_gt(n, 40);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {search_path,
                                  directory_of_the_user,
                                  directory_beside_the_program,
                                  no_directory_is_no_error,
                                  files_of_a_directory,
                                  listing_runs_no_code,
                                  refused_components_say_why,
                                  first_in_order_shadows,
                                  refused_one_shadows_nobody,
                                  same_file_is_listed_once,
                                  untrusted_files_are_not_found,
                                  untrusted_directories_and_targets,
                                  trusted_path_redeems_a_file,
                                  trust_is_examined_again_when_loading,
                                  find_by_name,
                                  named_files_that_can_not_be_used,
                                  info_and_load,
                                  unknown_facts_are_not_loaded,
                                  files_that_change_between_list_and_load,
                                  list_as_json,
                                  list_as_text,
                                  info_as_json_and_text,
                                  out_of_memory_at_each_allocation};
    Suite *suite = suite_create("registry");
    TCase *all = tcase_create("registry");
    tcase_set_timeout(all, 60);
    tcase_add_checked_fixture(all, begin, remove_directory);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_test(all, tests[i]);
    suite_add_tcase(suite, all);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed ? 1 : 0;
}
