/* SPDX-License-Identifier: Apache-2.0
 *
 * Each call by which a checkpoint reaches the disk fails in turn, or is the last thing that the process does: a good
 * checkpoint always remains, and the run goes on from it to the same end. The calls are taken at link time (--wrap).
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "host/base/memory.h"
#include "tests/small_run.h"

/* ---- the calls ---- */

enum { FAIL, FILL, SHORT, DIE, HOW }; /* EIO; ENOSPC; half of the bytes, then ENOSPC; the process ends before it */

static struct {
    int counting;    /* 1: calls are counted */
    int64_t count;   /* so far */
    int64_t victim;  /* the first that fails; -1: none */
    int how, filled; /* filled: of SHORT, the half was written */
    int64_t named;   /* which call gave the first checkpoint its name */
    int written;     /* bytes that no fsync has put on disk yet; a name likewise */
    int renamed;
    const char *what;
} fault = {.victim = -1};

/* Does this call fail? FILL and SHORT stay: a full disk is full for the next one too. */
static int fails(const char *what)
{
    if (!fault.counting)
        return 0;
    int64_t n = fault.count++;
    if (fault.victim < 0 || n < fault.victim || (fault.how == FAIL && n > fault.victim))
        return 0;
    if (n == fault.victim)
        fault.what = what;
    if (fault.how == DIE)
        _exit(137);
    errno = fault.how == FAIL ? EIO : ENOSPC;
    return 1;
}

ssize_t __real_write(int fd, const void *bytes, size_t count);
int __real_fsync(int fd);
int __real_fdatasync(int fd);
int __real_rename(const char *from, const char *to);
int __real_unlink(const char *path);
int __real_open64(const char *path, int flags, ...);
ssize_t __wrap_write(int fd, const void *bytes, size_t count);
int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_rename(const char *from, const char *to);
int __wrap_unlink(const char *path);
int __wrap_open64(const char *path, int flags, ...);

ssize_t __wrap_write(int fd, const void *bytes, size_t count)
{
    if (!fails("write")) {
        fault.written += fault.counting;
        return __real_write(fd, bytes, count);
    }
    if (fault.how != SHORT || fault.filled || count < 2)
        return -1;
    fault.filled = 1;
    return __real_write(fd, bytes, count / 2);
}

int __wrap_fsync(int fd)
{
    if (fails("fsync"))
        return -1;
    fault.written = fault.renamed = 0;
    return __real_fsync(fd);
}

int __wrap_fdatasync(int fd) { return fails("fdatasync") ? -1 : __real_fdatasync(fd); }

int __wrap_rename(const char *from, const char *to)
{
    if (fails("rename"))
        return -1;
    if (fault.counting && fault.written)
        ck_abort_msg("a file takes its name before its bytes are on disk");
    fault.renamed = fault.counting;
    fault.named = fault.named ? fault.named : fault.count - 1;
    return __real_rename(from, to);
}

/* A failing unlink stops no run: it may die there, and leaves what it would have removed. */
int __wrap_unlink(const char *path)
{
    if (fault.counting && fault.renamed && strstr(path, "/attempt-"))
        ck_abort_msg("an older checkpoint goes before the name of the newer one is on disk");
    return (fault.how == DIE || fault.how == FAIL) && fails("unlink") ? -1 : __real_unlink(path);
}

int __wrap_open64(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    int mode = flags & O_CREAT ? va_arg(args, int) : 0;
    va_end(args);
    return flags & O_CREAT && fails("open") ? -1 : __real_open64(path, flags, mode);
}

/* ---- one life of a run ---- */

typedef struct {
    tn_experiment *experiment;
    tn_trainer *trainer;
} life;

static const char *overrides[] = {"~train.epochs",
                                  "train.steps=3",
                                  "eval.every=2 steps",
                                  "model={use: mlp, widths: [4], regularizer: dropout}",
                                  "update=[{use: sgd, as: rule, momentum: 0.9}]",
                                  "sinks=[jsonl, csv]",
                                  "checkpoint={every: 1 steps, keep: 1, best: 1}"};
#define OVERRIDES (sizeof overrides / sizeof *overrides)

static int32_t born(life *l, tn_error *err)
{
    *l = (life){0};
    int32_t status = tn_experiment_read(registry, file, overrides, OVERRIDES, &l->experiment, err);
    tn_trainer_options options = {.registry = registry, .experiment = l->experiment};
    return status == TN_OK ? tn_trainer_open(&options, &l->trainer, err) : status;
}

static void buried(life *l)
{
    tn_trainer_close(l->trainer);
    tn_experiment_free(l->experiment);
}

/* From the beginning in a new folder, or from its newest checkpoint; calls are counted while the run goes. */
static int32_t live(life *l, const char *folder, int anew, tn_error *err)
{
    char *checkpoint = NULL;
    int32_t status = born(l, err);
    if (status == TN_OK && anew)
        status = tn_trainer_record_in(l->trainer, folder, err);
    if (status == TN_OK && !anew)
        status = tn_checkpoint_restore(l->trainer, folder, &checkpoint, err);
    if (status == TN_OK && !anew)
        status = tn_trainer_continue_in(l->trainer, folder, checkpoint, err);
    tn_free(checkpoint);
    fault.count = 0;
    fault.filled = fault.written = fault.renamed = 0;
    fault.counting = 1;
    if (status == TN_OK)
        status = tn_trainer_run(l->trainer, err);
    fault.counting = 0;
    return status;
}

static void make_empty(const char *folder)
{
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
}

/* The state at the end, as a file without lengths of the sinks' files, which differ by the digits of times. */
static char *state_of(life *l, size_t *ret_size)
{
    tn_error err = {0};
    const char *path = in_test("state");
    fault.victim = -1;
    life copy; /* a trainer without sinks says no lengths */
    ck_ok(tn_trainer_save(l->trainer, path, &err), err);
    ck_ok(born(&copy, &err), err);
    ck_ok(tn_trainer_restore(copy.trainer, path, &err), err);
    ck_ok(tn_trainer_save(copy.trainer, path, &err), err);
    buried(&copy);
    FILE *in = fopen(path, "rb");
    char *bytes = malloc(1 << 20);
    *ret_size = fread(bytes, 1, 1 << 20, in);
    fclose(in);
    return bytes;
}

/* What there is under a checkpoint's name is whole, but for the one at attempt 0 that was not yet there. */
static int count_good(const char *folder)
{
    char path[2 * PATH_MAX];
    tn_error err = {0};
    int good = 0;
    snprintf(path, sizeof path, "%s/checkpoints", folder);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (!strncmp(entry->d_name, "attempt-", 8)) {
            life l;
            snprintf(path, sizeof path, "%s/checkpoints/%.200s", folder, entry->d_name);
            ck_ok(born(&l, &err), err);
            ck_ok(tn_trainer_restore(l.trainer, path, &err), err);
            buried(&l);
            good++;
        }
    if (dir)
        closedir(dir);
    return good;
}

/* Of a run that nothing befell: its end, and the call that gave its first checkpoint its name. */
static char *whole;
static size_t whole_size;
static int64_t first_named;

/* Goes on without faults: the end is that of a run that nothing befell. */
static void finish(const char *folder, int64_t nth)
{
    life l;
    size_t size;
    tn_error err = {0};
    fault.victim = -1;
    int good = count_good(folder);
    ck_assert_msg(good > 0 || nth <= first_named, "call %d, %s: no good checkpoint is left", (int)nth,
                  fault.what ? fault.what : "the last");
    if (good == 0) /* not even the first was written: the run never began */
        make_empty(folder);
    ck_ok(live(&l, folder, good == 0, &err), err);
    char *state = state_of(&l, &size);
    ck_assert_msg(size == whole_size && !memcmp(state, whole, size), "call %d: another end", (int)nth);
    free(state);
    buried(&l);
}

/* How many calls a run makes. */
static int64_t live_whole(const char *folder)
{
    life l;
    tn_error err = {0};
    make_empty(folder);
    fault.named = 0;
    ck_ok(live(&l, folder, 1, &err), err);
    int64_t count = fault.count;
    first_named = fault.named;
    whole = state_of(&l, &whole_size);
    buried(&l);
    return count;
}

static void die_at(const char *folder, int64_t nth)
{
    int status;
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        life l;
        tn_error err = {0};
        live(&l, folder, 1, &err);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 137, "call %d: status %d", (int)nth, status);
}

START_TEST(a_good_checkpoint_always_remains)
{
    char folder[2 * PATH_MAX];
    int64_t survived = 0;
    snprintf(folder, sizeof folder, "%s", in_test("run"));
    fault.how = _i;
    int64_t calls = live_whole(folder);
    ck_assert_int_gt(calls, 50);
    for (int64_t nth = 0; nth < calls; nth++) {
        life l;
        tn_error err = {0};
        make_empty(folder);
        fault.victim = nth;
        if (_i == DIE) {
            die_at(folder, nth);
        } else {
            int32_t status = live(&l, folder, 1, &err);
            if (status == TN_OK)
                survived++;
            else
                ck_assert_msg(status == TN_E_IO && err.msg[0], "call %d: %s", (int)nth, err.msg);
            if (status != TN_OK && _i != FAIL)
                ck_assert_msg(strstr(err.msg, strerror(ENOSPC)) && strstr(err.msg, "make room"), "%s", err.msg);
            buried(&l);
        }
        finish(folder, nth);
    }
    /* A run lives on where only what it no longer needs could not be removed. */
    ck_assert_msg(_i == FAIL ? survived > 0 && survived < calls / 4 : survived == 0, "%d of %d", (int)survived,
                  (int)calls);
    free(whole);
}
END_TEST

/* CKP-01, a disk that is full: one with room for three checkpoints and a half, if this process may mount it. */
START_TEST(a_full_disk_keeps_the_old_checkpoint)
{
    char folder[2 * PATH_MAX], disk[PATH_MAX], size[32], message[1024];
    tn_error err = {0};
    life l;
    snprintf(disk, sizeof disk, "%s", in_test("disk"));
    snprintf(folder, sizeof folder, "%s/run", disk);
    ck_assert_int_eq(mkdir(disk, 0700), 0);
    overrides[OVERRIDES - 1] = "checkpoint={every: 1 steps, keep: 0}";
    live_whole(in_test("elsewhere"));
    snprintf(size, sizeof size, "size=%zu", whole_size / 2 * 7);
    if (mount("tmpfs", disk, "tmpfs", 0, size) != 0) {
        fprintf(stderr, "no disk of its own, mount: %s: the full one is not tried\n", strerror(errno));
        return;
    }
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    int32_t status = live(&l, folder, 1, &err);
    snprintf(message, sizeof message, "%s", status == TN_OK ? "it had room" : err.msg);
    buried(&l);
    int good = count_good(folder);
    if (good > 0 && mount("tmpfs", disk, "tmpfs", MS_REMOUNT, "size=64m") == 0)
        finish(folder, INT64_MAX);
    umount2(disk, MNT_DETACH);
    ck_assert_msg(status == TN_E_IO && good > 0, "%d good ones; %s", good, message);
    ck_assert_msg(strstr(message, strerror(ENOSPC)) && strstr(message, "make room"), "%s", message);
    free(whole);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("faults");
    TCase *tests = tcase_create("faults");
    tcase_set_timeout(tests, 110);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, a_good_checkpoint_always_remains, 0, HOW);
    tcase_add_test(tests, a_full_disk_keeps_the_old_checkpoint);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
