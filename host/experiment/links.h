/* SPDX-License-Identifier: Apache-2.0
 *
 * links.h: the links of an update chain from text of their own, without an experiment round them.
 */
#ifndef TENON_HOST_EXPERIMENT_LINKS_H
#define TENON_HOST_EXPERIMENT_LINKS_H

#include "host/experiment/instance.h"

/* What stands under `update:` in an experiment: a list, or one link. `real` is 32 or 64. Errors name line and column
 * of the text. The caller frees *ret with tn_links_free; the registry must outlive it. TN_E_INVALID, TN_E_NOT_FOUND,
 * TN_E_PLUGIN, TN_E_MEMORY. [main] */
int32_t tn_links_parse(tn_registry *registry, const char *text, uint32_t real, tn_instance ***ret, size_t *ret_count,
                       tn_error *err);
void tn_links_free(tn_instance **links, size_t count);

#endif
