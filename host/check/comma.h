/* SPDX-License-Identifier: Apache-2.0
 *
 * comma.h: a locale whose decimal point is a comma, for a rule's process.
 */
#ifndef TENON_HOST_CHECK_COMMA_H
#define TENON_HOST_CHECK_COMMA_H

#include <stdbool.h>

/* Takes one for LC_NUMERIC: an installed one, else one that localedef makes in the working directory, which is the
 * rule's own folder. False where there is neither. */
bool tn_check_comma_locale(void);

#endif
