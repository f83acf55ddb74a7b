#!/usr/bin/env bash
# A CUDA 13.0 toolkit to build `--features cuda` with, from NVIDIA's wheels on PyPI: no driver, no
# GPU, no root, 700 MB. It needs python3 with pip, a C compiler and, for the names of functions that
# are linked, the project's fetched crates.
#
#   docker/cuda-toolkit.sh DIR                 makes DIR
#   source DIR/env                             sets what the build reads
#   CUDA_COMPUTE_CAP=90 cargo build --release --features cuda
#
# The driver's library comes with the driver; cuBLAS weighs as much as everything else. Both are
# only linked here, against stubs with their names. A machine that runs the binary needs libcuda.so.1
# (the driver), libcudart.so.13, libcurand.so.10, libcublas.so.13 and libcublasLt.so.13; with the
# feature `nccl` also libnccl.so.2.
set -euo pipefail
if [ $# -ne 1 ]; then
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
    exit 2
fi
mkdir -p "$1"
DIR=$(cd "$1" && pwd)
CU=$DIR/nvidia/cu13

python3 -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target "$DIR" \
    nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 \
    nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 nvidia-cuda-nvrtc==13.0.88 \
    nvidia-curand==10.4.0.35

# Wheels leave out the names that linkers look for.
ln -sfn lib "$CU/lib64"
for library in cudart:13 curand:10 nvrtc:13; do
    ln -sf "lib${library%:*}.so.${library#*:}" "$CU/lib/lib${library%:*}.so"
done

# stub NAME VERSION FOLDER: a library with the functions that cudarc declares in FOLDER.
stub() {
    local functions
    functions=$(cat "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/cudarc-*/src/"$3"/sys/mod.rs |
        grep -oE 'pub (unsafe )?fn (cu|nccl)[A-Za-z0-9_]+' | awk '{ print "void " $NF "(void) {}" }' | sort -u)
    echo "$functions" | cc -x c -shared -fPIC -w -fno-builtin \
        -Wl,-soname,"lib$1.so.$2" -o "$CU/lib/lib$1.so" -
}
cargo fetch --quiet --locked --manifest-path "$(dirname "$0")/../Cargo.toml"
stub cuda 1 driver
stub cublas 13 cublas
stub cublasLt 13 cublaslt
stub nccl 2 nccl

cat >"$DIR/env" <<ENV
export CUDA_HOME=$CU CUDA_PATH=$CU CUDA_ROOT=$CU CUDA_TOOLKIT_ROOT_DIR=$CU
# A third of the program's size.
export NVCC_APPEND_FLAGS=--compress-mode=size
export PATH=$CU/bin:\$PATH LIBRARY_PATH=$CU/lib:\${LIBRARY_PATH:-}
ENV
echo "source $DIR/env" >&2
