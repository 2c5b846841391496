/* SPDX-License-Identifier: Apache-2.0
 *
 * libraries.c: BLAS in the right flavour, and the CUDA driver.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tenon/backend.h>

#include "host/base/memory.h"
#include "host/doctor/doctor.h"

/* ---- backends ---- */

static void say_log(void *host, int32_t level, const char *text)
{
    (void)host;
    (void)level;
    (void)text;
}

static const void *no_interface(void *host, const char *id)
{
    (void)host;
    (void)id;
    return NULL;
}

static void examine_backend(tn_doctor *d, const tn_entry_info *entry)
{
    static const tn_services services = {sizeof(tn_services), 0, NULL, say_log, no_interface};
    tn_backend backend = {0};
    tn_error why = {0};
    int32_t status = tn_registry_load(d->registry, entry, &backend, sizeof backend, &why);
    if (status == TN_OK && backend.probe)
        status = backend.probe(&services, &why);
    if (status != TN_OK && strstr(why.msg, "libopenblas"))
        tn_doctor_add(d, "BLAS", TN_DOCTOR_WRONG,
                      "apt-get install libopenblas0-pthread, or choose that flavour with update-alternatives; until "
                      "then write `backend: reference`",
                      "%s", why.msg);
    else if (status != TN_OK)
        tn_doctor_add_error(d, "BLAS", &why);
    else
        tn_doctor_add(d, "BLAS", TN_DOCTOR_OK, NULL, "backend %s: %s, one thread a call", entry->name,
                      backend.describe ? backend.describe() : entry->summary);
}

static void examine_backends(tn_doctor *d)
{
    int found = 0;
    for (size_t i = 0; i < tn_registry_count(d->registry); i++) {
        const tn_entry_info *entry = tn_registry_at(d->registry, i);
        if (entry->state != TN_FOUND || strcmp(entry->interface, TN_BACKEND) != 0 || strcmp(entry->device, "cpu") != 0)
            continue;
        examine_backend(d, entry);
        found |= strcmp(entry->name, "openblas") == 0;
    }
    if (!found)
        tn_doctor_add(d, "BLAS", TN_DOCTOR_NOTE,
                      "build or install backend-openblas.so; until then write `backend: "
                      "reference`",
                      "there is no backend openblas, which experiments take if they name none");
}

/* ---- CUDA ---- */

#define TOPIC       "CUDA"
#define NO_DEVICE   100 /* CUDA_ERROR_NO_DEVICE */
#define STUB_DRIVER 34  /* CUDA_ERROR_STUB_LIBRARY */

static size_t count_cuda(const tn_registry *registry)
{
    size_t count = 0;
    for (size_t i = 0; i < tn_registry_count(registry); i++)
        count += strcmp(tn_registry_at(registry, i)->device, "cuda") == 0;
    return count;
}

/* Is the driver's part in the kernel there? */
static int has_kernel_driver(void)
{
    return access("/proc/driver/nvidia/version", F_OK) == 0 || access("/dev/nvidiactl", F_OK) == 0;
}

static void without_library(tn_doctor *d, const char *why)
{
    if (has_kernel_driver())
        tn_doctor_add(d, TOPIC, TN_DOCTOR_WRONG, "apt-get install libcuda1; in a container, start it with --gpus all",
                      "the kernel has an NVIDIA driver, the library is missing: %s", why);
    else
        tn_doctor_add(d, TOPIC, TN_DOCTOR_NOTE,
                      "where there is an NVIDIA device: apt-get install nvidia-driver; in a container, start it with "
                      "--gpus all",
                      "no driver: components of the device cuda can not run here; those of cpu can");
}

static void name_device(void *library, int device, char *ret, int size)
{
    int (*get)(int *, int) = (int (*)(int *, int))dlsym(library, "cuDeviceGet");
    int (*name)(char *, int, int) = (int (*)(char *, int, int))dlsym(library, "cuDeviceGetName");
    int handle;
    if (!get || !name || get(&handle, device) != 0 || name(ret, size, handle) != 0)
        strcpy(ret, "unknown");
    ret[size - 1] = '\0';
}

static void with_devices(tn_doctor *d, void *library, int count)
{
    char name[128] = "";
    int version = 0;
    int (*get_version)(int *) = (int (*)(int *))dlsym(library, "cuDriverGetVersion");
    if (get_version)
        get_version(&version);
    name_device(library, 0, name, sizeof name);
    tn_doctor_add(d, TOPIC, TN_DOCTOR_OK, NULL, "%d device%s, the first is %s; the driver speaks CUDA %d.%d", count,
                  count == 1 ? "" : "s", name, version / 1000, version % 1000 / 10);
}

static void with_library(tn_doctor *d, void *library)
{
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    int (*get_count)(int *) = (int (*)(int *))dlsym(library, "cuDeviceGetCount");
    int count = 0, code = init ? init(0) : -1;
    if (code == 0 && get_count)
        code = get_count(&count);
    const char *hidden = getenv("CUDA_VISIBLE_DEVICES");
    if (code == 0 && count > 0)
        with_devices(d, library, count);
    else if ((code == 0 || code == NO_DEVICE) && hidden)
        tn_doctor_add(d, TOPIC, TN_DOCTOR_WRONG, "unset CUDA_VISIBLE_DEVICES, or name a device that there is",
                      "no device is visible, and CUDA_VISIBLE_DEVICES is \"%s\"", hidden);
    else if (code == 0 || code == NO_DEVICE)
        tn_doctor_add(d, TOPIC, has_kernel_driver() ? TN_DOCTOR_WRONG : TN_DOCTOR_NOTE,
                      "see what nvidia-smi says; in a container, start it with --gpus all",
                      "the driver's library is there and finds no device");
    else
        tn_doctor_add(d, TOPIC, TN_DOCTOR_WRONG,
                      code == STUB_DRIVER ? "take the folder of stubs off LD_LIBRARY_PATH"
                                          : "see what nvidia-smi says; after an upgrade of the driver, boot again",
                      "the driver does not start: cuInit returned %d", code);
}

/* The driver is looked for only where something would use it. It is never unmapped. */
static void examine_cuda(tn_doctor *d)
{
    if (count_cuda(d->registry) == 0) {
        tn_doctor_add(d, TOPIC, TN_DOCTOR_OK, NULL, "not looked for: no component is of the device cuda");
        return;
    }
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library)
        with_library(d, library);
    else
        without_library(d, dlerror());
}

void tn_doctor_libraries(tn_doctor *d)
{
    examine_backends(d);
    examine_cuda(d);
}
