#!/bin/sh
# ./test.sh [FILE.so]: does the plugin keep to the contract, and does it work? Needs `tenon` in PATH, or in $TENON.
set -eu
umask 022
here=$(cd "$(dirname "$0")" && pwd)
file=${1:-$here/my-kind-my-thing.so} tenon=${TENON:-tenon}
command -v "$tenon" >/dev/null || { echo "test.sh: no program '$tenon'; say where it is: TENON=... ./test.sh" >&2; exit 127; }
[ -f "$file" ] || { echo "test.sh: no $file; run ./build.sh" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$tenon" check "$file"
mkdir "$work/plugins"
cp "$file" "$work/plugins/"
export TENON_PLUGIN_PATH="$work/plugins"
"$tenon" info my-kind/my-thing
[ -f "$here/try.yaml" ] || exit 0
result=$("$tenon" run "$here/try.yaml" --runs "$work/runs" --quiet)
echo "$result" | grep -v '^run folder' # which is gone in a moment
