/* SPDX-License-Identifier: Apache-2.0
 *
 * svg.c: a ramp as a picture.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/base/number.h"
#include "host/base/utf8.h"
#include "host/range/ramp.h"

#define WIDTH  720
#define HEIGHT 440
#define LEFT   70
#define RIGHT  700
#define TOP    50
#define BOTTOM 380

typedef struct {
    const tn_ramp *ramp;
    double lo, hi; /* losses at the bottom and the top */
    tn_text *text;
} picture;

/* What is no character of XML becomes a question mark. */
static void add_xml(tn_text *text, const char *s)
{
    for (size_t length; *s; s += length ? length : 1) {
        length = tn_utf8_length(s, SIZE_MAX);
        int none = !length || (unsigned char)*s < 0x20 || *s == 0x7F ||
                   (length == 3 && (!memcmp(s, "\xEF\xBF\xBE", 3) || !memcmp(s, "\xEF\xBF\xBF", 3)));
        if (none)
            tn_text_char(text, '?');
        else if (strchr("&<>\"", *s))
            tn_text_addf(text, "&#%d;", *s);
        else
            tn_text_addn(text, s, length);
    }
}

static double x_of(const picture *p, double rate)
{
    const tn_ramp_settings *s = &p->ramp->settings;
    double place = s->linear ? (rate - s->from) / (s->to - s->from) : log(rate / s->from) / log(s->to / s->from);
    return LEFT + (RIGHT - LEFT) * place;
}

/* What is above the top, as the loss that ended the ramp may be, lies on it. */
static double y_of(const picture *p, double loss)
{
    double height = (loss - p->lo) / (p->hi - p->lo);
    return BOTTOM - (BOTTOM - TOP) * fmin(fmax(height, 0), 1);
}

static void set_bounds(picture *p)
{
    const tn_ramp *r = p->ramp;
    int64_t n = r->count - (r->ended == TN_RAMP_ABOVE && r->count > 1);
    p->lo = HUGE_VAL;
    p->hi = -HUGE_VAL;
    for (int64_t i = 0; i < n; i++) {
        p->lo = fmin(p->lo, r->points[i].smoothed);
        p->hi = fmax(p->hi, r->points[i].smoothed);
    }
    double room = n > 0 && p->hi > p->lo ? (p->hi - p->lo) / 20 : 1;
    p->lo = n > 0 ? p->lo - room : 0;
    p->hi = n > 0 ? p->hi + room : 1;
}

/* Numbers have a point, whatever the caller's locale: tenths, and three digits. */
static void add_tenths(tn_text *text, const char *before, double value)
{
    tn_text_add(text, before);
    tn_text_real(text, round(value * 10) / 10);
}

static void add_brief(tn_text *text, double value)
{
    char digits[48];
    int exponent = value != 0 ? (int)floor(log10(fabs(value))) : 0;
    if (abs(exponent) < 250) {
        snprintf(digits, sizeof digits, "%lde%d", lround(value * pow(10, 2 - exponent)), exponent - 2);
        tn_parse_real(digits, &value);
    }
    tn_text_real(text, value);
}

static void add_line(picture *p, double x1, double y1, double x2, double y2, const char *style)
{
    add_tenths(p->text, "<line x1=\"", x1);
    add_tenths(p->text, "\" y1=\"", y1);
    add_tenths(p->text, "\" x2=\"", x2);
    add_tenths(p->text, "\" y2=\"", y2);
    tn_text_addf(p->text, "\" %s/>\n", style);
}

static void begin_text(picture *p, double x, double y, const char *anchor)
{
    add_tenths(p->text, "<text x=\"", x);
    add_tenths(p->text, "\" y=\"", y);
    tn_text_addf(p->text, "\" text-anchor=\"%s\"", anchor);
}

static void add_label(picture *p, double x, double y, const char *anchor, double number)
{
    begin_text(p, x, y, anchor);
    tn_text_char(p->text, '>');
    add_brief(p->text, number);
    tn_text_add(p->text, "</text>\n");
}

static void add_rate(picture *p, double rate, int labelled)
{
    add_line(p, x_of(p, rate), TOP, x_of(p, rate), BOTTOM, "stroke=\"#ddd\"");
    if (labelled)
        add_label(p, x_of(p, rate), BOTTOM + 18, "middle", rate);
}

static void add_axes(picture *p)
{
    const tn_ramp_settings *s = &p->ramp->settings;
    int first = s->linear ? 1 : (int)ceil(log10(s->from) - 1e-9),
        last = s->linear ? 0 : (int)floor(log10(s->to) + 1e-9);
    int every = (last - first) / 12 + 1;
    for (int decade = first; decade <= last; decade++)
        add_rate(p, fmin(fmax(pow(10, decade), s->from), s->to), (decade - first) % every == 0);
    for (int i = 0; i <= 4 && last <= first; i++)
        add_rate(p, tn_ramp_rate(&(tn_ramp_settings){.from = s->from, .to = s->to, .steps = 5, .linear = s->linear}, i),
                 1);
    for (int i = 0; i <= 4; i++) {
        double loss = p->lo + (p->hi - p->lo) * i / 4;
        add_line(p, LEFT, y_of(p, loss), RIGHT, y_of(p, loss), "stroke=\"#ddd\"");
        add_label(p, LEFT - 6, y_of(p, loss) + 4, "end", loss);
    }
}

static void add_curve(picture *p, int smoothed, const char *style)
{
    const tn_ramp *r = p->ramp;
    tn_text_add(p->text, "<polyline points=\"");
    for (int64_t i = 0; i < r->count; i++) {
        add_tenths(p->text, i ? " " : "", x_of(p, r->points[i].rate));
        add_tenths(p->text, ",", y_of(p, smoothed ? r->points[i].smoothed : r->points[i].loss));
    }
    tn_text_addf(p->text, "\" fill=\"none\" %s/>\n", style);
}

/* A line at a rate, if that is in the picture, with its name. */
static void add_mark(picture *p, double rate, const char *name, const char *colour, int line)
{
    char style[64];
    double x = x_of(p, rate);
    if (!(x >= LEFT && x <= RIGHT))
        return;
    snprintf(style, sizeof style, "stroke=\"%s\" stroke-dasharray=\"4 3\"", colour);
    add_line(p, x, TOP, x, BOTTOM, style);
    int left = x > RIGHT - 150;
    begin_text(p, left ? x - 4 : x + 4, TOP + 14 + 16 * line, left ? "end" : "start");
    tn_text_addf(p->text, " fill=\"%s\">%s ", colour, name);
    add_brief(p->text, rate);
    tn_text_add(p->text, "</text>\n");
}

static void add_marks(picture *p)
{
    const tn_ramp *r = p->ramp;
    tn_ramp_findings found = tn_ramp_find(r);
    if (found.minimum < 0)
        return;
    add_mark(p, found.tenth, "tenth", "#2a7f2a", 0);
    if (found.steepest >= 0)
        add_mark(p, r->points[found.steepest].rate, "steepest", "#b8420f", 1);
    add_mark(p, r->points[found.minimum].rate, "minimum", "#555", 2);
}

static void add_title(const tn_ramp_report *report, tn_text *text)
{
    const tn_ramp_row *first = &report->rows->list[0];
    tn_text_addf(text, "<text x=\"%d\" y=\"28\" font-size=\"15\">", LEFT);
    add_xml(text, report->experiment);
    tn_text_add(text, ": loss over ");
    add_xml(text, first->target->handle);
    tn_text_char(text, '.');
    add_xml(text, first->row->name);
    tn_text_addf(text, "</text>\n<text x=\"%d\" y=\"%d\" fill=\"#555\">dark: smoothed by ", LEFT, HEIGHT - 14);
    tn_text_real(text, report->ramp->settings.smooth);
    tn_text_add(text, "; light: the loss of each update</text>\n");
}

void tn_ramp_print_svg(const tn_ramp_report *report, tn_text *text)
{
    picture p = {.ramp = report->ramp, .text = text};
    tn_text_addf(text,
                 "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" "
                 "version=\"1.1\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
                 "font-size=\"12\">\n<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
                 WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
    set_bounds(&p);
    add_title(report, text);
    add_axes(&p);
    add_curve(&p, 0, "stroke=\"#9db8d9\"");
    add_curve(&p, 1, "stroke=\"#1f4e8c\" stroke-width=\"2\"");
    add_marks(&p);
    tn_text_add(text, "</svg>\n");
}
