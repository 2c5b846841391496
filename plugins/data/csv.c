/* SPDX-License-Identifier: Apache-2.0
 *
 * CSV: records of numbers and a label, plain or gzipped, as RFC 4180 has them: fields may be quoted, a quote inside is
 * doubled, lines end in LF, CR LF or CR. Besides: a UTF-8 byte order mark is skipped, blanks around a field and empty
 * lines are nothing.
 *
 *   x = (value - mean) / std, with mean and std of the column in the training split (Welford 1962), in every split
 *
 * Files are read in passes, record by record, so that memory holds the finished samples only. Nothing is guessed: a
 * field that is missing or no finite number is refused with FILE:LINE:COLUMN, the column in characters.
 */
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <locale.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include <tenon/data.h>
#include <tenon/sdk.h>

#define HYPER(X)                                                                                                       \
    X(text, train, "", "", "file of the training samples, plain or gzipped; needed")                                   \
    X(text, test, "", "", "file of the split `test`")                                                                  \
    X(text, validation, "", "", "file of the split `validation`")                                                      \
    X(fixed, test_fraction, 0, "[0, 1)", "without such a file: part of the training file's records, drawn by number")  \
    X(fixed, validation_fraction, 0, "[0, 1)", "as test_fraction, of the split `validation`")                          \
    X(integer, split_seed, 0, "[0, inf)", "another one draws other records")                                           \
    X(choice, separator, comma, "comma | semicolon | tab | bar | blanks", "between fields; blanks: any run of them")   \
    X(flag, header, true, "", "the first record of each file holds the names of the columns")                          \
    X(text, names, "", "", "names of the columns, in place of a header's, separated by commas")                        \
    X(text, label, "-1", "", "column of the target: its name, or its number from 0, from the end if negative")         \
    X(choice, targets, class, "class | text | real", "integers from 0; texts that name classes; or numbers")           \
    X(text, classes, "", "",                                                                                           \
      "the texts of targets: text in the classes' order, separated by commas; if empty: "                              \
      "the order in which training has them")                                                                          \
    X(text, features, "", "", "columns of a sample, as in label, separated by commas; if empty: all but the label")    \
    X(text, ignore, "", "", "columns left out, as in label, separated by commas")                                      \
    X(integers, shape, "[]", "[1, inf)", "shape of a sample; []: [features]")                                          \
    X(choice, normalize, standard, "standard | none", "(x - mean)/std of the column, or x as it is")
TN_DECLARE(csv, HYPER)
enum { CSV_COMMA, CSV_SEMICOLON, CSV_TAB, CSV_BAR, CSV_BLANKS };
enum { CSV_CLASS, CSV_TEXT, CSV_REAL };
enum { CSV_STANDARD, CSV_NONE };

#define CSV_FIELD       255                /* bytes of a field that is used */
#define CSV_COLUMNS_MAX ((int64_t)1 << 20) /* columns of a file */
#define CSV_CLASSES_MAX ((int64_t)1 << 20)

#ifndef CSV_BUFFER
#define CSV_BUFFER (1 << 15) /* bytes read at once, at least 4 */
#endif

/* ---- words for messages ---- */

/* Text of a file for one line of a message: what is no printable UTF-8 becomes \xNN; cut after some 60 bytes. */
typedef struct csv_words {
    char text[80];
} csv_words;

/* Bytes of the UTF-8 character at `s`, 0 where there is none or it is a control character. */
static int csv_character(const unsigned char *s)
{
    int n = s[0] < 0x80 ? 1 : s[0] >= 0xC2 && s[0] < 0xE0 ? 2 : s[0] >= 0xE1 && s[0] < 0xED ? 3 : 0;
    if (s[0] < 0x20 || s[0] == 0x7F || (s[0] == 0xC2 && s[1] < 0xA0))
        return 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    return n;
}

static csv_words csv_show(const char *text)
{
    csv_words ret;
    size_t used = 0;
    const unsigned char *s = (const unsigned char *)text;
    while (*s && used < 60) {
        int n = csv_character(s);
        if (n)
            memcpy(ret.text + used, s, (size_t)n);
        used += n ? (size_t)n : (size_t)snprintf(ret.text + used, 5, "\\x%02x", *s);
        s += n ? n : 1;
    }
    strcpy(ret.text + used, *s ? "..." : "");
    return ret;
}

/* ---- bytes of a file ---- */

typedef struct csv_reader {
    const char *path;
    tn_error *err;
    int32_t status;   /* of the first failure */
    gzFile stream;    /* NULL: closed */
    locale_t numbers; /* the C locale */
    int separator;    /* its byte; ' ' stands for blanks */
    int filled, at;   /* bytes of `buffer`, and the next one */
    int ended;
    int64_t line, column;             /* of the next byte, from 1 */
    int64_t field_line, field_column; /* where the field begins */
    int64_t bytes;                    /* of the field; more than CSV_FIELD are not kept */
    char text[CSV_FIELD + 1];
    uint8_t buffer[CSV_BUFFER];
} csv_reader;

#define CSV_AT_FIELD(r) (r)->path, (long long)(r)->field_line, (long long)(r)->field_column

/* "data csv: FILE:LINE:COLUMN: ..." of the field. Only the first failure counts. */
#define csv_refuse(r, format, ...)                                                                                     \
    ((r)->status ? (r)->status                                                                                         \
                 : ((r)->status = tn_fail((r)->err, TN_E_DATA, "data csv: %s:%lld:%lld: " format, CSV_AT_FIELD(r),     \
                                          ##__VA_ARGS__)))

/* What zlib says, without its name for the file, "<fd:3>: ". */
static const char *csv_reason(const char *text)
{
    const char *end = *text == '<' ? strstr(text, ">: ") : NULL;
    return end ? end + 3 : text;
}

static void csv_fill(csv_reader *r)
{
    int code = Z_OK, got = gzread(r->stream, r->buffer, sizeof r->buffer);
    const char *text = gzerror(r->stream, &code);
    r->at = 0;
    r->filled = got > 0 ? got : 0;
    r->ended = got <= 0;
    if (got > 0 || (got == 0 && (code == Z_OK || code == Z_STREAM_END)) || r->status != TN_OK)
        return;
    if (code == Z_ERRNO)
        r->status = tn_fail(r->err, TN_E_IO, "data csv: %s: %s", r->path, strerror(errno));
    else if (code == Z_BUF_ERROR)
        r->status = tn_fail(r->err, TN_E_DATA, "data csv: %s:%lld:%lld: the gzip file is cut short here", r->path,
                            (long long)r->line, (long long)r->column);
    else
        r->status = tn_fail(r->err, TN_E_DATA, "data csv: %s:%lld:%lld: the gzip file is damaged: %s", r->path,
                            (long long)r->line, (long long)r->column, csv_reason(text));
}

/* The next byte; -1 at the end and after a failure. */
static inline int csv_peek(csv_reader *r)
{
    if (r->at == r->filled && !r->ended)
        csv_fill(r);
    return r->at < r->filled ? r->buffer[r->at] : -1;
}

static inline int csv_next(csv_reader *r)
{
    int c = csv_peek(r);
    if (c < 0)
        return c;
    r->at++;
    r->column += (c & 0xC0) != 0x80;
    if (c == '\n' || (c == '\r' && csv_peek(r) != '\n')) {
        r->line++;
        r->column = 1;
    }
    return c;
}

static int csv_line_ends(int c) { return c < 0 || c == '\n' || c == '\r'; }

static int csv_blank(const csv_reader *r, int c) { return (c == ' ' || c == '\t') && c != r->separator; }

static void csv_skip_blanks(csv_reader *r)
{
    for (int c = csv_peek(r); csv_blank(r, c) || (c == ' ' && r->separator == ' '); c = csv_peek(r))
        csv_next(r);
}

static void csv_end_line(csv_reader *r)
{
    if (csv_next(r) == '\r' && csv_peek(r) == '\n')
        csv_next(r);
}

/* Skips a byte order mark; refuses UTF-16. */
static int32_t csv_skip_mark(csv_reader *r)
{
    int first = csv_peek(r), two = r->filled > 1 ? r->buffer[1] : -1;
    if ((first == 0xFF && two == 0xFE) || (first == 0xFE && two == 0xFF))
        return csv_refuse(r, "the file is UTF-16 text, needed UTF-8; save it as CSV UTF-8");
    if (r->filled >= 3 && !memcmp(r->buffer, "\xEF\xBB\xBF", 3))
        r->at = 3;
    return r->status;
}

static void csv_close(csv_reader *r)
{
    if (r->stream)
        gzclose_r(r->stream);
    if (r->numbers)
        freelocale(r->numbers);
    r->stream = NULL;
    r->numbers = NULL;
}

static int32_t csv_open_stream(csv_reader *r)
{
    struct stat info;
    int fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return tn_fail(r->err, TN_E_IO, "data csv: %s: %s%s", r->path, strerror(errno),
                       *r->path == '/' ? "" : "; the path is from the current folder on: resume a run where it began");
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return tn_fail(r->err, TN_E_IO, "data csv: %s is not a regular file", r->path);
    }
    r->stream = gzdopen(fd, "rb");
    if (!r->stream)
        close(fd);
    r->numbers = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!r->stream || !r->numbers)
        return tn_fail(r->err, TN_E_MEMORY, "data csv: %s: out of memory", r->path);
    return TN_OK;
}

/* The caller closes it, after a failure too. */
static int32_t csv_open(const csv *h, const char *path, csv_reader *r, tn_error *err)
{
    static const char separators[] = {',', ';', '\t', '|', ' '};
    r->path = path;
    r->err = err;
    r->stream = NULL;
    r->numbers = NULL;
    r->separator = separators[h->separator];
    r->filled = r->at = r->ended = 0;
    r->line = r->column = r->field_line = r->field_column = 1;
    r->status = csv_open_stream(r);
    return r->status == TN_OK ? csv_skip_mark(r) : r->status;
}

/* ---- fields ---- */

static inline void csv_keep(csv_reader *r, int c)
{
    if (r->bytes < CSV_FIELD)
        r->text[r->bytes] = (char)c;
    r->bytes++;
    if (c == 0)
        csv_refuse(r, "the field holds a byte 0; the file is binary, UTF-16 or damaged");
}

/* Skips empty lines: 1 at a record, 0 at the end. */
static int csv_begin(csv_reader *r)
{
    for (;;) {
        csv_skip_blanks(r);
        r->field_line = r->line;
        r->field_column = r->column;
        if (!csv_line_ends(csv_peek(r)))
            return r->status == TN_OK;
        if (csv_peek(r) < 0)
            return 0;
        csv_end_line(r);
    }
}

static void csv_quoted(csv_reader *r)
{
    csv_next(r);
    for (int c = csv_next(r); c != '"' || csv_peek(r) == '"'; c = csv_next(r)) {
        if (c < 0) {
            csv_refuse(r, "the quote that opens here is never closed");
            return;
        }
        if (c == '"')
            csv_next(r);
        csv_keep(r, c);
    }
    int blank = csv_peek(r) == ' ' || csv_peek(r) == '\t';
    if (r->separator != ' ')
        csv_skip_blanks(r);
    int c = csv_peek(r);
    if (!csv_line_ends(c) && c != r->separator && !(blank && r->separator == ' '))
        csv_refuse(r, "text follows the closing quote of this field, needed a separator or the line's end; "
                      "a quote inside quotes is written twice");
}

static void csv_unquoted(csv_reader *r)
{
    int64_t whole = 0;
    for (int c = csv_peek(r); !csv_line_ends(c) && c != r->separator; c = csv_peek(r)) {
        if (r->separator == ' ' && c == '\t')
            break;
        csv_keep(r, csv_next(r));
        whole = c == ' ' || c == '\t' ? whole : r->bytes;
    }
    r->bytes = whole;
}

/* Reads a field and what ends it: 1 if another one follows in its record, 0 if it was the last. */
static int csv_field(csv_reader *r)
{
    csv_skip_blanks(r);
    r->field_line = r->line;
    r->field_column = r->column;
    r->bytes = 0;
    if (csv_peek(r) == '"')
        csv_quoted(r);
    else
        csv_unquoted(r);
    r->text[r->bytes < CSV_FIELD ? r->bytes : CSV_FIELD] = 0;
    if (r->separator == ' ')
        csv_skip_blanks(r);
    int c = csv_peek(r), more = !csv_line_ends(c) && r->status == TN_OK;
    if (more && r->separator != ' ')
        csv_next(r);
    if (!more && c >= 0)
        csv_end_line(r);
    return more;
}

/* ---- numbers ---- */

enum { CSV_NUMBER, CSV_NO_NUMBER, CSV_TOO_LARGE };

static const char *csv_digits(const char *s, uint64_t *mantissa, int *digits)
{
    for (; *s >= '0' && *s <= '9'; s++)
        if (*mantissa || *s != '0') {
            *mantissa = ++*digits <= 18 ? *mantissa * 10 + (uint64_t)(*s - '0') : *mantissa;
        }
    return s;
}

/* What follows the 'e'; NULL if that is no exponent. Large ones stay large. */
static const char *csv_exponent(const char *s, int *ret)
{
    int minus = *s == '-', value = 0;
    s += *s == '-' || *s == '+';
    if (*s < '0' || *s > '9')
        return NULL;
    for (; *s >= '0' && *s <= '9'; s++)
        value = value < 10000 ? value * 10 + (*s - '0') : value;
    *ret = minus ? -value : value;
    return s;
}

/* [+-] digits with a point at any place and an exponent: no hexadecimals, inf, nan. Rounded to nearest: where mantissa
 * and power of ten are exact doubles, one operation is (Clinger 1990); else the C library is asked. */
static int csv_number(const char *text, locale_t locale, double *ret)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const char *s = text + (*text == '-' || *text == '+'), *whole = s, *point;
    uint64_t mantissa = 0;
    int digits = 0, exponent = 0;
    s = csv_digits(s, &mantissa, &digits);
    point = s;
    if (*s == '.')
        s = csv_digits(s + 1, &mantissa, &digits);
    if (s - whole == (*point == '.'))
        return CSV_NO_NUMBER;
    int places = *point == '.' ? (int)(s - point - 1) : 0;
    if ((*s == 'e' || *s == 'E') && !(s = csv_exponent(s + 1, &exponent)))
        return CSV_NO_NUMBER;
    if (*s)
        return CSV_NO_NUMBER;
    exponent -= places;
    if (digits <= 15 && exponent >= -22 && exponent <= 22) {
        double value = exponent < 0 ? (double)mantissa / powers[-exponent] : (double)mantissa * powers[exponent];
        *ret = *text == '-' ? -value : value;
        return CSV_NUMBER;
    }
    *ret = strtod_l(text, NULL, locale);
    return isfinite(*ret) ? CSV_NUMBER : CSV_TOO_LARGE;
}

/* ---- lists in rows: "a, b, c" ---- */

/* The next item without the blanks around it; 0 after the last. */
static int csv_item(const char **list, char ret[CSV_FIELD + 1])
{
    const char *s = *list, *end;
    if (!*s)
        return 0;
    while (*s == ' ')
        s++;
    end = s + strcspn(s, ",");
    *list = *end ? end + 1 : end;
    while (end > s && end[-1] == ' ')
        end--;
    snprintf(ret, CSV_FIELD + 1, "%.*s", (int)(end - s < CSV_FIELD ? end - s : CSV_FIELD), s);
    return 1;
}

/* ---- texts one after the other, with their places ---- */

typedef struct csv_texts {
    char *bytes;
    size_t used, room;
    int64_t count;
} csv_texts;

static int32_t csv_append(csv_texts *t, const char *text, tn_error *err)
{
    size_t n = strlen(text) + 1;
    if (t->used + n > t->room) {
        size_t room = 2 * (t->used + n) + 256;
        char *bytes = realloc(t->bytes, room);
        if (!bytes)
            return tn_fail(err, TN_E_MEMORY, "data csv: no memory for names");
        t->bytes = bytes;
        t->room = room;
    }
    memcpy(t->bytes + t->used, text, n);
    t->used += n;
    t->count++;
    return TN_OK;
}

static uint64_t csv_hash(const char *s)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *s; s++)
        hash = (hash ^ (unsigned char)*s) * 0x100000001b3u;
    return hash;
}

/* Classes by text: places in `texts`, in an open table of twice as many entries. */
typedef struct csv_classes {
    csv_texts texts;
    struct csv_class {
        size_t place; /* + 1; 0: free */
        int32_t id;
    } * table;
    size_t size; /* a power of two, or 0 */
} csv_classes;

static struct csv_class *csv_class_of(const csv_classes *c, const char *text)
{
    size_t i = (size_t)csv_hash(text) & (c->size - 1);
    while (c->table[i].place && strcmp(c->texts.bytes + c->table[i].place - 1, text) != 0)
        i = (i + 1) & (c->size - 1);
    return &c->table[i];
}

static int32_t csv_grow(csv_classes *c, tn_error *err)
{
    csv_classes larger = {c->texts, NULL, c->size ? 2 * c->size : 64};
    larger.table = calloc(larger.size, sizeof *larger.table);
    if (!larger.table)
        return tn_fail(err, TN_E_MEMORY, "data csv: no memory for the classes");
    for (size_t i = 0; i < c->size; i++)
        if (c->table[i].place)
            *csv_class_of(&larger, c->texts.bytes + c->table[i].place - 1) = c->table[i];
    free(c->table);
    *c = larger;
    return TN_OK;
}

/* The class of that text, added if it is new and `ret` may grow. -1: there is none. */
static int32_t csv_class(csv_classes *c, const char *text, int add, int32_t *ret, tn_error *err)
{
    int32_t status = 2 * (size_t)c->texts.count >= c->size ? csv_grow(c, err) : TN_OK;
    if (status != TN_OK)
        return status;
    struct csv_class *found = csv_class_of(c, text);
    *ret = found->place ? found->id : -1;
    if (found->place || !add)
        return TN_OK;
    size_t place = c->texts.used + 1;
    int32_t id = (int32_t)c->texts.count;
    status = csv_append(&c->texts, text, err);
    if (status == TN_OK) {
        *found = (struct csv_class){place, id};
        *ret = id;
    }
    return status;
}

static void csv_free_classes(csv_classes *c)
{
    free(c->texts.bytes);
    free(c->table);
}

/* ---- columns ---- */

/* What each column is: a feature's index, CSV_UNUSED, CSV_IGNORED, or CSV_LABEL - the label's index. */
enum { CSV_UNUSED = -1, CSV_IGNORED = -2, CSV_LABEL = -3 };

typedef struct csv_layout {
    int64_t columns, features, labels;
    csv_texts names; /* one a column, or none */
    int32_t *role;
} csv_layout;

static void csv_free_layout(csv_layout *l)
{
    free(l->names.bytes);
    free(l->role);
}

static int32_t csv_too_long(csv_reader *r, const char *what)
{
    return csv_refuse(r, "%s of %lld bytes; at most %d are allowed", what, (long long)r->bytes, CSV_FIELD);
}

/* The first record of a file: its number of fields and, in a header, the names. */
static int32_t csv_read_first(const csv *h, csv_reader *r, csv_layout *ret)
{
    int more = csv_begin(r);
    if (!more)
        return csv_refuse(r, "the file holds no record");
    while (more && r->status == TN_OK) {
        more = csv_field(r);
        if (h->header && r->bytes > CSV_FIELD)
            return csv_too_long(r, "a column's name");
        if (h->header && r->status == TN_OK)
            r->status = csv_append(&ret->names, r->text, r->err);
        if (++ret->columns > CSV_COLUMNS_MAX)
            return csv_refuse(r, "more than %lld columns", (long long)CSV_COLUMNS_MAX);
    }
    return r->status;
}

/* Names from the row take the place of the header's. */
static int32_t csv_name_columns(const csv *h, const char *path, csv_layout *l, tn_error *err)
{
    char item[CSV_FIELD + 1];
    const char *list = h->names;
    int32_t status = TN_OK;
    if (!*list)
        return TN_OK;
    l->names.used = 0;
    l->names.count = 0;
    while (status == TN_OK && csv_item(&list, item))
        status = csv_append(&l->names, item, err);
    if (status == TN_OK && l->names.count != l->columns)
        status = tn_fail(err, TN_E_INVALID, "data csv: `names` has %lld names, but %s has %lld columns",
                         (long long)l->names.count, path, (long long)l->columns);
    return status;
}

/* Name of a column, or "". */
static const char *csv_name(const csv_layout *l, int64_t column)
{
    const char *name = l->names.bytes;
    for (int64_t i = 0; i < column && l->names.count; i++)
        name += strlen(name) + 1;
    return l->names.count ? name : "";
}

static int32_t csv_no_column(const char *row, const char *item, const char *path, const csv_layout *l, tn_error *err)
{
    char known[400] = "";
    size_t used = 0;
    const char *name = l->names.bytes;
    for (int64_t i = 0; i < l->names.count && used < 300; i++, name += strlen(name) + 1)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "; its names are ",
                                 csv_show(name).text);
    return tn_fail(err, TN_E_INVALID,
                   "data csv: `%s`: %s has no column '%s', needed a name or a number from %lld to %lld%s%s", row, path,
                   csv_show(item).text, (long long)-l->columns, (long long)l->columns - 1, known,
                   used >= 300 ? ", ..." : "");
}

/* The column that an item of a row means: a name first, else a number. */
static int32_t csv_find(const char *row, const char *item, const char *path, const csv_layout *l, int64_t *ret,
                        tn_error *err)
{
    const char *name = l->names.bytes;
    int64_t found = -1;
    char *end;
    for (int64_t i = 0; i < l->names.count; i++, name += strlen(name) + 1) {
        if (strcmp(name, item) != 0)
            continue;
        if (found >= 0)
            return tn_fail(err, TN_E_INVALID,
                           "data csv: `%s`: %s has two columns '%s', %lld and %lld; name it by number", row, path,
                           csv_show(item).text, (long long)found, (long long)i);
        found = i;
    }
    if (found < 0) {
        errno = 0;
        found = strtoll(item, &end, 10);
        found += found < 0 ? l->columns : 0;
        if (end == item || *end || errno || found < 0 || found >= l->columns)
            return csv_no_column(row, item, path, l, err);
    }
    *ret = found;
    return TN_OK;
}

/* Gives each column of a list its role: `first`, then one more (features) or one less (labels), or the same. */
static int32_t csv_assign(const char *row, const char *list, int32_t first, int step, const char *path, csv_layout *l,
                          int64_t *ret_count, tn_error *err)
{
    char item[CSV_FIELD + 1];
    int32_t status = TN_OK;
    for (int64_t column = 0; status == TN_OK && csv_item(&list, item);) {
        status = csv_find(row, item, path, l, &column, err);
        if (status == TN_OK && l->role[column] != CSV_UNUSED)
            status = tn_fail(err, TN_E_INVALID, "data csv: `%s`: column '%s' of %s is used twice", row,
                             csv_show(item).text, path);
        if (status != TN_OK)
            return status;
        l->role[column] = first + (int32_t)*ret_count * step;
        ++*ret_count;
    }
    return status;
}

static int32_t csv_check_counts(const csv *h, const char *path, const csv_layout *l, tn_error *err)
{
    int64_t product = 1;
    if (l->labels < 1 || (l->labels > 1 && h->targets != CSV_REAL))
        return tn_fail(err, TN_E_INVALID, "data csv: `label` names %lld columns, needed one%s", (long long)l->labels,
                       h->targets == CSV_REAL ? " or more" : "; several go with `targets: real`");
    if (l->features < 1)
        return tn_fail(err, TN_E_INVALID, "data csv: %s has %lld columns, of which none is left to be a feature", path,
                       (long long)l->columns);
    for (int64_t i = 0; i < h->shape.count; i++)
        if (i >= TN_MAX_DIMS - 1 || __builtin_mul_overflow(product, h->shape.values[i], &product))
            product = -1;
    if (h->shape.count && product != l->features)
        return tn_fail(err, TN_E_INVALID,
                       "data csv: `shape` has %lld extents of product %lld, needed at most %d of product %lld, "
                       "the features of %s",
                       (long long)h->shape.count, (long long)product, TN_MAX_DIMS - 1, (long long)l->features, path);
    return TN_OK;
}

static int32_t csv_assign_all(const csv *h, const char *path, csv_layout *l, tn_error *err)
{
    int64_t ignored = 0;
    int32_t status;
    l->role = malloc((size_t)l->columns * sizeof *l->role);
    if (!l->role)
        return tn_fail(err, TN_E_MEMORY, "data csv: no memory for the columns of %s", path);
    for (int64_t i = 0; i < l->columns; i++)
        l->role[i] = CSV_UNUSED;
    status = csv_assign("label", h->label, CSV_LABEL, -1, path, l, &l->labels, err);
    if (status == TN_OK)
        status = csv_assign("ignore", h->ignore, CSV_IGNORED, 0, path, l, &ignored, err);
    if (status == TN_OK)
        status = csv_assign("features", h->features, 0, 1, path, l, &l->features, err);
    for (int64_t i = 0; i < l->columns && !*h->features; i++)
        if (l->role[i] == CSV_UNUSED)
            l->role[i] = (int32_t)l->features++;
    return status == TN_OK ? csv_check_counts(h, path, l, err) : status;
}

/* The columns of the training file, which all files have. Freed by the caller, after a failure too. */
static int32_t csv_columns(const csv *h, csv_layout *l, tn_error *err)
{
    csv_reader r;
    memset(l, 0, sizeof *l);
    int32_t status = csv_open(h, h->train, &r, err);
    if (status == TN_OK)
        status = csv_read_first(h, &r, l);
    csv_close(&r);
    if (status == TN_OK)
        status = csv_name_columns(h, h->train, l, err);
    return status == TN_OK ? csv_assign_all(h, h->train, l, err) : status;
}

/* Reads past the header of an open file and holds it against the training file's. */
static int32_t csv_skip_header(const csv *h, csv_reader *r, const csv_layout *l)
{
    const char *name = l->names.bytes;
    int more = h->header && csv_begin(r);
    for (int64_t column = 0; more && r->status == TN_OK; column++) {
        more = csv_field(r);
        if (column >= l->columns || (!more && column + 1 < l->columns))
            return csv_refuse(r, "the header has %s %lld columns, needed %lld as in %s",
                              column >= l->columns ? "more than" : "only",
                              (long long)(column >= l->columns ? column : column + 1), (long long)l->columns, h->train);
        if (!*h->names && r->bytes <= CSV_FIELD && strcmp(name, r->text) != 0)
            return csv_refuse(r, "column %lld is '%s', needed '%s' as in %s", (long long)column, csv_show(r->text).text,
                              csv_show(name).text, h->train);
        name += *h->names ? 0 : strlen(name) + 1;
    }
    return r->status;
}

/* ---- splits ---- */

enum { CSV_WHOLE, CSV_TEST, CSV_VALIDATION, CSV_REST };

typedef struct csv_split {
    const char *name, *path;
    int part; /* of the records of the file */
} csv_split;

static int32_t csv_absent(const char *split, tn_error *err)
{
    int known = !strcmp(split, "test") || !strcmp(split, "validation");
    return tn_fail(err, TN_E_NOT_FOUND, "data csv: no split \"%s\"; %s%s%s%s", split,
                   known ? "name its file in `" : "it has train, and test and validation where their rows say so",
                   known ? split : "", known ? "` or its part of the training file in `" : "",
                   !known                   ? ""
                   : !strcmp(split, "test") ? "test_fraction`"
                                            : "validation_fraction`");
}

static int32_t csv_choose(const csv *h, const char *split, csv_split *ret, tn_error *err)
{
    int test = !strcmp(split, "test"), validation = !strcmp(split, "validation");
    const char *path = test ? h->test : validation ? h->validation : "";
    double fraction = test ? h->test_fraction : validation ? h->validation_fraction : 0;
    if (!*h->train)
        return tn_fail(err, TN_E_INVALID, "data csv: `train` is not set, needed the file of the training samples");
    if ((*h->test && h->test_fraction > 0) || (*h->validation && h->validation_fraction > 0))
        return tn_fail(err, TN_E_INVALID, "data csv: both a file and a fraction are given for one split; needed one");
    if (h->test_fraction + h->validation_fraction >= 1)
        return tn_fail(err, TN_E_INVALID,
                       "data csv: `test_fraction` and `validation_fraction` leave nothing to train on");
    if (!strcmp(split, "train"))
        *ret = (csv_split){split, h->train, h->test_fraction + h->validation_fraction > 0 ? CSV_REST : CSV_WHOLE};
    else if (*path)
        *ret = (csv_split){split, path, CSV_WHOLE};
    else if (fraction > 0)
        *ret = (csv_split){split, h->train, test ? CSV_TEST : CSV_VALIDATION};
    else
        return csv_absent(split, err);
    return TN_OK;
}

/* Which part record i of the training file is in; a record does not move when others are appended. */
static int csv_part(const csv *h, int64_t i)
{
    double u = tn_philox((uint64_t)h->split_seed, (uint64_t)i, 0x637376).v[0] * 0x1p-32;
    return u < h->test_fraction ? CSV_TEST : u < h->test_fraction + h->validation_fraction ? CSV_VALIDATION : CSV_REST;
}

/* ---- a split's memory ---- */

/* The head; behind it, each at a multiple of 64 bytes: mean and scale of each feature; x; targets; in training the
 * classes' texts. */
typedef struct csv_memory {
    int64_t samples, features, labels, classes, x, targets, texts; /* the last three: offsets in bytes */
} csv_memory;
#define CSV_HEAD 64
TN_STATIC_ASSERT(sizeof(csv_memory) <= CSV_HEAD, "the head is too small");

static double *csv_means(const csv_memory *m) { return (double *)((char *)m + CSV_HEAD); }
static double *csv_scales(const csv_memory *m) { return csv_means(m) + m->features; }
static tn_real *csv_x(const csv_memory *m) { return (tn_real *)((char *)m + m->x); }
static void *csv_target(const csv_memory *m) { return (char *)m + m->targets; }

static int64_t csv_align(int64_t bytes) { return (bytes + 63) & -64; }

/* Sets the offsets from the counts; returns the size of it all. */
static int64_t csv_place(const csv *h, int64_t text_bytes, csv_memory *m)
{
    int64_t target = h->targets == CSV_REAL ? (int64_t)sizeof(tn_real) : (int64_t)sizeof(int32_t);
    m->x = CSV_HEAD + csv_align(m->features * 2 * (int64_t)sizeof(double));
    m->targets = m->x + csv_align(m->samples * m->features * (int64_t)sizeof(tn_real));
    m->texts = m->targets + csv_align(m->samples * m->labels * target);
    return m->texts + csv_align(text_bytes);
}

/* ---- passes ---- */

enum { CSV_COUNT, CSV_MEASURE, CSV_STORE };

typedef struct csv_pass {
    const csv *h;
    const csv_split *split;
    const csv_layout *layout;
    csv_classes *classes; /* of targets: text */
    int64_t limit;        /* classes of training; -1: this is training */
    int mode;
    csv_memory *m;   /* NULL while counting */
    int64_t largest; /* class so far, or -1 */
    int64_t records, samples;
    csv_reader r;
} csv_pass;

static int csv_training(const csv_pass *p) { return p->limit < 0; }

static int32_t csv_number_wanted(csv_pass *p, int64_t column, double *ret)
{
    csv_reader *r = &p->r;
    int kind = r->bytes > CSV_FIELD ? CSV_NO_NUMBER : csv_number(r->text, r->numbers, ret);
    if (kind == CSV_NUMBER)
        return TN_OK;
    const char *name = csv_name(p->layout, column); /* which walks over all before it */
    if (r->bytes == 0)
        return csv_refuse(r, "column %lld%s%s: the value is missing, needed a number", (long long)column,
                          *name ? " " : "", csv_show(name).text);
    return csv_refuse(r, "column %lld%s%s: '%s' %s", (long long)column, *name ? " " : "", csv_show(name).text,
                      csv_show(r->text).text,
                      kind == CSV_TOO_LARGE ? "does not fit a floating-point number" : "is no finite number");
}

/* One number that has to fit the real type. */
static int32_t csv_real(csv_pass *p, double value, tn_real *ret)
{
    tn_real real = (tn_real)value;
    if (!isfinite(real))
        return csv_refuse(&p->r, "'%s' gives %g, which does not fit a %d-bit number", csv_show(p->r.text).text, value,
                          TN_REAL);
    *ret = real;
    return TN_OK;
}

static int32_t csv_feature(csv_pass *p, int64_t column, int64_t j)
{
    double value = 0;
    int32_t status = p->mode == CSV_COUNT ? TN_OK : csv_number_wanted(p, column, &value);
    if (status != TN_OK || p->mode == CSV_COUNT)
        return status;
    if (p->mode == CSV_STORE)
        return csv_real(p, (value - csv_means(p->m)[j]) * csv_scales(p->m)[j],
                        csv_x(p->m) + p->samples * p->m->features + j);
    double *mean = csv_means(p->m) + j, *squares = csv_scales(p->m) + j, d = value - *mean;
    *mean += d / (double)(p->samples + 1);
    *squares += d * (value - *mean);
    return TN_OK;
}

static int32_t csv_class_number(csv_pass *p, int32_t *ret)
{
    csv_reader *r = &p->r;
    const char *text = r->text;
    double value = -1;
    if (r->bytes == 0)
        return csv_refuse(r, "the label is missing, needed an integer from 0");
    if (r->bytes > CSV_FIELD || csv_number(text, r->numbers, &value) != CSV_NUMBER || value != floor(value))
        return csv_refuse(r, "the label is '%s', needed an integer from 0; `targets: text` takes names",
                          csv_show(text).text);
    if (value < 0 || value >= (double)CSV_CLASSES_MAX)
        return csv_refuse(r, "the label is %s, needed 0 to %lld", csv_show(text).text, (long long)CSV_CLASSES_MAX - 1);
    if (!csv_training(p) && value >= (double)p->limit)
        return csv_refuse(r, "the label is %s, needed 0 to %lld as in training", csv_show(text).text,
                          (long long)p->limit - 1);
    *ret = (int32_t)value;
    return TN_OK;
}

static int32_t csv_class_text(csv_pass *p, int32_t *ret)
{
    csv_reader *r = &p->r;
    int grows = csv_training(p) && !*p->h->classes;
    if (r->bytes == 0)
        return csv_refuse(r, "the label is missing, needed the name of a class");
    if (r->bytes > CSV_FIELD)
        return csv_too_long(r, "a label");
    int32_t status = csv_class(p->classes, r->text, grows, ret, r->err);
    if (status != TN_OK)
        return r->status = status;
    if (*ret < 0)
        return csv_refuse(r, "the label is '%s', which is no class %s", csv_show(r->text).text,
                          *p->h->classes ? "of the row `classes`" : "that training has");
    return *ret < CSV_CLASSES_MAX ? TN_OK : csv_refuse(r, "more than %lld classes", (long long)CSV_CLASSES_MAX);
}

static int32_t csv_label(csv_pass *p, int64_t column, int64_t k)
{
    int32_t id = 0, status;
    double value = 0;
    if (p->mode == CSV_MEASURE || (p->mode == CSV_COUNT && (!csv_training(p) || p->h->targets == CSV_REAL)))
        return TN_OK;
    if (p->h->targets == CSV_REAL) {
        status = csv_number_wanted(p, column, &value);
        return status == TN_OK ? csv_real(p, value, (tn_real *)csv_target(p->m) + p->samples * p->m->labels + k)
                               : status;
    }
    status = p->h->targets == CSV_TEXT ? csv_class_text(p, &id) : csv_class_number(p, &id);
    if (status != TN_OK)
        return status;
    p->largest = id > p->largest ? id : p->largest;
    if (p->mode == CSV_STORE)
        ((int32_t *)csv_target(p->m))[p->samples] = id;
    return TN_OK;
}

static int32_t csv_changed(const csv_pass *p)
{
    return tn_fail(p->r.err, TN_E_DATA, "data csv: %s changed while it was read; start again", p->split->path);
}

/* One record, wanted in this split or not. */
static int32_t csv_record(csv_pass *p)
{
    const csv_layout *l = p->layout;
    int part = p->split->part, wanted = part == CSV_WHOLE || part == csv_part(p->h, p->records), more = 1;
    int64_t column = 0;
    if (wanted && p->mode == CSV_STORE && p->samples == p->m->samples)
        return csv_changed(p);
    for (; more && p->r.status == TN_OK; column++) {
        more = csv_field(&p->r);
        if (column >= l->columns)
            return csv_refuse(&p->r, "the record has more than %lld fields, needed %lld as in the first",
                              (long long)column, (long long)l->columns);
        int32_t role = l->role[column], status = p->r.status;
        if (status == TN_OK && wanted && role >= 0)
            status = csv_feature(p, column, role);
        else if (status == TN_OK && wanted && role <= CSV_LABEL)
            status = csv_label(p, column, CSV_LABEL - role);
        if (status != TN_OK)
            return status;
    }
    if (p->r.status == TN_OK && column < l->columns)
        return csv_refuse(&p->r, "the record ends after %lld fields, needed %lld as in the first", (long long)column,
                          (long long)l->columns);
    p->samples += wanted;
    p->records++;
    return p->r.status;
}

/* All of a split. `m` as the mode needs it. Sets largest, records and samples. */
static int32_t csv_scan(csv_pass *p, int mode, csv_memory *m, tn_error *err)
{
    p->mode = mode;
    p->m = m;
    p->records = p->samples = 0;
    p->largest = -1;
    int32_t status = csv_open(p->h, p->split->path, &p->r, err);
    if (status == TN_OK)
        status = csv_skip_header(p->h, &p->r, p->layout);
    while (status == TN_OK && csv_begin(&p->r))
        status = csv_record(p);
    status = status == TN_OK ? p->r.status : status;
    csv_close(&p->r);
    if (status == TN_OK && p->samples == 0)
        status = tn_fail(err, TN_E_DATA,
                         "data csv: %s:%lld:1: the file ends after %lld records, none in the split %s; "
                         "needed at least 1",
                         p->split->path, (long long)p->r.line, (long long)p->records, p->split->name);
    return status;
}

/* ---- the three entries ---- */

/* Classes that are known before reading: those of the row or of training. */
static int32_t csv_known_classes(const csv *h, const csv_memory *train, csv_classes *c, tn_error *err)
{
    char item[CSV_FIELD + 1];
    const char *list = h->classes, *text = train ? (const char *)train + train->texts : NULL;
    int32_t status = TN_OK, id = 0;
    if (h->targets != CSV_TEXT)
        return TN_OK;
    for (int64_t i = 0; status == TN_OK && *h->classes && csv_item(&list, item); i++) {
        status = csv_class(c, item, 1, &id, err);
        if (status == TN_OK && id != i)
            return tn_fail(err, TN_E_INVALID, "data csv: `classes` has '%s' twice", csv_show(item).text);
    }
    for (int64_t i = 0; status == TN_OK && !*h->classes && train && i < train->classes; i++) {
        status = csv_class(c, text, 1, &id, err);
        text += strlen(text) + 1;
    }
    return status;
}

static int64_t csv_class_count(const csv_pass *p)
{
    if (p->h->targets == CSV_REAL)
        return 0;
    return p->h->targets == CSV_TEXT ? p->classes->texts.count : p->largest + 1;
}

/* What training says of classes, then the split itself, counted. */
static int32_t csv_count(csv_pass *p, const csv_split *split, int64_t *ret_classes, tn_error *err)
{
    csv_split train;
    int training = !strcmp(split->name, "train");
    int32_t status = csv_choose(p->h, "train", &train, err);
    p->split = &train;
    p->limit = -1;
    if (status == TN_OK && (training || p->h->targets != CSV_REAL))
        status = csv_scan(p, CSV_COUNT, NULL, err);
    if (status != TN_OK)
        return status;
    *ret_classes = csv_class_count(p);
    p->split = split;
    p->limit = training ? -1 : *ret_classes;
    return training ? TN_OK : csv_scan(p, CSV_COUNT, NULL, err);
}

static void csv_shape(const csv *h, const csv_pass *p, int64_t classes, tn_data_split *ret)
{
    csv_memory m = {.samples = p->samples, .features = p->layout->features, .labels = p->layout->labels};
    ret->ndim = h->shape.count ? (int32_t)h->shape.count : 1;
    ret->shape[0] = m.features;
    for (int64_t i = 0; i < h->shape.count; i++)
        ret->shape[i] = h->shape.values[i];
    ret->samples = m.samples;
    ret->classes = classes;
    ret->target_ndim = h->targets == CSV_REAL;
    ret->target_shape[0] = h->targets == CSV_REAL ? m.labels : 0;
    ret->bytes = csv_place(h, csv_training(p) ? (int64_t)p->classes->texts.used : 0, &m);
}

static int32_t csv_describe(const void *hyper, const char *split, tn_data_split *ret, tn_error *err)
{
    csv_layout layout = {0};
    csv_classes classes = {0};
    csv_split chosen;
    csv_pass p = {.h = hyper, .layout = &layout, .classes = &classes};
    int64_t count = 0;
    int32_t status = csv_choose(hyper, split, &chosen, err);
    if (status == TN_OK)
        status = csv_columns(hyper, &layout, err);
    if (status == TN_OK)
        status = csv_known_classes(hyper, NULL, &classes, err);
    if (status == TN_OK)
        status = csv_count(&p, &chosen, &count, err);
    if (status == TN_OK)
        csv_shape(hyper, &p, count, ret);
    csv_free_layout(&layout);
    csv_free_classes(&classes);
    return status;
}

/* Mean and scale of each feature: of training, from training, or none. */
static int32_t csv_measure(csv_pass *p, const csv_memory *train, csv_memory *m, tn_error *err)
{
    double *mean = csv_means(m), *scale = csv_scales(m);
    int32_t status = TN_OK;
    if (train)
        memcpy(mean, csv_means(train), (size_t)m->features * 2 * sizeof *mean);
    if (!train && p->h->normalize == CSV_STANDARD)
        status = csv_scan(p, CSV_MEASURE, m, err);
    for (int64_t j = 0; status == TN_OK && !train && j < m->features; j++) {
        double inverse = p->h->normalize == CSV_STANDARD ? 1 / sqrt(scale[j] / (double)p->samples) : 1;
        if (!isfinite(mean[j]) || inverse == 0)
            return tn_fail(err, TN_E_DATA,
                           "data csv: %s: the numbers of feature %lld are too large for a mean and a deviation; "
                           "use `normalize: none`",
                           p->split->path, (long long)j);
        scale[j] = isfinite(inverse) ? inverse : 1; /* a constant column becomes 0 */
    }
    return status;
}

/* The samples, and in training what the other splits need. */
static int32_t csv_store(csv_pass *p, const tn_data_split *described, csv_memory *m, tn_error *err)
{
    int32_t status = csv_scan(p, CSV_STORE, m, err);
    if (status != TN_OK)
        return status;
    m->classes = csv_training(p) ? csv_class_count(p) : p->limit;
    size_t text_bytes = csv_training(p) ? p->classes->texts.used : 0;
    if (p->samples != m->samples || m->classes != described->classes ||
        csv_place(p->h, (int64_t)text_bytes, m) != described->bytes)
        return csv_changed(p);
    if (text_bytes)
        memcpy((char *)m + m->texts, p->classes->texts.bytes, text_bytes);
    return TN_OK;
}

static int64_t csv_features_of(const tn_data_split *described)
{
    int64_t product = 1;
    for (int32_t i = 0; i < described->ndim; i++)
        product *= described->shape[i];
    return product;
}

static int32_t csv_load_into(csv_pass *p, const tn_data_split *described, const csv_memory *train, csv_memory *m,
                             tn_error *err)
{
    m->samples = described->samples;
    m->features = p->layout->features;
    m->labels = p->layout->labels;
    p->limit = train ? train->classes : -1;
    p->r.err = err;
    int same = csv_place(p->h, 0, m) <= described->bytes && csv_features_of(described) == m->features;
    if (!same || (train && (train->features != m->features || train->labels != m->labels)) ||
        (p->h->targets == CSV_REAL && described->target_shape[0] != m->labels))
        return csv_changed(p);
    int32_t status = csv_measure(p, train, m, err);
    return status == TN_OK ? csv_store(p, described, m, err) : status;
}

static int32_t csv_load(const void *hyper, const char *split, const tn_data_split *described, const void *train,
                        void *memory, tn_error *err)
{
    csv_layout layout = {0};
    csv_classes classes = {0};
    csv_split chosen;
    csv_pass p = {.h = hyper, .layout = &layout, .classes = &classes, .split = &chosen};
    int training = !strcmp(split, "train");
    int32_t status = csv_choose(hyper, split, &chosen, err);
    train = training ? NULL : train;
    if (status == TN_OK && !training && !train)
        status = tn_fail(err, TN_E_INVALID, "data csv: the split %s needs the training split loaded before it", split);
    if (status == TN_OK)
        status = csv_columns(hyper, &layout, err);
    if (status == TN_OK)
        status = csv_known_classes(hyper, train, &classes, err);
    if (status == TN_OK)
        status = csv_load_into(&p, described, train, memory, err);
    csv_free_layout(&layout);
    csv_free_classes(&classes);
    return status;
}

static void csv_gather(const void *hyper, const void *memory, const tn_context *context, const int64_t *index,
                       int64_t n, int32_t augment, void *x, void *target)
{
    const csv_memory *m = memory;
    size_t row = (size_t)m->features * sizeof(tn_real);
    size_t one = (size_t)m->labels * (((const csv *)hyper)->targets == CSV_REAL ? sizeof(tn_real) : sizeof(int32_t));
    (void)context;
    (void)augment;
    for (int64_t i = 0; i < n; i++) {
        memcpy((char *)x + (size_t)i * row, csv_x(m) + index[i] * m->features, row);
        memcpy((char *)target + (size_t)i * one, (char *)csv_target(m) + (size_t)index[i] * one, one);
    }
}

static const tn_data csv_table = {sizeof(tn_data), 0, csv_describe, csv_load, csv_gather};

TN_COMPONENT(csv, "data", TN_DATA, TN_REAL, HYPER, "Columns of numbers and labels in CSV files",
             TN_FORMULA("x = (value - mean) / std, of the column in training"), csv_table);
TN_PLUGIN("org.tenon.csv", "0.1.0", "Apache-2.0", csv)
