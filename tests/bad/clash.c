/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls a function of its own whose name the program and another plugin have too. CLASH: what it returns.
 */
#ifndef CLASH
#define CLASH 1
#endif
#define CLASH_TEXT_(n) "clash-" #n
#define CLASH_TEXT(n)  CLASH_TEXT_(n)
#define BAD_NAME       CLASH_TEXT(CLASH)
#define BAD_TABLE      &clash_table
#include <tenon/optimizer.h>
int tenon_test_step_kernel(void);
static double clash_scale(const void *k)
{
    (void)k;
    return tenon_test_step_kernel();
}
static const tn_optimizer clash_table = {.struct_size = sizeof(tn_optimizer), .scale = clash_scale};
#include "bad.h"
#ifdef CLASH_SHOWN
__attribute__((visibility("default")))
#endif
int tenon_test_step_kernel(void)
{
    return CLASH;
}
