/* SPDX-License-Identifier: Apache-2.0
 *
 * interface.h: the interfaces of the contract that this host speaks, the kinds behind them and the facts
 * that a note may state. The table in interface.c is the one place to extend for a new kind or fact.
 *
 * Interfaces and kinds that the table does not name belong to third parties and are let through.
 * Thread rule: any thread, any time.
 */
#ifndef TENON_HOST_PLUGIN_INTERFACE_H
#define TENON_HOST_PLUGIN_INTERFACE_H

#include <jansson.h>

#include <tenon/base.h>

/* May a component of `kind` stand behind `interface` ("tenon.optimizer/0.1")? TN_E_PLUGIN, "INTERFACE: file: ...", if
 * the host speaks another revision of it, or serves that kind through another interface. */
int32_t tn_interface_check(const char *file, const char *kind, const char *interface, tn_error *err);

/* Is `key: value` a fact that the host knows of components behind `interface`, or of every component? TN_E_PLUGIN,
 * "NOTE_UNKNOWN: ..." if the key or a word of the value is new to the host, "NOTE_INVALID: ..." if the value has the
 * wrong JSON type. `component` ("adamw") is for messages. */
int32_t tn_fact_check(const char *file, const char *component, const char *interface, const char *key,
                      const json_t *value, tn_error *err);

#endif
