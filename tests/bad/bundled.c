/* SPDX-License-Identifier: Apache-2.0
 *
 * A library that two plugins bring along under one name, each its own: libtenon_bundled.so. BUNDLED: whose.
 */
int tenon_test_bundled(void);
int tenon_test_bundled(void) { return BUNDLED; }
