#!/usr/bin/env bash
# Builds the stand-in for NVIDIA's driver and libraries: all of them are one library under the names that
# a binary looks for. Functions that nobody calls yet end the process with their name.
#
#   tests/cuda/standin/build.sh DIR BINARY
#   LD_LIBRARY_PATH=DIR BINARY serve --device cuda:0 ...
set -euo pipefail
if [ $# -ne 2 ]; then
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
    exit 2
fi
own=$(cd "$(dirname "$0")" && pwd)
kernels=$own/../../../src/kernels
mkdir -p "$1"
dir=$(cd "$1" && pwd)
binary=$(realpath "$2")
compiler=${CXX:-c++}

# Only what is older than its sources is compiled.
compile() {
    local source=$1 object=$2
    shift 2
    if [ ! -e "$object" ] || [ -n "$(find "$kernels" "$own" -newer "$object" \
        \( -name '*.cuh' -o -name '*.h' \) -print -quit)" ] || [ "$source" -nt "$object" ]; then
        "$compiler" -O2 -fPIC "$@" -c "$source" -o "$object"
    fi
}

objects=()
while read -r source; do
    object=$dir/$(realpath --relative-to="$kernels" "$source" | tr / _).o
    # Where a copy of a source finds what it includes by paths from its own folder.
    compile "$source" "$object" -std=c++17 -ffp-contract=off -Wno-unknown-pragmas -x c++ \
        -I "$kernels/norm"
    objects+=("$object")
done < <(find "$kernels" -name '*.cu' | sort)
compile "$kernels/cuda/on_host/block.cpp" "$dir/block.o" -std=c++17 -Wall -Wextra
objects+=("$dir/block.o")
for part in driver candle nccl; do
    compile "$own/$part.cpp" "$dir/$part.o" -std=c++20 -Wall -Wextra
    objects+=("$dir/$part.o")
done

# Binaries are linked so that every function must be there at the start.
defined=$(nm --defined-only --extern-only "${objects[@]}" | awk 'NF == 3 { print $3 }' | sort -u)
wanted=$(nm -D --undefined-only "$binary" | awk '{ print $2 }' | sed 's/@.*//' |
    grep -E '^(cu|nvrtc|nccl|__cuda)' | sort -u)
{
    echo '#include <stdio.h>'
    echo '#include <stdlib.h>'
    comm -13 <(echo "$defined") <(echo "$wanted") | while read -r name; do
        echo "void $name(void) { fprintf(stderr, \"stand-in driver: no $name\\n\"); abort(); }"
    done
} >"$dir/absent.c"
"${CC:-cc}" -w -fno-builtin -fPIC -c "$dir/absent.c" -o "$dir/absent.o"
"$compiler" -shared "${objects[@]}" "$dir/absent.o" -o "$dir/libcuda.so.1" -ldl -lrt -lpthread
for name in $(objdump -p "$binary" | awk '$1 == "NEEDED" { print $2 }' |
    grep -E '^lib(cu|nv|nccl)' | grep -v '^libcuda.so.1$'); do
    ln -sf libcuda.so.1 "$dir/$name"
done
