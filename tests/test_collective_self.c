/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/collective/self: every operation copies; what can not be meant is refused by name.
 */
#include <tenon/parallel.h>

#include "tests/component.h"

typedef struct world {
    tn_collective table;
    tn_group group;
    int32_t member;
    _Alignas(64) char state[256];
} world;

static void world_open(world *w)
{
    int32_t rank = -1, size = -1;
    memset(w, 0, sizeof *w);
    tn_instance_free(component_open("collective", "self", 0, &w->table, sizeof w->table));
    ck_assert_int_eq(w->table.world(NULL, &rank, &size, NULL), TN_OK);
    ck_assert_int_eq(rank, 0);
    ck_assert_int_eq(size, 1);
    ck_assert_int_le(w->table.state_bytes, sizeof w->state);
    w->group = (tn_group){.struct_size = sizeof w->group,
                          .size = 1,
                          .members = &w->member,
                          .state = w->state,
                          .arena_bytes = 64,
                          .arena = w};
    ck_assert_int_eq(w->table.open(NULL, &w->group, NULL), TN_OK);
    ck_assert_ptr_null(w->group.arena);
}

static const tn_dtype f32 = {TN_FLOAT, 32, 1};

static tn_transfer transfer(int32_t operation, int64_t sequence, const void *from, void *to, int64_t count)
{
    return (tn_transfer){.struct_size = sizeof(tn_transfer),
                         .operation = operation,
                         .sequence = sequence,
                         .dtype = f32,
                         .from = from,
                         .to = to,
                         .count = count,
                         .timeout = 1};
}

START_TEST(every_operation_copies)
{
    static const int32_t operations[] = {TN_ALL_REDUCE, TN_REDUCE_SCATTER, TN_ALL_GATHER, TN_BROADCAST};
    const float from[3] = {1, -2, 3.5f};
    world w;
    world_open(&w);
    for (int i = 0; i < 4; i++) {
        float to[4] = {0, 0, 0, 9};
        int64_t ticket = 0;
        tn_transfer t = transfer(operations[i], i, from, to, 3);
        t.reduce = i % 2 ? TN_REDUCE_MAX : TN_REDUCE_MEAN;
        if (operations[i] == TN_ALL_GATHER || operations[i] == TN_BROADCAST)
            t.reduce = 0;
        ck_assert_int_eq(w.table.start(&w.group, &t, &ticket, NULL), TN_OK);
        ck_assert_int_eq(w.table.wait(&w.group, ticket, NULL), TN_OK);
        ck_assert_mem_eq(to, from, sizeof from);
        ck_assert(to[3] == 9);
    }
    w.table.close(&w.group);
}
END_TEST

START_TEST(in_place_overlapping_and_empty)
{
    float data[4] = {1, 2, 3, 4};
    int64_t ticket = 0;
    world w;
    world_open(&w);
    tn_transfer same = transfer(TN_ALL_REDUCE, 1, data, data, 4);
    ck_assert_int_eq(w.table.start(&w.group, &same, &ticket, NULL), TN_OK);
    ck_assert(data[0] == 1 && data[3] == 4);
    tn_transfer shifted = transfer(TN_ALL_GATHER, 5, data, data + 1, 3); /* gaps in the sequence are others' groups */
    ck_assert_int_eq(w.table.start(&w.group, &shifted, &ticket, NULL), TN_OK);
    ck_assert(data[0] == 1 && data[1] == 1 && data[2] == 2 && data[3] == 3);
    tn_transfer empty = transfer(TN_ALL_REDUCE, 6, NULL, NULL, 0);
    ck_assert_int_eq(w.table.start(&w.group, &empty, &ticket, NULL), TN_OK);
    tn_transfer barrier = {.struct_size = sizeof barrier, .operation = TN_BARRIER, .sequence = 7};
    ck_assert_int_eq(w.table.start(&w.group, &barrier, &ticket, NULL), TN_OK);
    ck_assert_int_eq(w.table.wait(&w.group, ticket, NULL), TN_OK);
}
END_TEST

/* The transfer is refused with that word in the message, and changes neither data nor what may come next. */
static void check_refused(world *w, tn_transfer t, const char *word)
{
    int64_t ticket = -7;
    tn_error err = {0};
    float before = t.to ? *(float *)t.to : 0;
    ck_assert_int_eq(w->table.start(&w->group, &t, &ticket, &err), TN_E_INVALID);
    ck_assert_int_eq(err.code, TN_E_INVALID);
    ck_assert_msg(strstr(err.msg, word) != NULL, "no \"%s\" in: %s", word, err.msg);
    ck_assert_int_eq(ticket, -7);
    ck_assert(!t.to || *(float *)t.to == before);
}

START_TEST(refusals)
{
    float from[2] = {5, 6}, to[2] = {1, 2};
    int64_t ticket = 0;
    world w;
    world_open(&w);
    tn_transfer good = transfer(TN_ALL_REDUCE, 10, from, to, 2), t;
    check_refused(&w, transfer(TN_SEND, 0, from, to, 2), "peer is rank 0");
    check_refused(&w, transfer(TN_RECEIVE, 0, from, to, 2), "peer is rank 0");
    check_refused(&w, transfer(7, 0, from, to, 2), "operation 7");
    check_refused(&w, transfer(TN_ALL_REDUCE, 0, from, to, -1), "count is -1");
    check_refused(&w, transfer(TN_ALL_REDUCE, 0, from, to, INT64_MAX / 2), "count");
    check_refused(&w, transfer(TN_ALL_REDUCE, 0, NULL, to, 2), "from is NULL");
    check_refused(&w, transfer(TN_ALL_REDUCE, 0, from, NULL, 2), "to is NULL");
    check_refused(&w, transfer(TN_ALL_REDUCE, -1, from, to, 2), "sequence -1");
    t = transfer(TN_BROADCAST, 0, from, to, 2);
    t.peer = 1;
    check_refused(&w, t, "rank 1");
    t = transfer(TN_REDUCE_SCATTER, 0, from, to, 2);
    t.reduce = 3;
    check_refused(&w, t, "reduction 3");
    t.reduce = TN_REDUCE_MEAN;
    t.dtype = (tn_dtype){TN_INT, 32, 1};
    check_refused(&w, t, "a mean of dtype code 0");
    t = transfer(TN_ALL_REDUCE, 0, from, to, 2);
    t.dtype.bits = 4;
    check_refused(&w, t, "4 bits");
    ck_assert_int_eq(w.table.start(&w.group, &good, &ticket, NULL), TN_OK);
    check_refused(&w, good, "sequence 10 after 10");
    good.sequence = 9;
    check_refused(&w, good, "sequence 9 after 10");
    ck_assert_int_eq(w.table.wait(&w.group, ticket + 1, NULL), TN_E_INVALID);
    ck_assert_int_eq(w.table.wait(&w.group, 0, NULL), TN_E_INVALID);
}
END_TEST

START_TEST(a_group_of_two)
{
    tn_error err = {0};
    world w;
    world_open(&w);
    w.group.size = 2;
    w.group.rank = 1;
    ck_assert_int_eq(w.table.open(NULL, &w.group, &err), TN_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "rank 1 of 2"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("collective self");
    TCase *tcase = tcase_create("self");
    tcase_add_test(tcase, every_operation_copies);
    tcase_add_test(tcase, in_place_overlapping_and_empty);
    tcase_add_test(tcase, refusals);
    tcase_add_test(tcase, a_group_of_two);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
