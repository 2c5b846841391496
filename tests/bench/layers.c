/* SPDX-License-Identifier: Apache-2.0
 *
 * Time of the layers that do no matrix products, one thread, f32, next to memcpy of the same elements. Bytes are those
 * that must move: x and y forward; x or mask, dy and dx backward. Plugins come from TENON_TEST_GOOD.
 */
#include <stdio.h>
#include <time.h>

#include "tests/component.h"
#include "tests/layer_drive.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void copy(drive *d, uint32_t flags, int backward)
{
    (void)flags;
    (void)backward;
    memcpy(d->y.view.data, d->x[0].view.data, d->y.bytes);
    __asm__ volatile("" ::: "memory");
}

/* Nanoseconds an element, the best of many runs. */
static double time_of(drive *d, void (*run)(drive *, uint32_t, int), int backward)
{
    int64_t n = drive_elements(&d->y), repeat = 4000000 / n + 1;
    double best = 1e9;
    for (int round = 0; round < 15; round++) {
        double start = now();
        for (int64_t i = 0; i < repeat; i++)
            run(d, TN_TRAIN | TN_WANT_DX | TN_WANT_DW, backward);
        double spent = (now() - start) / (double)repeat / (double)n * 1e9;
        best = spent < best ? spent : best;
    }
    return best;
}

static void report(const char *what, double ns, double bytes)
{
    printf("  %-22s %6.3f ns %7.1f GB/s\n", what, ns, bytes / ns);
}

START_TEST(times)
{
    static const struct {
        const char *kind, *name;
        double forward, backward; /* bytes an element */
    } layers[] = {{"activation", "relu", 8, 12},
                  {"activation", "gelu", 8, 12},
                  {"regularizer", "dropout", 9, 9},
                  {"normalizer", "layernorm", 8, 12},
                  {"normalizer", "batchnorm", 8, 12}};
    static const int64_t shapes[][2] = {{64, 256}, {4096, 1024}};
    for (int k = 0; k < 2; k++) {
        printf("%lld x %lld\n", (long long)shapes[k][0], (long long)shapes[k][1]);
        for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
            drive d;
            tn_error err = {0};
            tn_layer table = {.struct_size = sizeof table};
            char text[64];
            tn_instance *instance = component_open(layers[i].kind, layers[i].name, 32, &table, sizeof table);
            ck_ok(drive_create(&table, instance->info, instance->hyper, 1, 2, shapes[k], &d, &err), err);
            drive_run(&d, TN_TRAIN, 0);
            if (i == 0)
                report("memcpy", time_of(&d, copy, 0), 8);
            for (int backward = 0; backward <= 1; backward++) {
                snprintf(text, sizeof text, "%s %s", layers[i].name, backward ? "backward" : "forward");
                report(text, time_of(&d, drive_run, backward), backward ? layers[i].backward : layers[i].forward);
            }
            drive_free(&d);
            tn_instance_free(instance);
        }
    }
}
END_TEST

/* The harness reports its own failures through libcheck. */
int main(void)
{
    Suite *suite = suite_create("bench");
    TCase *all = tcase_create("layers");
    tcase_set_timeout(all, 300);
    tcase_add_test(all, times);
    suite_add_tcase(suite, all);
    return test_main(suite);
}
