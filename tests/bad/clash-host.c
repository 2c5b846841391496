/* SPDX-License-Identifier: Apache-2.0
 *
 * No plugin: it stands for a program that shows its functions.
 */
int tenon_test_step_kernel(void);
int tenon_test_step_kernel(void) { return 99; }
