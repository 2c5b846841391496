/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/data/csv: small files made here, what comes out of them, and what is refused with which place.
 */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <zlib.h>

#include <tenon/data.h>

#include "host/base/memory.h"
#include "tests/comma_locale.h"
#include "tests/component.h"

/* ---- a data set in use ---- */

typedef struct set {
    tn_instance *c;
    tn_data table;
    tn_data_split train, other;
    void *train_memory, *other_memory; /* NULL until loaded */
} set;

/* Rows as "name", "value", ..., NULL; the values of train, test and validation are files in the test's folder. */
static void set_open(set *s, uint32_t real, const char *const *rows)
{
    memset(s, 0, sizeof *s);
    s->c = component_open("data", "csv", real, &s->table, sizeof s->table);
    for (; *rows; rows += 2) {
        int file = !strcmp(rows[0], "train") || !strcmp(rows[0], "test") || !strcmp(rows[0], "validation");
        component_set(s->c, rows[0], file ? in_test(rows[1]) : rows[1]);
    }
}

static int32_t set_load_one(set *s, const char *split, tn_data_split *described, void **memory, tn_error *err)
{
    *described = (tn_data_split){.struct_size = sizeof *described};
    int32_t status = s->table.describe(s->c->hyper, split, described, err);
    if (status != TN_OK)
        return status;
    *memory = tn_alloc_aligned((size_t)described->bytes);
    return s->table.load(s->c->hyper, split, described, s->train_memory == *memory ? NULL : s->train_memory, *memory,
                         err);
}

/* `other` NULL: only training. */
static int32_t set_load(set *s, const char *other, tn_error *err)
{
    int32_t status = set_load_one(s, "train", &s->train, &s->train_memory, err);
    return status == TN_OK && other ? set_load_one(s, other, &s->other, &s->other_memory, err) : status;
}

static void set_close(set *s)
{
    tn_instance_free(s->c);
    tn_free(s->train_memory);
    tn_free(s->other_memory);
}

#define ROWS(...)                                                                                                      \
    (const char *const[]) { __VA_ARGS__, NULL }

static void open_good(set *s, uint32_t real, const char *other, const char *const *rows)
{
    tn_error err = {0};
    set_open(s, real, rows);
    ck_ok(set_load(s, other, &err), err);
}

/* All samples of training (other 0) in f64. */
static void all_samples(const set *s, int other, double *x, void *target)
{
    const tn_data_split *split = other ? &s->other : &s->train;
    int64_t index[64];
    ck_assert_int_le(split->samples, 64);
    for (int64_t i = 0; i < split->samples; i++)
        index[i] = i;
    s->table.gather(s->c->hyper, other ? s->other_memory : s->train_memory, NULL, index, split->samples, 1, x, target);
}

/* Training is refused with `code`; the message holds `place`, which names file, line and column, and `word`. */
static void check_refused(int32_t code, const char *place, const char *word, const char *other, const char *const *rows)
{
    tn_error err = {0};
    set s;
    set_open(&s, 32, rows);
    int32_t status = set_load(&s, other, &err);
    set_close(&s);
    ck_assert_msg(status == code && err.code == code, "status %d, needed %d: %s", status, code, err.msg);
    ck_assert_msg(strstr(err.msg, place) && strstr(err.msg, word), "no \"%s\" or \"%s\" in: %s", place, word, err.msg);
    ck_assert_msg(!strpbrk(err.msg, "\n\r\t"), "not one line: %s", err.msg);
    ck_assert_msg(!strstr(err.msg, "<fd"), "no name of a file: %s", err.msg);
}

/* A file of that text is refused so, with further rows. */
static void check_text(const char *text, const char *place, const char *word, const char *const *rows)
{
    const char *all[32] = {"train", "a.csv"};
    size_t n = 2;
    for (; *rows; rows++)
        all[n++] = *rows;
    write_text(in_test("a.csv"), text);
    check_refused(TN_E_DATA, place, word, NULL, all);
}

static const char *const plain[] = {NULL};

static void write_gzip(const char *name, const char *text)
{
    gzFile file = gzopen(in_test(name), "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(gzputs(file, text), (int)strlen(text));
    ck_assert_int_eq(gzclose(file), Z_OK);
}

/* ---- what comes out ---- */

static const char four[] = "width,height,class\n1,10,0\n2,20,1\n3,30,2\n6,60,1\n";

/* Means 3 and 30, deviations sqrt(3.5) and 10 sqrt(3.5). */
static void check_four(const set *s)
{
    double x[8], std = sqrt(3.5);
    int32_t target[4];
    static const double values[] = {1, 2, 3, 6};
    static const int32_t classes[] = {0, 1, 2, 1};
    ck_assert_int_eq(s->train.samples, 4);
    ck_assert_int_eq(s->train.classes, 3);
    ck_assert_int_eq(s->train.ndim, 1);
    ck_assert_int_eq(s->train.shape[0], 2);
    ck_assert_int_eq(s->train.target_ndim, 0);
    all_samples(s, 0, x, target);
    for (int i = 0; i < 4; i++) {
        ck_assert_double_eq_tol(x[2 * i], (values[i] - 3) / std, 1e-15);
        ck_assert_double_eq_tol(x[2 * i + 1], (values[i] - 3) / std, 1e-15);
        ck_assert_int_eq(target[i], classes[i]);
    }
}

/* The same numbers, written in many ways. */
START_TEST(many_ways_to_write_it)
{
    static const struct {
        const char *text, *rows[9];
    } ways[] = {
        {four, {NULL}},
        {"width,height,class\r\n1,10,0\r\n2,20,1\r\n3,30,2\r\n6,60,1", {NULL}},
        {"width,height,class\r1,10,0\r2,20,1\r3,30,2\r6,60,1\r", {NULL}},
        {"\xEF\xBB\xBFwidth,height,class\n1,10,0\n2,20,1\n3,30,2\n6,60,1\n", {"label", "class", NULL}},
        {"\n  \nwidth, height ,class\n\n 1 ,\t10, 0\n2,20,1  \n3,30,2\n\n6,60,1\n\n\n", {NULL}},
        {"\"width\",\"hei\"\"ght\",\"cl,\nass\"\n\"1\",10,0\n2,\"20\" , \"1\"\r\n3,30,2\n6,60,1", {"label", "2", NULL}},
        {"1;10;0\n2;20;1\n3;30;2\n6;60;1\n", {"header", "false", "separator", "semicolon", NULL}},
        {"1\t10\t0\n2\t20\t1\n3\t30\t2\n6\t60\t1\n", {"header", "false", "separator", "tab", NULL}},
        {"1|10|0\n2|20|1\n3|30|2\n6|60|1\n", {"header", "false", "separator", "bar", NULL}},
        {"  1  10\t0\n2 20 1  \n 3\t\t30 2\n\"6\" 60 1\n", {"header", "false", "separator", "blanks", NULL}},
        {"0,x,1,10\n1,\"y\nz\",2,20\n2,,3,30\n1,\"\",6,60\n", {"header", "false", "label", "0", "ignore", "1", NULL}},
        {"10,0,1\n20,1,2\n30,2,3\n60,1,6\n",
         {"header", "false", "names", "h, c, w", "features", "w,h", "label", "c", NULL}},
        {"a,a,c\n1e0,+1.0e+1,0\n.2E1,200.e-1,1.0\n03,0.00000030E8,2\n6.000,60,+1\n", {NULL}},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int gzip = 0; gzip < 2; gzip++) {
            const char *rows[16] = {"train", "a.csv"};
            set s;
            make_directory();
            if (gzip)
                write_gzip("a.csv", ways[i].text);
            else
                write_text(in_test("a.csv"), ways[i].text);
            for (int j = 0; ways[i].rows[j]; j++)
                rows[2 + j] = ways[i].rows[j];
            open_good(&s, 64, NULL, rows);
            check_four(&s);
            set_close(&s);
            remove_directory();
        }
}
END_TEST

START_TEST(text_classes)
{
    static const char text[] = "x,kind\n1,Löwe\n2,\"cat, big\"\n3,Löwe\n4,dog\n";
    double x[4];
    int32_t target[4];
    set s;
    make_directory();
    write_text(in_test("a.csv"), text);
    write_text(in_test("b.csv"), "x,kind\n7,dog\n8,Löwe\n");
    open_good(&s, 64, "test", ROWS("train", "a.csv", "test", "b.csv", "targets", "text"));
    ck_assert_int_eq(s.train.classes, 3); /* in the order of their first appearance */
    ck_assert_int_eq(s.other.classes, 3);
    all_samples(&s, 0, x, target);
    ck_assert_mem_eq(target, ((int32_t[]){0, 1, 0, 2}), sizeof target);
    all_samples(&s, 1, x, target);
    ck_assert_mem_eq(target, ((int32_t[]){2, 0}), 2 * sizeof *target);
    ck_assert_double_eq_tol(x[0], (7 - 2.5) / sqrt(1.25), 1e-15); /* by training's mean and deviation */
    set_close(&s);
    write_text(in_test("a.csv"), "x,kind\n1,b\n2,a\n");
    open_good(&s, 64, NULL, ROWS("train", "a.csv", "targets", "text", "classes", "a, b ,c"));
    ck_assert_int_eq(s.train.classes, 3);
    all_samples(&s, 0, x, target);
    ck_assert_mem_eq(target, ((int32_t[]){1, 0}), 2 * sizeof *target);
    set_close(&s);
    remove_directory();
}
END_TEST

/* More classes than the first table of names holds. */
START_TEST(many_classes)
{
    make_directory();
    FILE *file = fopen(in_test("a.csv"), "w");
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < 3000; i++)
        fprintf(file, "%d,class %d\n", i, i * 7 % 1000);
    ck_assert_int_eq(fclose(file), 0);
    set s;
    open_good(&s, 32, NULL, ROWS("train", "a.csv", "header", "false", "targets", "text"));
    ck_assert_int_eq(s.train.classes, 1000);
    for (int64_t i = 0; i < 3000; i += 37) {
        float x;
        int32_t target;
        s.table.gather(s.c->hyper, s.train_memory, NULL, &i, 1, 1, &x, &target);
        ck_assert_int_eq(target, i % 1000);
    }
    set_close(&s);
    remove_directory();
}
END_TEST

START_TEST(real_targets_and_shapes)
{
    double x[8], y[4];
    set s;
    make_directory();
    write_text(in_test("a.csv"), "a,b,y,c,d,z\n1,2,0.5,3,4,-1\n5,6,1.5,7,8,1e300\n");
    open_good(&s, 64, NULL,
              ROWS("train", "a.csv", "targets", "real", "label", "z,y", "normalize", "none", "shape", "[1, 2, 2]"));
    ck_assert_int_eq(s.train.classes, 0);
    ck_assert_int_eq(s.train.target_ndim, 1);
    ck_assert_int_eq(s.train.target_shape[0], 2);
    ck_assert_int_eq(s.train.ndim, 3);
    ck_assert_int_eq(s.train.shape[1], 2);
    all_samples(&s, 0, x, y);
    for (int i = 0; i < 8; i++)
        ck_assert_double_eq(x[i], i + 1);
    ck_assert_mem_eq(y, ((double[]){-1, 0.5, 1e300, 1.5}), sizeof y);
    set_close(&s);
    check_refused(TN_E_DATA, "a.csv:3:13: '1e300'", "32-bit", NULL,
                  ROWS("train", "a.csv", "targets", "real", "label", "z", "normalize", "none"));
    check_refused(TN_E_INVALID, "`shape` has 2 extents of product 6", "product 4", NULL,
                  ROWS("train", "a.csv", "targets", "real", "label", "z,y", "shape", "[2, 3]"));
    remove_directory();
}
END_TEST

/* A constant column becomes 0; large offsets lose nothing, also in f32. */
START_TEST(standardisation)
{
    float x[8];
    int32_t target[4];
    set s;
    make_directory();
    write_text(in_test("a.csv"), "0.1,1700000000,0\n0.1,1700000001,0\n0.1,1700000002,0\n0.1,1700000003,0\n");
    write_text(in_test("b.csv"), "0.1,1700000000.5,0\n");
    open_good(&s, 32, "validation", ROWS("train", "a.csv", "validation", "b.csv", "header", "false"));
    s.table.gather(s.c->hyper, s.train_memory, NULL, (int64_t[]){3, 0}, 2, 1, x, target);
    ck_assert_float_eq(x[0], 0);
    ck_assert_float_eq(x[1], (float)(1.5 / sqrt(1.25)));
    ck_assert_float_eq(x[3], (float)(-1.5 / sqrt(1.25)));
    s.table.gather(s.c->hyper, s.other_memory, NULL, (int64_t[]){0}, 1, 1, x, target);
    ck_assert_float_eq(x[0], 0);
    ck_assert_float_eq(x[1], (float)(-1 / sqrt(1.25)));
    set_close(&s);
    remove_directory();
}
END_TEST

/* Records 0 to n-1, each with its number as feature: every record is in exactly one split, appending moves none. */
static void mark_splits(int n, const char *seed, int marks[2000], int64_t counts[3])
{
    static const char *const names[] = {"train", "test", "validation"};
    FILE *file = fopen(in_test("a.csv"), "w");
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < n; i++)
        fprintf(file, "%d,0\n", i);
    ck_assert_int_eq(fclose(file), 0);
    for (int k = 0; k < 3; k++) {
        set s;
        open_good(&s, 64, k ? names[k] : NULL,
                  ROWS("train", "a.csv", "header", "false", "normalize", "none", "test_fraction", "0.2",
                       "validation_fraction", "0.1", "split_seed", seed));
        counts[k] = k ? s.other.samples : s.train.samples;
        for (int64_t i = 0; i < counts[k]; i++) {
            double x;
            int32_t target;
            s.table.gather(s.c->hyper, k ? s.other_memory : s.train_memory, NULL, &i, 1, 1, &x, &target);
            ck_assert_int_eq(marks[(int)x], -1);
            marks[(int)x] = k;
        }
        set_close(&s);
    }
}

START_TEST(fractions)
{
    static int first[2000], again[2000], other[2000];
    int64_t counts[3], fewer[3];
    make_directory();
    memset(first, 0xFF, sizeof first);
    memset(again, 0xFF, sizeof again);
    memset(other, 0xFF, sizeof other);
    mark_splits(2000, "0", first, counts);
    mark_splits(500, "0", again, fewer);
    ck_assert_int_eq(counts[0] + counts[1] + counts[2], 2000);
    ck_assert_int_eq(fewer[0] + fewer[1] + fewer[2], 500);
    ck_assert_double_eq_tol((double)counts[1] / 2000, 0.2, 4 * sqrt(0.16 / 2000));
    ck_assert_double_eq_tol((double)counts[2] / 2000, 0.1, 4 * sqrt(0.09 / 2000));
    ck_assert_mem_eq(first, again, 500 * sizeof *first);
    mark_splits(2000, "1", other, counts);
    ck_assert_mem_ne(first, other, sizeof first);
    remove_directory();
}
END_TEST

/* Decimal commas of the process's locale change nothing. */
START_TEST(in_another_locale)
{
    make_directory();
    write_text(in_test("a.csv"), "1.25,0\n0.1234567890123456789,1\n");
    use_locale("comma", ",");
    set s;
    double x[2];
    int32_t target[2];
    open_good(&s, 64, NULL, ROWS("train", "a.csv", "header", "false", "normalize", "none"));
    all_samples(&s, 0, x, target);
    ck_assert_double_eq(x[0], 1.25);
    ck_assert_double_eq(x[1], 0.1234567890123456789);
    set_close(&s);
    remove_directory();
}
END_TEST

/* Numbers come out as the C library reads them, to the last bit. */
START_TEST(numbers_are_rounded_to_nearest)
{
    static double wanted[4000];
    make_directory();
    FILE *file = fopen(in_test("a.csv"), "w");
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < 4000; i++) {
        char text[64];
        uint64_t bits = random_bits();
        int digits = 1 + (int)(bits % 20), exponent = (int)(bits >> 8) % 60 - 30;
        int n = snprintf(text, sizeof text, "%s%.*s", bits >> 40 & 1 ? "-" : "", digits, "12345678901234567890");
        for (int k = bits >> 40 & 1; k < n; k++)
            text[k] = (char)('0' + random_bits() % 10);
        snprintf(text + n, sizeof text - (size_t)n, ".%03de%d", (int)(random_bits() % 1000), i % 3 ? exponent : i % 5);
        wanted[i] = strtod(text, NULL);
        fprintf(file, "%s,0\n", text);
    }
    ck_assert_int_eq(fclose(file), 0);
    set s;
    open_good(&s, 64, NULL, ROWS("train", "a.csv", "header", "false", "normalize", "none"));
    for (int64_t i = 0; i < 4000; i++) {
        double x;
        int32_t target;
        s.table.gather(s.c->hyper, s.train_memory, NULL, &i, 1, 1, &x, &target);
        ck_assert_msg(x == wanted[i], "record %lld: %.17g, needed %.17g", (long long)i, x, wanted[i]);
    }
    set_close(&s);
    remove_directory();
}
END_TEST

/* ---- what is refused ---- */

START_TEST(missing_and_wrong_values)
{
    static const char *const header[] = {"label", "class", NULL}, *const real[] = {"targets", "real", NULL};
    make_directory();
    check_text("w,h,class\n1,2,0\n3,,1\n", "a.csv:3:3: column 1 h", "missing", header);
    check_text("w,h,class\n1,2,0\n3,4,\n", "a.csv:3:5: ", "label is missing", plain);
    check_text("w,h,class\n1,2,0\n3,4,\n", "a.csv:3:5: column 2 class", "missing", real);
    check_text("w,h,class\n1,\"\n\",0\n", "a.csv:2:3: column 1 h: '\\x0a'", "no finite number", plain);
    check_text("w,h,class\n1,NA,0\n", "a.csv:2:3: column 1 h: 'NA'", "no finite number", plain);
    check_text("ä,ö,class\n1,2,0\r\n\r\n\"ü\",1,0\n", "a.csv:4:1: column 0 ä: 'ü'", "no finite number", plain);
    check_text("w,h,class\n\"ü\",x,0\n", "a.csv:2:1: column 0 w", "", plain);
    check_text("w,h,class\r1,2,0\r\r1,?,0\r", "a.csv:4:3: column 1 h: '?'", "no finite number", plain);
    check_text("Löwe,1\nBär,x\n", "a.csv:2:5: column 1: 'x'", "no finite number",
               (const char *const[]){"header", "false", "label", "0", "targets", "text", NULL});
    check_text("w,h,class\n1,2,0\n1,1e400,0\n", "a.csv:3:3: column 1 h: '1e400'", "does not fit", plain);
    static const char *const wrong[] = {"nan", "inf", "0x10", "1_000", "1,5",   "1e",   "e5",
                                        ".",   "+",   "--1",  "1 2",   "1e5.0", "\x01", "\xff"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[64];
        snprintf(text, sizeof text, "0,1\n\"%s\",1\n", wrong[i]);
        check_text(text, "a.csv:2:1: column 0: '", "no finite number", (const char *const[]){"header", "false", NULL});
    }
    remove_directory();
}
END_TEST

START_TEST(records_of_other_lengths)
{
    static const char *const bare[] = {"header", "false", NULL};
    make_directory();
    check_text("a,b,c\n1,2,0\n1,2\n", "a.csv:3:3: ", "ends after 2 fields, needed 3", plain);
    check_text("a,b,c\n1,2,0\n1,2,0,5\n", "a.csv:3:7: ", "more than 3 fields, needed 3", plain);
    check_text("a,b,c\n1,2,0\n1,2,0,\n", "a.csv:3:7: ", "more than 3", plain);
    check_text("a,b,c\n1,2,0\n1,2,0\n1,", "a.csv:4:3: ", "", plain); /* cut short */
    check_text("a,b\n1,2,0\n", "a.csv:2:5: ", "more than 2", plain); /* a header that lies */
    check_text("1,2,0\n1,2,3,0\n", "a.csv:2:7: ", "more than 3", bare);
    check_text("a,b,c\n1,\"2,0\n1,2,0\n", "a.csv:2:3: ", "never closed", plain);
    check_text("a,b,c\n1,\"2\" x,0\n", "a.csv:2:3: ", "follows the closing quote", plain);
    check_text("1 \"2\"3 0\n", "a.csv:1:3: ", "follows the closing quote",
               (const char *const[]){"header", "false", "separator", "blanks", NULL});
    remove_directory();
}
END_TEST

START_TEST(no_records)
{
    static const char *const bare[] = {"header", "false", NULL};
    make_directory();
    check_text("", "a.csv:1:1: ", "no record", plain);
    check_text("\xEF\xBB\xBF\r\n\n  \n", "a.csv:4:1: ", "no record", bare);
    check_text("a,b\n", "a.csv:2:1: ", "after 0 records, none in the split train", plain);
    write_text(in_test("a.csv"), "1,0\n");
    check_refused(TN_E_DATA, "a.csv:2:1: ", "after 1 records, none in the split test", "test",
                  ROWS("train", "a.csv", "header", "false", "test_fraction", "0.001"));
    write_text(in_test("b.csv"), "\n");
    check_refused(TN_E_DATA, "b.csv:2:1: ", "after 0 records", "test",
                  ROWS("train", "a.csv", "header", "false", "test", "b.csv"));
    remove_directory();
}
END_TEST

START_TEST(labels_out_of_range)
{
    static const char *const text[] = {"header", "false", "targets", "text", "classes", "cat,dog", NULL};
    static const char *const bare[] = {"header", "false", NULL};
    char wide[400];
    make_directory();
    check_text("1,-1\n", "a.csv:1:3: ", "the label is -1, needed 0 to", bare);
    check_text("1,0\n1,1048576\n", "a.csv:2:3: ", "needed 0 to 1048575", bare);
    check_text("1,0\n1,0.5\n", "a.csv:2:3: ", "needed an integer", bare);
    check_text("1,0\n1,cat\n", "a.csv:2:3: the label is 'cat'", "targets: text", bare);
    check_text("1,cat\n1,cow\n", "a.csv:2:3: the label is 'cow'", "no class of the row `classes`", text);
    check_text("1,cat\n1,\n", "a.csv:2:3: ", "the label is missing", text);
    snprintf(wide, sizeof wide, "1,%0300d\n", 0);
    check_text(wide, "a.csv:1:3: a label of 300 bytes", "at most 255",
               (const char *const[]){"header", "false", "targets", "text", NULL});
    write_text(in_test("a.csv"), "1,0\n2,1\n");
    write_text(in_test("b.csv"), "1,1\n1,2\n");
    check_refused(TN_E_DATA, "b.csv:2:3: the label is 2", "needed 0 to 1 as in training", "test",
                  ROWS("train", "a.csv", "test", "b.csv", "header", "false"));
    check_refused(TN_E_DATA, "b.csv:2:3: the label is '2'", "no class that training has", "test",
                  ROWS("train", "a.csv", "test", "b.csv", "header", "false", "targets", "text", "label", "1"));
    remove_directory();
}
END_TEST

START_TEST(files_that_differ)
{
    make_directory();
    write_text(in_test("a.csv"), "x,y,class\n1,2,0\n");
    write_text(in_test("b.csv"), "y,x,class\n1,2,0\n");
    check_refused(TN_E_DATA, "b.csv:1:1: column 0 is 'y', needed 'x'", "a.csv", "test",
                  ROWS("train", "a.csv", "test", "b.csv"));
    write_text(in_test("b.csv"), "x,y\n1,2\n");
    check_refused(TN_E_DATA, "b.csv:1:3: ", "only 2 columns, needed 3", "test",
                  ROWS("train", "a.csv", "test", "b.csv"));
    write_text(in_test("b.csv"), "x,y,class,more\n1,2,0,1\n");
    check_refused(TN_E_DATA, "b.csv:1:11: ", "more than 3 columns", "test", ROWS("train", "a.csv", "test", "b.csv"));
    remove_directory();
}
END_TEST

START_TEST(no_text_at_all)
{
    static const uint8_t utf16[] = {0xFF, 0xFE, '1', 0, ',', 0}, binary[] = {'1', ',', '0', '\n', '1', 0, '2', '\n'};
    make_directory();
    write_bytes(in_test("a.csv"), utf16, sizeof utf16);
    check_refused(TN_E_DATA, "a.csv:1:1: ", "UTF-16 text, needed UTF-8", NULL, ROWS("train", "a.csv"));
    write_bytes(in_test("a.csv"), binary, sizeof binary);
    check_refused(TN_E_DATA, "a.csv:2:1: ", "byte 0", NULL, ROWS("train", "a.csv", "header", "false"));
    check_refused(TN_E_IO, "no.csv", "No such file", NULL, ROWS("train", "no.csv"));
    ck_assert_int_eq(mkdir(in_test("folder"), 0700), 0);
    check_refused(TN_E_IO, "folder", "not a regular file", NULL, ROWS("train", "folder"));
    ck_assert_int_eq(mkfifo(in_test("fifo"), 0600), 0);
    check_refused(TN_E_IO, "fifo", "not a regular file", NULL, ROWS("train", "fifo"));
    remove_directory();
}
END_TEST

/* Each byte of a gzip file cut off or damaged: never accepted as something else. */
START_TEST(damaged_gzip)
{
    char text[2000] = "";
    for (int i = 0; i < 100; i++)
        sprintf(text + strlen(text), "%d,%d\n", i * i * 37 % 1000, i % 7);
    make_directory();
    write_gzip("good.gz", text);
    uint8_t data[4096];
    FILE *file = fopen(in_test("good.gz"), "rb");
    ck_assert_ptr_nonnull(file);
    size_t n = fread(data, 1, sizeof data, file);
    fclose(file);
    ck_assert_uint_gt(n, 100);
    for (size_t cut = 3; cut < n; cut++) {
        write_bytes(in_test("a.csv"), data, cut);
        check_refused(TN_E_DATA, "a.csv", "cut short", NULL, ROWS("train", "a.csv", "header", "false"));
    }
    for (size_t at = 10; at < n; at++) {
        if (at == n - 9)
            continue; /* bits behind the last code may be anything */
        data[at] ^= 0x10;
        write_bytes(in_test("a.csv"), data, n);
        check_refused(TN_E_DATA, "a.csv:", "", NULL, ROWS("train", "a.csv", "header", "false"));
        data[at] ^= 0x10;
    }
    remove_directory();
}
END_TEST

START_TEST(rows_that_do_not_fit)
{
    make_directory();
    write_text(in_test("a.csv"), "a,b,b,class\n1,2,3,0\n");
    check_refused(TN_E_INVALID, "`train` is not set", "", NULL, ROWS("label", "0"));
    check_refused(TN_E_INVALID,
                  "`label`: ", "no column 'clas', needed a name or a number from -4 to 3; its names are a, b, b, class",
                  NULL, ROWS("train", "a.csv", "label", "clas"));
    check_refused(TN_E_INVALID, "`label`: ", "no column '4'", NULL, ROWS("train", "a.csv", "label", "4"));
    check_refused(TN_E_INVALID, "`features`: ", "two columns 'b', 1 and 2", NULL,
                  ROWS("train", "a.csv", "features", "a,b"));
    check_refused(TN_E_INVALID, "`features`: ", "column '0' of", NULL, ROWS("train", "a.csv", "features", "a,0"));
    check_refused(TN_E_INVALID, "`features`: ", "used twice", NULL, ROWS("train", "a.csv", "features", "class"));
    check_refused(TN_E_INVALID, "`label` names 2 columns", "targets: real", NULL,
                  ROWS("train", "a.csv", "label", "0,1"));
    check_refused(TN_E_INVALID, "`label` names 0 columns", "needed one", NULL, ROWS("train", "a.csv", "label", "\"\""));
    check_refused(TN_E_INVALID, "none is left to be a feature", "4 columns", NULL,
                  ROWS("train", "a.csv", "ignore", "0,1,2"));
    check_refused(TN_E_INVALID, "`names` has 2 names", "4 columns", NULL, ROWS("train", "a.csv", "names", "a,b"));
    check_refused(TN_E_INVALID, "`classes` has 'x' twice", "", NULL,
                  ROWS("train", "a.csv", "targets", "text", "classes", "x,y,x"));
    check_refused(TN_E_INVALID, "leave nothing to train on", "", NULL,
                  ROWS("train", "a.csv", "test_fraction", "0.5", "validation_fraction", "0.5"));
    check_refused(TN_E_INVALID, "both a file and a fraction", "", NULL,
                  ROWS("train", "a.csv", "test", "a.csv", "test_fraction", "0.5"));
    check_refused(TN_E_NOT_FOUND, "no split \"test\"", "`test_fraction`", "test", ROWS("train", "a.csv"));
    check_refused(TN_E_NOT_FOUND, "no split \"validation\"", "`validation_fraction`", "validation",
                  ROWS("train", "a.csv"));
    check_refused(TN_E_NOT_FOUND, "no split \"exam\"", "it has train", "exam", ROWS("train", "a.csv"));
    remove_directory();
}
END_TEST

/* Files that change between describe and load. */
/* Time goes with the number of columns, not with its square. */
START_TEST(many_columns)
{
    enum { columns = 50000, records = 4 };
    set s;
    tn_error err = {0};
    FILE *file = fopen(in_test("wide.csv"), "w");
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < columns; i++)
        fprintf(file, "column-%d,", i);
    fprintf(file, "kind\n");
    for (int k = 0; k < records; k++) {
        for (int i = 0; i < columns; i++)
            fprintf(file, "%d,", k);
        fprintf(file, "%d\n", k % 2);
    }
    fclose(file);
    clock_t before = clock();
    set_open(&s, 32, ROWS("train", "wide.csv", "label", "kind"));
    ck_ok(set_load(&s, NULL, &err), err);
    double seconds = (double)(clock() - before) / CLOCKS_PER_SEC;
    ck_assert_int_eq(s.train.shape[0], columns);
    ck_assert_int_eq(s.train.samples, records);
    ck_assert_msg(seconds < 3, "%g s", seconds);
    set_close(&s);
}
END_TEST

START_TEST(a_file_that_changes)
{
    static char long_one[4 * 5001];
    for (int i = 0; i < 5000; i++)
        memcpy(long_one + 4 * i, i ? "2,0\n" : "2,1\n", 4);
    const char *const later[] = {long_one,     "2,1\n",      "1,0\n2,1\n3,0\n", "1,0\n",
                                 "1,0\n2,2\n", "1,0\n2,0\n", "1,1,0\n2,2,1\n"};
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
        tn_error err = {0};
        tn_data_split split = {.struct_size = sizeof split};
        set s;
        make_directory();
        write_text(in_test("a.csv"), "1,0\n2,1\n");
        set_open(&s, 32, ROWS("train", "a.csv", "header", "false"));
        ck_ok(s.table.describe(s.c->hyper, "train", &split, &err), err);
        write_text(in_test("a.csv"), later[i]);
        s.train_memory = tn_alloc_aligned((size_t)split.bytes);
        ck_assert_int_eq(s.table.load(s.c->hyper, "train", &split, NULL, s.train_memory, &err), TN_E_DATA);
        ck_assert_msg(strstr(err.msg, "changed") != NULL, "%s", err.msg);
        ck_assert_int_eq(s.table.load(s.c->hyper, "test", &split, NULL, s.train_memory, &err), TN_E_NOT_FOUND);
        set_close(&s);
        remove_directory();
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("csv");
    TCase *good = tcase_create("what comes out"), *bad = tcase_create("what is refused");
    tcase_set_timeout(good, 60);
    tcase_set_timeout(bad, 60);
    tcase_add_test(good, many_ways_to_write_it);
    tcase_add_test(good, text_classes);
    tcase_add_test(good, many_classes);
    tcase_add_test(good, real_targets_and_shapes);
    tcase_add_test(good, standardisation);
    tcase_add_test(good, fractions);
    tcase_add_test(good, in_another_locale);
    tcase_add_test(good, many_columns);
    tcase_add_test(good, numbers_are_rounded_to_nearest);
    tcase_add_test(bad, missing_and_wrong_values);
    tcase_add_test(bad, records_of_other_lengths);
    tcase_add_test(bad, no_records);
    tcase_add_test(bad, labels_out_of_range);
    tcase_add_test(bad, files_that_differ);
    tcase_add_test(bad, no_text_at_all);
    tcase_add_test(bad, damaged_gzip);
    tcase_add_test(bad, rows_that_do_not_fit);
    tcase_add_test(bad, a_file_that_changes);
    suite_add_tcase(suite, good);
    suite_add_tcase(suite, bad);
    return test_main(suite);
}
