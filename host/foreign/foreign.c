/* SPDX-License-Identifier: Apache-2.0
 *
 * foreign.c: from the settings of an instance to a function that can be called.
 */
#include "host/foreign/foreign.h"

#include <string.h>

#include "host/base/memory.h"
#include "host/foreign/internal.h"
#include "host/foreign/library.h"
#include "host/plugin/hash.h"

/* The rows that all three have, at the start of each hyper struct. */
TN_FOREIGN_DECLARE(common, TN_FOREIGN_ROWS)

TN_NOTE_(plugin_note, TN_NOTE_PLUGIN, "org.tenon.ffi", "0.1.0", "", "", "", "", 0u, "", "{\"licence\":\"Apache-2.0\"}");
const tn_note *const tn_foreign_note = &plugin_note.head;

const tn_component *tn_foreign_component(int i)
{
    const tn_component *const all[TN_FOREIGN_COMPONENTS] = {tn_foreign_activation, tn_foreign_scheduler,
                                                            tn_foreign_transform};
    return all[i];
}

/* What settings say, as far as it can be known without mapping anything. */
typedef struct {
    char *path; /* of the library's file */
    tn_signature signature;
    int32_t slope;
    tn_expression expression;
} reading;

typedef struct {
    const char *kind;
    const void *hyper;
    uint32_t real;
    tn_foreign_fault *fault;
    tn_error *err;
} reader;

static int32_t at_fault(const reader *r, const char *row, size_t at, int32_t status)
{
    if (status != TN_OK)
        *r->fault = (tn_foreign_fault){row, at};
    return status;
}

static int32_t purpose_of(const char *kind)
{
    return strcmp(kind, "scheduler") == 0 ? TN_FOR_SCHEDULE : TN_FOR_ELEMENTS;
}

/* ---- reading ---- */

static int32_t read_expression(const reader *r, const char *row, const char *text, const char *const *names,
                               tn_expression *ret)
{
    size_t at = 0;
    int32_t status = tn_expression_parse(text, &at, names, ret, r->err);
    if (status == TN_OK && text[at = tn_skip_blanks(text, at)])
        status = tn_error_set(r->err, TN_E_INVALID, "an operator is needed here: + - * or /");
    return at_fault(r, row, at, status);
}

/* A word is a function, unless it is x or y. */
static int32_t read_derivative(const reader *r, const tn_ffi_activation *h, reading *ret)
{
    static const char *const names[] = {"x", "y", NULL};
    const char *text = h->derivative;
    size_t length = tn_word_length(text);
    if (h->low >= h->high)
        return at_fault(r, "low", 0, tn_error_set(r->err, TN_E_INVALID, "low must be less than high"));
    ret->slope = TN_SLOPE_DIFFERENCES;
    if (!text[0])
        return TN_OK;
    ret->slope = TN_SLOPE_SYMBOL;
    if (length > 0 && !text[length] && strcmp(text, "x") != 0 && strcmp(text, "y") != 0)
        return at_fault(r, "derivative", 0, tn_foreign_exports(ret->path, text, r->err));
    ret->slope = TN_SLOPE_EXPRESSION;
    return read_expression(r, "derivative", text, names, &ret->expression);
}

static int32_t read_function(const reader *r, const common *h, reading *ret)
{
    size_t at = 0;
    if (!h->signature[0])
        return at_fault(
            r, "signature", 0,
            tn_error_set(r->err, TN_E_INVALID, "signature needs the type of the function, such as %s",
                         purpose_of(r->kind) == TN_FOR_SCHEDULE ? "f64(step: f64, horizon: f64)" : "f32(f32)"));
    int32_t status = tn_signature_parse(h->signature, purpose_of(r->kind), r->real, &ret->signature, &at, r->err);
    if (status != TN_OK)
        return at_fault(r, "signature", at, status);
    if (!h->symbol[0])
        return at_fault(r, "symbol", 0, tn_error_set(r->err, TN_E_INVALID, "symbol needs the name of a function"));
    status = tn_foreign_find(h->library, &ret->path, r->err);
    if (status != TN_OK)
        return at_fault(r, "library", 0, status);
    return at_fault(r, "symbol", 0, tn_foreign_exports(ret->path, h->symbol, r->err));
}

/* ret->path is the caller's, also on failure. */
static int32_t read(const reader *r, reading *ret)
{
    *ret = (reading){0};
    int32_t status = read_function(r, r->hyper, ret);
    if (status == TN_OK && strcmp(r->kind, "activation") == 0)
        return read_derivative(r, r->hyper, ret);
    if (status == TN_OK && strcmp(r->kind, "scheduler") == 0)
        return read_expression(r, "value", ((const tn_ffi_scheduler *)r->hyper)->value, tn_value_names,
                               &ret->expression);
    return status;
}

int32_t tn_foreign_check(const char *kind, const void *hyper, uint32_t real, tn_foreign_fault *fault, tn_error *err)
{
    reading what;
    const reader r = {kind, hyper, real, fault, err};
    int32_t status = read(&r, &what);
    tn_free(what.path);
    return status;
}

/* ---- binding ---- */

static int32_t bind_function(const reading *what, const char *symbol, const tn_log *log, tn_function *ret,
                             tn_error *err)
{
    void (*address)(void);
    int32_t status = tn_foreign_open(what->path, symbol, log, &address, err);
    return status == TN_OK ? tn_function_prepare(&what->signature, address, ret, err) : status;
}

static void take_settings(const reader *r, const reading *what, tn_foreign *ret)
{
    ret->real = r->real;
    ret->slope = what->slope;
    ret->expression = what->expression;
    ret->symbol = ((const common *)r->hyper)->symbol;
    ret->low = -4;
    ret->high = 4;
    if (strcmp(r->kind, "activation") == 0) {
        const tn_ffi_activation *h = r->hyper;
        ret->low = h->low;
        ret->high = h->high;
        ret->derivative_symbol = h->derivative;
    } else if (strcmp(r->kind, "scheduler") == 0) {
        const tn_ffi_scheduler *h = r->hyper;
        ret->steps = h->steps;
        ret->reaches = h->reaches;
    }
}

/* What the environment's record can not hold: which bytes the function came from. */
static void note_library(const reading *what, const tn_foreign *foreign, const tn_log *log)
{
    char hash[TN_HASH_TEXT];
    tn_error ignored;
    if (tn_hash_file(what->path, hash, &ignored) == TN_OK)
        tn_log_write(log, TN_LOG_INFO, "ffi: %s of %s, xxh128 %s", foreign->symbol, what->path, hash);
}

static int32_t bind(const reader *r, const tn_log *log, tn_foreign *ret)
{
    reading what;
    int32_t status = read(r, &what);
    if (status == TN_OK) {
        take_settings(r, &what, ret);
        status = bind_function(&what, ret->symbol, log, &ret->function, r->err);
    }
    if (status == TN_OK && what.slope == TN_SLOPE_SYMBOL)
        status = bind_function(&what, ret->derivative_symbol, log, &ret->derivative, r->err);
    if (status == TN_OK)
        status = tn_foreign_try(ret, purpose_of(r->kind), r->err);
    if (status == TN_OK)
        note_library(&what, ret, log);
    tn_free(what.path);
    return status;
}

int32_t tn_foreign_bind(const char *kind, const char *path, const void *hyper, uint32_t real, const tn_log *log,
                        tn_foreign **ret, tn_error *err)
{
    tn_foreign_fault fault;
    const reader r = {kind, hyper, real, &fault, err};
    tn_foreign *foreign = tn_alloc(1, sizeof *foreign);
    if (!foreign)
        return tn_error_set(err, TN_E_MEMORY, "%s: out of memory", path);
    int32_t status = bind(&r, log, foreign);
    if (status != TN_OK) {
        tn_free(foreign);
        return tn_error_wrap(err, status, "%s", path);
    }
    *ret = foreign;
    return TN_OK;
}

void tn_foreign_free(tn_foreign *foreign) { tn_free(foreign); }
