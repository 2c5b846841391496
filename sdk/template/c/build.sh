#!/bin/sh
# Builds my-kind-my-thing.so by one line. Further flags may follow: ./build.sh -DTN_REAL=64 -o my-kind-my-thing-f64.so
umask 022 # a plugin that others could write to would be refused
cd "$(dirname "$0")" && flags=$(pkg-config --cflags tenon-sdk) || exit 1
exec ${CC:-cc} -std=c11 $flags -Wall -Wextra -fvisibility=hidden -shared -Wl,--version-script=plugin.map my-source -o my-kind-my-thing.so "$@" -lm
