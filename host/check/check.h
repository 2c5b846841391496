/* SPDX-License-Identifier: Apache-2.0
 *
 * check.h: does a plugin keep to the contract? A list of rules, each run on the file or on each of its components, each
 * time in a process of its own, forked from one that has not loaded the plugin.
 *
 * A new rule is a row in one of the tables rules_*.c: check.c finds it there.
 */
#ifndef TENON_HOST_CHECK_CHECK_H
#define TENON_HOST_CHECK_CHECK_H

#include <stdbool.h>

#include "host/base/text.h"
#include "host/plugin/registry.h"

#define TN_CHECK_PASSED    0
#define TN_CHECK_FAILED    1
#define TN_CHECK_SKIPPED   2 /* could not be looked at; the message says why */
#define TN_CHECK_CRASHED   3 /* a signal, or an end of the process that was not asked for */
#define TN_CHECK_TIMED_OUT 4

/* What a rule looks at. Everything is borrowed for the rule's run. */
typedef struct tn_check_subject {
    const char *path;              /* absolute, without links */
    const char *against;           /* an earlier build of the file, or NULL */
    tn_registry *registry;         /* `path` before the search path; nothing is loaded */
    const tn_entry_info *entry;    /* the component; NULL: the file as a whole */
    const tn_component_info *info; /* what its note says; NULL: the file as a whole */
    char *stage;                   /* see tn_check_stage */
    const char *folder;            /* empty, the rule's own and the working directory; removed afterwards */
    int output;                    /* descriptor of what stdout and stderr got, to be read with pread */
} tn_check_subject;

typedef struct tn_check_finding {
    const char *rule;    /* its id; static */
    char component[120]; /* "optimizer/lion (cpu f32)"; "" for the file */
    int32_t verdict;     /* TN_CHECK_* */
    double seconds;
    char message[1024]; /* "" where it passed */
    char left[256];     /* what the component's calls left behind, for rule calls-process; "" : nothing */
} tn_check_finding;

typedef struct tn_check_rule {
    const char *id;   /* for ever the same: "elf-text-relocations", "update-slices" */
    const char *says; /* one sentence: what is required and why */
    /* Is there something to look at? Asked for the file (entry NULL) and for each of its components, in the process
     * that has not loaded it. */
    bool (*applies)(const tn_check_subject *subject);
    /* Looks, in its own process. With nothing said it has passed. It need not free what it allocates. NULL: it is about
     * what the others, which come before it, have found of that component's calls. */
    void (*run)(const tn_check_subject *subject, tn_check_finding *finding);
} tn_check_rule;

/* The tables; each ends in a NULL id. */
extern const tn_check_rule tn_check_file_rules[];
extern const tn_check_rule tn_check_update_rules[];
extern const tn_check_rule tn_check_graph_rules[];
extern const tn_check_rule tn_check_calls_rules[];

/* ---- for rules; all in the rule's own process ---- */

/* The verdict failed, with words. The first failure of a run is the one that is told. */
void tn_check_fail(tn_check_finding *finding, const char *format, ...) TN_PRINTF(2, 3);
/* The verdict skipped, with the reason; no effect after a failure. */
void tn_check_skip(tn_check_finding *finding, const char *format, ...) TN_PRINTF(2, 3);

/* What is being done: a crash or a time-out from here on is told with it ("SIGSEGV in update"). NULL: nothing. A rule
 * that calls the plugin in several ways names each. */
void tn_check_stage(const tn_check_subject *subject, const char *format, ...) TN_PRINTF(2, 3);

/* Loads the component and copies its table: tn_registry_load. False after tn_check_skip, as rule file-record tells of
 * it. */
bool tn_check_load(const tn_check_subject *subject, void *table, size_t size, tn_check_finding *finding);
/* The same of another component of the registry ("backend", "reference"); `real` 0: any. */
bool tn_check_load_other(const tn_check_subject *subject, const char *kind, const char *name, uint32_t real,
                         void *table, size_t size, tn_check_finding *finding);

/* Runs `part` in a further process, forked here, and waits for it: for state that must survive a process, call it twice
 * before anything is loaded. What `part` says in its finding is this one's; a crash of it is the rule's. `shared` is
 * memory from tn_check_shared. False if it did not pass: the rule ends then. */
bool tn_check_apart(const tn_check_subject *subject,
                    void (*part)(const tn_check_subject *subject, void *shared, tn_check_finding *finding),
                    void *shared, tn_check_finding *finding);
/* Zeroed memory that forked processes share, up to the rule's end; NULL where there is none. */
void *tn_check_shared(size_t bytes);

/* ---- all of it ---- */

#define TN_CHECK_TIMEOUT_S   60
#define TN_CHECK_MEMORY      ((int64_t)4 << 30)
#define TN_CHECK_SAID        200 /* bytes of what a crashed plugin printed last that are told */
#define TN_CHECK_OUTPUT_MOST ((int64_t)256 << 20)

typedef struct tn_check_options {
    const char *path;        /* the plugin's file */
    const char *against;     /* an earlier build; NULL: none */
    const char *const *only; /* ids; with none all rules run */
    size_t only_count;
    int32_t timeout_s; /* of each rule on each component; 0: TN_CHECK_TIMEOUT_S */
    int64_t memory;    /* bytes of address space of each; 0: TN_CHECK_MEMORY. Not under AddressSanitizer */
} tn_check_options;

typedef struct tn_check_report {
    char *path; /* absolute, without links */
    tn_check_finding *findings;
    size_t count, capacity;
    size_t failed;      /* findings that failed, crashed or timed out */
    bool is_unloadable; /* file-record was broken: the rules behind it are skipped */
} tn_check_report;

/* Runs the rules. TN_E_INVALID for an unknown id ("did you mean") and for a plugin that this process has loaded,
 * TN_E_PLUGIN if the file is no plugin, TN_E_NOT_FOUND, TN_E_IO, TN_E_MEMORY; what is wrong with a plugin is a finding
 * and no error. Forks. The caller frees *ret with tn_check_report_free. [main] */
int32_t tn_check_run(const tn_check_options *options, tn_check_report *ret, tn_error *err);
void tn_check_report_free(tn_check_report *report);

/* "passed", "failed", ...; static. */
const char *tn_check_verdict_name(int32_t verdict);
/* Findings as a table for people, or as {"path", "failed", "findings": [{rule, component, verdict, seconds, message}]}.
 */
void tn_check_print(const tn_check_report *report, bool json, tn_text *text);
/* The rules: lines for people, or [{id, says}]. */
void tn_check_list(bool json, tn_text *text);

/* ---- between check.c, child.c and rules_calls.c ---- */

/* How floating point is set in this thread. */
typedef struct tn_check_modes {
    int rounding;
    unsigned sse, x87; /* control words, without the flags that operations leave; 0 on machines without them */
} tn_check_modes;
tn_check_modes tn_check_modes_read(void);
/* "rounding is 1, was 0" into `words`; false if nothing changed. */
bool tn_check_modes_compare(tn_check_modes before, char *words, size_t size);

/* In the rule's process, behind the rule: fills finding->left. */
void tn_check_calls_look(const tn_check_subject *subject, tn_check_modes before, tn_check_finding *finding);
/* The finding of a rule without `run`, from those of its component among `count` others. */
void tn_check_calls_judge(const tn_check_finding *others, size_t count, tn_check_finding *finding);

/* Runs one rule on one subject in a child of this process, whose finding it fills. TN_E_IO if no child can be made,
 * TN_E_MEMORY. */
int32_t tn_check_child(const tn_check_rule *rule, const tn_check_subject *subject, const tn_check_options *options,
                       tn_check_finding *ret, tn_error *err);

#endif
