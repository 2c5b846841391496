#!/bin/sh
# Every C file is as clang-format 14 leaves it under .clang-format; other versions differ in places, so only 14 counts.
# To put things right: clang-format -i FILE
set -eu
cd "$(dirname "$0")/.."
format=$(command -v clang-format-14 || command -v clang-format) || { echo "clang-format is missing: apt-get install clang-format" >&2; exit 1; }
"$format" --version | grep -q 'version 14\.' || { echo "found $("$format" --version), needed 14" >&2; exit 77; }
find abi sdk host plugins tests \( -name '*.[ch]' -o -name '*.[ch]pp' \) -exec "$format" --dry-run -Werror {} +
