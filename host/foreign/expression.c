/* SPDX-License-Identifier: Apache-2.0
 *
 * expression.c: sum = product {+- product}, product = factor {* / factor}, factor = - factor, ( sum ), number or name.
 */
#include "host/foreign/expression.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "host/base/number.h"
#include "host/base/text.h"

#define DEPTH_MOST    16                       /* brackets and signs within one another */
#define OPERANDS_MOST (TN_EXPRESSION_MOST / 2) /* each but the first is followed by an operator of two */

typedef struct {
    const char *text;
    size_t at;
    const char *const *names;
    tn_expression *ret;
    tn_error *err;
    int depth;
} parser;

static int is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static int is_digit(char c) { return c >= '0' && c <= '9'; }

size_t tn_skip_blanks(const char *text, size_t at)
{
    while (text[at] == ' ' || text[at] == '\t')
        at++;
    return at;
}

size_t tn_word_length(const char *text)
{
    size_t n = 0;
    while (is_letter(text[n]) || (n > 0 && is_digit(text[n])))
        n++;
    return n;
}

static char next(parser *p) { return p->text[p->at = tn_skip_blanks(p->text, p->at)]; }

static int32_t emit(parser *p, int32_t kind, int32_t name, double number)
{
    if (p->ret->count == TN_EXPRESSION_MOST)
        return tn_error_set(p->err, TN_E_INVALID, "the expression is too long; at most %d numbers, names and operators",
                            TN_EXPRESSION_MOST);
    p->ret->step[p->ret->count].kind = kind;
    p->ret->step[p->ret->count].name = name;
    p->ret->step[p->ret->count++].number = number;
    return TN_OK;
}

static size_t number_length(const char *text)
{
    int hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    size_t n = 0;
    while (is_digit(text[n]) || is_letter(text[n]) || text[n] == '.' ||
           (n > 0 && (text[n] == '+' || text[n] == '-') && strchr(hex ? "pP" : "eE", text[n - 1])))
        n++;
    return n;
}

static int32_t read_number(parser *p)
{
    char token[64];
    double number;
    size_t length = number_length(p->text + p->at);
    snprintf(token, sizeof token, "%.*s", (int)(length < sizeof token ? length : sizeof token - 1), p->text + p->at);
    if (length >= sizeof token || tn_parse_real(token, &number) != TN_OK)
        return tn_error_set(p->err, TN_E_INVALID, "'%s' is no number", token);
    int32_t status = emit(p, '#', 0, number);
    p->at += status == TN_OK ? length : 0;
    return status;
}

/* "known: step, horizon, pi" */
static int32_t unknown_name(const parser *p, const char *word)
{
    const char *known[TN_EXPRESSION_NAMES + 1];
    char list[256] = "";
    size_t n = 0;
    for (; p->names && p->names[n]; n++)
        known[n] = p->names[n];
    known[n++] = "pi";
    for (size_t i = 0; i < n; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", known[i]);
    const char *near = tn_nearest(word, known, n);
    if (near)
        return tn_error_set(p->err, TN_E_INVALID, "there is no '%s' to compute with; did you mean '%s'? Known: %s",
                            word, near, list);
    return tn_error_set(p->err, TN_E_INVALID, "there is no '%s' to compute with; known: %s", word, list);
}

static int32_t read_name(parser *p)
{
    char word[TN_WORD_MAX];
    size_t length = tn_word_length(p->text + p->at);
    snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), p->text + p->at);
    int32_t name = 0, status;
    while (p->names && p->names[name] && strcmp(p->names[name], word) != 0)
        name++;
    if (p->names && p->names[name]) {
        status = emit(p, '$', name, 0);
        p->ret->is_used |= 1 << name;
    } else {
        status = strcmp(word, "pi") == 0 ? emit(p, '#', 0, M_PI) : unknown_name(p, word);
    }
    p->at += status == TN_OK ? length : 0;
    return status;
}

static int32_t read_sum(parser *p);

static int32_t too_deep(parser *p)
{
    return tn_error_set(p->err, TN_E_INVALID, "more than %d brackets and signs within one another", DEPTH_MOST);
}

/* The negative of what was just read from step `from` on; a number becomes a negative number. */
static int32_t negate(parser *p, int32_t from)
{
    if (p->ret->count > from + 1 || p->ret->step[from].kind != '#')
        return emit(p, '~', 0, 0);
    p->ret->step[from].number = -p->ret->step[from].number;
    return TN_OK;
}

static int32_t read_factor(parser *p)
{
    char c = next(p);
    int32_t from = p->ret->count, status;
    if (is_digit(c) || c == '.')
        return read_number(p);
    if (is_letter(c))
        return read_name(p);
    if (c != '-' && c != '(')
        return tn_error_set(p->err, TN_E_INVALID, "a number, a name, '-' or '(' is needed here");
    if (++p->depth > DEPTH_MOST)
        return too_deep(p);
    p->at++;
    status = c == '-' ? read_factor(p) : read_sum(p);
    p->depth--;
    if (status == TN_OK && c == '-')
        return negate(p, from);
    if (status == TN_OK && next(p) != ')')
        return tn_error_set(p->err, TN_E_INVALID, "')' is needed here");
    p->at += status == TN_OK;
    return status;
}

static int32_t read_product(parser *p)
{
    int32_t status = read_factor(p);
    for (char c; status == TN_OK && ((c = next(p)) == '*' || c == '/');) {
        p->at++;
        status = read_factor(p);
        status = status == TN_OK ? emit(p, c, 0, 0) : status;
    }
    return status;
}

static int32_t read_sum(parser *p)
{
    int32_t status = read_product(p);
    for (char c; status == TN_OK && ((c = next(p)) == '+' || c == '-');) {
        p->at++;
        status = read_product(p);
        status = status == TN_OK ? emit(p, c, 0, 0) : status;
    }
    return status;
}

int32_t tn_expression_parse(const char *text, size_t *at, const char *const *names, tn_expression *ret, tn_error *err)
{
    tn_expression read = {0};
    parser p = {text, *at, names, &read, err, 0};
    int32_t status = read_sum(&p);
    *at = p.at;
    if (status == TN_OK)
        *ret = read;
    return status;
}

/* ---- values ---- */

double tn_expression_value(const tn_expression *e, const double *values)
{
    double stack[OPERANDS_MOST] = {0};
    int top = -1;
    for (int32_t i = 0; i < e->count; i++) {
        int32_t kind = e->step[i].kind;
        if (kind == '#' || kind == '$')
            stack[++top] = kind == '#' ? e->step[i].number : values[e->step[i].name];
        else if (kind == '~')
            stack[top] = -stack[top];
        else if (--top, kind == '+')
            stack[top] += stack[top + 1];
        else if (kind == '-')
            stack[top] -= stack[top + 1];
        else if (kind == '*')
            stack[top] *= stack[top + 1];
        else
            stack[top] /= stack[top + 1];
    }
    return stack[0];
}

#define EACH(statement)                                                                                                \
    for (int64_t j = 0; j < n; j++)                                                                                    \
    statement

#define RUN(function, real)                                                                                            \
    void function(const tn_expression *e, int64_t n, const real *const *values, real *out)                             \
    {                                                                                                                  \
        real stack[OPERANDS_MOST][TN_EXPRESSION_RUN];                                                                  \
        int top = -1;                                                                                                  \
        for (int32_t i = 0; i < e->count; i++) {                                                                       \
            int32_t kind = e->step[i].kind;                                                                            \
            if (kind == '#' || kind == '$')                                                                            \
                top++;                                                                                                 \
            else if (kind != '~')                                                                                      \
                top--;                                                                                                 \
            real *a = stack[top], *b = stack[top + 1 < OPERANDS_MOST ? top + 1 : top];                                 \
            if (kind == '#')                                                                                           \
                EACH(a[j] = (real)e->step[i].number;)                                                                  \
            else if (kind == '$')                                                                                      \
                EACH(a[j] = values[e->step[i].name][j];)                                                               \
            else if (kind == '~')                                                                                      \
                EACH(a[j] = -a[j];)                                                                                    \
            else if (kind == '+')                                                                                      \
                EACH(a[j] += b[j];)                                                                                    \
            else if (kind == '-')                                                                                      \
                EACH(a[j] -= b[j];)                                                                                    \
            else if (kind == '*')                                                                                      \
                EACH(a[j] *= b[j];)                                                                                    \
            else                                                                                                       \
                EACH(a[j] /= b[j];)                                                                                    \
        }                                                                                                              \
        memcpy(out, stack[0], (size_t)n * sizeof *out);                                                                \
    }

RUN(tn_expression_f32, float)
RUN(tn_expression_f64, double)
