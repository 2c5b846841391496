#!/bin/sh
# Builds one fuzz target with clang and runs it for a number of executions from its corpus, corpus/NAME, and further
# folders of seeds:
#   tests/fuzz/run.sh NAME RUNS [SEEDS ...]
# Inputs of up to FUZZ_LENGTH bytes (4096; note 65536). A finding fails the run and leaves its folder, which is named; FUZZ_KEEP
# names a folder that gets the new inputs.
set -eu
name=$1 runs=$2
shift 2
cd "$(dirname "$0")/../.."
command -v clang >/dev/null || { echo "clang is missing: apt-get install clang libclang-rt-14-dev" >&2; exit 1; }
seeds=$PWD/tests/fuzz/corpus/$name
for more; do
    seeds="$seeds $(cd "$more" && pwd)"
done
length=4096 libraries="$(pkg-config --libs jansson)"
case $name in
csv | idx) sources='' libraries=-lz ;;
elf) sources="host/base/error.c host/plugin/elf.c" libraries='' ;;
note)
    length=65536
    sources="host/base/*.c host/plugin/elf.c host/plugin/note.c host/plugin/info.c host/plugin/interface.c host/plugin/slot.c"
    ;;
signature) sources="host/base/error.c host/base/number.c host/base/memory.c host/base/text.c host/foreign/signature.c host/foreign/expression.c" libraries='' ;;
safetensors) sources="host/base/*.c host/store/safetensors.c host/store/newfile.c" ;;
experiment)
    sources="host/base/*.c host/plugin/*.c host/experiment/*.c host/foreign/*.c host/check/dynamic.c host/check/guard.c
        host/store/newfile.c"
    libraries="$(pkg-config --cflags --libs jansson libfyaml libxxhash libffi)"
    ;;
*) echo "there is no target '$name' in tests/fuzz" >&2; exit 2 ;;
esac
out=$(mktemp -d "${TMPDIR:-/tmp}/tenon-fuzz-$name-XXXXXX")
trap 'rm -rf "$out"' EXIT
mkdir "$out/new"
# shellcheck disable=SC2086
clang -std=c11 -D_GNU_SOURCE -DTN_NO_CLONES -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined \
    -Iabi -Isdk -I. tests/fuzz/fuzz_"$name".c $sources $libraries -lpthread -ldl -lm -o "$out/fuzz"
cd "$out"
echo "leak:libfyaml" >suppressions # libfyaml 0.7.12 leaks on some quoted scalars
# shellcheck disable=SC2086
LSAN_OPTIONS=suppressions=$out/suppressions:print_suppressions=0 \
    ./fuzz -runs="$runs" -max_len="${FUZZ_LENGTH:-$length}" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 \
    "${FUZZ_KEEP:-new}" $seeds >log 2>&1 || {
    trap - EXIT
    tail -60 log
    echo "the finding and the whole log are in $out" >&2
    exit 1
}
grep -E 'Done|new_units' log
