/* SPDX-License-Identifier: Apache-2.0
 *
 * number.c: the host's one reader and printer of numbers, and ranges.
 */
#include "host/base/number.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void make_c_locale(void) { c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

/* The C locale, lives for ever; 0 if it can not be had. */
static locale_t plain_locale(void)
{
    pthread_once(&c_locale_once, make_c_locale);
    return c_locale;
}

/* ---- reading ---- */

static int is_digit(char c) { return c >= '0' && c <= '9'; }

static int is_hex_digit(char c) { return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); }

static const char *skip_sign(const char *s) { return s + (*s == '+' || *s == '-'); }

static int is_hex(const char *s) { return s[0] == '0' && (s[1] | 0x20) == 'x'; }

/* What the scan of an unsigned number found: 0 if it is none. */
#define IS_NUMBER      1
#define IS_NOT_ZERO    2
#define HAS_BARE_POINT 4 /* a digit is missing on one side of the point */

/* Skips digits; adds IS_NOT_ZERO to *seen if one of them is not 0. */
static const char *skip_digits(const char *s, int (*digit)(char), int *seen)
{
    for (; digit(*s); s++)
        if (*s != '0')
            *seen |= IS_NOT_ZERO;
    return s;
}

/* "1", "1.5", "1.", ".5", "1e-3", "0x1.8p-3": the whole of s, by the flags above. */
static int scan_digits(const char *s)
{
    int hex = is_hex(s), seen = IS_NUMBER, ignored = 0;
    int (*digit)(char) = hex ? is_hex_digit : is_digit;
    const char *start = s + 2 * hex, *whole = skip_digits(start, digit, &seen), *end = whole;
    size_t before = (size_t)(whole - start), after = 0;
    if (*whole == '.') {
        end = skip_digits(whole + 1, digit, &seen);
        after = (size_t)(end - whole - 1);
        if (!before || !after)
            seen |= HAS_BARE_POINT;
    }
    if (!before && !after)
        return 0;
    if ((*end | 0x20) == (hex ? 'p' : 'e')) {
        const char *power = skip_sign(end + 1);
        end = skip_digits(power, is_digit, &ignored);
        if (end == power)
            return 0;
    }
    return *end ? 0 : seen;
}

static int32_t parse(const char *text, int refused, double *ret)
{
    if (!text)
        return TN_E_INVALID;
    const char *magnitude = skip_sign(text);
    if (!strcmp(text, "nan") || !strcmp(magnitude, "inf")) {
        *ret = *text == 'n' ? (double)NAN : *text == '-' ? -HUGE_VAL : HUGE_VAL;
        return TN_OK;
    }
    int seen = scan_digits(magnitude);
    if (!seen || seen & refused)
        return TN_E_INVALID;
    locale_t locale = plain_locale();
    if (!locale)
        return TN_E_MEMORY;
    double value = strtod_l(text, NULL, locale);
    if (isinf(value) || (value == 0 && seen & IS_NOT_ZERO))
        return TN_E_NUMERIC;
    *ret = value;
    return TN_OK;
}

int32_t tn_parse_real(const char *text, double *ret) { return parse(text, 0, ret); }

int32_t tn_parse_user_real(const char *text, double *ret) { return parse(text, HAS_BARE_POINT, ret); }

static int digit_value(char c) { return is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10; }

int32_t tn_parse_integer(const char *text, int64_t *ret)
{
    if (!text)
        return TN_E_INVALID;
    const char *s = skip_sign(text);
    int sign = *text == '-' ? -1 : 1, hex = is_hex(s), overflow = 0;
    int (*digit)(char) = hex ? is_hex_digit : is_digit;
    int64_t value = 0;
    s += 2 * hex;
    if (!*s)
        return TN_E_INVALID;
    for (; digit(*s); s++)
        overflow |= __builtin_mul_overflow(value, hex ? 16 : 10, &value) ||
                    __builtin_add_overflow(value, sign * digit_value(*s), &value);
    if (*s)
        return TN_E_INVALID;
    if (overflow)
        return TN_E_NUMERIC;
    *ret = value;
    return TN_OK;
}

/* ---- printing ---- */

/* The fewest digits that read back. A decimal of up to 15 digits survives a normal double, so if there is one, %.15g
 * finds it. The thread's locale is the C locale here. */
static void shortest(char text[TN_REAL_TEXT], double value)
{
    for (int digits = fabs(value) < DBL_MIN ? 1 : DBL_DIG; digits <= 17; digits++) {
        snprintf(text, TN_REAL_TEXT, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            return;
    }
}

int tn_print_real(char *buffer, size_t size, double value)
{
    char text[TN_REAL_TEXT] = "nan";
    if (isinf(value))
        strcpy(text, value < 0 ? "-inf" : "inf");
    else if (!isnan(value)) {
        locale_t locale = plain_locale();
        if (!locale)
            return -1;
        locale_t own = uselocale(locale);
        shortest(text, value);
        uselocale(own);
    }
    size_t length = strlen(text);
    if (length >= size)
        return -1;
    memcpy(buffer, text, length + 1);
    return (int)length;
}

/* ---- ranges ---- */

static const char *skip_blanks(const char *s) { return s + strspn(s, " "); }

/* Copies [from, to) without blanks at its ends; 0 if it has no room. */
static int copy_trimmed(const char *from, const char *to, char *ret, size_t size)
{
    while (from < to && *from == ' ')
        from++;
    while (to > from && to[-1] == ' ')
        to--;
    size_t length = (size_t)(to - from);
    if (length >= size)
        return 0;
    memcpy(ret, from, length);
    ret[length] = 0;
    return 1;
}

/* A bound up to the first of `ends`: where that stands, or NULL if there is no number before it. */
static const char *read_bound(const char *s, const char *ends, double *ret)
{
    char word[64];
    const char *end = s + strcspn(s, ends);
    int good = *end && copy_trimmed(s, end, word, sizeof word) && !tn_parse_real(word, ret) && !isnan(*ret);
    return good ? end : NULL;
}

/* "[0, 1)" with "or nan": where the rest begins, or NULL. */
static const char *read_bounds(const char *s, tn_range *range)
{
    range->nan_ok = 0;
    range->lo_open = *s == '(';
    s = read_bound(s + 1, ",", &range->lo);
    s = s ? read_bound(s + 1, "])", &range->hi) : NULL;
    if (!s)
        return NULL;
    range->hi_open = *s == ')';
    if (!(range->lo < range->hi) && !(range->lo == range->hi && !range->lo_open && !range->hi_open))
        return NULL;
    s = skip_blanks(s + 1);
    if (!strncmp(s, "or nan", 6) && strchr(" ;", s[6])) { /* strchr also finds the NUL */
        range->nan_ok = 1;
        s += 6;
    }
    return s;
}

int32_t tn_range_parse(const char *text, tn_range *ret)
{
    tn_range range = {.lo = -HUGE_VAL, .hi = HUGE_VAL, .nan_ok = 1};
    if (!text)
        return TN_E_INVALID;
    const char *s = skip_blanks(text);
    if (*s == '[' || *s == '(')
        s = read_bounds(s, &range);
    else if (*s && *s != ';')
        return TN_E_INVALID;
    if (!s)
        return TN_E_INVALID;
    const char *end = s + strcspn(s, ";"), *since = end;
    if (*end) {
        since = skip_blanks(end + 1);
        if (strncmp(since, "since ", 6))
            return TN_E_INVALID;
        since += 6;
    }
    if (!copy_trimmed(s, end, range.unit, sizeof range.unit) ||
        !copy_trimmed(since, since + strlen(since), range.since, sizeof range.since) || (*end && !*range.since))
        return TN_E_INVALID;
    *ret = range;
    return TN_OK;
}

int tn_range_holds(const tn_range *range, double value)
{
    if (isnan(value))
        return range->nan_ok;
    int above = range->lo_open ? value > range->lo : value >= range->lo;
    int below = range->hi_open ? value < range->hi : value <= range->hi;
    return above && below;
}
