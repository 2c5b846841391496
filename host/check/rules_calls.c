/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_calls.c: what is required of every call of a component, looked at after each rule that makes some.
 */
#include <fenv.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#if defined __x86_64__
#include <xmmintrin.h>
#endif

#include "host/check/check.h"

/* ---- modes of floating point ---- */

tn_check_modes tn_check_modes_read(void)
{
    tn_check_modes found = {.rounding = fegetround()};
#if defined __x86_64__
    unsigned short word;
    __asm__ volatile("fnstcw %0" : "=m"(word));
    found.x87 = word;
    found.sse = _mm_getcsr() & ~0x3Fu;
#elif defined __aarch64__
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    found.sse = (unsigned)control;
#endif
    return found;
}

bool tn_check_modes_compare(tn_check_modes before, char *words, size_t size)
{
    tn_check_modes now = tn_check_modes_read();
    if (now.rounding != before.rounding)
        snprintf(words, size, "the direction of rounding is %d, was %d", now.rounding, before.rounding);
    else if (now.sse != before.sse)
        snprintf(words, size, "the control word is 0x%04x, was 0x%04x", now.sse, before.sse);
    else if (now.x87 != before.x87)
        snprintf(words, size, "the control word of long double is 0x%04x, was 0x%04x", now.x87, before.x87);
    else
        return false;
    return true;
}

/* ---- after each rule ---- */

void tn_check_calls_look(const tn_check_subject *subject, tn_check_modes before, tn_check_finding *finding)
{
    char said[128];
    fflush(NULL);
    ssize_t n = pread(subject->output, said, sizeof said - 1, 0);
    if (n > 0) {
        said[n] = '\0';
        said[strcspn(said, "\n")] = '\0';
        snprintf(finding->left, sizeof finding->left, "it prints \"%s\"", said);
    } else {
        tn_check_modes_compare(before, finding->left, sizeof finding->left);
    }
}

void tn_check_calls_judge(const tn_check_finding *others, size_t count, tn_check_finding *finding)
{
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        const tn_check_finding *other = &others[i];
        if (strcmp(other->component, finding->component) != 0)
            continue;
        any = true;
        if (*other->left)
            tn_check_fail(finding, "%s in the calls of rule %s", other->left, other->rule);
    }
    if (!any)
        tn_check_skip(finding, "it is about the calls of the other rules; run it with some of them");
}

static bool is_component(const tn_check_subject *subject) { return subject->entry; }

const tn_check_rule tn_check_calls_rules[] = {
    {"calls-process", "no call prints or leaves rounding and flush-to-zero changed: both belong to the program",
     is_component, NULL},
    {0},
};
