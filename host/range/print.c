/* SPDX-License-Identifier: Apache-2.0
 *
 * print.c: a ramp for people, with a plot in characters, and as JSON.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/range/ramp.h"

#define ROWS      16
#define LABEL     9 /* characters before the plot */
#define WIDTH_MIN 40
#define WIDTH_MAX 400

/* ---- the plot ---- */

typedef struct {
    const tn_ramp *ramp;
    int32_t width; /* columns of the plot itself */
    double lo, hi; /* losses at its bottom and top */
    char cells[ROWS][WIDTH_MAX];
    char axis[WIDTH_MAX], ticks[WIDTH_MAX + 1];
} plot;

/* The loss that ended the ramp may be far above all others: it is drawn at the top. */
static void set_bounds(plot *p)
{
    const tn_ramp *r = p->ramp;
    int64_t n = r->count - (r->ended == TN_RAMP_ABOVE && r->count > 1);
    p->lo = p->hi = r->points[0].smoothed;
    for (int64_t i = 1; i < n; i++) {
        p->lo = fmin(p->lo, r->points[i].smoothed);
        p->hi = fmax(p->hi, r->points[i].smoothed);
    }
}

static int32_t row_of(const plot *p, double loss)
{
    double height = p->hi > p->lo ? (loss - p->lo) / (p->hi - p->lo) : 0;
    return ROWS - 1 - (int32_t)lround((ROWS - 1) * fmin(fmax(height, 0), 1));
}

/* Where on the way from the first to the last rate? Outside [0, 1]: nowhere. */
static double place_of(const tn_ramp_settings *s, double rate)
{
    return s->linear ? (rate - s->from) / (s->to - s->from) : log(rate / s->from) / log(s->to / s->from);
}

static double smoothed_at(const tn_ramp *r, double index)
{
    int64_t i = (int64_t)index, next = i + 1 < r->count ? i + 1 : i;
    return r->points[i].smoothed + (index - (double)i) * (r->points[next].smoothed - r->points[i].smoothed);
}

static double index_of(const plot *p, int32_t column)
{
    return (double)column / (p->width - 1) * (double)(p->ramp->settings.steps - 1);
}

static void draw_curve(plot *p)
{
    for (int32_t c = 0; c < p->width && index_of(p, c) <= (double)(p->ramp->count - 1); c++)
        p->cells[row_of(p, smoothed_at(p->ramp, index_of(p, c)))][c] = '*';
}

/* A letter in the place of the curve. */
static void mark(plot *p, double rate, char letter)
{
    double place = place_of(&p->ramp->settings, rate);
    if (!(place >= 0 && place <= 1))
        return;
    double index = fmin(place * (double)(p->ramp->settings.steps - 1), (double)(p->ramp->count - 1));
    p->cells[row_of(p, smoothed_at(p->ramp, index))][lround(place * (p->width - 1))] = letter;
}

/* A tick, and below it its rate where there is room. */
static void add_tick(plot *p, double rate)
{
    char label[16];
    int32_t column = (int32_t)lround(place_of(&p->ramp->settings, rate) * (p->width - 1));
    int32_t length = snprintf(label, sizeof label, "%.3g", rate), at = column - length / 2;
    at = at < 0 ? 0 : at > p->width - length ? p->width - length : at;
    p->axis[column] = '+';
    for (int32_t i = at > 0 ? at - 1 : 0; i < at + length + (at + length < p->width); i++)
        if (p->ticks[i] != ' ')
            return;
    memcpy(p->ticks + at, label, (size_t)length);
}

static void draw_axis(plot *p)
{
    const tn_ramp_settings *s = &p->ramp->settings;
    if (s->linear) {
        for (int i = 0; i <= 4; i += 1)
            add_tick(p, s->from + (s->to - s->from) * i / 4);
        return;
    }
    int first = (int)ceil(log10(s->from) - 1e-9), last = (int)floor(log10(s->to) + 1e-9);
    for (int decade = first; decade <= last; decade++)
        add_tick(p, fmin(fmax(pow(10, decade), s->from), s->to));
    if (last < first) { /* within one decade */
        add_tick(p, s->from);
        add_tick(p, s->to);
    }
}

static void print_line(const char *line, int32_t width, tn_text *text)
{
    while (width > 0 && line[width - 1] == ' ')
        width--;
    tn_text_addn(text, line, (size_t)width);
    tn_text_char(text, '\n');
}

static void print_plot(const plot *p, tn_text *text)
{
    for (int32_t row = 0; row < ROWS; row++) {
        double loss = p->hi - (p->hi - p->lo) * row / (ROWS - 1);
        if (row % 5 == 0)
            tn_text_addf(text, "%*.3g |", LABEL - 2, loss);
        else
            tn_text_addf(text, "%*s |", LABEL - 2, "");
        print_line(p->cells[row], p->width, text);
    }
    tn_text_addf(text, "%*s +", LABEL - 2, "");
    print_line(p->axis, p->width, text);
    tn_text_addf(text, "%*s  ", LABEL - 2, "");
    print_line(p->ticks, p->width, text);
}

static void draw(const tn_ramp *ramp, const tn_ramp_findings *found, int32_t columns, tn_text *text)
{
    plot p = {.ramp = ramp};
    columns = columns < WIDTH_MIN ? WIDTH_MIN : columns > WIDTH_MAX ? WIDTH_MAX : columns;
    p.width = columns - LABEL;
    memset(p.cells, ' ', sizeof p.cells);
    memset(p.axis, '-', sizeof p.axis);
    memset(p.ticks, ' ', sizeof p.ticks);
    set_bounds(&p);
    draw_curve(&p);
    draw_axis(&p);
    if (found->minimum >= 0) {
        mark(&p, found->tenth, 'T');
        mark(&p, ramp->points[found->minimum].rate, 'M');
    }
    if (found->steepest >= 0)
        mark(&p, ramp->points[found->steepest].rate, 'S');
    print_plot(&p, text);
}

/* ---- words ---- */

static void print_head(const tn_ramp_report *report, tn_text *text)
{
    const tn_ramp *ramp = report->ramp;
    const tn_ramp_settings *s = &ramp->settings;
    const tn_ramp_row *rows = report->rows->list;
    tn_text_addf(text, "%s: smoothed loss while %s.%s rises from %.3g to %.3g", report->experiment,
                 rows[0].target->handle, rows[0].row->name, s->from, s->to);
    for (size_t i = 1; i < report->rows->count; i++)
        tn_text_addf(text, "%s %s.%s at %.3g times it", i == 1 ? ", with" : ",", rows[i].target->handle,
                     rows[i].row->name, rows[i].factor);
    tn_text_addf(text, "\n%lld of %lld updates", (long long)ramp->count, (long long)s->steps);
    if (ramp->ended == TN_RAMP_ABOVE)
        tn_text_addf(text, "; the end, as the smoothed loss rose above %.3g times its least", s->stop);
    else if (ramp->ended == TN_RAMP_DIVERGED)
        tn_text_addf(text, "; the end, as the next one diverged");
    tn_text_add(text, "\n\n");
}

static void print_findings(const tn_ramp *ramp, const tn_ramp_findings *found, tn_text *text)
{
    if (found->minimum < 0) {
        tn_text_add(text, "\nno suggestion: the smoothed loss did not fall behind the first tenth of the updates\n");
        return;
    }
    if (found->steepest >= 0)
        tn_text_addf(text, "\nsteepest  %-9.3g S, where the smoothed loss falls most from one update to the next\n",
                     ramp->points[found->steepest].rate);
    tn_text_addf(text, "tenth     %-9.3g T, a tenth of the rate at its minimum, M: %.3g at %.3g\n", found->tenth,
                 ramp->points[found->minimum].smoothed, ramp->points[found->minimum].rate);
    if (found->open)
        tn_text_addf(text, "the loss was still falling at the last rate: go on to a larger one\n");
}

void tn_ramp_print(const tn_ramp_report *report, int32_t columns, tn_text *text)
{
    tn_ramp_findings found = tn_ramp_find(report->ramp);
    print_head(report, text);
    if (report->ramp->count > 0)
        draw(report->ramp, &found, columns, text);
    print_findings(report->ramp, &found, text);
}

/* ---- JSON ---- */

static void add_real(tn_text *text, const char *before, double value)
{
    tn_text_add(text, before);
    if (isfinite(value))
        tn_text_real(text, value);
    else
        tn_text_add(text, isnan(value) ? "null" : "\"inf\"");
}

static void add_rows(const tn_ramp_rows *rows, tn_text *text)
{
    for (size_t i = 0; i < rows->count; i++) {
        tn_text_addf(text, "%s{\"row\":", i ? "," : "");
        char *name = tn_format("%s.%s", rows->list[i].target->handle, rows->list[i].row->name);
        tn_text_json(text, name ? name : "");
        text->failed |= !name;
        tn_free(name);
        add_real(text, ",\"factor\":", rows->list[i].factor);
        tn_text_char(text, '}');
    }
}

static void add_points(const tn_ramp *ramp, tn_text *text)
{
    for (int64_t i = 0; i < ramp->count; i++) {
        tn_text_addf(text, "%s\n[%lld", i ? "," : "", (long long)i + 1);
        add_real(text, ",", ramp->points[i].rate);
        add_real(text, ",", ramp->points[i].loss);
        add_real(text, ",", ramp->points[i].smoothed);
        tn_text_char(text, ']');
    }
}

void tn_ramp_print_json(const tn_ramp_report *report, tn_text *text)
{
    static const char *const ends[] = {"", "steps", "stop", "diverged"};
    const tn_ramp *ramp = report->ramp;
    const tn_ramp_settings *s = &ramp->settings;
    tn_ramp_findings found = tn_ramp_find(ramp);
    tn_text_add(text, "{\"experiment\":");
    tn_text_json(text, report->experiment);
    tn_text_add(text, ",\"rows\":[");
    add_rows(report->rows, text);
    add_real(text, "],\"from\":", s->from);
    add_real(text, ",\"to\":", s->to);
    tn_text_addf(text, ",\"steps\":%lld,\"ramp\":\"%s\"", (long long)s->steps, s->linear ? "linear" : "geometric");
    add_real(text, ",\"smooth\":", s->smooth);
    add_real(text, ",\"stop\":", s->stop);
    tn_text_addf(text, ",\"ended\":\"%s\"", ends[ramp->ended]);
    add_real(text, ",\"steepest\":", found.steepest < 0 ? NAN : ramp->points[found.steepest].rate);
    add_real(text, ",\"minimum\":", found.minimum < 0 ? NAN : ramp->points[found.minimum].rate);
    add_real(text, ",\"tenth\":", found.tenth);
    tn_text_add(text, ",\"columns\":[\"update\",\"rate\",\"loss\",\"smoothed\"],\"points\":[");
    add_points(ramp, text);
    tn_text_add(text, "]}\n");
}
