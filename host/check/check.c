/* SPDX-License-Identifier: Apache-2.0
 *
 * check.c: the rules in order, what they found, and both as text.
 */
#include "host/check/check.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/plugin/elf.h"

static const tn_check_rule *const tables[] = {tn_check_file_rules, tn_check_update_rules, tn_check_graph_rules,
                                              tn_check_calls_rules};

#define TABLES     (sizeof tables / sizeof *tables)
#define RULES_MOST 512

static int32_t no_memory(tn_error *err) { return tn_error_set(err, TN_E_MEMORY, "out of memory while checking"); }

const char *tn_check_verdict_name(int32_t verdict)
{
    static const char *const names[] = {"passed", "failed", "skipped", "crashed", "timed out"};
    return verdict >= 0 && verdict < (int32_t)(sizeof names / sizeof *names) ? names[verdict] : "?";
}

/* ---- which rules ---- */

static bool is_wanted(const tn_check_options *options, const char *id)
{
    bool wanted = options->only_count == 0;
    for (size_t i = 0; i < options->only_count && !wanted; i++)
        wanted = strcmp(options->only[i], id) == 0;
    return wanted;
}

static size_t all_ids(const char **ret)
{
    size_t count = 0;
    for (size_t i = 0; i < TABLES; i++)
        for (const tn_check_rule *rule = tables[i]; rule->id && count < RULES_MOST; rule++)
            ret[count++] = rule->id;
    return count;
}

static int32_t check_only(const tn_check_options *options, tn_error *err)
{
    const char *ids[RULES_MOST];
    size_t count = all_ids(ids);
    for (size_t i = 0; i < options->only_count; i++) {
        size_t at = 0;
        while (at < count && strcmp(ids[at], options->only[i]) != 0)
            at++;
        if (at < count)
            continue;
        const char *near = tn_nearest(options->only[i], ids, count);
        return tn_error_set(err, TN_E_INVALID,
                            near ? "no rule '%s'; did you mean '%s'? --list names them all"
                                 : "no rule '%s'; --list names them all",
                            options->only[i], near);
    }
    return TN_OK;
}

/* ---- one run of a rule ---- */

static int32_t run_rule(const tn_check_rule *rule, const tn_check_subject *subject, const tn_check_options *options,
                        tn_check_report *report, tn_error *err)
{
    if (!is_wanted(options, rule->id) || !rule->applies(subject))
        return TN_OK;
    if (tn_grow(&report->findings, &report->capacity, report->count, sizeof *report->findings))
        return no_memory(err);
    tn_check_finding *finding = &report->findings[report->count];
    const tn_entry_info *entry = subject->entry;
    *finding = (tn_check_finding){.rule = rule->id};
    if (entry)
        snprintf(finding->component, sizeof finding->component, "%s/%s (%s %s)", entry->kind, entry->name,
                 entry->device, tn_real_name(entry->real, "any"));
    int32_t status = TN_OK;
    if (report->is_unloadable)
        tn_check_skip(finding, "it can not be loaded, see file-record");
    else if (!rule->run)
        tn_check_calls_judge(report->findings, report->count, finding);
    else
        status = tn_check_child(rule, subject, options, finding, err);
    if (status != TN_OK)
        return status;
    report->count++;
    report->is_unloadable = report->is_unloadable || (finding->verdict && strcmp(rule->id, "file-record") == 0);
    report->failed += finding->verdict != TN_CHECK_PASSED && finding->verdict != TN_CHECK_SKIPPED;
    return TN_OK;
}

static int32_t run_rules(const tn_check_subject *subject, const tn_check_options *options, tn_check_report *report,
                         tn_error *err)
{
    int32_t status = TN_OK;
    for (size_t i = 0; i < TABLES; i++)
        for (const tn_check_rule *rule = tables[i]; rule->id && status == TN_OK; rule++)
            status = run_rule(rule, subject, options, report, err);
    return status;
}

/* A component that is refused is told of by the file's rules. */
static int32_t run_component(tn_check_subject *subject, const tn_entry_info *entry, const tn_check_options *options,
                             tn_check_report *report, tn_error *err)
{
    tn_error why;
    if (strcmp(entry->path, subject->path) != 0 || entry->state == TN_REFUSED)
        return TN_OK;
    subject->entry = entry;
    int32_t status = tn_registry_info(subject->registry, entry, &subject->info, &why);
    if (status == TN_E_MEMORY)
        return no_memory(err);
    return status == TN_OK ? run_rules(subject, options, report, err) : TN_OK;
}

static int32_t run_all(tn_check_subject *subject, const tn_check_options *options, tn_check_report *report,
                       tn_error *err)
{
    int32_t status = run_rules(subject, options, report, err);
    for (size_t i = 0; i < tn_registry_count(subject->registry) && status == TN_OK; i++)
        status = run_component(subject, tn_registry_at(subject->registry, i), options, report, err);
    return status;
}

/* ---- the file ---- */

/* What this process has loaded its children have too. */
static int32_t check_not_loaded(const char *path, tn_error *err)
{
    void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle)
        return TN_OK;
    dlclose(handle);
    return tn_error_set(err, TN_E_INVALID,
                        "%s: is loaded in this process already, and a check must see how it loads; check it in "
                        "a process that has not used it",
                        path);
}

static int32_t with_registry(const tn_check_options *options, tn_check_report *report, tn_error *err)
{
    char against[PATH_MAX];
    tn_check_subject subject = {.path = report->path};
    if (options->against && !realpath(options->against, against))
        return tn_file_refuse(options->against, errno, err);
    subject.against = options->against ? against : NULL;
    int32_t status = tn_registry_open(NULL, &subject.registry, err);
    if (status != TN_OK)
        return status;
    status = tn_registry_add_file(subject.registry, report->path, err);
    if (status == TN_OK)
        status = run_all(&subject, options, report, err);
    tn_registry_close(subject.registry);
    return status;
}

int32_t tn_check_run(const tn_check_options *options, tn_check_report *ret, tn_error *err)
{
    char real[PATH_MAX];
    tn_check_report report = {0};
    int32_t status = check_only(options, err);
    if (status == TN_OK && !realpath(options->path, real))
        status = tn_file_refuse(options->path, errno, err);
    if (status == TN_OK)
        status = check_not_loaded(real, err);
    if (status == TN_OK && !(report.path = tn_strdup(real)))
        status = no_memory(err);
    if (status == TN_OK)
        status = with_registry(options, &report, err);
    if (status == TN_OK)
        *ret = report;
    else
        tn_check_report_free(&report);
    return status;
}

void tn_check_report_free(tn_check_report *report)
{
    tn_free(report->path);
    tn_free(report->findings);
    *report = (tn_check_report){0};
}

/* ---- as text ---- */

static void print_json(const tn_check_report *report, tn_text *text)
{
    tn_text_add(text, "{\"path\":");
    tn_text_json(text, report->path);
    tn_text_addf(text, ",\"failed\":%zu,\"findings\":[", report->failed);
    for (size_t i = 0; i < report->count; i++) {
        const tn_check_finding *f = &report->findings[i];
        tn_text_addf(text, "%s{\"rule\":\"%s\",\"component\":", i ? "," : "", f->rule);
        tn_text_json(text, f->component);
        tn_text_addf(text, ",\"verdict\":\"%s\",\"seconds\":", tn_check_verdict_name(f->verdict));
        tn_text_real(text, f->seconds);
        tn_text_add(text, ",\"message\":");
        tn_text_json(text, f->message);
        tn_text_add(text, "}");
    }
    tn_text_add(text, "]}\n");
}

static int widest(const tn_check_report *report)
{
    size_t width = 0;
    for (size_t i = 0; i < report->count; i++) {
        size_t length = strlen(report->findings[i].rule);
        width = length > width ? length : width;
    }
    return (int)width;
}

static void print_rows(const tn_check_report *report, tn_text *text)
{
    int width = widest(report);
    const char *of = "";
    for (size_t i = 0; i < report->count; i++) {
        const tn_check_finding *f = &report->findings[i];
        if (strcmp(f->component, of) != 0)
            tn_text_addf(text, "%s\n", f->component);
        of = f->component;
        tn_text_addf(text, "  %-9s  %-*s%s%s\n", tn_check_verdict_name(f->verdict), *f->message ? width : 0, f->rule,
                     *f->message ? "  " : "", f->message);
    }
}

static size_t count_of(const tn_check_report *report, int32_t verdict)
{
    size_t count = 0;
    for (size_t i = 0; i < report->count; i++)
        count += report->findings[i].verdict == verdict;
    return count;
}

void tn_check_print(const tn_check_report *report, bool json, tn_text *text)
{
    if (json) {
        print_json(report, text);
        return;
    }
    tn_text_addf(text, "%s\n", report->path);
    print_rows(report, text);
    const char *before = "";
    for (int32_t verdict = TN_CHECK_PASSED; verdict <= TN_CHECK_TIMED_OUT; verdict++) {
        size_t count = count_of(report, verdict);
        if (count == 0)
            continue;
        tn_text_addf(text, "%s%zu %s", before, count, tn_check_verdict_name(verdict));
        before = ", ";
    }
    tn_text_add(text, *before ? "\n" : "no rule applies\n");
}

void tn_check_list(bool json, tn_text *text)
{
    const char *before = "";
    tn_text_add(text, json ? "[" : "");
    for (size_t i = 0; i < TABLES; i++) {
        for (const tn_check_rule *rule = tables[i]; rule->id; rule++) {
            if (!json) {
                tn_text_addf(text, "%-24s  %s\n", rule->id, rule->says);
                continue;
            }
            tn_text_addf(text, "%s{\"id\":\"%s\",\"says\":", before, rule->id);
            tn_text_json(text, rule->says);
            tn_text_add(text, "}");
            before = ",";
        }
    }
    tn_text_add(text, json ? "]\n" : "");
}
