/* SPDX-License-Identifier: Apache-2.0
 *
 * comma_locale.h: a locale whose decimal point is not a point; needs none installed, only localedef.
 */
#ifndef TENON_TESTS_COMMA_LOCALE_H
#define TENON_TESTS_COMMA_LOCALE_H

#include <locale.h>

#include "tests/support.h"

/* Makes the locale `name` in the test's folder and takes it for this process. `point` is the decimal point as localedef
 * reads it: "," or "<U066B>", which is two bytes. */
static inline void use_locale(const char *name, const char *point)
{
    char command[PATH_MAX + 256];
    FILE *map = fopen(in_test("map"), "w"), *source = fopen(in_test("source"), "w");
    ck_assert(map && source);
    fputs("<code_set_name> TENON\n<mb_cur_max> 2\n<comment_char> %\n<escape_char> /\nCHARMAP\n", map);
    for (unsigned c = 0; c < 128; c++)
        fprintf(map, "<U%04X> /x%02x c\n", c, c);
    fputs("<U066B> /xd9/xab c\nEND CHARMAP\n", map);
    fprintf(source, "LC_NUMERIC\ndecimal_point \"%s\"\nthousands_sep \".\"\ngrouping 3;3\nEND LC_NUMERIC\n", point);
    ck_assert_int_eq(fclose(map), 0);
    ck_assert_int_eq(fclose(source), 0);
    snprintf(command, sizeof command, "cd %s && localedef -c -f map -i source ./%s 2>/dev/null", test_directory, name);
    int ignored = system(command); /* counts the missing categories as a failure */
    (void)ignored;
    ck_assert_int_eq(setenv("LOCPATH", test_directory, 1), 0);
    ck_assert_ptr_nonnull(setlocale(LC_NUMERIC, name));
}

#endif
