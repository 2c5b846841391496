/* SPDX-License-Identifier: Apache-2.0
 *
 * One rule's two builds side by side, for the CPU and for CUDA from the same source: the constants that its host part
 * computes must have the same bits; where there is a device, ten updates on it must agree with the CPU's.
 *   rule CPU.so CUDA.so
 * Exit 0: all agreed; 77: the host part agreed, and there is no device to go on with; 1: they differ.
 */
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tenon/optimizer.h>
#include <tenon/plugin.h>

enum { N = 100003, SLOTS = 8 };

/* The defaults of adamw's rows, in their order. */
static const double hyper[] = {1e-3, 0.9, 0.999, 1e-8, 1e-2};

static const tn_optimizer *open_rule(const char *path, const char *device)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    tn_entry *entry = library ? (tn_entry *)dlsym(library, TN_ENTRY) : NULL;
    const tn_plugin *plugin = entry ? entry(NULL) : NULL;
    if (!plugin || strcmp(plugin->components[0]->note->device, device) != 0) {
        fprintf(stderr, "%s: no plugin for %s: %s\n", path, device, library ? "wrong note" : dlerror());
        exit(1);
    }
    return (const tn_optimizer *)plugin->components[0]->table;
}

static void constants(const tn_optimizer *rule, int64_t t, void *k)
{
    tn_clock clock = {sizeof clock, 0, t, t - 1, t - 1, nullptr};
    memset(k, 0, TN_CONSTANTS_MAX);
    rule->begin(hyper, &clock, k);
}

static void compare_host_parts(const tn_optimizer *cpu, const tn_optimizer *cuda)
{
    static const int64_t clocks[] = {1, 2, 10, 1000, (int64_t)1 << 31, (int64_t)1 << 40};
    unsigned char a[TN_CONSTANTS_MAX], b[TN_CONSTANTS_MAX];
    int same = cpu->constants_bytes == cuda->constants_bytes;
    for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        constants(cpu, clocks[i], a);
        constants(cuda, clocks[i], b);
        same = same && memcmp(a, b, sizeof a) == 0 && cpu->keep(a) == cuda->keep(b);
    }
    if (!same) {
        fprintf(stderr, "the host parts differ\n");
        exit(1);
    }
}

/* Arrays of one side: p, g, d and two slots. */
struct arrays {
    float *at[5];
};

static void step(const tn_optimizer *rule, int64_t t, const struct arrays *x)
{
    unsigned char k[TN_CONSTANTS_MAX];
    void *slot[SLOTS] = {x->at[3], x->at[4]};
    tn_piece piece;
    memset(&piece, 0, sizeof piece);
    constants(rule, t, k);
    piece.struct_size = sizeof piece;
    piece.hyper = hyper;
    piece.k = k;
    piece.n = N;
    piece.scale = 1;
    piece.p = x->at[0];
    piece.g = x->at[1];
    piece.d = x->at[2];
    piece.slot = slot;
    rule->update(&piece);
}

int main(int argc, char **argv)
{
    struct arrays host, device;
    int devices = 0;
    if (argc != 3)
        return fprintf(stderr, "usage: rule CPU.so CUDA.so\n"), 1;
    const tn_optimizer *cpu = open_rule(argv[1], "cpu"), *cuda = open_rule(argv[2], "cuda");
    compare_host_parts(cpu, cuda);
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
        return printf("host parts agree; no CUDA device here: the kernel was not run\n"), 77;
    for (int i = 0; i < 5; i++) {
        host.at[i] = (float *)aligned_alloc(64, (N + 64) * sizeof(float));
        for (int j = 0; j < N; j++)
            host.at[i][j] = i < 2 ? sinf((float)(j * (i + 1))) : 0;
        cudaMalloc((void **)&device.at[i], (N + 64) * sizeof(float));
        cudaMemcpy(device.at[i], host.at[i], N * sizeof(float), cudaMemcpyHostToDevice);
    }
    float *d = (float *)malloc(N * sizeof(float));
    double worst = 0;
    for (int64_t t = 1; t <= 10; t++) {
        step(cpu, t, &host);
        step(cuda, t, &device);
        if (cudaMemcpy(d, device.at[2], N * sizeof(float), cudaMemcpyDeviceToHost) != cudaSuccess)
            return fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(cudaGetLastError())), 1;
        for (int j = 0; j < N; j++)
            worst = fmax(worst, fabs((double)d[j] - host.at[2][j]) / (fabs((double)host.at[2][j]) + 1e-12));
    }
    printf("largest relative difference of a step: %g\n", worst);
    return worst <= 2e-6 ? 0 : 1;
}
