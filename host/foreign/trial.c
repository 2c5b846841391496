/* SPDX-License-Identifier: Apache-2.0
 *
 * trial.c: the first calls of a foreign function, in a child process: what it does there can not end the run. The
 * child says what it is doing in memory that both share; its error, or the signal that ended it, becomes ours.
 *
 * Looked for: a crash (inf and nan included, which a run that diverges brings), a call that does not return, arrays
 * written or read beside what was lent, other results for the same numbers, and derivatives that are not the
 * function's.
 */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <tenon/scheduler.h>
#include <unistd.h>

#include "host/check/guard.h"
#include "host/foreign/internal.h"

#define SECONDS 10
#define POINTS  1024 /* numbers from low to high */
#define SPECIAL 9
#define CUT     64    /* a multiple of what pieces begin at */
#define LIMIT   1e-3  /* of the largest derivative seen: how far two may be apart, f32 */
#define LIMIT64 1e-6  /* f64 */
#define PLACE   0.382 /* of a point within its part of the range, so that none is a round number */

typedef struct {
    int32_t done, status;
    int32_t is_at; /* 1: `x` is what it was called with */
    double x;
    char doing[64];    /* "tanhf" */
    char touched[256]; /* of guard.h */
    tn_error err;
} report;

typedef struct {
    const tn_foreign *foreign;
    report *report;
    tn_error *err;
} trial;

/* ---- in the child: numbers ---- */

static double point(const trial *t, int64_t i)
{
    static const double special[SPECIAL] = {0, -0.0, 1, -1, 1e30, -1e30, INFINITY, -INFINITY, NAN};
    const tn_foreign *f = t->foreign;
    return i < POINTS ? f->low + (f->high - f->low) * (((double)i + PLACE) / POINTS) : special[i - POINTS];
}

/* Arrays of all points, x to be read only, each at the end of what may be touched. */
typedef struct {
    tn_guard x, y, again;
    size_t size; /* of a number */
} arrays;

static int32_t open_arrays(const trial *t, arrays *a)
{
    a->size = t->foreign->real / 8;
    size_t bytes = (POINTS + SPECIAL) * a->size;
    int32_t status = tn_guard_open("x", bytes, a->size, TN_GUARD_END, &a->x, t->err);
    if (status == TN_OK)
        status = tn_guard_open("y", bytes, a->size, TN_GUARD_END, &a->y, t->err);
    if (status == TN_OK)
        status = tn_guard_open("y", bytes, a->size, TN_GUARD_END, &a->again, t->err);
    for (int64_t i = 0; i < POINTS + SPECIAL && status == TN_OK; i++)
        if (a->size == sizeof(float))
            ((float *)a->x.data)[i] = (float)point(t, i);
        else
            ((double *)a->x.data)[i] = point(t, i);
    if (status == TN_OK)
        tn_guard_read_only(&a->x, 1);
    return status;
}

static double number_at(const tn_guard *array, size_t size, int64_t i)
{
    return size == sizeof(float) ? (double)((float *)array->data)[i] : ((double *)array->data)[i];
}

static void call_part(const tn_function *f, const arrays *a, int64_t lo, int64_t n, const tn_guard *out)
{
    if (a->size == sizeof(float))
        tn_function_f32(f, n, (const float *)a->x.data + lo, (float *)out->data + lo);
    else
        tn_function_f64(f, n, (const double *)a->x.data + lo, (double *)out->data + lo);
}

/* One number at a time where that is how it is called, so that the report knows which. */
static void call_all(const trial *t, const tn_function *f, const arrays *a)
{
    int64_t all = POINTS + SPECIAL, each = f->signature.y >= 0 ? all : 1;
    t->report->is_at = each == 1;
    for (int64_t i = 0; i < all; i += each) {
        t->report->x = number_at(&a->x, a->size, i);
        call_part(f, a, i, each, &a->y);
    }
}

static int32_t compare(const trial *t, const arrays *a)
{
    const char *y = a->y.data, *again = a->again.data;
    int64_t i = 0;
    while (i < POINTS + SPECIAL && memcmp(y + (size_t)i * a->size, again + (size_t)i * a->size, a->size) == 0)
        i++;
    if (i == POINTS + SPECIAL)
        return TN_OK;
    return tn_error_set(t->err, TN_E_PLUGIN,
                        "FOREIGN_UNSTEADY: %s(%g) gave %g and then %g; a run could not be done again: the result must "
                        "depend on the element alone",
                        t->report->doing, number_at(&a->x, a->size, i), number_at(&a->y, a->size, i),
                        number_at(&a->again, a->size, i));
}

/* The same in other order and other parts. */
static int32_t try_elements(const trial *t, const char *name, const tn_function *f, arrays *a)
{
    snprintf(t->report->doing, sizeof t->report->doing, "%s", name);
    call_all(t, f, a);
    t->report->is_at = 0;
    call_part(f, a, CUT, POINTS + SPECIAL - CUT, &a->again);
    call_part(f, a, 0, CUT, &a->again);
    return compare(t, a);
}

/* ---- in the child: derivatives ---- */

typedef struct {
    double x[POINTS], given[POINTS], narrow[POINTS], wide[POINTS];
    double largest, limit;
} slopes;

static void find_slopes(const trial *t, const arrays *a, slopes *s)
{
    const tn_foreign *f = t->foreign;
    for (int64_t lo = 0; lo < POINTS; lo += TN_EXPRESSION_RUN) {
        float out[TN_EXPRESSION_RUN];
        for (int64_t i = lo; i < lo + TN_EXPRESSION_RUN; i++)
            s->x[i] = number_at(&a->x, a->size, i);
        tn_slope_differences(f, 1, TN_EXPRESSION_RUN, s->x + lo, s->narrow + lo);
        tn_slope_differences(f, 2, TN_EXPRESSION_RUN, s->x + lo, s->wide + lo);
        if (f->real == 64)
            tn_slope_f64(f, TN_EXPRESSION_RUN, s->x + lo, (const double *)a->y.data + lo, s->given + lo);
        else
            tn_slope_f32(f, TN_EXPRESSION_RUN, (const float *)a->x.data + lo, (const float *)a->y.data + lo, out);
        for (int64_t i = 0; f->real == 32 && i < TN_EXPRESSION_RUN; i++)
            s->given[lo + i] = (double)out[i];
    }
    for (int64_t i = 0; i < POINTS; i++)
        s->largest = fmax(s->largest, isfinite(s->narrow[i]) ? fabs(s->narrow[i]) : 0);
}

static int apart(const slopes *s, double a, double b) { return !(fabs(a - b) <= s->limit * s->largest); }

/* Without a derivative the differences themselves must be good enough. */
static int32_t check_differences(const trial *t, const slopes *s)
{
    for (int64_t i = 0; i < POINTS; i++)
        if (!isfinite(s->narrow[i]) || apart(s, s->narrow[i], s->wide[i]))
            return tn_error_set(t->err, TN_E_INVALID,
                                "FOREIGN_DERIVATIVE: %s can not be differentiated by differences near x = %g: two "
                                "widths give %g and %g; give `derivative`, or narrow the range `low` to `high`",
                                t->foreign->symbol, s->x[i], s->narrow[i], s->wide[i]);
    return TN_OK;
}

/* Where the function is smooth, the derivative that was given must be its own. */
static int32_t check_given(const trial *t, const slopes *s)
{
    for (int64_t i = 0; i < POINTS; i++)
        if (isfinite(s->narrow[i]) && !apart(s, s->narrow[i], s->wide[i]) && apart(s, s->narrow[i], s->given[i]))
            return tn_error_set(t->err, TN_E_INVALID,
                                "FOREIGN_DERIVATIVE: `derivative: %s` gives %g at x = %g, where differences of %s give "
                                "%g",
                                t->foreign->derivative_symbol, s->given[i], s->x[i], t->foreign->symbol, s->narrow[i]);
    return TN_OK;
}

static int32_t try_slopes(const trial *t, arrays *a)
{
    static slopes s; /* of the child */
    const tn_foreign *f = t->foreign;
    int is_f32 = f->function.signature.result == TN_NUMBER_F32 || f->real == 32;
    int32_t status = TN_OK;
    if (f->slope == TN_SLOPE_SYMBOL) {
        status = try_elements(t, f->derivative_symbol, &f->derivative, a);
        call_part(&f->function, a, 0, POINTS, &a->y); /* y again */
    }
    if (status != TN_OK)
        return status;
    snprintf(t->report->doing, sizeof t->report->doing, "%s", f->symbol);
    s.limit = is_f32 ? LIMIT : LIMIT64;
    find_slopes(t, a, &s);
    return f->slope == TN_SLOPE_DIFFERENCES ? check_differences(t, &s) : check_given(t, &s);
}

static int32_t try_all_elements(const trial *t)
{
    static arrays a;
    int32_t status = open_arrays(t, &a);
    if (status == TN_OK)
        status = try_elements(t, t->foreign->symbol, &t->foreign->function, &a);
    return status == TN_OK && t->foreign->slope != TN_SLOPE_NONE ? try_slopes(t, &a) : status;
}

/* ---- in the child: positions ---- */

static int32_t try_positions(const trial *t)
{
    static const int64_t steps[] = {0, 1, 2, 99, 500, 999, 1000, INT64_C(1) << 40};
    double value[2][sizeof steps / sizeof *steps];
    snprintf(t->report->doing, sizeof t->report->doing, "%s", t->foreign->symbol);
    int count = (int)(sizeof steps / sizeof *steps);
    for (int i = 0; i < 2 * count; i++) {
        int64_t step = steps[i < count ? i : 2 * count - 1 - i];
        const double samples = 64.0 * (double)step;
        const tn_position at = {.struct_size = sizeof at,
                                .step = step,
                                .horizon = 1000,
                                .base = 0.1,
                                .epoch = samples / 6400,
                                .samples = samples,
                                .tokens = samples,
                                .batch = 64,
                                .pass = 100};
        t->report->is_at = 0;
        value[i < count ? 0 : 1][i < count ? i : 2 * count - 1 - i] = tn_foreign_at(t->foreign, &at);
    }
    for (int i = 0; i < count; i++)
        if (memcmp(&value[0][i], &value[1][i], sizeof(double)) != 0)
            return tn_error_set(t->err, TN_E_PLUGIN,
                                "FOREIGN_UNSTEADY: %s at step %lld gave %g and then %g; a scheduler depends on the "
                                "position alone",
                                t->foreign->symbol, (long long)steps[i], value[0][i], value[1][i]);
    return TN_OK;
}

/* ---- the child ---- */

static void quiet_signals(void)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM, SIGTRAP, SIGSYS};
    sigset_t none;
    sigemptyset(&none);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        signal(faults[i], SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    alarm(SECONDS);
}

static void child(const trial *t, int32_t purpose)
{
    report *r = t->report;
    quiet_signals();
    tn_guard_watch(r->touched, sizeof r->touched);
    r->status = purpose == TN_FOR_SCHEDULE ? try_positions(t) : try_all_elements(t);
    r->done = 1;
    _exit(0);
}

/* ---- the parent ---- */

static int32_t tell_end(const report *r, int status, tn_error *err)
{
    char where[64] = "", how[64];
    if (r->is_at)
        snprintf(where, sizeof where, " at x = %g", r->x);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        snprintf(how, sizeof how, "did not return within %d seconds", SECONDS);
    else if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "was ended by SIG%s", sigabbrev_np(WTERMSIG(status)));
    else
        snprintf(how, sizeof how, "ended the process with exit code %d", WEXITSTATUS(status));
    return tn_error_set(err, TN_E_PLUGIN,
                        "FOREIGN_CRASH: %s %s%s%s%s when it was tried; is the signature the function's own?", r->doing,
                        how, where, r->touched[0] ? ", " : "", r->touched);
}

static int32_t fork_and_wait(const trial *t, int32_t purpose, tn_error *err)
{
    int status = 0;
    pid_t pid = fork();
    if (pid < 0)
        return tn_error_set(err, TN_E_IO, "%s: no process to try it in: %s", t->foreign->symbol, strerror(errno));
    if (pid == 0)
        child(t, purpose);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!t->report->done)
        return tell_end(t->report, status, err);
    return t->report->status == TN_OK ? TN_OK : tn_error_set(err, t->report->status, "%s", t->report->err.msg);
}

int32_t tn_foreign_try(const tn_foreign *foreign, int32_t purpose, tn_error *err)
{
    report *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (r == MAP_FAILED)
        return tn_error_set(err, TN_E_MEMORY, "%s: no memory to try it", foreign->symbol);
    const trial t = {foreign, r, &r->err};
    int32_t status = fork_and_wait(&t, purpose, err);
    munmap(r, sizeof *r);
    return status;
}
