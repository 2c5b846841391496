#!/bin/sh
# Installs a build into a temporary folder and uses it from there as an author would: a plugin against the installed
# headers, found and listed by the installed program.   tests/install.sh BUILD
set -eu
build=$1 source=$(cd "$(dirname "$0")/.." && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
DESTDIR=$root meson install -C "$build" --no-rebuild >/dev/null
pc=$(dirname "$(find "$root" -name tenon-sdk.pc)")
library=$(dirname "$pc")
prefix=$(dirname "$(dirname "$(find "$root" -path '*/bin/tenon')")")
flags=$(PKG_CONFIG_PATH=$pc pkg-config --define-variable=prefix="$prefix" --cflags tenon-sdk)
mkdir "$root/mine"
chmod 755 "$root"
# shellcheck disable=SC2086
sed 's/adamw/mine/g' "$source/plugins/optimizer/adamw.c" >"$root/mine.c"
cc $flags -Werror -Wall -shared "$root/mine.c" -o "$root/mine/optimizer-mine.so" -lm
export LD_LIBRARY_PATH=$library
"$prefix/bin/tenon" list optimizer | grep -q '^optimizer  *adamw'
TENON_PLUGIN_PATH=$root/mine "$prefix/bin/tenon" list optimizer | grep -q '^optimizer  *mine'
# The library too: a C program through pkg-config.
cat >"$root/list.c" <<'C'
#include <stdio.h>
#include <tenon/tenon.h>
int main(void)
{
    tn_error err;
    tenon *handle;
    char *text;
    if (tenon_open(NULL, &handle, &err) != TN_OK || tenon_list(handle, "optimizer", 0, &text, &err) != TN_OK)
        return fprintf(stderr, "%s\n", err.msg), 1;
    fputs(text, stdout);
    tenon_free(text);
    tenon_close(handle);
    return 0;
}
C
# shellcheck disable=SC2046
cc -std=c11 -Wall -Werror "$root/list.c" -o "$root/list" \
    $(PKG_CONFIG_PATH=$pc pkg-config --define-variable=prefix="$prefix" --cflags --libs tenon)
"$root/list" | grep -q adamw
# A plugin to begin with, from what was installed alone.
cd "$root"
"$prefix/bin/tenon" new optimizer first --lang c | grep -qF "export PKG_CONFIG_PATH='$pc'"
export PKG_CONFIG_PATH="$pc" PKG_CONFIG_SYSROOT_DIR="$root" # the files' prefix is that of the installed system
first/build.sh -Werror
TENON=$prefix/bin/tenon first/test.sh | grep -q '^test/accuracy'
