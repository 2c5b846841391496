/* SPDX-License-Identifier: Apache-2.0
 *
 * lend.c: blocks are opened at the size first asked for, rounded up to pages, and used again.
 */
#include "host/check/lend.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BESIDE ((size_t)256) /* bytes beside a block that are looked at */

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER; /* the list of open guards is one */

static size_t up(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

static int reserve(tn_desk *desk, tn_loan *loan, const char *name, size_t bytes)
{
    tn_error err;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = up(bytes + 2 * BESIDE * (desk->place == TN_LEND_MIDDLE), page);
    if (loan->guard.map && loan->guard.bytes >= room)
        return 1;
    pthread_mutex_lock(&opening);
    tn_guard_close(&loan->guard);
    int32_t status = tn_guard_open(name, room, page, TN_GUARD_START, &loan->guard, &err);
    pthread_mutex_unlock(&opening);
    if (status != TN_OK)
        snprintf(desk->damage, sizeof desk->damage, "%.150s", err.msg);
    return status == TN_OK;
}

/* The bytes before and behind the block, in its own pages. */
static size_t before(const tn_loan *loan)
{
    size_t n = (size_t)(loan->at - (char *)loan->guard.data);
    return n < BESIDE ? n : BESIDE;
}

static size_t behind(const tn_loan *loan)
{
    size_t n = (size_t)((char *)loan->guard.data + loan->guard.bytes - loan->at) - loan->bytes;
    return n < BESIDE ? n : BESIDE;
}

void *tn_lend(tn_desk *desk, int32_t which, const char *name, const void *from, size_t bytes, size_t alignment,
              int32_t how)
{
    tn_loan *loan = &desk->loan[which];
    if (!reserve(desk, loan, name, bytes))
        return NULL;
    size_t left = loan->guard.bytes - bytes, end = left / alignment * alignment;
    loan->guard.name = name;
    loan->at = (char *)loan->guard.data + (desk->place == TN_LEND_END     ? end
                                           : desk->place == TN_LEND_START ? 0
                                                                          : BESIDE);
    loan->bytes = bytes;
    loan->how = how;
    loan->out = 1;
    memset(loan->at - before(loan), desk->fill, before(loan));
    memset(loan->at + bytes, desk->fill, behind(loan));
    if (from)
        memcpy(loan->at, from, bytes);
    else
        memset(loan->at, desk->fill, bytes);
    return loan->at;
}

void tn_desk_enter(tn_desk *desk)
{
    for (tn_loan *loan = desk->loan; loan < desk->loan + TN_LOANS && desk->lock; loan++)
        if (loan->out && loan->how == TN_LEND_IN)
            tn_guard_read_only(&loan->guard, 1);
}

static size_t written(const char *at, size_t n, unsigned char fill)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += (unsigned char)at[i] != fill;
    return count;
}

void tn_desk_leave(tn_desk *desk)
{
    for (tn_loan *loan = desk->loan; loan < desk->loan + TN_LOANS; loan++) {
        if (!loan->out)
            continue;
        if (loan->guard.is_read_only)
            tn_guard_read_only(&loan->guard, 0);
        size_t first = written(loan->at - before(loan), before(loan), desk->fill);
        size_t last = written(loan->at + loan->bytes, behind(loan), desk->fill);
        if ((first || last) && !*desk->damage)
            snprintf(desk->damage, sizeof desk->damage, "%zu bytes %s '%s' were written", first ? first : last,
                     first ? "before" : "behind", loan->guard.name);
        loan->out = 0;
    }
}

void tn_desk_close(tn_desk *desk)
{
    for (tn_loan *loan = desk->loan; loan < desk->loan + TN_LOANS; loan++)
        tn_guard_close(&loan->guard);
}
