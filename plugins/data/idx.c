/* SPDX-License-Identifier: Apache-2.0
 *
 * IDX: images and labels of one byte each in the format of MNIST (LeCun, Cortes and Burges 1998), gzipped or plain.
 *
 *   <folder>/{train,t10k}-images-idx3-ubyte[.gz]   0x00000803, count, rows, columns; then the pixels
 *   <folder>/{train,t10k}-labels-idx1-ubyte[.gz]   0x00000801, count; then the labels      (numbers big-endian u32)
 *
 * x = (pixel / 255 - mean) / std, with mean and std of all training pixels from exact integer sums, in every split.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include <tenon/data.h>
#include <tenon/sdk.h>

#define HYPER(X)                                                                                                       \
    X(text, set, "fashion-mnist", "", "name of the set: the folder is /usr/share/datasets/<set>")                      \
    X(text, folder, "", "", "where its four files are, if not there")                                                  \
    X(choice, normalize, standard, "standard | unit | none", "(x/255 - mean)/std, x/255, or x as it is")               \
    X(flag, flatten, true, "", "samples of shape [rows * columns] instead of [1, rows, columns]")
TN_DECLARE(idx, HYPER)
enum { IDX_STANDARD, IDX_UNIT, IDX_NONE };

#define IDX_RATIO 1032 /* no deflate stream expands further */

/* The head of a split's memory; pixels follow at IDX_HEAD, labels after them. */
typedef struct idx_memory {
    int64_t samples, rows, columns, classes;
    double mean, std; /* of the training pixels / 255 */
    tn_real a, b;     /* x = a * pixel + b */
} idx_memory;
#define IDX_HEAD 64
TN_STATIC_ASSERT(sizeof(idx_memory) <= IDX_HEAD, "the head is too small");

static uint8_t *idx_pixels(const void *memory) { return (uint8_t *)memory + IDX_HEAD; }
static int64_t idx_pixel_count(const idx_memory *m) { return m->samples * m->rows * m->columns; }
static uint8_t *idx_labels(const void *memory) { return idx_pixels(memory) + idx_pixel_count(memory); }

/* ---- files ---- */

typedef struct idx_file {
    gzFile stream; /* NULL: closed */
    int64_t size;  /* on disk, in bytes */
    int64_t count, rows, columns;
    char path[1024];
} idx_file;

static const char *const idx_splits[][2] = {{"train", "train"}, {"test", "t10k"}};
static const char *const idx_contents[] = {"images-idx3", "labels-idx1"};
enum { IDX_IMAGES, IDX_LABELS };

static int32_t idx_split(const char *split, int *ret, tn_error *err)
{
    for (int i = 0; i < 2; i++)
        if (!strcmp(split, idx_splits[i][0])) {
            *ret = i;
            return TN_OK;
        }
    return tn_fail(err, TN_E_NOT_FOUND, "data idx: no split \"%s\"; it has train and test", split);
}

static int32_t idx_missing(const idx *h, const char *path, int code, tn_error *err)
{
    int packaged = !h->folder[0] && !strcmp(h->set, "fashion-mnist");
    return tn_fail(err, TN_E_IO, "data idx: %s: %s; %s", path, strerror(code),
                   packaged ? "install it with `apt-get install dataset-fashion-mnist`"
                            : "needed there: {train,t10k}-{images-idx3,labels-idx1}-ubyte, plain or .gz "
                              "(see `set` and `folder`)");
}

/* Opens the file, with .gz or without. */
static int idx_descriptor(const idx *h, int split, int content, idx_file *file)
{
    static const char *const ends[] = {"", ".gz"};
    int fd = -1;
    for (int i = 0; i < 2 && fd < 0; i++) {
        int length = snprintf(file->path, sizeof file->path, "%s%s/%s-%s-ubyte%s",
                              h->folder[0] ? h->folder : "/usr/share/datasets/", h->folder[0] ? "" : h->set,
                              idx_splits[split][1], idx_contents[content], ends[i]);
        errno = ENAMETOOLONG;
        if (length < (int)sizeof file->path)
            fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0 && errno != ENOENT)
            break;
    }
    return fd;
}

static void idx_close(idx_file *file)
{
    if (file->stream)
        gzclose_r(file->stream);
    file->stream = NULL;
}

/* What zlib says, without its name for the file, "<fd:3>: ". */
static const char *idx_reason(const char *text)
{
    const char *end = *text == '<' ? strstr(text, ">: ") : NULL;
    return end ? end + 3 : text;
}

/* Why zlib gave less than was asked for. */
static int32_t idx_broken(const idx_file *file, int64_t found, int64_t needed, tn_error *err)
{
    int code = Z_OK;
    const char *text = gzerror(file->stream, &code);
    if (code == Z_ERRNO)
        return tn_fail(err, TN_E_IO, "data idx: %s: %s", file->path, strerror(errno));
    if (code != Z_OK && code != Z_BUF_ERROR)
        return tn_fail(err, TN_E_DATA, "data idx: %s is damaged: %s", file->path, idx_reason(text));
    return tn_fail(err, TN_E_DATA, "data idx: %s is cut short: found %lld bytes where %lld are needed", file->path,
                   (long long)found, (long long)needed);
}

/* Exactly n bytes. */
static int32_t idx_read(idx_file *file, void *to, int64_t n, tn_error *err)
{
    int64_t done = 0;
    while (done < n) {
        unsigned piece = (unsigned)(n - done < (1 << 30) ? n - done : 1 << 30);
        int got = gzread(file->stream, (uint8_t *)to + done, piece);
        if (got > 0)
            done += got;
        if (got <= 0)
            return idx_broken(file, done, n, err);
    }
    return TN_OK;
}

/* Nothing may follow; reading on also makes zlib check the length and the checksum. Closes the file. */
static int32_t idx_end(idx_file *file, tn_error *err)
{
    uint8_t byte;
    int got = gzread(file->stream, &byte, 1), code = Z_OK;
    int32_t status = TN_OK;
    gzerror(file->stream, &code);
    if (got > 0)
        status = tn_fail(err, TN_E_DATA, "data idx: %s goes on after the last of its %lld records", file->path,
                         (long long)file->count);
    else if (code == Z_BUF_ERROR)
        status = tn_fail(err, TN_E_DATA, "data idx: %s is cut short: needed 8 bytes of checksum and length at its end",
                         file->path);
    else if (code != Z_OK)
        status = idx_broken(file, 0, 0, err);
    idx_close(file);
    return status;
}

/* The header's numbers: plausible ones only, so that nobody allocates what the file can not hold. */
static int32_t idx_header(idx_file *file, int content, tn_error *err)
{
    static const uint32_t magics[] = {0x803, 0x801};
    uint8_t bytes[16] = {0};
    int64_t word[4] = {0, 0, 1, 1}, size = content == IDX_IMAGES ? 16 : 8, limit, total;
    int32_t status = idx_read(file, bytes, size, err);
    if (status != TN_OK)
        return status;
    for (int i = 0; i < size / 4; i++)
        word[i] = (int64_t)bytes[4 * i] << 24 | bytes[4 * i + 1] << 16 | bytes[4 * i + 2] << 8 | bytes[4 * i + 3];
    if (word[0] != magics[content])
        return tn_fail(err, TN_E_DATA, "data idx: %s begins with 0x%08llx, needed 0x%08x (%s)", file->path,
                       (long long)word[0], magics[content], content == IDX_IMAGES ? "images" : "labels");
    if (!word[1] || !word[2] || !word[3])
        return tn_fail(err, TN_E_DATA, "data idx: %s holds %lld records of %lld x %lld, needed at least 1 of each",
                       file->path, (long long)word[1], (long long)word[2], (long long)word[3]);
    limit = gzdirect(file->stream) ? file->size : file->size * IDX_RATIO;
    if (__builtin_mul_overflow(word[2], word[3], &total) || __builtin_mul_overflow(total, word[1], &total) ||
        total > limit)
        return tn_fail(err, TN_E_DATA,
                       "data idx: %s says it holds %lld records of %lld x %lld, more than fit its %lld bytes",
                       file->path, (long long)word[1], (long long)word[2], (long long)word[3], (long long)file->size);
    file->count = word[1];
    file->rows = word[2];
    file->columns = word[3];
    return TN_OK;
}

/* Opens a file and reads its header. On failure it is closed. */
static int32_t idx_open(const idx *h, int split, int content, idx_file *file, tn_error *err)
{
    struct stat info;
    int32_t status;
    int fd = idx_descriptor(h, split, content, file);
    if (fd < 0)
        return idx_missing(h, file->path, errno, err);
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return tn_fail(err, TN_E_IO, "data idx: %s is not a regular file", file->path);
    }
    file->size = info.st_size;
    file->stream = gzdopen(fd, "rb");
    if (!file->stream) {
        close(fd);
        return tn_fail(err, TN_E_MEMORY, "data idx: %s: out of memory", file->path);
    }
    gzbuffer(file->stream, 1 << 17);
    status = idx_header(file, content, err);
    if (status != TN_OK)
        idx_close(file);
    return status;
}

/* Both files of a split. On failure both are closed. */
static int32_t idx_open_split(const idx *h, int split, idx_file *images, idx_file *labels, tn_error *err)
{
    int32_t status = idx_open(h, split, IDX_IMAGES, images, err);
    if (status != TN_OK)
        return status;
    status = idx_open(h, split, IDX_LABELS, labels, err);
    if (status == TN_OK && images->count != labels->count) {
        status = tn_fail(err, TN_E_DATA, "data idx: %s holds %lld images, but %s %lld labels; needed as many",
                         images->path, (long long)images->count, labels->path, (long long)labels->count);
        idx_close(labels);
    }
    if (status != TN_OK)
        idx_close(images);
    return status;
}

/* 1 + the largest training label. */
static int32_t idx_classes(const idx *h, int64_t *ret, tn_error *err)
{
    idx_file file;
    uint8_t bytes[4096], largest = 0;
    int32_t status = idx_open(h, 0, IDX_LABELS, &file, err);
    if (status != TN_OK)
        return status;
    for (int64_t left = file.count; left > 0 && status == TN_OK;) {
        int64_t n = left < (int64_t)sizeof bytes ? left : (int64_t)sizeof bytes;
        status = idx_read(&file, bytes, n, err);
        for (int64_t i = 0; i < n && status == TN_OK; i++)
            largest = bytes[i] > largest ? bytes[i] : largest;
        left -= n;
    }
    if (status == TN_OK)
        status = idx_end(&file, err);
    idx_close(&file);
    if (status == TN_OK)
        *ret = 1 + largest;
    return status;
}

/* ---- the three entries ---- */

static int64_t idx_bytes(const idx_file *images)
{
    return IDX_HEAD + images->count * (images->rows * images->columns + 1);
}

static int32_t idx_describe(const void *hyper, const char *split, tn_data_split *ret, tn_error *err)
{
    const idx *h = hyper;
    idx_file images, labels;
    int64_t classes = 0;
    int which = 0;
    int32_t status = idx_split(split, &which, err);
    if (status == TN_OK)
        status = idx_open_split(h, which, &images, &labels, err);
    if (status != TN_OK)
        return status;
    idx_close(&images);
    idx_close(&labels);
    status = idx_classes(h, &classes, err);
    if (status != TN_OK)
        return status;
    ret->ndim = h->flatten ? 1 : 3;
    ret->shape[0] = h->flatten ? images.rows * images.columns : 1;
    if (!h->flatten) {
        ret->shape[1] = images.rows;
        ret->shape[2] = images.columns;
    }
    ret->samples = images.count;
    ret->classes = classes;
    ret->target_ndim = 0;
    ret->bytes = idx_bytes(&images);
    return TN_OK;
}

TN_CLONES static void idx_sums(int64_t n, const uint8_t *restrict pixels, uint64_t *restrict ret_sum,
                               uint64_t *restrict ret_squares)
{
    uint64_t sum = 0, squares = 0;
    for (int64_t lo = 0; lo < n; lo += 4096) {
        uint32_t some = 0, some_squares = 0; /* 4096 * 255^2 < 2^32 */
        for (int64_t i = lo; i < n && i < lo + 4096; i++) {
            some += pixels[i];
            some_squares += (uint32_t)pixels[i] * pixels[i];
        }
        sum += some;
        squares += some_squares;
    }
    *ret_sum = sum;
    *ret_squares = squares;
}

__extension__ typedef unsigned __int128 idx_wide;

static void idx_measure(idx_memory *m)
{
    uint64_t n = (uint64_t)idx_pixel_count(m), sum, squares;
    idx_sums((int64_t)n, idx_pixels(m), &sum, &squares);
    m->mean = (double)sum / (double)n / 255;
    m->std = sqrt((double)((idx_wide)n * squares - (idx_wide)sum * sum)) / (double)n / 255;
}

/* Sets a and b; mean and std are there. */
static int32_t idx_scale(const idx *h, idx_memory *m, const char *path, tn_error *err)
{
    double a = h->normalize == IDX_NONE ? 1 : 1.0 / 255, b = 0;
    if (h->normalize == IDX_STANDARD) {
        if (m->std == 0)
            return tn_fail(err, TN_E_DATA,
                           "data idx: all pixels of %s are the same, so they have no deviation to divide by; "
                           "use `normalize: unit`",
                           path);
        a /= m->std;
        b = -m->mean / m->std;
    }
    m->a = (tn_real)a;
    m->b = (tn_real)b;
    return TN_OK;
}

/* In the training split the labels say how many classes there are; in others they have to lie in them. */
static int32_t idx_check_labels(idx_memory *m, const idx_memory *train, const char *path, tn_error *err)
{
    const uint8_t *labels = idx_labels(m);
    uint8_t largest = 0;
    for (int64_t i = 0; i < m->samples; i++) {
        if (train && labels[i] >= train->classes)
            return tn_fail(err, TN_E_DATA, "data idx: %s: label %lld is %d, needed 0 to %lld as in training", path,
                           (long long)i, labels[i], (long long)train->classes - 1);
        largest = labels[i] > largest ? labels[i] : largest;
    }
    m->classes = train ? train->classes : 1 + largest;
    return TN_OK;
}

/* Everything of a split, from two open files. */
static int32_t idx_fill(const idx *h, const idx_memory *train, idx_file *images, idx_file *labels, idx_memory *m,
                        tn_error *err)
{
    int32_t status;
    m->samples = images->count;
    m->rows = images->rows;
    m->columns = images->columns;
    if (train && (train->rows != m->rows || train->columns != m->columns))
        return tn_fail(err, TN_E_DATA, "data idx: %s holds images of %lld x %lld, needed %lld x %lld as in training",
                       images->path, (long long)m->rows, (long long)m->columns, (long long)train->rows,
                       (long long)train->columns);
    status = idx_read(images, idx_pixels(m), idx_pixel_count(m), err);
    if (status == TN_OK)
        status = idx_end(images, err);
    if (status == TN_OK)
        status = idx_read(labels, idx_labels(m), m->samples, err);
    if (status == TN_OK)
        status = idx_end(labels, err);
    if (status == TN_OK)
        status = idx_check_labels(m, train, labels->path, err);
    if (status != TN_OK)
        return status;
    if (train) {
        m->mean = train->mean;
        m->std = train->std;
    } else {
        idx_measure(m);
    }
    return idx_scale(h, m, images->path, err);
}

static int32_t idx_load(const void *hyper, const char *split, const tn_data_split *described, const void *train,
                        void *memory, tn_error *err)
{
    idx_file images, labels;
    int which = 0;
    int32_t status = idx_split(split, &which, err);
    if (status == TN_OK && which != 0 && !train)
        status = tn_fail(err, TN_E_INVALID, "data idx: the split %s needs the training split loaded before it", split);
    if (status == TN_OK)
        status = idx_open_split(hyper, which, &images, &labels, err);
    if (status != TN_OK)
        return status;
    if (images.count != described->samples || idx_bytes(&images) != described->bytes)
        status = tn_fail(err, TN_E_DATA,
                         "data idx: %s changed while it was read: %lld images, needed %lld as described before",
                         images.path, (long long)images.count, (long long)described->samples);
    else
        status = idx_fill(hyper, which == 0 ? NULL : train, &images, &labels, memory, err);
    idx_close(&images);
    idx_close(&labels);
    return status;
}

TN_CLONES static void idx_spread(tn_real a, tn_real b, int64_t n, const uint8_t *restrict pixels, tn_real *restrict x)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = a * (tn_real)pixels[i] + b;
}

static void idx_gather(const void *hyper, const void *memory, const tn_context *context, const int64_t *index,
                       int64_t n, int32_t augment, void *x, void *target)
{
    const idx_memory *m = memory;
    const uint8_t *pixels = idx_pixels(m), *labels = idx_labels(m);
    int64_t size = m->rows * m->columns;
    (void)hyper;
    (void)context;
    (void)augment;
    for (int64_t i = 0; i < n; i++) {
        idx_spread(m->a, m->b, size, pixels + index[i] * size, (tn_real *)x + i * size);
        ((int32_t *)target)[i] = labels[index[i]];
    }
}

static const tn_data idx_table = {sizeof(tn_data), 0, idx_describe, idx_load, idx_gather};

TN_COMPONENT(idx, "data", TN_DATA, TN_REAL, HYPER, "Images and labels in the IDX format of MNIST", "", idx_table);
TN_PLUGIN("org.tenon.idx", "0.1.0", "Apache-2.0", idx)
