/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors in files: round trips, files byte by byte, and files made to mislead.
 */
#include "host/store/safetensors.h"

#include <signal.h>
#include <sys/resource.h>

#include "host/base/memory.h"
#include "tests/support.h"

static tn_error err;

static tn_tensor tensor_of(void *data, uint8_t code, uint8_t bits, int32_t ndim, int64_t *shape)
{
    return (tn_tensor){.data = data, .device = {TN_CPU, 0}, .ndim = ndim, .dtype = {code, bits, 1}, .shape = shape};
}

/* ---- files byte by byte ---- */

/* A file of a header as given and `size` bytes of data behind it. */
static const char *raw_file(const char *header, size_t header_size, const void *data, size_t size)
{
    const char *path = in_test("raw.safetensors");
    char bytes[4096];
    ck_assert_uint_le(8 + header_size + size, sizeof bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)(header_size >> 8 * i);
    memcpy(bytes + 8, header, header_size);
    if (size)
        memcpy(bytes + 8 + header_size, data, size);
    write_bytes(path, bytes, 8 + header_size + size);
    return path;
}

START_TEST(a_file_made_by_hand_is_read)
{
    static const char header[] = "{\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]},"
                                 "\"__metadata__\":{\"format\":\"pt\",\"\\u00e9\":\"\\u00df\"},"
                                 "\"a\":{\"dtype\":\"I16\",\"shape\":[2,1],\"data_offsets\":[0,4]},"
                                 "\"empty\":{\"dtype\":\"U8\",\"shape\":[3,0],\"data_offsets\":[12,12]}}   ";
    static const unsigned char data[] = {0x01, 0x00, 0xFE, 0xFF, 0x00, 0x00, 0x80, 0x3F, 0x00, 0x00, 0x20, 0xC0};
    int16_t a[2];
    float b[2];
    tn_safetensors *file;
    ck_ok(tn_safetensors_open(raw_file(header, sizeof header - 1, data, sizeof data), &file, &err), err);
    ck_assert_uint_eq(tn_safetensors_count(file), 3);
    const tn_safetensors_info *info = tn_safetensors_find(file, "a");
    ck_assert_ptr_eq(info, tn_safetensors_at(file, 0));
    ck_assert_int_eq(info->ndim, 2);
    ck_assert(info->shape[0] == 2 && info->shape[1] == 1 && info->dtype.code == TN_INT && info->dtype.bits == 16);
    ck_ok(tn_safetensors_read(file, info, 0, 4, a, &err), err);
    ck_assert(a[0] == 1 && a[1] == -2);
    info = tn_safetensors_find(file, "b");
    ck_ok(tn_safetensors_read(file, info, 0, 8, b, &err), err);
    ck_assert(b[0] == 1 && b[1] == -2.5f);
    ck_ok(tn_safetensors_read(file, info, 4, 4, b, &err), err);
    ck_assert(b[0] == -2.5f);
    ck_assert_refused(tn_safetensors_read(file, info, 4, 8, b, &err), TN_E_INVALID, err, "", "tensor 'b'");
    ck_assert_int_eq(tn_safetensors_find(file, "empty")->bytes, 0);
    ck_assert_ptr_null(tn_safetensors_find(file, "c"));
    ck_assert_str_eq(tn_safetensors_note_of(file, "\xC3\xA9"), "\xC3\x9F");
    ck_assert_ptr_null(tn_safetensors_note_of(file, "a"));
    tn_safetensors_close(file);
}
END_TEST

#define ONE(dtype, shape, offsets) "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

/* Each with 8 bytes of data. */
static const struct {
    const char *header, *part;
} wrong[] = {
    {"", "header"},
    {"[]", "no JSON object"},
    {"{\"a\":", "header"},
    {"{} x", "header"},
    {"{}", "8 bytes behind the last tensor"},
    {ONE("F128", "[1]", "[0,8]"), "dtype"},
    {ONE("BOOL", "[8]", "[0,8]"), "dtype"},
    {ONE("C64", "[1]", "[0,8]"), "dtype"},
    {ONE("F8_E4M3", "[8]", "[0,8]"), "dtype"},
    {ONE("F8_E5M2", "[8]", "[0,8]"), "dtype"},
    {ONE("F4", "[16]", "[0,8]"), "dtype"},
    {ONE("", "[8]", "[0,8]"), "dtype"},
    {ONE("F32 ", "[2]", "[0,8]"), "dtype"},
    {ONE("f32", "[2]", "[0,8]"), "dtype"},
    {"{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}", "dtype"},
    {ONE("F32", "2", "[0,8]"), "shape"},
    {ONE("F32", "[-2]", "[0,8]"), "extent"},
    {ONE("F32", "[2.0]", "[0,8]"), "extent"},
    {ONE("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), "shape"},
    {ONE("F32", "[99999999999999999999]", "[0,8]"), "header"},
    {ONE("F32", "[4611686018427387904,2]", "[0,8]"), "do not fit"},
    {ONE("F32", "[4294967296,4294967296]", "[0,8]"), "do not fit"},
    {ONE("F32", "[3]", "[0,8]"), "do not fit"},
    {ONE("F32", "[1]", "[0,0]"), "do not fit"},
    {ONE("F32", "[3]", "[0,12]"), "within the file"},
    {ONE("F32", "[2]", "[8,0]"), "within the file"},
    {ONE("F32", "[2]", "[-8,0]"), "within the file"},
    {ONE("F32", "[2]", "[0,9223372036854775807]"), "within the file"},
    {ONE("F32", "[2]", "[0]"), "data_offsets"},
    {ONE("F32", "[2]", "[0,8,8]"), "data_offsets"},
    {ONE("F32", "[2]", "[0,\"8\"]"), "data_offsets"},
    {ONE("F32", "[1]", "[4,8]"), "hole"},
    {ONE("F32", "[1]", "[0,4]"), "behind the last"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"more\":1}}", "nothing else"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", "nothing else"},
    {"{\"a\":[]}", "nothing else"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
     "overlaps"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[3,8]}}",
     "overlaps"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
     "duplicate"},
    {"{\"__metadata__\":{\"a\":1},\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "no text"},
    {"{\"__metadata__\":\"x\",\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "__metadata__"},
    {"{\"a\\n\\u001b[2J\":[]}", "'a??[2J'"},
    {"{\"a\":\n\n!}", "header"},
    {"{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "header"},
};

START_TEST(files_made_to_mislead_are_refused)
{
    static const char data[8];
    tn_safetensors *file = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *path = raw_file(wrong[i].header, strlen(wrong[i].header), data, sizeof data);
        int32_t status = tn_safetensors_open(path, &file, &err);
        ck_assert_msg(status == TN_E_DATA, "%s: %s", wrong[i].header, status ? err.msg : "accepted");
        ck_assert_msg(strstr(err.msg, wrong[i].part) && strstr(err.msg, path), "no '%s': %s", wrong[i].part, err.msg);
        ck_assert_msg(!strpbrk(err.msg, "\n\x1b"), "not one line: %s", err.msg);
    }
}
END_TEST

START_TEST(lengths_that_lie_are_refused)
{
    static const struct {
        uint64_t length;
        size_t bytes;
    } lies[] = {{0, 0}, {0, 7}, {1, 8}, {0x7FFFFFFFFFFFFFFF, 20}, {UINT64_MAX, 20}, {(100u << 20) + 1, 20}, {13, 20}};
    tn_safetensors *file;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        unsigned char bytes[32] = {0};
        for (int b = 0; b < 8; b++)
            bytes[b] = (unsigned char)(lies[i].length >> 8 * b);
        write_bytes(in_test("lie"), bytes, lies[i].bytes);
        ck_assert_refused(tn_safetensors_open(in_test("lie"), &file, &err), TN_E_DATA, err, in_test("lie"), "header");
    }
    ck_assert_refused(tn_safetensors_open(in_test("nowhere"), &file, &err), TN_E_NOT_FOUND, err, "", "nowhere");
    ck_assert_refused(tn_safetensors_open(test_directory, &file, &err), TN_E_DATA, err, "", "regular");
}
END_TEST

/* Headers of 100 MiB, the most that is read: blanks, and brackets that a parser would follow into the depth. */
START_TEST(huge_headers_are_refused)
{
    static const char *const fills[] = {"", "[", "{\"a\":"};
    const size_t length = (size_t)TN_SAFETENSORS_HEADER_MAX;
    tn_safetensors *file;
    FILE *out = fopen(in_test("huge"), "wb");
    for (int i = 0; i < 8; i++)
        fputc((int)(length >> 8 * i & 255), out);
    for (int i = 0; i < 4096 && *fills[_i]; i++)
        fputs(fills[_i], out);
    ck_assert_int_eq(fclose(out), 0);
    ck_assert_int_eq(truncate(in_test("huge"), (off_t)(8 + length)), 0); /* NULs to the end */
    ck_assert_refused(tn_safetensors_open(in_test("huge"), &file, &err), TN_E_DATA, err, in_test("huge"), "header");
}
END_TEST

/* Any byte of a good file replaced, any length cut: refused or read, never a crash; a cut is always refused. */
START_TEST(damage_is_no_crash)
{
    static const char header[] = ONE("F32", "[2]", "[0,8]");
    static const char data[8];
    char bytes[8 + sizeof header - 1 + 8], changed[sizeof bytes];
    tn_safetensors *file;
    const char *path = raw_file(header, sizeof header - 1, data, sizeof data);
    FILE *in = fopen(path, "rb");
    ck_assert_uint_eq(fread(bytes, 1, sizeof bytes, in), sizeof bytes);
    fclose(in);
    for (size_t n = 0; n < sizeof bytes; n++) {
        write_bytes(in_test("cut"), bytes, n);
        ck_assert_int_eq(tn_safetensors_open(in_test("cut"), &file, &err), TN_E_DATA);
    }
    for (size_t at = 0; at < sizeof bytes - 8; at++)
        for (int value = 0; value < 256; value += 15) {
            memcpy(changed, bytes, sizeof bytes);
            changed[at] = (char)value;
            write_bytes(in_test("changed"), changed, sizeof changed);
            if (tn_safetensors_open(in_test("changed"), &file, &err) == TN_OK)
                tn_safetensors_close(file);
        }
}
END_TEST

/* ---- writing ---- */

static void *bytes_of(const char *path, size_t *ret_size)
{
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    char *bytes = malloc(1 << 16);
    *ret_size = fread(bytes, 1, 1 << 16, file);
    fclose(file);
    return bytes;
}

/* CKP-04, as it was reported: two of shape [0], one of [2, 0], a scalar and one of [1], those without bytes at one
 * offset; the same as a file of others, and a tensor of one element without bytes. */
START_TEST(empty_tensors_and_scalars)
{
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
                                 "\"b\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
                                 "\"c\":{\"dtype\":\"F32\",\"shape\":[2,0],\"data_offsets\":[0,0]},"
                                 "\"d\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                                 "\"e\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}";
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    static const int32_t axes[] = {1, 1, 2, 0, 1};
    float values[] = {-2.5f, 7}, back;
    int64_t none[] = {0}, two[] = {2, 0}, one[] = {1}, *const shapes[] = {none, none, two, NULL, one};
    tn_tensor tensors[5];
    tn_safetensors_entry entries[5];
    for (int i = 0; i < 5; i++) {
        tensors[i] = tensor_of(i < 3 ? NULL : &values[i - 3], TN_FLOAT, 32, axes[i], shapes[i]);
        entries[i] = (tn_safetensors_entry){names[i], &tensors[i]};
    }
    ck_ok(tn_safetensors_write(in_test("own"), entries, 5, NULL, 0, &err), err);
    const char *const paths[] = {in_test("own"), raw_file(header, sizeof header - 1, values, sizeof values)};
    for (int p = 0; p < 2; p++) {
        tn_safetensors *file;
        ck_ok(tn_safetensors_open(paths[p], &file, &err), err);
        ck_assert_uint_eq(tn_safetensors_count(file), 5);
        for (int i = 0; i < 5; i++) {
            const tn_safetensors_info *info = tn_safetensors_find(file, names[i]);
            ck_assert(info && info->ndim == axes[i] && info->bytes == (i < 3 ? 0 : 4));
            ck_assert(axes[i] == 0 || !memcmp(info->shape, shapes[i], (size_t)axes[i] * sizeof(int64_t)));
            ck_ok(tn_safetensors_read(file, info, 0, info->bytes, &back, &err), err);
            ck_assert(i < 3 || back == values[i - 3]);
        }
        tn_safetensors_close(file);
    }
}
END_TEST

/* CKP-04, every type and shapes in between. */
START_TEST(tensors_come_back_as_they_went)
{
    static const struct {
        uint8_t code, bits;
        int32_t ndim;
        int64_t shape[3];
    } kinds[] = {{TN_UINT, 8, 1, {0}},    {TN_INT, 8, 1, {5}},      {TN_FLOAT, 16, 2, {2, 0}},
                 {TN_BFLOAT, 16, 0, {0}}, {TN_FLOAT, 32, 1, {1}},   {TN_FLOAT, 64, 3, {2, 3, 2}},
                 {TN_INT, 64, 1, {3}},    {TN_UINT, 16, 2, {1, 3}}, {TN_FLOAT, 32, 1, {0}},
                 {TN_UINT, 64, 1, {2}},   {TN_INT, 32, 1, {7}},     {TN_UINT, 32, 2, {3, 1}},
                 {TN_INT, 16, 2, {5, 1}}};
    enum { N = sizeof kinds / sizeof *kinds };
    unsigned char data[N][128], back[128];
    int64_t shapes[N][3];
    tn_tensor tensors[N];
    tn_safetensors_entry entries[N];
    char names[N][16];
    tn_safetensors *file;
    for (int i = 0; i < N; i++) {
        for (size_t b = 0; b < sizeof *data; b++)
            data[i][b] = (unsigned char)random_bits();
        memcpy(shapes[i], kinds[i].shape, sizeof shapes[i]);
        tensors[i] = tensor_of(data[i], kinds[i].code, kinds[i].bits, kinds[i].ndim, shapes[i]);
        snprintf(names[i], sizeof names[i], "t\xC3\xA9\"/%d", i);
        entries[i] = (tn_safetensors_entry){names[i], &tensors[i]};
    }
    const tn_safetensors_note notes[] = {{"what", "a \"quoted\" \xE2\x82\xAC\n"}, {"", ""}};
    ck_ok(tn_safetensors_write(in_test("all"), entries, N, notes, 2, &err), err);
    ck_ok(tn_safetensors_open(in_test("all"), &file, &err), err);
    ck_assert_uint_eq(tn_safetensors_count(file), N);
    ck_assert_str_eq(tn_safetensors_note_of(file, "what"), notes[0].text);
    for (int i = 0; i < N; i++) {
        const tn_safetensors_info *info = tn_safetensors_find(file, names[i]);
        ck_assert_ptr_nonnull(info);
        ck_assert(!memcmp(&info->dtype, &tensors[i].dtype, sizeof info->dtype) && info->ndim == tensors[i].ndim);
        ck_assert(!memcmp(info->shape, shapes[i], (size_t)info->ndim * 8));
        ck_assert_int_eq(info->begin % (kinds[i].bits / 8), 0);
        ck_ok(tn_safetensors_read(file, info, 0, info->bytes, back, &err), err);
        ck_assert(!memcmp(back, data[i], (size_t)info->bytes));
    }
    ck_assert_int_eq(tn_safetensors_at(file, 0)->begin % 64, 0);
    tn_safetensors_close(file);
}
END_TEST

/* CKP-05, and an offset. */
START_TEST(strided_tensors_are_written_in_logical_order)
{
    float data[7] = {9, 1, 2, 3, 4, 5, 6}, back[6];
    int64_t shape[] = {3, 2}, strides[] = {1, 3};
    tn_tensor tensor = tensor_of(data, TN_FLOAT, 32, 2, shape);
    tensor.strides = strides;
    tensor.byte_offset = 4;
    tn_safetensors *file;
    ck_ok(tn_safetensors_write(in_test("t"), &(tn_safetensors_entry){"t", &tensor}, 1, NULL, 0, &err), err);
    size_t size;
    unsigned char *bytes = bytes_of(in_test("t"), &size);
    static const float needed[] = {1, 4, 2, 5, 3, 6};
    ck_assert(!memcmp(bytes + size - 24, needed, 24));
    ck_assert_uint_eq((size - 24) % 64, 0);
    free(bytes);
    ck_ok(tn_safetensors_open(in_test("t"), &file, &err), err);
    ck_ok(tn_safetensors_read(file, tn_safetensors_at(file, 0), 0, 24, back, &err), err);
    ck_assert(!memcmp(back, needed, 24));
    tn_safetensors_close(file);
}
END_TEST

/* Whose strides would be products beyond 63 bits. */
START_TEST(nothing_of_any_shape_is_written)
{
    const int64_t huge = (int64_t)1 << 40;
    int64_t shape[] = {0, huge, huge, huge}, strides[] = {1, 1, 1, 1};
    tn_tensor tensor = tensor_of(NULL, TN_FLOAT, 32, 4, shape);
    tn_safetensors *file;
    tensor.strides = strides;
    ck_ok(tn_safetensors_write(in_test("t"), &(tn_safetensors_entry){"t", &tensor}, 1, NULL, 0, &err), err);
    ck_ok(tn_safetensors_open(in_test("t"), &file, &err), err);
    ck_assert_int_eq(tn_safetensors_at(file, 0)->bytes, 0);
    ck_assert_int_eq(tn_safetensors_at(file, 0)->shape[3], huge);
    tn_safetensors_close(file);
}
END_TEST

START_TEST(long_strided_tensors_cross_the_buffer)
{
    enum { ROWS = 113, COLUMNS = 97 };
    static double data[ROWS * COLUMNS], back[ROWS * COLUMNS];
    int64_t shape[] = {COLUMNS, ROWS}, strides[] = {1, COLUMNS};
    for (int i = 0; i < ROWS * COLUMNS; i++)
        data[i] = i;
    tn_tensor tensor = tensor_of(data, TN_FLOAT, 64, 2, shape);
    tensor.strides = strides;
    tn_safetensors *file;
    ck_ok(tn_safetensors_write(in_test("t"), &(tn_safetensors_entry){"t", &tensor}, 1, NULL, 0, &err), err);
    ck_ok(tn_safetensors_open(in_test("t"), &file, &err), err);
    ck_ok(tn_safetensors_read(file, tn_safetensors_at(file, 0), 0, sizeof back, back, &err), err);
    for (int i = 0; i < COLUMNS; i++)
        for (int j = 0; j < ROWS; j++)
            expect(back[i * ROWS + j] == data[j * COLUMNS + i], "%d, %d", i, j);
    tn_safetensors_close(file);
}
END_TEST

START_TEST(what_can_not_be_written_is_refused)
{
    float data[4] = {0};
    int64_t shape[] = {4};
    tn_tensor good = tensor_of(data, TN_FLOAT, 32, 1, shape), lanes = good, odd = good;
    lanes.dtype.lanes = 2;
    odd.dtype.bits = 8;
    const tn_safetensors_entry twice[] = {{"a", &good}, {"a", &good}}, reserved[] = {{"__metadata__", &good}},
                               latin[] = {{"\xE9", &good}}, wide[] = {{"w", &lanes}}, small[] = {{"s", &odd}};
    const tn_safetensors_note notes[] = {{"k", "1"}, {"k", "2"}}, invalid[] = {{"k", "\xFF"}};
    const char *path = in_test("refused");
    ck_assert_refused(tn_safetensors_write(path, twice, 2, NULL, 0, &err), TN_E_INVALID, err, path, "'a'");
    ck_assert_refused(tn_safetensors_write(path, reserved, 1, NULL, 0, &err), TN_E_INVALID, err, path, "reserved");
    ck_assert_refused(tn_safetensors_write(path, latin, 1, NULL, 0, &err), TN_E_INVALID, err, path, "UTF-8");
    ck_assert_refused(tn_safetensors_write(path, wide, 1, NULL, 0, &err), TN_E_INVALID, err, path, "'w'");
    ck_assert_refused(tn_safetensors_write(path, small, 1, NULL, 0, &err), TN_E_INVALID, err, path, "'s'");
    ck_assert_refused(tn_safetensors_write(path, NULL, 0, notes, 2, &err), TN_E_INVALID, err, path, "'k'");
    ck_assert_refused(tn_safetensors_write(path, NULL, 0, invalid, 1, &err), TN_E_INVALID, err, path, "'k'");
    ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

/* A failed write keeps the old file, leaves no other, and says why: a full disk is a limit on a file's size here. */
START_TEST(a_failed_write_keeps_the_old_file)
{
    static float data[1 << 16];
    int64_t shape[] = {1 << 16}, none[] = {0};
    tn_tensor large = tensor_of(data, TN_FLOAT, 32, 1, shape), small = tensor_of(data, TN_FLOAT, 32, 1, none);
    const char *path = in_test("kept");
    size_t before_size, after_size;
    ck_ok(tn_safetensors_write(path, &(tn_safetensors_entry){"old", &small}, 1, NULL, 0, &err), err);
    char *before = bytes_of(path, &before_size);
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {1 << 16, RLIM_INFINITY}, no_limit = {RLIM_INFINITY, RLIM_INFINITY};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    int32_t status = tn_safetensors_write(path, &(tn_safetensors_entry){"new", &large}, 1, NULL, 0, &err);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &no_limit), 0);
    ck_assert_refused(status, TN_E_IO, err, "", "kept.new");
    char *after = bytes_of(path, &after_size);
    ck_assert(before_size == after_size && !memcmp(before, after, after_size));
    ck_assert_int_ne(access(in_test(".kept.new"), F_OK), 0);
    free(before);
    free(after);
    ck_assert_refused(tn_safetensors_write(in_test("no/such"), NULL, 0, NULL, 0, &err), TN_E_IO, err, "", "no/");
}
END_TEST

START_TEST(every_failed_allocation_is_an_error)
{
    float data[4] = {0};
    int64_t shape[] = {4};
    tn_tensor tensor = tensor_of(data, TN_FLOAT, 32, 1, shape);
    tn_safetensors *file;
    int32_t status = TN_E_MEMORY;
    for (int64_t nth = 0; status != TN_OK; nth++) {
        tn_memory_fail_at(nth);
        status = tn_safetensors_write(in_test("m"), &(tn_safetensors_entry){"t", &tensor}, 1, NULL, 0, &err);
        tn_memory_fail_at(-1);
        ck_assert_msg(status == TN_OK || status == TN_E_MEMORY || status == TN_E_IO, "%s", err.msg);
        ck_assert_int_lt(nth, 50);
    }
    status = TN_E_MEMORY;
    for (int64_t nth = 0; status != TN_OK; nth++) {
        tn_memory_fail_at(nth);
        status = tn_safetensors_open(in_test("m"), &file, &err);
        tn_memory_fail_at(-1);
        ck_assert_msg(status == TN_OK || status == TN_E_MEMORY, "%s", err.msg);
        ck_assert_int_lt(nth, 50);
    }
    tn_safetensors_close(file);
    tn_safetensors_close(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("safetensors");
    TCase *tests = tcase_create("safetensors");
    tcase_add_checked_fixture(tests, make_directory, remove_directory);
    tcase_add_test(tests, a_file_made_by_hand_is_read);
    tcase_add_test(tests, files_made_to_mislead_are_refused);
    tcase_add_test(tests, lengths_that_lie_are_refused);
    tcase_add_loop_test(tests, huge_headers_are_refused, 0, 3);
    tcase_add_test(tests, damage_is_no_crash);
    tcase_add_test(tests, empty_tensors_and_scalars);
    tcase_add_test(tests, tensors_come_back_as_they_went);
    tcase_add_test(tests, strided_tensors_are_written_in_logical_order);
    tcase_add_test(tests, nothing_of_any_shape_is_written);
    tcase_add_test(tests, long_strided_tensors_cross_the_buffer);
    tcase_add_test(tests, what_can_not_be_written_is_refused);
    tcase_add_test(tests, a_failed_write_keeps_the_old_file);
    tcase_add_test(tests, every_failed_allocation_is_an_error);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
