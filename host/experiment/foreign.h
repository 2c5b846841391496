/* SPDX-License-Identifier: Apache-2.0
 *
 * foreign.h: instances of the host's own components ffi (host/foreign): their settings as an experiment writes them,
 * and what is bound to them. Of other instances nothing is done.
 */
#ifndef TENON_HOST_EXPERIMENT_FOREIGN_H
#define TENON_HOST_EXPERIMENT_FOREIGN_H

#include "host/experiment/instance.h"
#include "host/experiment/yaml.h"
#include "host/foreign/foreign.h"

/* tn_foreign_check; an error has the place in the setting's text, down to the character of a signature. `node` is the
 * instance's mapping, `place` is for settings that it does not give. [main] */
int32_t tn_foreign_examine(const tn_instance *instance, const tn_yaml *node, tn_place place, tn_error *err);

/* Frees what is bound: the settings changed. [main] */
void tn_foreign_unbind(tn_instance *instance);

#endif
