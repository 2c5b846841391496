/* SPDX-License-Identifier: Apache-2.0
 *
 * quarantine.h: plugins that end the process as they load. While a plugin's code runs for the first time, a file named
 * after the hash of its bytes and the process stands in $XDG_DATA_HOME/tenon/loading (~/.local/share/tenon/loading) and
 * holds its path. One that stands there though its process is gone means that loading may have ended it: before the
 * same bytes are loaded once more, a child tries. If the child does not come through they are refused, else the file is
 * removed, for a process can be killed at that moment too.
 *
 * Where there is no such folder, or in setuid programs, nothing of this happens. Thread rule: one thread at a time.
 */
#ifndef TENON_HOST_PLUGIN_QUARANTINE_H
#define TENON_HOST_PLUGIN_QUARANTINE_H

#include <limits.h>

#include "host/base/log.h"

#define TN_QUARANTINE_TRIAL_S 10

typedef struct tn_quarantine {
    char file[PATH_MAX]; /* "": none */
} tn_quarantine;

/* Before the code of the plugin at `path` (absolute) runs. TN_E_PLUGIN with QUARANTINED if it ended a process before
 * and a trial now; TN_E_MEMORY. Forks only if it may have ended one. After TN_OK tn_quarantine_leave is to follow. */
int32_t tn_quarantine_enter(const char *path, const tn_log *log, tn_quarantine *ret, tn_error *err);
/* After its code came back. Accepts what is zeroed. */
void tn_quarantine_leave(tn_quarantine *quarantine);

/* From now on nothing is written or looked for in this process: for one that exists to see what happens. */
void tn_quarantine_disable(void);

#endif
