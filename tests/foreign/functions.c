/* SPDX-License-Identifier: Apache-2.0
 *
 * functions.c: a library that knows nothing of tenon, for test_foreign: functions of several shapes, and wrong ones.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

int32_t some_data = 3;
static volatile uintptr_t nowhere = 8; /* an address where nothing is */

/* ---- shapes ---- */

float half_f(float x) { return x / 2; }
double square(double x) { return x * x; }
double square_slope(double x) { return 2 * x; }
float add_f(float x, float c) { return x + c; }
float take_f(float c, float x) { return c - x; }
double add(double x, double c) { return x + c; }
double take(double c, double x) { return c - x; }
double power(int32_t n, double x) { return pow(x, n); }
double mixed(float a, uint32_t b, double x, int64_t c, uint64_t d) { return a * x + (double)b + (double)c + (double)d; }
float to_float(double x) { return (float)(2 * x); }

void twice_f(int64_t n, const float *x, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = 2 * x[i];
}

void scale_in_place(double *y, double c, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        y[i] *= c;
}

/* ---- schedules ---- */

double ratio(int64_t step, double horizon) { return (double)step / horizon; }
int32_t whole(int32_t step) { return -step; }
double constant(void) { return 0.25; }

/* ---- wrong ---- */

double crash(double x)
{
    if (x > 3)
        *(volatile int *)nowhere = 1;
    return x;
}

double crash_at_nan(double x) { return isnan(x) ? *(volatile const double *)nowhere : x; }

double leave(double x)
{
    if (x > 1)
        _exit(7);
    return x;
}

double hang(double x)
{
    while (x > 2)
        ;
    return x;
}

double unsteady(double x)
{
    static double calls;
    return x + ++calls;
}

double unsteady_step(double step)
{
    static double calls;
    return step + ++calls;
}

/* One element too many. */
void beyond(int64_t n, const double *x, double *y)
{
    for (int64_t i = 0; i <= n; i++)
        y[i] = x[i < n ? i : 0];
}

void into_x(int64_t n, double *x, double *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] = 0;
}

/* Other results for other cuts. */
void by_length(int64_t n, const double *x, double *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] + (double)n;
}

double kink(double x) { return fabs(x); }
double kink_slope(double x) { return (x > 0) - (x < 0); }
