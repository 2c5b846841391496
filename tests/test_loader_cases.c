/* SPDX-License-Identifier: Apache-2.0
 *
 * test_loader_cases.c: the loader's cases, each by its number: what is listed, what is refused and with which words,
 * and that good plugins beside the bad ones still load. The files are made by the build, in tests/bad. Then cases that
 * users of other plugin systems have reported: symbols, lifetimes, ownership.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "host/base/memory.h"
#include "host/plugin/hash.h"
#include "host/plugin/loader.h"
#include "host/plugin/search.h"
#include "host/tenon.h"
#include "tests/plugin_files.h"
#include "tests/small_set.h"

static tn_registry *registry;

static void begin(void)
{
    make_directory();
    ck_assert_int_eq(setenv("TENON_PLUGIN_PATH", test_directory, 1), 0);
    setenv("XDG_DATA_HOME", in_test("data"), 1);
    unsetenv("TENON_TRUST_UID");
    copy_file(bad_plugin("good-one"), in_test("zz-good.so"));
}

static void end(void)
{
    tn_registry_close(registry);
    remove_directory();
}

/* ---- what is looked at ---- */

static void put(const char *name)
{
    char file[64];
    struct stat stat;
    snprintf(file, sizeof file, "%s.so", name);
    ck_assert_int_eq(lstat(bad_plugin(name), &stat), 0);
    if (stat.st_size)
        copy_file(bad_plugin(name), in_test(file));
    else
        write_bytes(in_test(file), "", 0);
}

static void scan(void)
{
    tn_error err;
    tn_registry_close(registry);
    ck_ok(tn_registry_open(&kept, &registry, &err), err);
}

/* The only entry of a file in the test's folder. */
static const tn_entry_info *entry_of(const char *file)
{
    const tn_entry_info *found = NULL;
    for (size_t i = 0; i < tn_registry_count(registry); i++) {
        const tn_entry_info *entry = tn_registry_at(registry, i);
        if (strcmp(entry->path, in_test(file)) == 0) {
            ck_assert_msg(!found, "%s is listed twice", file);
            found = entry;
        }
    }
    ck_assert_msg(found != NULL, "%s is not listed", file);
    return found;
}

static double scale_of(const char *name)
{
    const tn_entry_info *entry;
    tn_optimizer table;
    tn_error err;
    ck_ok(tn_registry_find(registry, "optimizer", name, "cpu", 32, &entry, &err), err);
    ck_ok(tn_registry_load(registry, entry, &table, sizeof table, &err), err);
    return table.scale(NULL);
}

static void good_one_works(void) { ck_assert_double_eq(scale_of("good-one"), 0.5); }

/* Listed as refused, the reason beginning with `code`, with the path and both parts; loading says the same. */
static void check_listed(const char *file, const char *code, const char *part, const char *more)
{
    const tn_entry_info *entry = entry_of(file);
    ck_assert_msg(entry->state == TN_REFUSED, "%s: state %d", file, entry->state);
    const char *const parts[] = {in_test(file), part, more};
    ck_assert_msg(!strncmp(entry->reason, code, strlen(code)), "%s: no %s: %s", file, code, entry->reason);
    for (int i = 0; i < 3; i++)
        ck_assert_msg(strstr(entry->reason, parts[i]) != NULL, "%s: no '%s': %s", file, parts[i], entry->reason);
}

static void check_load(const char *file, int32_t status, const char *code, const char *part)
{
    for (int i = 0; i < 2; i++) { /* a second try is as safe */
        tn_library *library = NULL;
        tn_error err;
        ck_assert_refused(tn_loader_open(in_test(file), &kept, &library, &err), status, err, code, part);
        ck_assert_msg(strstr(err.msg, file) != NULL, "no path: %s", err.msg);
        ck_assert_ptr_null(library);
    }
}

/* Both; it is never mapped. */
static void check_gate(const char *name, const char *code, const char *part, const char *more)
{
    char file[64];
    snprintf(file, sizeof file, "%s.so", name);
    put(name);
    scan();
    check_listed(file, code, part, more);
    check_load(file, TN_E_PLUGIN, code, part);
    ck_assert(!is_mapped(file));
    good_one_works();
}

static int64_t milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- the fifteen ---- */

START_TEST(case_01_no_elf_and_corrupt)
{
    check_gate("empty", "NOT_ELF: ", "the file is empty", "");
    check_gate("text", "NOT_ELF: ", "not an ELF file", "");
    check_gate("random", "NOT_ELF: ", "not an ELF file", "");
    check_gate("phnum-huge", "ELF_CORRUPT: ", "65535 program headers", "needed 1 to");
    check_gate("note-overflow", "ELF_CORRUPT: ", "note", "");
    check_gate("note-owner-overflow", "ELF_CORRUPT: ", "note", "");
}
END_TEST

START_TEST(case_02_truncated)
{
    size_t size;
    unsigned char *bytes = read_bytes_of(adamw_plugin(), &size);
    const Elf64_Ehdr *header = (const void *)bytes;
    const Elf64_Phdr *segments = (const void *)(bytes + header->e_phoff);
    uint64_t needed = 0;
    int cut = 0, whole = 0;
    for (unsigned i = 0; i < header->e_phnum; i++)
        if (segments[i].p_offset + segments[i].p_filesz > needed)
            needed = segments[i].p_offset + segments[i].p_filesz;
    for (size_t n = 4096; n < size + 4096; n += 4096) {
        char file[32], length[64];
        size_t keep = n < size ? n : size;
        snprintf(file, sizeof file, "cut-%zu.so", keep);
        snprintf(length, sizeof length, "the file is %zu bytes", keep);
        write_bytes(in_test(file), bytes, keep);
        scan();
        if (keep < needed) {
            check_listed(file, "ELF_TRUNCATED: ", "ends at", length);
            check_load(file, TN_E_PLUGIN, "ELF_TRUNCATED: ", length);
            cut++;
        } else { /* only the tail is gone */
            tn_library *library;
            tn_error err;
            ck_ok(tn_loader_open(in_test(file), &kept, &library, &err), err);
            whole++;
        }
        ck_assert_int_eq(unlink(in_test(file)), 0);
    }
    ck_assert_int_gt(cut, 1);
    ck_assert_int_gt(whole, 0);
    free(bytes);
}
END_TEST

START_TEST(case_03_other_machines)
{
    check_gate("for-aarch64", "WRONG_ARCH: ", "found a 64-bit little-endian AArch64 shared object", "needed a 64-bit");
    check_gate("for-32-bit", "WRONG_ARCH: ", "found a 32-bit", "needed a 64-bit");
    check_gate("for-big-endian", "WRONG_ARCH: ", "found a 64-bit big-endian", "needed a 64-bit little-endian");
    check_gate("for-fixed-address", "WRONG_ARCH: ", "program, needed", "with -shared");
    check_gate("program-pie", "WRONG_ARCH: ", "program, needed", "with -shared");
    check_gate("program-fixed", "WRONG_ARCH: ", "program, needed", "with -shared");
    for (size_t i = 0; i < tn_registry_count(registry); i++)
        ck_assert_ptr_null(strstr(tn_registry_at(registry, i)->reason, "No such file"));
}
END_TEST

START_TEST(case_04_no_regular_file)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int64_t start = milliseconds();
    ck_assert_int_eq(mkfifo(in_test("fifo.so"), 0600), 0);
    make_subdirectory("directory.so");
    ck_assert_int_eq(symlink("/dev/null", in_test("device.so")), 0);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    strncpy(address.sun_path, in_test("socket.so"), sizeof address.sun_path - 1);
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    scan();
    check_listed("fifo.so", "NOT_REGULAR: ", "a FIFO", "");
    check_listed("directory.so", "NOT_REGULAR: ", "a directory", "");
    check_listed("socket.so", "NOT_REGULAR: ", "a socket", "");
    check_load("fifo.so", TN_E_PLUGIN, "NOT_REGULAR: ", "a FIFO");
    check_load("directory.so", TN_E_PLUGIN, "NOT_REGULAR: ", "a directory");
    check_load("socket.so", TN_E_PLUGIN, "NOT_REGULAR: ", "a socket");
    tn_library *library;
    tn_error err;
    ck_assert_refused(tn_loader_open(in_test("device.so"), NULL, &library, &err), TN_E_PLUGIN, err,
                      "NOT_REGULAR: ", "a character device");
    ck_assert_int_lt(milliseconds() - start, 500); /* 100 each, on a machine that has other work */
    good_one_works();
    close(fd);
}
END_TEST

START_TEST(case_04_unreadable)
{
    put("no-entry");
    ck_assert_int_eq(chmod(in_test("no-entry.so"), 0), 0);
    ck_assert_int_eq(chmod(test_directory, 0711 | 0444), 0);
    if (geteuid() == 0) /* root may read it all the same */
        ck_assert_int_eq(seteuid(65534), 0);
    scan();
    check_listed("no-entry.so", "EACCES: ", "can not open", "");
    check_load("no-entry.so", TN_E_IO, "EACCES: ", "can not open");
    if (getuid() == 0)
        ck_assert_int_eq(seteuid(0), 0);
}
END_TEST

START_TEST(case_05_links)
{
    make_subdirectory("open");
    ck_assert_int_eq(symlink("loop.so", in_test("loop.so")), 0);
    ck_assert_int_eq(symlink("gone", in_test("dangling.so")), 0);
    copy_file(bad_plugin("table-size-short"), in_test("open/target"));
    ck_assert_int_eq(chmod(in_test("open"), 0777), 0);
    ck_assert_int_eq(symlink("open/target", in_test("out.so")), 0);
    scan();
    check_listed("loop.so", "ELOOP: ", "can not open", "");
    check_listed("dangling.so", "ENOENT: ", "can not open", "");
    ck_assert_int_eq(entry_of("open/target")->state, TN_REFUSED); /* what counts is the target */
    ck_assert_ptr_nonnull(
        strstr(entry_of("open/target")->reason, "/open: mode 0777 lets everyone write to it; run: chmod"));
    check_load("loop.so", TN_E_IO, "ELOOP: ", "");
    check_load("dangling.so", TN_E_NOT_FOUND, "ENOENT: ", "");
    good_one_works();
}
END_TEST

/* The registry refuses to load what it does not trust; a file that is named is used, and a warning says so. */
static void check_untrusted(const char *file, const char *component)
{
    tn_optimizer table;
    tn_error err;
    scan();
    const tn_entry_info *entry = entry_of(file);
    ck_assert_int_eq(entry->state, TN_REFUSED);
    ck_assert_ptr_nonnull(strstr(entry->reason, component));
    ck_assert_refused(tn_registry_load(registry, entry, &table, sizeof table, &err), TN_E_PLUGIN, err,
                      "UNTRUSTED_PATH: ", component);
    ck_assert(!is_mapped(file));
    log_text[0] = 0;
    ck_ok(tn_registry_add_file(registry, in_test(file), &err), err);
    ck_assert_ptr_nonnull(strstr(log_text, "2 UNTRUSTED_PATH: "));
    ck_assert_ptr_nonnull(strstr(log_text, "used all the same, because you named it"));
    ck_ok(tn_registry_load(registry, entry_of(file), &table, sizeof table, &err), err);
}

START_TEST(case_06_untrusted)
{
    put("table-size-short");
    ck_assert_int_eq(chmod(in_test("table-size-short.so"), _i ? 0620 : 0666), 0);
    check_untrusted("table-size-short.so", _i ? "table-size-short.so: mode 0620 lets its group write"
                                              : "table-size-short.so: mode 0666 lets everyone write");
}
END_TEST

START_TEST(case_06_untrusted_folder)
{
    make_subdirectory("a");
    make_subdirectory("a/b");
    copy_file(bad_plugin("table-size-short"), in_test("a/b/x.so"));
    setenv("TENON_PLUGIN_PATH", in_test("a/b"), 1);
    ck_assert_int_eq(chmod(in_test(_i ? "a" : "a/b"), _i ? 0777 : 0770), 0);
    check_untrusted("a/b/x.so", _i ? "/a: mode 0777 lets everyone" : "/a/b: mode 0770 lets its group");
}
END_TEST

START_TEST(case_06_other_owner)
{
    if (geteuid() != 0)
        return; /* only root can give files away */
    put("table-size-short");
    ck_assert_int_eq(chown(in_test("table-size-short.so"), 12345, (gid_t)-1), 0);
    check_untrusted("table-size-short.so", "owned by user 12345");
    setenv("TENON_TRUST_UID", "12345", 1);
    scan();
    ck_assert_int_eq(entry_of("table-size-short.so")->state, TN_FOUND);
}
END_TEST

START_TEST(case_07_notes)
{
    copy_file(plain_library(), in_test("plain.so"));
    put("note-moved"); /* without its segment: by the section */
    put("minor-half"); /* several notes */
    scan();
    ck_assert_int_eq(entry_of("plain.so")->state, TN_NOT_PLUGIN);
    check_load("plain.so", TN_E_PLUGIN, "NOT_PLUGIN: ", "not a tenon plugin");
    ck_assert_str_eq(entry_of("note-moved.so")->name, "good-one");
    tn_library *library;
    tn_error err;
    ck_ok(tn_loader_open(in_test("note-moved.so"), &kept, &library, &err), err);
    ck_assert_ptr_nonnull(tn_library_component(library, "optimizer", "good-one", "cpu", 32));
    int found = 0;
    for (size_t i = 0; i < tn_registry_count(registry); i++)
        found += !strcmp(tn_registry_at(registry, i)->path, in_test("minor-half.so"));
    ck_assert_int_eq(found, 2);
}
END_TEST

/* Listed as found; the load is refused. */
static void check_loads_not(const char *name, const char *code, const char *part)
{
    char file[64];
    snprintf(file, sizeof file, "%s.so", name);
    put(name);
    scan();
    const tn_entry_info *entry = entry_of(file);
    ck_assert_int_eq(entry->state, TN_FOUND);
    check_load(file, TN_E_PLUGIN, code, part);
    tn_optimizer table;
    tn_error err;
    ck_assert_refused(tn_registry_load(registry, entry, &table, sizeof table, &err), TN_E_PLUGIN, err, code, part);
    good_one_works();
}

START_TEST(case_08_no_entry) { check_loads_not("no-entry", "NO_ENTRY: ", "the symbol tenon_plugin_v1"); }
END_TEST

START_TEST(case_09_too_new)
{
    check_gate("abi-major-new", "ABI_MAJOR: ", "needs ABI 2, host 1", "upgrade tenon");
    check_gate("abi-minor-new", "ABI_MINOR: ", "needs ABI 1.77, host 1.", "upgrade tenon");
    put("minor-half"); /* one component needs what is not there; the other is not worse for it */
    put("table-size-newer");
    scan();
    const tn_entry_info *entry;
    tn_error err;
    ck_assert_refused(tn_registry_find(registry, "optimizer", "new-half", "cpu", 32, &entry, &err), TN_E_PLUGIN, err,
                      "ABI_MINOR: ", "needs ABI 1.77");
    ck_assert_double_eq(scale_of("old-half"), 0.5);
    ck_assert_double_eq(scale_of("table-size-newer"), 0.25); /* the tail that this host does not know is left alone */
}
END_TEST

START_TEST(case_10_too_old)
{
    check_gate("abi-major-old", "ABI_MAJOR: ", "needs ABI 0, host 1", "rebuild the plugin with the new headers");
    put("draft-old");
    put("table-size-short"); /* of an older minor: what it lacks reads as absent */
    scan();
    const tn_entry_info *entry;
    tn_optimizer table;
    tn_error err;
    check_listed("draft-old.so", "INTERFACE: ", "this host speaks " TN_OPTIMIZER, "rebuild the plugin");
    ck_assert_refused(tn_registry_load(registry, entry_of("draft-old.so"), &table, sizeof table, &err), TN_E_PLUGIN,
                      err, "INTERFACE: ", "rebuild the plugin");
    ck_ok(tn_registry_find(registry, NULL, "table-size-short", NULL, 0, &entry, &err), err);
    memset(&table, 0xff, sizeof table);
    ck_ok(tn_registry_load(registry, entry, &table, sizeof table, &err), err);
    ck_assert(table.scale == NULL && table.keep == NULL && table.matrix == NULL);
}
END_TEST

START_TEST(case_11_unresolved)
{
    check_loads_not("undefined-symbol", "UNRESOLVED: ", "tenon_test_nobody_has_this");
    check_loads_not("needed-missing", "UNRESOLVED: ", "libx.so.6");
    check_loads_not("static-tls", "UNRESOLVED: ", "TLS");
}
END_TEST

static const struct {
    const char *name;
    int signal;        /* that ends the process; 0: it exits */
    int optional;      /* 1: needs a C++ compiler */
    const char *words; /* of the refusal when it is tried again */
} at_load[] = {{"abort-at-load", SIGABRT, 0, "SIGABRT ended it"},
               {"segv-at-load", SIGSEGV, 0, "SIGSEGV ended it"},
               {"throw-at-load", SIGABRT, 1, "SIGABRT ended it"},
               {"sleep-at-load", SIGALRM, 0, "not done after 10 s"},
               {"exit-at-load", 0, 0, "exit code 0"}};

static void say(void *user, int32_t level, const char *line)
{
    (void)user;
    (void)level;
    if (write(STDOUT_FILENO, line, strlen(line)) < 0 || write(STDOUT_FILENO, "\n", 1) < 0)
        _exit(3);
}

/* Loads it in a child, whose output and end are the caller's to judge. */
static int load_in_child(const char *file, char *output, size_t size)
{
    int ends[2], status;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        const tn_log log = {say, NULL};
        tn_library *library;
        dup2(ends[1], STDOUT_FILENO);
        signal(SIGSEGV, SIG_DFL); /* not the sanitizer's */
        signal(SIGABRT, SIG_DFL);
        signal(SIGALRM, SIG_DFL);
        alarm(1);
        tn_loader_open(in_test(file), &log, &library, NULL);
        _exit(4);
    }
    close(ends[1]);
    ssize_t used = read(ends[0], output, size - 1);
    output[used > 0 ? used : 0] = 0;
    close(ends[0]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return status;
}

START_TEST(case_12_constructors)
{
    char file[64], output[PATH_MAX + 64];
    snprintf(file, sizeof file, "%s.so", at_load[_i].name);
    if (at_load[_i].optional) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", test_env("TENON_TEST_BAD"), file);
        if (access(path, R_OK))
            return;
    }
    put(at_load[_i].name);
    int64_t start = milliseconds();
    scan();
    ck_assert_int_eq(entry_of(file)->state, TN_FOUND); /* listing runs nothing of it */
    const tn_component_info *info;
    tn_error err;
    ck_ok(tn_registry_info(registry, entry_of(file), &info, &err), err);
    ck_assert_int_lt(milliseconds() - start, 1000);
    ck_assert(!is_mapped(file));
    int status = load_in_child(file, output, sizeof output);
    if (at_load[_i].signal)
        ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == at_load[_i].signal, "status %x", status);
    else
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
    ck_assert_msg(strstr(output, in_test(file)) != NULL, "not named before: %s", output);
    tn_library *library;
    ck_assert_refused(tn_loader_open(in_test(file), NULL, &library, &err), TN_E_PLUGIN, err,
                      "QUARANTINED: ", at_load[_i].words);
    ck_assert_ptr_nonnull(strstr(err.msg, in_test("data/tenon/loading/")));
    copy_file(bad_plugin("good-one"), in_test(file)); /* built again: other bytes */
    ck_ok(tn_loader_open(in_test(file), NULL, &library, &err), err);
    good_one_works();
}
END_TEST

/* How many files stand in the folder of what is being loaded. */
static int count_marks(void)
{
    int count = 0;
    DIR *dir = opendir(in_test("data/tenon/loading"));
    for (const struct dirent *entry; dir && (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return count;
}

/* As a process of that id leaves it that was killed while it loaded `path`. */
static void leave_mark(const char *path, pid_t pid)
{
    char hash[TN_HASH_TEXT], name[128];
    tn_error err;
    ck_ok(tn_hash_file(path, hash, &err), err);
    snprintf(name, sizeof name, "data/tenon/loading/%s-%d", hash, (int)pid);
    write_text(in_test(name), path);
}

START_TEST(case_12_killed_while_loading)
{
    tn_library *library;
    tn_error err;
    put("entry-heap");
    ck_ok(tn_loader_open(in_test("zz-good.so"), NULL, &library, &err), err);
    ck_assert_int_eq(count_marks(), 0);
    pid_t gone = fork();
    if (gone == 0)
        _exit(0);
    ck_assert_int_eq(waitpid(gone, NULL, 0), gone);
    put("count-none"); /* is refused for another reason, which the trial leaves to the loader */
    leave_mark(in_test("count-none.so"), gone);
    ck_assert_refused(tn_loader_open(in_test("count-none.so"), NULL, &library, &err), TN_E_PLUGIN, err, "METADATA", "");
    ck_assert_int_eq(count_marks(), 0);
    put("flush-to-zero");
    leave_mark(in_test("flush-to-zero.so"), gone);
    leave_mark(in_test("flush-to-zero.so"), getppid()); /* at it now */
    log_text[0] = '\0';
    ck_ok(tn_loader_open(in_test("flush-to-zero.so"), &kept, &library, &err), err);
    ck_assert_int_eq(count_marks(), 1);
    ck_assert_ptr_nonnull(strstr(log_text, "now loads well"));
}
END_TEST

/* Loading does not need the folder. */
START_TEST(case_12_without_a_folder)
{
    tn_library *library;
    tn_error err;
    write_text(in_test("file"), "");
    setenv("XDG_DATA_HOME", in_test("file"), 1);
    ck_ok(tn_loader_open(in_test("zz-good.so"), NULL, &library, &err), err);
    unsetenv("XDG_DATA_HOME");
    unsetenv("HOME");
    put("flush-to-zero");
    ck_ok(tn_loader_open(in_test("flush-to-zero.so"), NULL, &library, &err), err);
}
END_TEST

START_TEST(case_13_twice)
{
    char path[4 * PATH_MAX];
    make_subdirectory("1");
    make_subdirectory("2");
    copy_file(bad_plugin("good-one"), in_test("1/a.so"));
    copy_file(bad_plugin("good-one"), in_test("2/a.so"));
    ck_assert_int_eq(link(in_test("2/a.so"), in_test("2/b.so")), 0);
    snprintf(path, sizeof path, "%s:%s:%s", in_test("2"), in_test("1"), in_test("2"));
    setenv("TENON_PLUGIN_PATH", path, 1);
    for (int i = 0; i < 3; i++) {
        scan();
        ck_assert_int_eq(entry_of("2/a.so")->state, TN_FOUND);
        ck_assert_int_eq(entry_of("1/a.so")->state, TN_SHADOWED);
        ck_assert_str_eq(entry_of("1/a.so")->reason, in_test("2/a.so"));
    }
    tn_library *first, *again;
    tn_error err;
    ck_ok(tn_loader_open(in_test("2/a.so"), &kept, &first, &err), err);
    ck_ok(tn_loader_open(in_test("2/b.so"), &kept, &again, &err), err);
    ck_assert_ptr_eq(first, again);
}
END_TEST

static const struct {
    const char *name, *code, *part;
} records[] = {{"plugin-size-zero", "BAD_RECORD: ", "plugin record has struct_size 0, needed 24 to"},
               {"plugin-size-huge", "BAD_RECORD: ", "plugin record has struct_size 4294967288, needed 24 to"},
               {"component-size-zero", "BAD_RECORD: ", "component record has struct_size 0, needed"},
               {"table-size-zero", "BAD_RECORD: ", "table has struct_size 0, needed"},
               {"table-size-one", "BAD_RECORD: ", "table has struct_size 1, needed"},
               {"table-size-odd", "BAD_RECORD: ", "table has struct_size 69, needed"},
               {"table-size-huge", "BAD_RECORD: ", "set it to sizeof"},
               {"table-null", "BAD_RECORD: ", "table is (nil)"},
               {"entry-error", "ENTRY_FAILED: ", "no licence server"},
               {"entry-silent", "ENTRY_FAILED: ", "without a reason"},
               {"entry-heap", "BAD_RECORD: ", "plugin record"},
               {"note-lies", "METADATA_MISMATCH: ", "rebuild it"},
               {"note-null", "METADATA_MISMATCH: ", "rebuild it"},
               {"count-two", "METADATA_MISMATCH: ", "2 components, its notes 1"},
               {"count-none", "METADATA_MISMATCH: ", "0 components, its notes 1"}};

START_TEST(case_14_records) { check_loads_not(records[_i].name, records[_i].code, records[_i].part); }
END_TEST

START_TEST(case_15_changed_before_the_load)
{
    put("table-size-short");
    scan();
    const tn_entry_info *entry = entry_of("table-size-short.so");
    tn_optimizer table;
    tn_error err;
    if (_i == 0) {
        copy_file(bad_plugin("good-one"), in_test("new"));
        ck_assert_int_eq(rename(in_test("new"), in_test("table-size-short.so")), 0);
    } else if (_i == 1) {
        ck_assert_int_eq(truncate(in_test("table-size-short.so"), 4096), 0);
    } else {
        int fd = open(in_test("table-size-short.so"), O_WRONLY);
        ck_assert_int_eq(pwrite(fd, "\xff\xff", 2, 8000), 2);
        close(fd);
    }
    ck_assert_refused(tn_registry_load(registry, entry, &table, sizeof table, &err), TN_E_PLUGIN, err,
                      "STALE: ", in_test("table-size-short.so"));
    ck_assert(!is_mapped("table-size-short.so"));
    scan();
    if (_i == 0)
        ck_assert_str_eq(entry_of("table-size-short.so")->name, "good-one");
    if (_i == 1)
        check_listed("table-size-short.so", "ELF_TRUNCATED: ", "the file is 4096 bytes", "");
    good_one_works();
}
END_TEST

START_TEST(case_15_changed_while_loaded)
{
    scan();
    const tn_entry_info *entry = entry_of("zz-good.so");
    tn_optimizer table;
    tn_error err;
    ck_ok(tn_registry_load(registry, entry, &table, sizeof table, &err), err);
    copy_file(bad_plugin("table-size-short"), in_test("new"));
    ck_assert_int_eq(rename(in_test("new"), in_test("zz-good.so")), 0);
    ck_assert_double_eq(table.scale(NULL), 0.5); /* what runs has the old file */
    check_load("zz-good.so", TN_E_PLUGIN, "STALE: ", "start again");
    ck_assert_double_eq(table.scale(NULL), 0.5);
}
END_TEST

START_TEST(case_16_setuid_ignores_the_environment)
{
    tn_search search;
    tn_error err;
    ck_ok(tn_search_path(1, NULL, &search, &err), err);
    for (size_t i = 0; i < search.count; i++)
        ck_assert_str_ne(search.directories[i], test_directory);
    tn_search_free(&search);
}
END_TEST

START_TEST(case_17_instructions_that_are_not_there)
{
    check_gate("isa-unknown", "WRONG_ISA: ", "0x80000000", "without -march=native");
}
END_TEST

START_TEST(case_18_two_bring_one_library)
{
    static const char *const folders[] = {"1", "2"};
    tn_library *library;
    tn_error err;
    char name[64];
    for (int i = 0; i < 2; i++) {
        make_subdirectory(folders[i]);
        snprintf(name, sizeof name, "%d/bundling.so", i + 1);
        copy_file(bad_plugin(i ? "bundling-2" : "bundling-1"), in_test(name));
        snprintf(name, sizeof name, "%d/libtenon_bundled.so", i + 1);
        copy_file(bad_plugin(i ? "bundled-2" : "bundled-1"), in_test(name));
    }
    ck_ok(tn_loader_open(in_test("1/bundling.so"), &kept, &library, &err), err);
    ck_assert_ptr_null(strstr(log_text, "brings"));
    ck_ok(tn_loader_open(in_test("2/bundling.so"), &kept, &library, &err), err); /* it works, with the first's */
    const char *warning = strstr(log_text, "2/bundling.so: brings ");
    ck_assert_msg(warning != NULL, "%s", log_text);
    ck_assert_ptr_nonnull(strstr(warning, in_test("2/libtenon_bundled.so")));
    ck_assert_ptr_nonnull(strstr(warning, in_test("1/libtenon_bundled.so")));
    ck_assert_ptr_nonnull(strstr(warning, "give the library a name of its own"));
}
END_TEST

/* ---- reports of users ---- */

START_TEST(plg_01_symbol_clash)
{
    static const char *const orders[][2] = {{"clash-1", "clash-2"}, {"clash-2", "clash-1"}};
    ck_assert_ptr_nonnull(dlopen(bad_plugin("clash-host"), RTLD_NOW | RTLD_GLOBAL)); /* as if the program showed it */
    int (*shown)(void);
    *(void **)&shown = dlsym(RTLD_DEFAULT, "tenon_test_step_kernel");
    ck_assert_int_eq(shown(), 99);
    for (int i = 0; i < 2; i++)
        put(orders[_i][i]);
    put("clash-bound");
    put("clash-shown");
    scan();
    for (int i = 0; i < 2; i++) {
        const char *name = orders[_i][i];
        ck_assert_double_eq(scale_of(name), name[6] - '0');
    }
    ck_assert_double_eq(scale_of("clash-4"), 4);
    check_load("clash-shown.so", TN_E_PLUGIN, "SYMBOL_CLASH: ", "its own 'tenon_test_step_kernel' would be taken");
}
END_TEST

START_TEST(plg_01_shown_without_a_clash)
{
    put("clash-shown");
    put("clash-1");
    scan();
    ck_assert_double_eq(scale_of("clash-1"), 1);
    ck_assert_double_eq(scale_of("clash-3"), 3);
}
END_TEST

START_TEST(plg_02_late_binding)
{
    char output[PATH_MAX + 64];
    check_loads_not("undefined-symbol", "UNRESOLVED: ", "tenon_test_nobody_has_this");
    check_loads_not("needed-missing", "UNRESOLVED: ", "libx.so.6");
    int status = load_in_child("undefined-symbol.so", output, sizeof output);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 4, "status %x", status);
}
END_TEST

START_TEST(plg_04_loaded_twice)
{
    char path[4 * PATH_MAX];
    make_subdirectory("d");
    copy_file(bad_plugin("table-size-newer"), in_test("d/a.so"));
    ck_assert_int_eq(symlink("d", in_test("linked")), 0);
    snprintf(path, sizeof path, "%s:%s:%s", in_test("d"), in_test("d"), in_test("linked"));
    setenv("TENON_PLUGIN_PATH", path, 1);
    scan();
    ck_assert_int_eq(entry_of("d/a.so")->state, TN_FOUND);
    ck_assert_double_eq(scale_of("table-size-newer"), 0.25);
    copy_file(in_test("d/a.so"), in_test("d/copy.so"));
    scan(); /* the first wins, and both are named */
    ck_assert_int_eq(entry_of("d/a.so")->state, TN_FOUND);
    ck_assert_int_eq(entry_of("d/copy.so")->state, TN_SHADOWED);
    ck_assert_str_eq(entry_of("d/copy.so")->reason, in_test("d/a.so"));
}
END_TEST

static void *open_and_load(void *unused)
{
    tn_registry *own;
    const tn_entry_info *entry;
    tn_optimizer table;
    tn_error err;
    for (int i = 0; i < 20; i++) {
        if (tn_registry_open(NULL, &own, &err))
            return err.msg[0] ? unused : NULL;
        int32_t status = tn_registry_find(own, NULL, "good-one", NULL, 0, &entry, &err);
        if (!status)
            status = tn_registry_load(own, entry, &table, sizeof table, &err);
        tn_registry_close(own);
        if (status || table.scale(NULL) != 0.5)
            return unused;
    }
    return NULL;
}

START_TEST(plg_05_lifecycle)
{
    pthread_t threads[4];
    void *failed;
    put("entry-error");
    for (int i = 0; i < 1000; i++) { /* balanced or not, there is nothing to pair: entry may be called again */
        tn_library *library = NULL, *bad = NULL;
        tn_error err;
        ck_ok(tn_loader_open(in_test("zz-good.so"), NULL, &library, &err), err);
        if (tn_loader_open(in_test("entry-error.so"), NULL, &bad, &err) != TN_E_PLUGIN || bad)
            ck_abort_msg("loaded at try %d", i);
    }
    for (int i = 0; i < 100; i++)
        scan();
    tn_registry_close(NULL);
    tenon_close(NULL);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, open_and_load, &failed), 0);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(pthread_join(threads[i], &failed), 0);
        ck_assert_ptr_null(failed);
    }
}
END_TEST

static int32_t leave(void *user, const tn_record *record)
{
    (void)user;
    if (record->attempt >= 1)
        exit(7);
    return 0;
}

static const char training[] = "name: short\n"
                               "data: {use: idx, folder: %s, batch: 8}\n"
                               "model: {use: mlp, widths: [6]}\n"
                               "loss: cross-entropy\n"
                               "update: adamw\n"
                               "backend: reference\n"
                               "train: {epochs: 1, threads: 2}\n"
                               "sinks: []\n";

static int32_t train(tenon *handle, int32_t (*observe)(void *, const tn_record *), tn_error *err)
{
    char text[PATH_MAX + sizeof training], *folder = NULL;
    const tenon_run_options options = {.struct_size = sizeof options, .runs = in_test("runs"), .observe = observe};
    small_set(32, 8);
    snprintf(text, sizeof text, training, test_directory);
    write_text(in_test("e.yaml"), text);
    int32_t status = tenon_run(handle, in_test("e.yaml"), NULL, 0, &options, &folder, err);
    tenon_free(folder);
    return status;
}

static void search_built_plugins(void)
{
    char path[3 * PATH_MAX];
    snprintf(path, sizeof path, "%s:%s", test_directory, test_env("TENON_TEST_GOOD"));
    setenv("TENON_PLUGIN_PATH", path, 1);
}

START_TEST(plg_07_exit_in_a_step)
{
    search_built_plugins();
    pid_t child = fork();
    if (child == 0) {
        tenon *handle;
        tn_error err;
        if (tenon_open(NULL, &handle, &err) == TN_OK)
            train(handle, leave, &err);
        _exit(5);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 7, "status %x", status);
}
END_TEST

START_TEST(plg_07_used_after_the_host_is_closed)
{
    put("busy-thread");
    scan();
    double half = scale_of("busy-thread");
    const tn_entry_info *entry = entry_of("busy-thread.so");
    tn_optimizer table;
    tn_error err;
    ck_ok(tn_registry_load(registry, entry, &table, sizeof table, &err), err);
    tn_registry_close(registry);
    registry = NULL;
    usleep(2000); /* its thread goes on: the code is still there */
    ck_assert(is_mapped("busy-thread.so"));
    ck_assert_double_eq(table.scale(NULL), half);
}
END_TEST

START_TEST(plg_08_ownership)
{
    tn_library *library = NULL;
    tn_error err;
    put("own-malloc");
    ck_assert_refused(tn_loader_open(in_test("own-malloc.so"), &kept, &library, &err), TN_E_PLUGIN, err,
                      "ENTRY_FAILED: ", "a text of its own heap"); /* a copy: its heap has other bytes there by now */
    ck_ok(tn_loader_open(in_test("own-malloc.so"), &kept, &library, &err), err);
    free(malloc(64));  /* ours, not the plugin's */
    put("entry-heap"); /* a record that could be freed is none */
    check_load("entry-heap.so", TN_E_PLUGIN, "BAD_RECORD: ", "not in the file's own static tables");
}
END_TEST

START_TEST(plg_10_foreign_files)
{
    static const char *const foreign[] = {"text", "for-aarch64", "cut", "empty"};
    static const char *const codes[] = {"NOT_ELF: ", "WRONG_ARCH: ", "ELF_TRUNCATED: ", "NOT_ELF: "};
    char file[64];
    copy_file(plain_library(), in_test("libm.so"));
    for (size_t i = 0; i < 4; i++)
        put(foreign[i]);
    search_built_plugins();
    scan();
    for (size_t i = 0; i < 4; i++) {
        snprintf(file, sizeof file, "%s.so", foreign[i]);
        check_listed(file, codes[i], "", "");
    }
    ck_assert_int_eq(entry_of("libm.so")->state, TN_NOT_PLUGIN);
    check_load("libm.so", TN_E_PLUGIN, "NOT_PLUGIN: ", "no TENON note");
    tenon *handle;
    tn_error err;
    ck_ok(tenon_open(NULL, &handle, &err), err);
    ck_ok(train(handle, NULL, &err), err);
    tenon_close(handle);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {case_01_no_elf_and_corrupt,
                                  case_02_truncated,
                                  case_03_other_machines,
                                  case_04_no_regular_file,
                                  case_04_unreadable,
                                  case_05_links,
                                  case_06_other_owner,
                                  case_07_notes,
                                  case_08_no_entry,
                                  case_09_too_new,
                                  case_10_too_old,
                                  case_11_unresolved,
                                  case_12_killed_while_loading,
                                  case_12_without_a_folder,
                                  case_13_twice,
                                  case_15_changed_while_loaded,
                                  case_16_setuid_ignores_the_environment,
                                  case_17_instructions_that_are_not_there,
                                  case_18_two_bring_one_library,
                                  plg_01_shown_without_a_clash,
                                  plg_02_late_binding,
                                  plg_04_loaded_twice,
                                  plg_05_lifecycle,
                                  plg_07_exit_in_a_step,
                                  plg_07_used_after_the_host_is_closed,
                                  plg_08_ownership,
                                  plg_10_foreign_files};
    Suite *suite = suite_create("loader-cases");
    TCase *all = tcase_create("loader-cases");
    tcase_add_checked_fixture(all, begin, end);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_test(all, tests[i]);
    tcase_add_loop_test(all, case_06_untrusted, 0, 2);
    tcase_add_loop_test(all, case_06_untrusted_folder, 0, 2);
    tcase_add_loop_test(all, case_12_constructors, 0, (int)(sizeof at_load / sizeof *at_load));
    tcase_add_loop_test(all, case_14_records, 0, (int)(sizeof records / sizeof *records));
    tcase_add_loop_test(all, case_15_changed_before_the_load, 0, 3);
    tcase_add_loop_test(all, plg_01_symbol_clash, 0, 2);
    suite_add_tcase(suite, all);
    return test_main(suite);
}
