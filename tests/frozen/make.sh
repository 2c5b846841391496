#!/bin/sh
# tests/frozen/make.sh COMMIT FOLDER: plugins as they were built at a commit, with their sources, for ever as they are.
#
#   draft-1   ed0ebfb, the contract after its hardest users: optimizer/0.2, layer/0.2, sink/0.1
set -eu
commit=$1 folder=$2 source=$(cd "$(dirname "$0")/../.." && pwd)
old=$(mktemp -d)
trap 'rm -rf "$old"' EXIT
git -C "$source" archive "$commit" abi sdk plugins | tar -x -C "$old"
mkdir -p "$folder"
for plugin in optimizer/adamw transform/clip-norm average/ema scheduler/cosine normalizer/layernorm activation/gelu \
    layer/linear codec/bf16 sink/jsonl; do
    name=$(echo "$plugin" | tr / -)
    cp "$old/plugins/$plugin.c" "$folder/$name.c"
    cc -std=c11 -D_GNU_SOURCE -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -fvisibility=hidden -fPIC \
        -shared -s -I"$old/abi" -I"$old/sdk" "$folder/$name.c" -o "$folder/$name.so" -lm
    chmod 644 "$folder/$name.so"
done
