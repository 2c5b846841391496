#!/bin/sh
# Compares the contract with its committed description; any difference fails. An intended change regenerates it in the
# same commit:  tests/abi/check.sh LIBRARY HEADERS --update
set -eu
library=$1 headers=$2 baseline=$(dirname "$0")/tenon.abi
command -v abidw >/dev/null || { echo "abidw is missing: apt-get install abigail-tools" >&2; exit 1; }
# Every struct that the headers define must be reachable from the anchor, or it would not be compared.
for struct in $(grep -hoE '^typedef struct tn_[a-z0-9_]+ \{' "$headers"/tenon/*.h | awk '{print $3}'); do
    grep -qE "\b$struct \*" "$(dirname "$0")/anchor.c" || case $struct in
    tn_dtype | tn_device) ;; # inside tn_tensor
    *) echo "$struct is missing in tests/abi/anchor.c" >&2; exit 1 ;;
    esac
done
dump() { abidw --no-corpus-path --no-comp-dir-path --no-show-locs --drop-private-types "$library" | sed "s|path='[^']*anchor.c'|path='anchor.c'|"; }
if [ "${3-}" = --update ]; then
    dump >"$baseline"
    exit 0
fi
abidiff --no-default-suppression "$baseline" "$library"
