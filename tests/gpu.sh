#!/bin/sh
# What needs a CUDA device, in one go: compares the CUDA variants with their CPU builds, kernels included. Without a
# device it compares the host parts, says so and exits 77.   tests/gpu.sh [BUILD that is made already]
set -eu
cd "$(dirname "$0")/.."
build=${1-build-gpu}
[ -f "$build/build.ninja" ] || meson setup "$build" -Dtests=disabled -Dcuda=enabled >/dev/null
[ $# -gt 0 ] || ninja -C "$build" --quiet
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$nvcc" -std=c++17 -O2 -Iabi -Isdk tests/gpu/rule.cu -o "$work/rule" -ldl
"$work/rule" "$build/plugins/optimizer-adamw.so" "$build/plugins/optimizer-adamw-cuda.so"
