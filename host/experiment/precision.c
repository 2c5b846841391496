/* SPDX-License-Identifier: Apache-2.0
 *
 * precision.c: the section `precision` of an experiment: a real type, or {use: f32, storage: bf16, ...}.
 */
#include "host/experiment/reader.h"

#include <string.h>

static char *const reals[] = {"f32", "f64"};

#define REAL(name)                                                                                                     \
    {                                                                                                                  \
        TN_OWN_ROW(name, CHOICE, "f32", "f32 | f64", real), .choices = (char **)(uintptr_t)reals, .choice_count = 2    \
    }
static const tn_row precision_row = REAL("precision"), use_row = REAL("use");
static const tn_row master_row = {TN_OWN_ROW("master", FLAG, "true", "", master)};

static int32_t read_mapping(tn_reader *r, const tn_yaml *section)
{
    static const char *const known[] = {"use", "storage", "master", "state", "loss_scale"};
    tn_experiment *e = r->e;
    int32_t status = tn_build_check_keys(section, known, TN_COUNT(known), "precision", r->err);
    if (!status)
        status = tn_reader_own(r, section, &use_row, "precision");
    r->build.real = r->own.real ? 64 : 32;
    if (!status)
        status = tn_reader_own(r, section, &master_row, "precision");
    if (!status)
        status = tn_reader_optional(r, section, "storage", "precision.storage", "codec", &e->storage);
    if (!status)
        status = tn_reader_optional(r, section, "state", "precision.state", "codec", &e->state_codec);
    if (!status)
        status = tn_reader_optional(r, section, "loss_scale", "precision.loss_scale", "loss-scale", &e->loss_scale);
    if (!status && !r->own.master && !e->storage)
        return tn_place_error(
            r->err, TN_E_INVALID, tn_yaml_get(section, "master")->place,
            "'master' of precision is false, so 'storage' must name what parameters are kept in, such "
            "as bf16");
    e->master = r->own.master != 0;
    return status;
}

int32_t tn_reader_precision(tn_reader *r)
{
    const tn_yaml *section = tn_yaml_get(r->root, "precision");
    int is_mapping = section && section->kind == TN_YAML_MAPPING;
    r->build.real = 32;
    r->e->master = 1;
    int32_t status = is_mapping ? read_mapping(r, section) : tn_reader_own(r, r->root, &precision_row, "");
    r->build.real = r->e->real = r->own.real ? 64 : 32;
    return status;
}
