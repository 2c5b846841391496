/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/failure.h: an error of a call that returns nothing. A service of the host by tn_services.interface, for those
 * to whom arithmetic can fail: a bridge to another language, whose exceptions must end here. Plain C lets NaN through
 * and needs none of this.
 */
#ifndef TENON_FAILURE_H
#define TENON_FAILURE_H

#include <tenon/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TN_FAILURE "tenon.failure/0.1"

typedef struct tn_failure {
    uint32_t struct_size;
    uint32_t reserved;
    /* What is being computed is not to be used: it ends with this error, TN_E_* and text (copied), once all pieces have
     * returned. The first failure is the one that is told. The caller returns as soon as it can, whatever its outputs
     * hold then. `host` is tn_services.host. [any] */
    void (*fail)(void *host, int32_t code, const char *text);
} tn_failure;
TN_SIZE(tn_failure, 16);

#ifdef __cplusplus
}
#endif
#endif
