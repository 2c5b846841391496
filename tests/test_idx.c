/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/data/idx: Fashion-MNIST as Debian ships it, and small files made here, most of them broken.
 */
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include <tenon/data.h>

#include "host/base/memory.h"
#include "tests/component.h"

/* ---- a data set in use ---- */

typedef struct set {
    tn_instance *c;
    tn_data table;
    tn_data_split train, test;
    void *train_memory, *test_memory; /* NULL until loaded */
} set;

static void set_open(set *s, uint32_t real, const char *folder)
{
    memset(s, 0, sizeof *s);
    s->c = component_open("data", "idx", real, &s->table, sizeof s->table);
    if (folder)
        component_set(s->c, "folder", folder);
}

static int32_t set_load(set *s, tn_error *err)
{
    int32_t status;
    s->train = s->test = (tn_data_split){.struct_size = sizeof(tn_data_split)};
    status = s->table.describe(s->c->hyper, "train", &s->train, err);
    if (status == TN_OK)
        status = s->table.describe(s->c->hyper, "test", &s->test, err);
    if (status != TN_OK)
        return status;
    s->train_memory = tn_alloc_aligned((size_t)s->train.bytes);
    s->test_memory = tn_alloc_aligned((size_t)s->test.bytes);
    status = s->table.load(s->c->hyper, "train", &s->train, NULL, s->train_memory, err);
    return status == TN_OK ? s->table.load(s->c->hyper, "test", &s->test, s->train_memory, s->test_memory, err)
                           : status;
}

static void set_close(set *s)
{
    tn_instance_free(s->c);
    tn_free(s->train_memory);
    tn_free(s->test_memory);
}

/* ---- files ---- */

static void write_gzip(const char *name, const void *bytes, size_t n)
{
    gzFile file = gzopen(in_test(name), "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(gzwrite(file, bytes, (unsigned)n), (int)n);
    ck_assert_int_eq(gzclose(file), Z_OK);
}

typedef struct bytes {
    size_t n;
    uint8_t b[256];
} bytes;

static void put32(bytes *to, uint32_t value)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        to->b[to->n++] = (uint8_t)(value >> shift);
}

/* `count` images of 2 x 3 whose pixels are 0, 10, 20, ... */
static bytes images(uint32_t count)
{
    bytes f = {0};
    put32(&f, 0x803);
    put32(&f, count);
    put32(&f, 2);
    put32(&f, 3);
    for (uint32_t i = 0; i < count * 6; i++)
        f.b[f.n++] = (uint8_t)(10 * i);
    return f;
}

/* `count` labels 0, 1, 2, 0, ... */
static bytes labels(uint32_t count)
{
    bytes f = {0};
    put32(&f, 0x801);
    put32(&f, count);
    for (uint32_t i = 0; i < count; i++)
        f.b[f.n++] = (uint8_t)(i % 3);
    return f;
}

/* A whole small set: 4 training images, 3 for testing; one file of each pair is gzipped. */
static void write_good(void)
{
    bytes f = images(4);
    write_bytes(in_test("train-images-idx3-ubyte"), f.b, f.n);
    f = labels(4);
    write_gzip("train-labels-idx1-ubyte.gz", f.b, f.n);
    f = images(3);
    write_gzip("t10k-images-idx3-ubyte.gz", f.b, f.n);
    f = labels(3);
    write_bytes(in_test("t10k-labels-idx1-ubyte"), f.b, f.n);
}

/* Loading fails with `code`, naming each word. */
static void check_broken(int32_t code, const char *word, const char *other)
{
    tn_error err = {0};
    set s;
    set_open(&s, 32, test_directory);
    int32_t status = set_load(&s, &err);
    set_close(&s);
    ck_assert_msg(status == code, "status %d: %s", status, err.msg);
    ck_assert_msg(strstr(err.msg, word) && strstr(err.msg, other), "no \"%s\" or \"%s\" in: %s", word, other, err.msg);
}

/* ---- tests ---- */

START_TEST(fashion_mnist)
{
    static const int32_t first[] = {9, 0, 0, 3, 0, 2, 7, 2, 5, 5}, first_test[] = {9, 2, 1, 1, 6, 1, 4, 6, 5, 7};
    uint32_t real = _i ? 64 : 32;
    tn_error err = {0};
    set s;
    set_open(&s, real, NULL);
    ck_assert_msg(set_load(&s, &err) == TN_OK, "%s", err.msg);
    ck_assert_int_eq(s.train.samples, 60000);
    ck_assert_int_eq(s.test.samples, 10000);
    ck_assert_int_eq(s.train.classes, 10);
    ck_assert_int_eq(s.test.classes, 10);
    ck_assert_int_eq(s.train.ndim, 1);
    ck_assert_int_eq(s.train.shape[0], 784);
    ck_assert_int_eq(s.train.target_ndim, 0);

    /* over all of it: mean 0, deviation 1; 6000 of each class */
    double sum = 0, squares = 0;
    int64_t per_class[10] = {0}, index[100];
    void *x = tn_alloc_aligned(100 * 784 * sizeof(double));
    int32_t target[100];
    for (int64_t lo = 0; lo < 60000; lo += 100) {
        for (int64_t i = 0; i < 100; i++)
            index[i] = lo + i;
        s.table.gather(s.c->hyper, s.train_memory, NULL, index, 100, 1, x, target);
        double some = 0, some_squares = 0; /* one long sum would round too often */
        for (int64_t i = 0; i < 100 * 784; i++) {
            double value = real == 32 ? (double)((float *)x)[i] : ((double *)x)[i];
            some += value;
            some_squares += value * value;
        }
        sum += some;
        squares += some_squares;
        for (int i = 0; i < 100; i++)
            per_class[target[i]]++;
        if (lo == 0)
            ck_assert_mem_eq(target, first, sizeof first);
    }
    double n = 60000.0 * 784, tolerance = real == 32 ? 1e-5 : 1e-10;
    ck_assert_double_eq_tol(sum / n, 0, tolerance);
    ck_assert_double_eq_tol(squares / n, 1, tolerance);
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(per_class[i], 6000);

    /* a pixel of 0 is -mean / std, one of 255 is (1 - mean) / std, also in the test split */
    double low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < 100; i++)
        index[i] = i;
    s.table.gather(s.c->hyper, s.test_memory, NULL, index, 100, 0, x, target);
    ck_assert_mem_eq(target, first_test, sizeof first_test);
    for (int64_t i = 0; i < 100 * 784; i++) {
        double value = real == 32 ? (double)((float *)x)[i] : ((double *)x)[i];
        low = fmin(low, value);
        high = fmax(high, value);
    }
    double std = 1 / (high - low), mean = -low * std;
    ck_assert_double_eq_tol(mean, 0.2860, 5e-5);
    ck_assert_double_eq_tol(std, 0.3530, 5e-5);
    tn_free(x);
    set_close(&s);
}
END_TEST

/* Pixels 0 .. 230 in tens: the mean is 115 and the variance 100 * (24^2 - 1) / 12. */
START_TEST(every_normalization)
{
    static const char *const names[] = {"standard", "unit", "none"};
    double std = 10 * sqrt(575.0 / 12);
    const int64_t index[] = {3, 0};
    make_directory();
    write_good();
    for (int i = 0; i < 3; i++) {
        double x[12];
        int32_t target[2];
        tn_error err = {0};
        set s;
        set_open(&s, 64, test_directory);
        component_set(s.c, "normalize", names[i]);
        ck_assert_msg(set_load(&s, &err) == TN_OK, "%s", err.msg);
        ck_assert_int_eq(s.train.samples, 4);
        ck_assert_int_eq(s.train.classes, 3);
        s.table.gather(s.c->hyper, s.train_memory, NULL, index, 2, 1, x, target);
        ck_assert_int_eq(target[0], 0);
        ck_assert_int_eq(target[1], 0);
        for (int j = 0; j < 12; j++) {
            double pixel = j < 6 ? 180 + 10 * j : 10 * (j - 6);
            double wanted = i == 0 ? (pixel - 115) / std : i == 1 ? pixel / 255 : pixel;
            ck_assert_double_eq_tol(x[j], wanted, 1e-14 * fmax(1, fabs(wanted)));
        }
        s.table.gather(s.c->hyper, s.test_memory, NULL, index + 1, 1, 0, x, target);
        ck_assert_double_eq_tol(x[0], i == 0 ? -115 / std : 0, 1e-14); /* of the training pixels' mean */
        set_close(&s);
    }
    remove_directory();
}
END_TEST

START_TEST(shapes_and_splits)
{
    tn_error err = {0};
    tn_data_split split = {.struct_size = sizeof split};
    set s;
    make_directory();
    write_good();
    set_open(&s, 32, test_directory);
    component_set(s.c, "flatten", "false");
    ck_assert_int_eq(s.table.describe(s.c->hyper, "test", &split, NULL), TN_OK);
    ck_assert_int_eq(split.ndim, 3);
    ck_assert_int_eq(split.shape[0], 1);
    ck_assert_int_eq(split.shape[1], 2);
    ck_assert_int_eq(split.shape[2], 3);
    ck_assert_int_eq(split.samples, 3);
    ck_assert_int_eq(s.table.describe(s.c->hyper, "validation", &split, &err), TN_E_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.msg, "train and test"));
    void *memory = tn_alloc_aligned((size_t)split.bytes);
    ck_assert_int_eq(s.table.load(s.c->hyper, "validation", &split, NULL, memory, NULL), TN_E_NOT_FOUND);
    ck_assert_int_eq(s.table.load(s.c->hyper, "test", &split, NULL, memory, NULL), TN_E_INVALID);
    ck_assert_int_eq(s.table.describe(s.c->hyper, "train", &split, NULL), TN_OK);
    split.samples--; /* as if the files had grown since */
    ck_assert_int_eq(s.table.load(s.c->hyper, "train", &split, NULL, memory, &err), TN_E_DATA);
    ck_assert_ptr_nonnull(strstr(err.msg, "changed"));
    tn_free(memory);
    set_close(&s);
    remove_directory();
}
END_TEST

START_TEST(missing_files)
{
    tn_error err = {0};
    tn_data_split split = {.struct_size = sizeof split};
    set s;
    make_directory();
    check_broken(TN_E_IO, "train-images-idx3-ubyte", "No such file");
    ck_assert_int_eq(mkdir(in_test("train-images-idx3-ubyte"), 0700), 0);
    check_broken(TN_E_IO, "train-images-idx3-ubyte", "not a regular file");
    ck_assert_int_eq(rmdir(in_test("train-images-idx3-ubyte")), 0);
    write_good();
    ck_assert_int_eq(unlink(in_test("train-labels-idx1-ubyte.gz")), 0);
    check_broken(TN_E_IO, "train-labels-idx1-ubyte", "No such file");
    remove_directory();
    set_open(&s, 32, NULL);
    component_set(s.c, "set", "no-such-set");
    ck_assert_int_eq(s.table.describe(s.c->hyper, "train", &split, &err), TN_E_IO);
    ck_assert_ptr_nonnull(strstr(err.msg, "/usr/share/datasets/no-such-set/train-images-idx3-ubyte"));
    set_close(&s);
}
END_TEST

/* Replaces a file of the good set by `f` or by its first n bytes; plain and gzipped are refused alike. */
static void check_file(const char *name, const bytes *f, size_t n, int32_t code, const char *word)
{
    char zipped[64];
    snprintf(zipped, sizeof zipped, "%s.gz", name);
    for (int gzip = 0; gzip < 2; gzip++) {
        make_directory();
        write_good();
        unlink(in_test(name));
        unlink(in_test(zipped));
        if (gzip)
            write_gzip(zipped, f->b, n);
        else
            write_bytes(in_test(name), f->b, n);
        check_broken(code, name, word);
        remove_directory();
    }
}

START_TEST(cut_short)
{
    static const char *const pictures[] = {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte"};
    static const char *const numbers[] = {"train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"};
    static const size_t head[] = {0, 1, 3, 4, 7, 15}, body[] = {16, 17, 33};
    for (int split = 0; split < 2; split++) {
        bytes f = images(split ? 3 : 4), g = labels(split ? 3 : 4);
        for (int i = 0; i < 6; i++)
            check_file(pictures[split], &f, head[i], TN_E_DATA, "needed");
        for (int i = 0; i < 3; i++)
            check_file(pictures[split], &f, body[i], TN_E_DATA, "");
        check_file(pictures[split], &f, f.n - 1, TN_E_DATA, "");
        check_file(numbers[split], &g, 5, TN_E_DATA, "cut short: found 5 bytes where 8 are needed");
        check_file(numbers[split], &g, g.n - 1, TN_E_DATA, split ? "where 3 are needed" : "where 4 are needed");
    }
}
END_TEST

START_TEST(bytes_too_many)
{
    bytes f = images(4), g = labels(3);
    check_file("train-images-idx3-ubyte", &f, f.n + 1, TN_E_DATA, "goes on after the last of its 4 records");
    check_file("t10k-labels-idx1-ubyte", &g, g.n + 1, TN_E_DATA, "goes on after the last of its 3 records");
}
END_TEST

START_TEST(lying_headers)
{
    bytes f = images(4), g = labels(4);
    f.b[3] = 1;
    check_file("train-images-idx3-ubyte", &f, f.n, TN_E_DATA, "begins with 0x00000801, needed 0x00000803");
    g.b[3] = 3;
    check_file("train-labels-idx1-ubyte", &g, g.n, TN_E_DATA, "begins with 0x00000803, needed 0x00000801");
    f = images(0);
    check_file("t10k-images-idx3-ubyte", &f, f.n, TN_E_DATA, "0 records");
    g = labels(0);
    check_file("t10k-labels-idx1-ubyte", &g, g.n, TN_E_DATA, "0 records");
    f = images(5);
    check_file("train-images-idx3-ubyte", &f, f.n, TN_E_DATA, "5 images");
    for (int i = 0; i < 3; i++) { /* count, rows, columns; then all of them */
        f = images(4);
        memset(f.b + 4 + 4 * i, 0xff, 4);
        check_file("train-images-idx3-ubyte", &f, f.n, TN_E_DATA, "4294967295");
        f = images(4);
        memset(f.b + 8 + 4 * (i % 2), 0, 4);
        check_file("train-images-idx3-ubyte", &f, f.n, TN_E_DATA, "at least 1");
    }
    memset(f.b + 4, 0xff, 12);
    check_file("train-images-idx3-ubyte", &f, f.n, TN_E_DATA, "4294967295 records of 4294967295 x 4294967295");
    f = images(3);
    f.b[11] = 3;
    f.b[15] = 2;
    check_file("t10k-images-idx3-ubyte", &f, f.n, TN_E_DATA, "3 x 2, needed 2 x 3 as in training");
}
END_TEST

START_TEST(wrong_records)
{
    bytes f = images(4), g = labels(3);
    g.b[9] = 3;
    check_file("t10k-labels-idx1-ubyte", &g, g.n, TN_E_DATA, "label 1 is 3, needed 0 to 2");
    memset(f.b + 16, 7, 24);
    check_file("train-images-idx3-ubyte", &f, f.n, TN_E_DATA, "normalize: unit");
}
END_TEST

/* Bytes of a gzip file from the end: 8 of them are the checksum and the length. */
static void check_damage(const char *name, long from_end, int flip, const char *word)
{
    uint8_t data[4096];
    make_directory();
    write_good();
    FILE *file = fopen(in_test(name), "rb");
    ck_assert_ptr_nonnull(file);
    size_t n = fread(data, 1, sizeof data, file);
    fclose(file);
    ck_assert_uint_gt(n, 20);
    if (flip)
        data[(long)n - from_end] ^= 0x40;
    else
        n -= (size_t)from_end;
    write_bytes(in_test(name), data, n);
    check_broken(TN_E_DATA, name, word);
    remove_directory();
}

START_TEST(damaged_gzip)
{
    static const char *const names[] = {"train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz"};
    for (int i = 0; i < 2; i++) {
        for (long at = 1; at <= 8; at++) {
            check_damage(names[i], at, 1, at > 4 ? "incorrect data check" : "incorrect length check");
            check_damage(names[i], at, 0, "cut short");
        }
        check_damage(names[i], 12, 0, "cut short");
    }
}
END_TEST

/* Names say nothing: what is no gzip is read as it is, what is packed twice is packed once too often. */
START_TEST(wrong_gzip)
{
    static const char *const page = "<!DOCTYPE html><html>404</html>";
    tn_error err = {0};
    uint8_t data[256];
    bytes f = images(4);
    set s;
    make_directory();
    write_good();
    ck_assert_int_eq(unlink(in_test("train-images-idx3-ubyte")), 0);
    write_bytes(in_test("train-images-idx3-ubyte.gz"), f.b, f.n);
    set_open(&s, 32, test_directory);
    ck_ok(set_load(&s, &err), err);
    ck_assert_int_eq(s.train.samples, 4);
    set_close(&s);
    write_bytes(in_test("train-images-idx3-ubyte.gz"), page, strlen(page));
    check_broken(TN_E_DATA, "train-images-idx3-ubyte.gz", "begins with 0x3c21444f, needed 0x00000803");
    write_gzip("train-images-idx3-ubyte.gz", f.b, f.n);
    FILE *file = fopen(in_test("train-images-idx3-ubyte.gz"), "rb");
    ck_assert_ptr_nonnull(file);
    size_t n = fread(data, 1, sizeof data, file);
    fclose(file);
    write_gzip("train-images-idx3-ubyte.gz", data, n);
    check_broken(TN_E_DATA, "train-images-idx3-ubyte.gz", "begins with 0x1f8b");
    data[2] = 7; /* a method that there is not */
    write_bytes(in_test("train-images-idx3-ubyte.gz"), data, n);
    check_broken(TN_E_DATA, "train-images-idx3-ubyte.gz", "damaged");
    remove_directory();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("idx");
    TCase *tcase = tcase_create("idx");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, fashion_mnist, 0, 2);
    tcase_add_test(tcase, every_normalization);
    tcase_add_test(tcase, shapes_and_splits);
    tcase_add_test(tcase, missing_files);
    tcase_add_test(tcase, cut_short);
    tcase_add_test(tcase, bytes_too_many);
    tcase_add_test(tcase, lying_headers);
    tcase_add_test(tcase, wrong_records);
    tcase_add_test(tcase, damaged_gzip);
    tcase_add_test(tcase, wrong_gzip);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
