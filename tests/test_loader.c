/* SPDX-License-Identifier: Apache-2.0
 *
 * test_loader.c: mapping plugins, good and bad. Each test runs in a process of its own, so each begins with nothing
 * loaded.
 */
#include "host/plugin/loader.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#if defined __x86_64__
#include <xmmintrin.h>
#endif

#include "host/base/memory.h"
#include "tests/plugin_files.h"

static void begin(void)
{
    make_directory();
    setenv("XDG_DATA_HOME", in_test("data"), 1); /* where quarantine.h leaves its mark */
}

static tn_library *open_good(const char *path)
{
    tn_library *library = NULL;
    tn_error err;
    ck_ok(tn_loader_open(path, &kept, &library, &err), err);
    ck_assert_ptr_nonnull(library);
    return library;
}

/* Refused, and refused the same way when tried again. */
static void check_refused(const char *path, int32_t status, const char *code, const char *part)
{
    for (int i = 0; i < 2; i++) {
        tn_library *library = NULL;
        tn_error err;
        ck_assert_refused(tn_loader_open(path, &kept, &library, &err), status, err, code, part);
        ck_assert_ptr_null(library);
    }
}

/* ---- good ones ---- */

START_TEST(shipped_plugin_loads)
{
    tn_library *library = open_good(adamw_plugin());
    const tn_component *component = tn_library_component(library, "optimizer", "adamw", "cpu", 32);
    ck_assert_ptr_nonnull(component);
    ck_assert_ptr_null(tn_library_component(library, "optimizer", "adamw", "cuda", 32));
    ck_assert_ptr_null(tn_library_component(library, "optimizer", "adamw", "cpu", 64));
    ck_assert_ptr_null(tn_library_component(library, "transform", "adamw", "cpu", 32));
    ck_assert_ptr_null(tn_library_component(library, "optimizer", "adam", "cpu", 32));
    tn_optimizer table;
    tn_component_table(component, &table, sizeof table);
    ck_assert_uint_eq(table.struct_size, sizeof table);
    ck_assert(table.update != NULL);

    /* lr 0.5, no momentum, no decay: the first step is -lr * sign(g) but for eps */
    struct {
        double lr, beta1, beta2, eps, weight_decay;
        int64_t decay;
    } hyper = {0.5, 0, 0, 0, 0, 0};
    _Alignas(64) char k[TN_CONSTANTS_MAX] = {0};
    _Alignas(64) float p[16] = {0}, g[16], d[16], m[16] = {0}, v[16] = {0};
    for (int i = 0; i < 16; i++)
        g[i] = (float)(i - 8) + 0.5f;
    tn_clock clock = {.struct_size = sizeof clock, .t = 1};
    void *slots[] = {m, v};
    tn_piece piece = {.struct_size = sizeof piece,
                      .hyper = &hyper,
                      .k = k,
                      .n = 16,
                      .scale = 1,
                      .g = g,
                      .p = p,
                      .d = d,
                      .slot = slots};
    table.begin(&hyper, &clock, k);
    table.update(&piece);
    for (int i = 0; i < 16; i++)
        ck_assert_float_eq_tol(d[i], i < 8 ? 0.5f : -0.5f, 1e-6f);
}
END_TEST

START_TEST(tables_of_other_sizes)
{
    tn_library *library = open_good(bad_plugin("table-size-short"));
    const tn_component *component = tn_library_component(library, "optimizer", "table_size_short", "cpu", 32);
    struct {
        tn_optimizer table;
        void *newer;
    } larger;
    ck_assert_ptr_nonnull(component);
    memset(&larger, 0xff, sizeof larger);
    tn_component_table(component, &larger, sizeof larger);
    ck_assert_uint_eq(larger.table.struct_size, sizeof larger);
    ck_assert(larger.table.scale == NULL); /* there, but beyond the size that the plugin states */
    ck_assert_ptr_null(larger.newer);

    component = tn_library_component(open_good(bad_plugin("good-one")), "optimizer", "good-one", "cpu", 32);
    struct {
        uint32_t struct_size, constants_bytes;
        void *beyond;
    } smaller = {0, 1, &smaller};
    tn_component_table(component, &smaller, 8);
    ck_assert_uint_eq(smaller.struct_size, 8);
    ck_assert_uint_eq(smaller.constants_bytes, 0);
    ck_assert_ptr_eq(smaller.beyond, &smaller);
    tn_component_table(component, &larger, sizeof larger);
    ck_assert_double_eq(larger.table.scale(NULL), 0.5);
}
END_TEST

START_TEST(one_file_loads_once)
{
    copy_file(bad_plugin("good-one"), in_test("a.so"));
    copy_file(bad_plugin("good-one"), in_test("copy.so"));
    ck_assert_int_eq(symlink("a.so", in_test("link.so")), 0);
    ck_assert_int_eq(link(in_test("a.so"), in_test("hard.so")), 0);
    tn_library *library = open_good(in_test("a.so"));
    ck_assert_ptr_eq(open_good(in_test("a.so")), library);
    ck_assert_ptr_eq(open_good(in_test("link.so")), library);
    ck_assert_ptr_eq(open_good(in_test("hard.so")), library);
    tn_library *copy = open_good(in_test("copy.so"));
    ck_assert_ptr_ne(copy, library);
    ck_assert_ptr_ne(tn_library_component(copy, "optimizer", "good-one", "cpu", 32)->table,
                     tn_library_component(library, "optimizer", "good-one", "cpu", 32)->table);
}
END_TEST

START_TEST(relative_path_is_made_absolute)
{
    copy_file(bad_plugin("good-one"), in_test("a.so"));
    ck_assert_int_eq(chdir(test_directory), 0);
    open_good("a.so");
    ck_assert(is_mapped(in_test("a.so")));
    ck_assert_ptr_nonnull(strstr(log_text, in_test("a.so"))); /* named before its code ran */
}
END_TEST

START_TEST(float_modes_are_put_back)
{
#if defined __x86_64__
    unsigned before = _mm_getcsr();
    open_good(bad_plugin("flush-to-zero"));
    ck_assert_uint_eq(_mm_getcsr() & 0xffc0u, before & 0xffc0u);
    const char *warning = strstr(log_text, "2 ");
    ck_assert_ptr_nonnull(warning);
    ck_assert_ptr_nonnull(strstr(warning, "flush-to-zero.so: changed the floating-point modes"));
#else
    open_good(bad_plugin("flush-to-zero"));
#endif
}
END_TEST

/* ---- what is no regular file ---- */

START_TEST(special_files)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    ck_assert_int_eq(mkfifo(in_test("fifo.so"), 0600), 0);
    check_refused(in_test("fifo.so"), TN_E_PLUGIN, "NOT_REGULAR: ", "a FIFO");
    check_refused(test_directory, TN_E_PLUGIN, "NOT_REGULAR: ", "a directory");
    check_refused("/dev/null", TN_E_PLUGIN, "NOT_REGULAR: /dev/null", "a character device");
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    strncpy(address.sun_path, in_test("socket.so"), sizeof address.sun_path - 1);
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    check_refused(in_test("socket.so"), TN_E_PLUGIN, "NOT_REGULAR: ", "a socket");
    close(fd);
    clock_gettime(CLOCK_MONOTONIC, &end);
    ck_assert_int_lt((end.tv_sec - start.tv_sec) * 1000 + (end.tv_nsec - start.tv_nsec) / 1000000, 100);
}
END_TEST

START_TEST(paths_that_lead_nowhere)
{
    ck_assert_int_eq(symlink("loop.so", in_test("loop.so")), 0);
    ck_assert_int_eq(symlink("gone.so", in_test("dangling.so")), 0);
    check_refused(in_test("loop.so"), TN_E_IO, "ELOOP: ", "loop.so");
    check_refused(in_test("dangling.so"), TN_E_NOT_FOUND, "ENOENT: ", "dangling.so");
    check_refused(in_test("missing.so"), TN_E_NOT_FOUND, "ENOENT: ", "missing.so");
    write_bytes(in_test("closed.so"), "x", 1);
    check_refused(in_test("closed.so/x.so"), TN_E_NOT_FOUND, "ENOTDIR: ", "closed.so/x.so");
    ck_assert_int_eq(chmod(in_test("closed.so"), 0), 0);
    if (geteuid() == 0) /* root may read it all the same */
        check_refused(in_test("closed.so"), TN_E_PLUGIN, "NOT_ELF: ", "closed.so");
    else
        check_refused(in_test("closed.so"), TN_E_IO, "EACCES: ", "closed.so");
}
END_TEST

START_TEST(files_that_are_no_plugins)
{
    size_t size;
    unsigned char *bytes = read_bytes_of(adamw_plugin(), &size);
    write_bytes(in_test("empty.so"), "", 0);
    write_bytes(in_test("cut.so"), bytes, 4096);
    free(bytes);
    check_refused(in_test("empty.so"), TN_E_PLUGIN, "NOT_ELF: ", "empty.so");
    check_refused(in_test("cut.so"), TN_E_PLUGIN, "ELF_TRUNCATED: ", "the file is 4096 bytes");
    check_refused(plain_library(), TN_E_PLUGIN, "NOT_PLUGIN: ", "no TENON note");
    check_refused("/proc/self/exe", TN_E_PLUGIN, "WRONG_ARCH: ", "program");
    ck_assert(!is_mapped(test_directory));
}
END_TEST

/* ---- plugins that are wrong in one way: tests/bad ---- */

static const struct {
    const char *name, *code, *part;
} refused[] = {
    {"no-entry", "NO_ENTRY: ", "tenon_plugin_v1"},
    {"entry-error", "ENTRY_FAILED: ", "no licence server"},
    {"entry-silent", "ENTRY_FAILED: ", "without a reason"},
    {"entry-heap", "BAD_RECORD: ", "plugin record"},
    {"plugin-size-zero", "BAD_RECORD: ", "plugin record has struct_size 0"},
    {"plugin-size-huge", "BAD_RECORD: ", "plugin record has struct_size 4294967288"},
    {"component-size-zero", "BAD_RECORD: ", "component record has struct_size 0"},
    {"table-null", "BAD_RECORD: ", "table is (nil)"},
    {"table-size-zero", "BAD_RECORD: ", "table has struct_size 0"},
    {"table-size-one", "BAD_RECORD: ", "table has struct_size 1,"},
    {"table-size-odd", "BAD_RECORD: ", "table has struct_size 69"},
    {"table-size-huge", "BAD_RECORD: ", "table has struct_size 4294967288"},
    {"count-two", "METADATA_MISMATCH: ", "2 components, its notes 1"},
    {"count-none", "METADATA_MISMATCH: ", "0 components, its notes 1"},
    {"note-lies", "METADATA_MISMATCH: ", "none of those in the file"},
    {"note-null", "METADATA_MISMATCH: ", "none of those in the file"},
    {"undefined-symbol", "UNRESOLVED: ", "tenon_test_nobody_has_this"},
    {"abi-major-new", "ABI_MAJOR: ", "needs ABI 2, host 1"},
    {"abi-major-old", "ABI_MAJOR: ", "needs ABI 0, host 1"},
    {"abi-minor-new", "ABI_MINOR: ", "needs ABI 1.77"},
    {"isa-unknown", "WRONG_ISA: ", "0x80000000"},
};

START_TEST(bad_plugins_are_refused)
{
    char file[256];
    snprintf(file, sizeof file, "/%s.so", refused[_i].name);
    check_refused(bad_plugin(refused[_i].name), TN_E_PLUGIN, refused[_i].code, file);
    check_refused(bad_plugin(refused[_i].name), TN_E_PLUGIN, refused[_i].code, refused[_i].part);
    open_good(bad_plugin("good-one")); /* the process is none the worse */
}
END_TEST

START_TEST(gate_comes_before_mapping)
{
    static const char *const names[] = {"abi-major-new", "abi-minor-new", "isa-unknown"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        check_refused(bad_plugin(names[i]), TN_E_PLUGIN, "", names[i]);
        ck_assert(!is_mapped(names[i]));
    }
    ck_assert_str_eq(log_text, "");
}
END_TEST

/* Copies a file with one text replaced by another of the same length. (entry-heap needs libc, for calloc.) */
static void write_changed(const char *from, const char *path, const char *text, const char *by)
{
    size_t size, length = strlen(text) + 1;
    unsigned char *bytes = read_bytes_of(from, &size);
    char *at = memmem(bytes, size, text, length);
    ck_assert_msg(at != NULL, "%s does not hold %s", from, text);
    ck_assert_uint_eq(length, strlen(by) + 1);
    memcpy(at, by, length);
    write_bytes(path, bytes, size);
    free(bytes);
}

START_TEST(missing_library)
{
    write_changed(bad_plugin("entry-heap"), in_test("a.so"), "libc.so.6", "libx.so.6");
    check_refused(in_test("a.so"), TN_E_PLUGIN, "UNRESOLVED: ", "libx.so.6");
}
END_TEST

START_TEST(entry_of_a_needed_library)
{
    write_changed(bad_plugin("entry-heap"), in_test("half.so"), "libc.so.6", "./good.so");
    write_changed(in_test("half.so"), in_test("a.so"), TN_ENTRY, "tenon_plugin_v0");
    copy_file(bad_plugin("good-one"), in_test("good.so"));
    ck_assert_int_eq(chdir(test_directory), 0);
    check_refused(in_test("a.so"), TN_E_PLUGIN, "NO_ENTRY: ", "a.so");
    ck_assert(is_mapped(in_test("good.so"))); /* it was there to be found */
}
END_TEST

START_TEST(constructor_that_aborts)
{
    tn_library *library;
    unsetenv("XDG_DATA_HOME"); /* nothing is left for the next time */
    unsetenv("HOME");
    tn_loader_open(bad_plugin("abort-at-load"), &kept, &library, NULL); /* never returns: see add_test_raise_signal */
}
END_TEST

/* ---- files that change ---- */

START_TEST(file_replaced_while_loaded)
{
    copy_file(bad_plugin("good-one"), in_test("a.so"));
    tn_library *library = open_good(in_test("a.so"));
    tn_optimizer table;
    tn_component_table(tn_library_component(library, "optimizer", "good-one", "cpu", 32), &table, sizeof table);
    copy_file(bad_plugin("good-one"), in_test("new.so"));
    ck_assert_int_eq(rename(in_test("new.so"), in_test("a.so")), 0);
    check_refused(in_test("a.so"), TN_E_PLUGIN, "STALE: ", "a.so");
    ck_assert_double_eq(table.scale(NULL), 0.5); /* what runs is unharmed */
}
END_TEST

START_TEST(file_changed_in_place_while_loaded)
{
    struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    copy_file(bad_plugin("good-one"), in_test("a.so"));
    open_good(in_test("a.so"));
    ck_assert_int_eq(utimensat(AT_FDCWD, in_test("a.so"), times, 0), 0);
    check_refused(in_test("a.so"), TN_E_PLUGIN, "STALE: ", "by renaming, never in place");
}
END_TEST

/* ---- memory ---- */

START_TEST(out_of_memory_at_each_allocation)
{
    int32_t status = TN_E_MEMORY;
    for (int64_t n = 0; status; n++) {
        tn_library *library = NULL;
        tn_memory_fail_at(n);
        status = tn_loader_open(bad_plugin("good-one"), NULL, &library, NULL);
        tn_memory_fail_at(-1);
        ck_assert(status == TN_OK || (status == TN_E_MEMORY && !library));
        ck_assert_int_lt(n, 20);
    }
    int64_t count = tn_memory_count();
    open_good(bad_plugin("good-one")); /* known by now */
    ck_assert_int_eq(tn_memory_count(), count);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loader");
    TCase *tests = tcase_create("loader");
    tcase_add_checked_fixture(tests, begin, remove_directory);
    tcase_add_test(tests, shipped_plugin_loads);
    tcase_add_test(tests, tables_of_other_sizes);
    tcase_add_test(tests, one_file_loads_once);
    tcase_add_test(tests, relative_path_is_made_absolute);
    tcase_add_test(tests, float_modes_are_put_back);
    tcase_add_test(tests, special_files);
    tcase_add_test(tests, paths_that_lead_nowhere);
    tcase_add_test(tests, files_that_are_no_plugins);
    tcase_add_loop_test(tests, bad_plugins_are_refused, 0, (int)(sizeof refused / sizeof *refused));
    tcase_add_test(tests, gate_comes_before_mapping);
    tcase_add_test(tests, missing_library);
    tcase_add_test(tests, entry_of_a_needed_library);
    tcase_add_test(tests, file_replaced_while_loaded);
    tcase_add_test(tests, file_changed_in_place_while_loaded);
    tcase_add_test(tests, out_of_memory_at_each_allocation);
    suite_add_tcase(suite, tests);
    TCase *crash = tcase_create("crash");
    tcase_add_test_raise_signal(crash, constructor_that_aborts, SIGABRT);
    suite_add_tcase(suite, crash);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed ? 1 : 0;
}
