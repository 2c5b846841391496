/* SPDX-License-Identifier: Apache-2.0
 *
 * Throws while it is being loaded. (Its note and record are in C, in throw-at-load.c.)
 */
struct thrower {
    thrower() { throw 1; }
};
static thrower at_load;
