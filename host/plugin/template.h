/* SPDX-License-Identifier: Apache-2.0
 *
 * template.h: a plugin to begin with: the folder of a small, whole technique of each kind, under a name of one's own.
 *
 * The templates are ordinary plugins, sdk/template/<kind>/my-thing.c, which the build compiles too. They stand in
 * template or tenon/template beside the file that holds this code, as plugins do. A new folder gets the files of its
 * kind, of its language (`c`, `c++`) and of `shared`, with these words replaced: my-thing, my_thing, my-kind,
 * my-source.
 */
#ifndef TENON_HOST_PLUGIN_TEMPLATE_H
#define TENON_HOST_PLUGIN_TEMPLATE_H

#include "host/base/text.h"

typedef struct tn_template {
    const char *kind;     /* "optimizer" */
    const char *name;     /* "my-sgd": lower case, digits, '-' */
    const char *language; /* "c" or "c++"; NULL: "c" */
    const char *folder;   /* to be made; NULL: ./NAME */
} tn_template;

typedef struct tn_templated {
    char *folder;    /* absolute */
    char *pkgconfig; /* where tenon-sdk.pc is; NULL: not beside this library */
    tn_text files;   /* their names, a line each */
} tn_templated;

/* Makes the folder, whole or not at all. TN_E_INVALID with the reason for a name that will not do and for a folder that
 * is there and not empty, TN_E_NOT_FOUND for a kind or language without a template, TN_E_IO, TN_E_MEMORY. The caller
 * frees *ret with tn_templated_free. [main] */
int32_t tn_template_write(const tn_template *what, tn_templated *ret, tn_error *err);
void tn_templated_free(tn_templated *templated);

#endif
