/* SPDX-License-Identifier: Apache-2.0
 *
 * binding.h: do a mapped file's references to its own functions lead to them? A function that a file shows to others
 * can be taken from it by one of the same name in the program or in a library that was there before.
 */
#ifndef TENON_HOST_PLUGIN_BINDING_H
#define TENON_HOST_PLUGIN_BINDING_H

#include <link.h>

#include "host/base/log.h"
#include "host/plugin/record.h"

/* TN_E_PLUGIN with SYMBOL_CLASH if a reference to a global symbol that the file defines was bound to another file's;
 * `object`: the file's own ranges. Weak and unique symbols may be shared. Checked on x86-64 and AArch64. [any thread]
 */
int32_t tn_binding_check(const char *path, const struct link_map *map, const tn_object *object, tn_error *err);

/* Warns of each library that the file brings along ($ORIGIN in its search path) while another of that name was loaded
 * before: the system's loader takes that one. [any thread] */
void tn_binding_warn(const char *path, const struct link_map *map, const tn_log *log);

#endif
