#!/bin/sh
# Builds my-kind-my-thing.so by one line. Further flags may follow: ./build.sh -DTN_REAL=64 -o my-kind-my-thing-f64.so
umask 022 # a plugin that others could write to would be refused
cd "$(dirname "$0")" && flags=$(pkg-config --cflags tenon-sdk) || exit 1
exec ${CXX:-c++} -std=c++17 $flags -Wall -Wextra -fvisibility=hidden -fno-gnu-unique -shared -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL -Wl,--version-script=plugin.map my-source -o my-kind-my-thing.so "$@" -lm
