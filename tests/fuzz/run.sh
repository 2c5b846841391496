#!/bin/sh
# Builds one fuzz target with clang and runs it for a number of executions from the files of a folder:
#   tests/fuzz/run.sh NAME RUNS SEEDS
# A finding fails the run and leaves its folder, which is named.
set -eu
name=$1 runs=$2 seeds=$(cd "$3" && pwd)
cd "$(dirname "$0")/../.."
command -v clang >/dev/null || { echo "clang is missing: apt-get install clang libclang-rt-14-dev" >&2; exit 1; }
out=$(mktemp -d "${TMPDIR:-/tmp}/tenon-fuzz-$name-XXXXXX")
trap 'rm -rf "$out"' EXIT
mkdir "$out/new"
# shellcheck disable=SC2046
clang -std=c11 -D_GNU_SOURCE -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -Iabi -Isdk -I. \
    tests/fuzz/fuzz_"$name".c host/base/*.c host/plugin/*.c host/experiment/*.c \
    $(pkg-config --cflags --libs jansson libfyaml) -lpthread -ldl -lm -o "$out/fuzz"
cd "$out"
echo "leak:libfyaml" >suppressions # libfyaml 0.7.12 leaks on some quoted scalars
LSAN_OPTIONS=suppressions=$out/suppressions:print_suppressions=0 \
    ./fuzz -runs="$runs" -max_len=65536 -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 new "$seeds" >log 2>&1 || {
    trap - EXIT
    tail -60 log
    echo "the finding and the whole log are in $out" >&2
    exit 1
}
grep -E 'Done|new_units' log
