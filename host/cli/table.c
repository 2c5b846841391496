/* SPDX-License-Identifier: Apache-2.0
 *
 * table.c: the commands and their options. A new command is one row here and one file beside this.
 */
#include <stddef.h>

#include "host/cli/cli.h"

#define AT(member) offsetof(cli_options, member)

const cli_option cli_option_table[] = {
    {"json", 'j', NULL, CLI_FLAG, AT(json), CLI_NOTHING, "print the result as JSON"},
    {"names", 'N', NULL, CLI_FLAG, AT(names), CLI_NOTHING, "print kind/name only, one a line"},
    {"all", 'a', NULL, CLI_FLAG, AT(all), CLI_NOTHING,
     "of list: also files that are no plugins; of bench update: every link that is found"},
    {"quiet", 'q', NULL, CLI_FLAG, AT(quiet), CLI_NOTHING, "no plan and no progress on stderr"},
    {"runs", 'r', "FOLDER", CLI_TEXT, AT(runs), CLI_FOLDERS, "where run folders are made (default: runs)"},
    {"cfg", 'c', NULL, CLI_FLAG, AT(resolve), CLI_NOTHING,
     "print the experiment with every default filled in, and stop"},
    {"view", 'v', "train|eval", CLI_TEXT, AT(view), CLI_WORDS,
     "which parameters: eval, the averaged ones where a link keeps some; train, as they are"},
    {"force", 'f', NULL, CLI_FLAG, AT(force), CLI_NOTHING, "replace what is installed, or stand before it"},
    {"costs", 'k', NULL, CLI_FLAG, AT(costs), CLI_NOTHING, "of bench update: what the chain's promises cost, instead"},
    {"elements", 'e', "N", CLI_NUMBER, AT(elements), CLI_NOTHING,
     "numbers in the largest array (default: 64 Mi, fewer where memory is short)"},
    {"threads", 't', "N", CLI_NUMBER, AT(threads), CLI_NOTHING,
     "threads to run on (default: one a CPU; of eval: as in the run)"},
    {"rounds", 'n', "N", CLI_NUMBER, AT(rounds), CLI_NOTHING, "how many, of which medians are taken (default: 21)"},
    {"list", 'l', NULL, CLI_FLAG, AT(list), CLI_NOTHING, "print the rules, with what each requires, and stop"},
    {"only", 'o', "ID[,ID]", CLI_TEXT, AT(only), CLI_NOTHING, "run these rules only"},
    {"against", 'A', "OLD.so", CLI_TEXT, AT(against), CLI_PLUGINS,
     "an earlier build of the same plugin: what users of it would miss is a finding"},
    {"timeout", 'T', "S", CLI_NUMBER, AT(timeout), CLI_NOTHING, "seconds for each rule and component (default: 60)"},
    {"memory", 'M', "MIB", CLI_NUMBER, AT(memory), CLI_NOTHING,
     "MiB of address space for each rule and component (default: 4096)"},
    {"lang", 'L', "c|c++", CLI_TEXT, AT(language), CLI_WORDS, "the language to begin in (default: c)"},
    {"to", 'O', "FOLDER", CLI_TEXT, AT(to), CLI_FOLDERS, "the folder to make (default: NAME, here)"},
    {"from", 'F', "RATE", CLI_REAL, AT(rate_from), CLI_NOTHING, "the first rate (default: 1e-7)"},
    {"to", 'U', "RATE", CLI_REAL, AT(rate_to), CLI_NOTHING, "the last rate (default: 10)"},
    {"steps", 's', "N", CLI_NUMBER, AT(steps), CLI_NOTHING, "updates to make (default: 100)"},
    {"row", 'R', "HANDLE.ROW", CLI_TEXT, AT(row), CLI_NOTHING,
     "what to raise, as in `schedule:` (default: lr of every link, in the experiment's ratios)"},
    {"linear", 'i', NULL, CLI_FLAG, AT(linear), CLI_NOTHING, "rates in equal differences, not in equal ratios"},
    {"smooth", 'S', "W", CLI_REAL, AT(smooth), CLI_NOTHING,
     "weight of the losses before in their mean, 0 for none (default: 0.98)"},
    {"stop", 'x', "TIMES", CLI_REAL, AT(stop), CLI_NOTHING,
     "end above so many times the least smoothed loss; inf: never (default: 4)"},
    {"svg", 'g', "FILE", CLI_TEXT, AT(svg), CLI_FILES, "write the plot as a picture too"},
    {"man", 'm', NULL, CLI_FLAG, AT(man), CLI_NOTHING, "print the manual page, in mdoc"},
    {"help", 'h', NULL, CLI_FLAG, AT(help), CLI_NOTHING, "print this text; also -h"},
    {0},
};

#define OVERRIDES                                                                                                      \
    "Overrides: key=value sets, +key=value adds, ~key removes; model.normalizer=batchnorm swaps a component. "

const cli_command cli_commands[] = {
    {"list", "[KIND]", "name every component that can be found; maps none of them", NULL, "list optimizer", "jaN", 0, 1,
     CLI_KINDS, CLI_NOTHING, NULL, 0, cli_list},
    {"info", "[KIND/]NAME", "explain one component: parameters, formula, state, file", NULL, "info adamw", "j", 1, 1,
     CLI_COMPONENTS, CLI_NOTHING, NULL, 0, cli_info},
    {"run", "EXPERIMENT [KEY=VALUE ...]", "train an experiment; overrides change it without editing",
     OVERRIDES "Ctrl-C ends the run after this update, with a checkpoint; a second one at once. SIGUSR1 asks for a "
               "checkpoint.",
     "run docs/experiments/fashion-mlp.yaml train.epochs=1", "jqrc", 1, CLI_MANY, CLI_EXPERIMENTS, CLI_NOTHING, NULL, 0,
     cli_run},
    {"resume", "RUN [KEY=VALUE ...]", "go on with a run from the last checkpoint in its folder",
     "To the same numbers as if it had never stopped. Overrides may change what decides no bit, such as train.threads.",
     "resume runs/20260131-120000-fashion-mlp", "jq", 1, CLI_MANY, CLI_FOLDERS, CLI_NOTHING, NULL, 0, cli_resume},
    {"range", "EXPERIMENT [KEY=VALUE ...]", "find a learning rate: a few updates while it rises",
     "The range test of Smith (2015): the loss, smoothed, while the rate rises with each update, and the rates it "
     "suggests: where it falls most, and a tenth of that where it is least. All but the rate and its schedule is the "
     "experiment's; no run folder is made.",
     "range docs/experiments/fashion-mlp.yaml --svg range.svg", "jqFUsRiSxg", 1, CLI_MANY, CLI_EXPERIMENTS, CLI_NOTHING,
     NULL, 0, cli_range},
    {"eval", "RUN [SPLIT]", "evaluate the newest checkpoint of a run",
     "On the split that the experiment names, or on SPLIT. Changes nothing in the run's folder.",
     "eval runs/20260131-120000-fashion-mlp train", "jvt", 1, 2, CLI_FOLDERS, CLI_NOTHING, NULL, 0, cli_eval},
    {"export", "RUN|CHECKPOINT [FILE]", "write the parameters of a run to a safetensors file",
     "Of its newest checkpoint, or of the one named; with the running statistics of layers, in f32 or f64, by their "
     "plain names. FILE is RUN/model.safetensors if it is not given. Needs no data.",
     "export runs/20260131-120000-fashion-mlp model.safetensors", "jv", 1, 2, CLI_FOLDERS, CLI_FILES, NULL, 0,
     cli_export},
    {"install", "FILE.so", "check a plugin and put it into the user's folder",
     "The folder is $XDG_DATA_HOME/tenon/plugins, or ~/.local/share/tenon/plugins. None of the plugin's code is run.",
     "install optimizer-lion.so", "jf", 1, 1, CLI_PLUGINS, CLI_NOTHING, NULL, 0, cli_install},
    {"new", "KIND NAME", "make the folder of a plugin to begin with",
     "It holds a small technique of that kind under your name, which builds, passes `tenon check` and has a test and a "
     "README. Nothing is written into a folder that is not empty.",
     "new optimizer my-sgd", "jLO", 2, 2, CLI_KINDS, CLI_NOTHING, NULL, 1, cli_new},
    {"check", "FILE.so ...", "run the conformance rules on a plugin",
     "Each rule runs in a process of its own, so that a crash is a finding too. Exits with 1 if a rule is broken, with "
     "3 if a file is no plugin.",
     "check optimizer-lion.so", "jloATM", 1, CLI_MANY, CLI_PLUGINS, CLI_PLUGINS, NULL, 0, cli_check},
    {"bench", "memory|update|gemm|layer [LINKS ...]", "measure this machine and the host on it", NULL,
     "bench update adamw", "jaketn", 1, CLI_MANY, CLI_WORDS, CLI_COMPONENTS, "memory update gemm layer", 0, cli_bench},
    {"doctor", "", "look for the usual trouble, and say what mends it",
     "Search path, plugins, BLAS, processor, memory, disk, CUDA. Exits with 1 if something is wrong.", "doctor", "jr",
     0, 0, CLI_NOTHING, CLI_NOTHING, NULL, 0, cli_doctor},
    {"completion", "bash|zsh|fish", "print what completes commands in a shell", NULL,
     "completion bash >~/.local/share/bash-completion/completions/tenon", "", 1, 1, CLI_WORDS, CLI_NOTHING,
     "bash zsh fish", 1, cli_completion},
    {"help", "[COMMAND]", "say what there is, or more of one command", NULL, "help run", "m", 0, 1, CLI_COMMANDS,
     CLI_NOTHING, NULL, 1, cli_help},
    {0},
};
