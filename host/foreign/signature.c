/* SPDX-License-Identifier: Apache-2.0
 *
 * signature.c: first the text as it stands, then what it means for the purpose at hand.
 */
#include "host/foreign/signature.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "host/base/text.h"

#define TYPES "f32, f64, i32, i64, u32, u64"

static const char *const number_names[] = {"void", "f32", "f64", "i32", "i64", "u32", "u64"};

const char *const tn_position_names[] = {"step",    "horizon", "progress", "base", "epoch",
                                         "samples", "tokens",  "batch",    "pass", NULL};

const char *tn_number_name(int32_t type) { return number_names[type]; }

int tn_number_is_integer(int32_t type) { return type >= TN_NUMBER_I32; }

int tn_number_holds(int32_t type, double value)
{
    switch (type) {
    case TN_NUMBER_F32:
        return !isfinite(value) || (fabs(value) <= FLT_MAX && (value == 0 || (float)value != 0));
    case TN_NUMBER_I32:
        return value == trunc(value) && value >= INT32_MIN && value <= INT32_MAX;
    case TN_NUMBER_I64:
        return value == trunc(value) && value >= -0x1p63 && value < 0x1p63;
    case TN_NUMBER_U32:
        return value == trunc(value) && value >= 0 && value <= UINT32_MAX;
    case TN_NUMBER_U64:
        return value == trunc(value) && value >= 0 && value < 0x1p64;
    default:
        return 1;
    }
}

typedef struct {
    const char *text;
    size_t at;
    int32_t purpose;
    uint32_t real;
    tn_signature *ret;
    size_t end; /* where ')' stands */
    tn_error *err;
} parser;

static int32_t fail(parser *p, size_t at, const char *format, ...) TN_PRINTF(3, 4);
static int32_t fail(parser *p, size_t at, const char *format, ...)
{
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    p->at = at;
    return tn_error_set(p->err, TN_E_INVALID, "%s", message);
}

/* ---- the text ---- */

static char next(parser *p) { return p->text[p->at = tn_skip_blanks(p->text, p->at)]; }

/* What stands at the place, for a message: "'x'", "the end". */
static const char *found(const parser *p, char out[TN_WORD_MAX + 8])
{
    const char *text = p->text + p->at;
    size_t length = tn_word_length(text);
    if (!text[0])
        return strcpy(out, "the end");
    length = length == 0 ? 1 : length < TN_WORD_MAX ? length : TN_WORD_MAX - 1;
    while (((unsigned char)text[length] & 0xC0) == 0x80 && length < TN_WORD_MAX) /* the rest of a character */
        length++;
    snprintf(out, TN_WORD_MAX + 8, "'%.*s'", (int)length, text);
    return out;
}

static int32_t need(parser *p, char wanted)
{
    char here[TN_WORD_MAX + 8];
    if (next(p) != wanted)
        return fail(p, p->at, "'%c' is needed here; found %s", wanted, found(p, here));
    p->at++;
    return TN_OK;
}

static int32_t read_word(parser *p, const char *what, char out[TN_WORD_MAX])
{
    char here[TN_WORD_MAX + 8];
    next(p);
    size_t length = tn_word_length(p->text + p->at);
    if (length == 0)
        return fail(p, p->at, "%s is needed here; found %s", what, found(p, here));
    if (length >= TN_WORD_MAX)
        return fail(p, p->at, "%s of %zu bytes; at most %d are allowed", what, length, TN_WORD_MAX - 1);
    snprintf(out, TN_WORD_MAX, "%.*s", (int)length, p->text + p->at);
    p->at += length;
    return TN_OK;
}

/* As C calls them, where that is one of ours. */
static const char *in_our_words(const char *word)
{
    static const char *const c[][2] = {
        {"float", "f32"},   {"double", "f64"}, {"int", "i32"},      {"long", "i64"},     {"int32_t", "i32"},
        {"int64_t", "i64"}, {"size_t", "u64"}, {"unsigned", "u32"}, {"uint32_t", "u32"}, {"uint64_t", "u64"},
        {"ssize_t", "i64"}, {"real", "f64"},   {"f16", "f32"},      {"number", "f64"},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        if (strcmp(word, c[i][0]) == 0)
            return c[i][1];
    return tn_nearest(word, number_names, sizeof number_names / sizeof *number_names);
}

static int32_t type_of(parser *p, const char *word, size_t at, int32_t *ret)
{
    for (int32_t i = 0; i < (int32_t)(sizeof number_names / sizeof *number_names); i++) {
        if (strcmp(word, number_names[i]) != 0)
            continue;
        *ret = i;
        return TN_OK;
    }
    const char *near = in_our_words(word);
    if (near)
        return fail(p, at, "there is no type '%s'; did you mean %s? Known: " TYPES ", void", word, near);
    return fail(p, at, "there is no type '%s'; known: " TYPES ", void", word);
}

static int32_t read_value(parser *p, tn_argument *argument)
{
    p->at++;
    next(p);
    argument->value_at = p->at;
    return tn_expression_parse(p->text, &p->at, p->purpose == TN_FOR_SCHEDULE ? tn_position_names : NULL,
                               &argument->value, p->err);
}

static int32_t check_name(parser *p, const tn_argument *argument)
{
    for (const tn_argument *other = p->ret->argument; other < argument; other++)
        if (argument->name[0] && strcmp(other->name, argument->name) == 0)
            return fail(p, argument->at, "two arguments are called '%s'", argument->name);
    return TN_OK;
}

static int32_t read_argument(parser *p, tn_argument *argument)
{
    char word[TN_WORD_MAX];
    int32_t status = read_word(p, "a type", word);
    size_t type_at = p->at - (status == TN_OK ? strlen(word) : 0);
    argument->at = type_at;
    if (status == TN_OK && next(p) == ':') {
        strcpy(argument->name, word);
        p->at++;
        next(p);
        type_at = p->at;
        status = read_word(p, "a type", word);
    }
    if (status == TN_OK)
        status = type_of(p, word, type_at, &argument->type);
    if (status == TN_OK && argument->type == TN_NUMBER_VOID)
        status = fail(p, type_at, "no argument can be void; a function without arguments is written f64()");
    if (status == TN_OK)
        status = check_name(p, argument);
    if (status == TN_OK && next(p) == '*') {
        p->at++;
        argument->is_pointer = 1;
    }
    return status == TN_OK && next(p) == '=' ? read_value(p, argument) : status;
}

static int32_t read_arguments(parser *p)
{
    int32_t status = need(p, '(');
    if (status == TN_OK && next(p) == ')')
        return TN_OK;
    while (status == TN_OK) {
        next(p);
        if (p->ret->count == TN_ARGUMENTS_MOST)
            return fail(p, p->at, "too many arguments; at most %d are allowed", TN_ARGUMENTS_MOST);
        status = read_argument(p, &p->ret->argument[p->ret->count++]);
        if (status != TN_OK || next(p) == ')')
            break;
        char here[TN_WORD_MAX + 8];
        if (p->text[p->at] != ',')
            return fail(p, p->at, "',' or ')' is needed here; found %s", found(p, here));
        p->at++;
    }
    return status;
}

static int32_t read_all(parser *p)
{
    char word[TN_WORD_MAX], here[TN_WORD_MAX + 8];
    next(p);
    size_t start = p->at;
    int32_t status = read_word(p, "the type of the result", word);
    if (status == TN_OK)
        status = type_of(p, word, start, &p->ret->result);
    if (status == TN_OK && next(p) == '*')
        return fail(p, p->at, "a result can not be a pointer; arrays are written through an argument y");
    if (status == TN_OK)
        status = read_arguments(p);
    if (status != TN_OK)
        return status;
    p->end = p->at++;
    if (next(p))
        return fail(p, p->at, "nothing may follow the ')'; found %s", found(p, here));
    return TN_OK;
}

/* ---- the meaning ---- */

/* A value that never changes must be one of the type. */
static int32_t check_constant(parser *p, const tn_argument *argument)
{
    if (argument->value.count == 0 || argument->value.is_used)
        return TN_OK;
    if (argument->is_pointer)
        return fail(p, argument->value_at, "a pointer takes no value");
    double value = tn_expression_value(&argument->value, NULL);
    if (!tn_number_holds(argument->type, value))
        return fail(p, argument->value_at, "%g is no %s", value, number_names[argument->type]);
    return TN_OK;
}

static int32_t give_position(parser *p, tn_argument *argument)
{
    if (argument->is_pointer)
        return fail(p, argument->at, "a scheduler's function takes numbers, no pointers");
    if (argument->value.count)
        return TN_OK;
    if (!argument->name[0])
        return fail(p, argument->at,
                    "the argument needs a name of the position (step, horizon, progress, base, epoch, samples, "
                    "tokens, batch, pass), as in 'step: f64', or a value, as in 'x: f64 = pi * progress'");
    size_t at = 0;
    int32_t status = tn_expression_parse(argument->name, &at, tn_position_names, &argument->value, p->err);
    p->at = status == TN_OK ? p->at : argument->at;
    return status;
}

static int32_t check_schedule(parser *p)
{
    int32_t status = TN_OK;
    if (p->ret->result == TN_NUMBER_VOID)
        return fail(p, tn_skip_blanks(p->text, 0), "a scheduler's function must return a number; void returns none");
    for (int32_t i = 0; i < p->ret->count && status == TN_OK; i++)
        status = give_position(p, &p->ret->argument[i]);
    return status;
}

static int32_t check_element_type(parser *p, int32_t type, size_t at)
{
    if (type != TN_NUMBER_F32 && type != TN_NUMBER_F64)
        return fail(p, at, "elements are f32 or f64, not %s", number_names[type]);
    if (type == TN_NUMBER_F32 && p->real == 64)
        return fail(p, at, "precision is f64, and a function of f32 would lose it; take the one of f64");
    return TN_OK;
}

/* f32(f32), f64(n: i32 = 2, x: f64): one argument without a value is x. */
static int32_t check_scalar(parser *p)
{
    int32_t status = check_element_type(p, p->ret->result, tn_skip_blanks(p->text, 0));
    for (int32_t i = 0; i < p->ret->count && status == TN_OK; i++) {
        tn_argument *argument = &p->ret->argument[i];
        if (argument->is_pointer)
            return fail(p, argument->at,
                        "pointers go with a function that returns void, as in "
                        "'void(n: i64, x: f32*, y: f32*)'");
        if (argument->value.count)
            continue;
        if (p->ret->x >= 0)
            return fail(p, argument->at,
                        "argument %d takes the element already; this one needs a value, as in "
                        "'c: f64 = 0.5'",
                        p->ret->x + 1);
        status = check_element_type(p, argument->type, argument->at);
        argument->give = TN_GIVE_X;
        p->ret->x = i;
    }
    if (status == TN_OK && p->ret->x < 0)
        status = fail(p, p->end, "no argument takes the element: one of them must have no value");
    return status;
}

static int32_t give_array(parser *p, int32_t i)
{
    tn_argument *argument = &p->ret->argument[i];
    const char *name = argument->name;
    if (argument->value.count)
        return TN_OK;
    if (strcmp(name, "n") == 0 && !argument->is_pointer && tn_number_is_integer(argument->type)) {
        argument->give = TN_GIVE_N;
        p->ret->n = i;
        return TN_OK;
    }
    int is_x = strcmp(name, "x") == 0, is_y = strcmp(name, "y") == 0;
    if (!argument->is_pointer || (!is_x && !is_y))
        return fail(p, argument->at,
                    "a function of arrays takes an integer n, the pointers x and y, and arguments "
                    "with values; this is none of them");
    argument->give = is_x ? TN_GIVE_X : TN_GIVE_Y;
    *(is_x ? &p->ret->x : &p->ret->y) = i;
    return check_element_type(p, argument->type, argument->at);
}

static int32_t check_arrays(parser *p)
{
    int32_t status = TN_OK, pointers = 0;
    for (int32_t i = 0; i < p->ret->count; i++)
        pointers += p->ret->argument[i].is_pointer;
    if (!pointers)
        return fail(p, tn_skip_blanks(p->text, 0),
                    "void returns nothing; a function of one element returns f32 or f64, and one of arrays is "
                    "'void(n: i64, x: f32*, y: f32*)'");
    for (int32_t i = 0; i < p->ret->count && status == TN_OK; i++)
        status = give_array(p, i);
    if (status != TN_OK)
        return status;
    if (p->ret->y < 0)
        return fail(p, p->end,
                    "void returns nothing, so a pointer y must take the results, as in "
                    "'void(n: i64, x: f32*, y: f32*)'");
    if (p->ret->n < 0)
        return fail(p, p->end, "an integer n must tell the function how many elements there are");
    const tn_argument *x = p->ret->x >= 0 ? &p->ret->argument[p->ret->x] : NULL;
    if (x && x->type != p->ret->argument[p->ret->y].type)
        return fail(p, p->ret->argument[p->ret->y].at, "x and y need the same type");
    return TN_OK;
}

int32_t tn_signature_parse(const char *text, int32_t purpose, uint32_t real, tn_signature *ret, size_t *fault,
                           tn_error *err)
{
    tn_signature read = {.x = -1, .y = -1, .n = -1};
    parser p = {text, 0, purpose, real, &read, 0, err};
    int32_t status = read_all(&p);
    for (int32_t i = 0; i < read.count && status == TN_OK; i++)
        status = check_constant(&p, &read.argument[i]);
    if (status == TN_OK)
        status = purpose == TN_FOR_SCHEDULE      ? check_schedule(&p)
                 : read.result == TN_NUMBER_VOID ? check_arrays(&p)
                                                 : check_scalar(&p);
    if (status == TN_OK)
        *ret = read;
    else
        *fault = p.at;
    return status;
}
