#!/bin/sh
# Each header of the contract and of the SDK compiles alone, pedantic, as C11 and C++17 with gcc and clang where there,
# and under nvcc where there, and with all others; no header of the contract is over 150 lines.
set -eu
cd "$(dirname "$0")/../.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
nvcc=$(command -v nvcc || { [ -x /usr/local/cuda/bin/nvcc ] && echo /usr/local/cuda/bin/nvcc; } || true)
for header in abi/tenon/*.h sdk/tenon/*.h; do
    name=tenon/$(basename "$header")
    printf '#include <%s>\n' "$name" | tee "$out/t.c" "$out/t.cpp" >"$out/t.cu"
    flags="-Wall -Wextra -Wpedantic -Werror -Iabi -Isdk -fsyntax-only"
    for compiler in gcc clang; do
        command -v $compiler >/dev/null || continue
        $compiler -std=c11 $flags "$out/t.c"
    done
    command -v g++ >/dev/null && g++ -std=c++17 $flags "$out/t.cpp"
    [ -z "$nvcc" ] || "$nvcc" -std=c++17 -Iabi -Isdk -c "$out/t.cu" -o "$out/t.o"
    case $header in abi/*) [ "$(wc -l <"$header")" -le 150 ] || { echo "$header: over 150 lines" >&2; exit 1; } ;; esac
done
for compiler in g++ clang++; do
    command -v $compiler >/dev/null || continue
    for header in sdk/tenon/*.hpp; do
        echo "#include <tenon/$(basename "$header")>" >"$out/t.cpp"
        $compiler -std=c++17 $flags "$out/t.cpp"
    done
done
# All of them together: a plugin may hold components of any kinds.
for header in abi/tenon/*.h sdk/tenon/*.h; do printf '#include <tenon/%s>\n' "$(basename "$header")"; done | tee "$out/t.cpp" >"$out/t.c"
for compiler in gcc clang; do
    command -v $compiler >/dev/null || continue
    $compiler -std=c11 $flags "$out/t.c"
done
command -v g++ >/dev/null && g++ -std=c++17 $flags "$out/t.cpp"
# A rule compiles unchanged as C++ and for CUDA.
g++ -std=c++17 -Wall -Wextra -Werror -fPIC -shared -Iabi -Isdk -x c++ plugins/optimizer/adamw.c -o "$out/cpp.so"
[ -z "$nvcc" ] || "$nvcc" -x cu -std=c++17 -Xcompiler -fPIC -shared -fmad=false -Iabi -Isdk plugins/optimizer/adamw.c -o "$out/cuda.so"
[ -n "$nvcc" ] || echo "no nvcc here: CUDA was not compiled"
