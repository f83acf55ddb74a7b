#!/usr/bin/env bash
# What the CPU image holds: the program as a static binary, certificates, its list of parts (SBOM).
#
#   docker/static.sh DIR             builds for this machine's architecture; needs Rust and musl-gcc
#   docker/static.sh DIR BINARY      takes a binary that is there
#
# SCONCE_ARCH (x86_64 or aarch64) is another architecture than this machine's: zig compiles and links what is C then
# (`pip install cargo-zigbuild ziglang`).
#
# Certificates are those of this system (Debian: ca-certificates).
set -euo pipefail
if [ $# -lt 1 ]; then
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
    exit 2
fi
mkdir -p "$1"
ROOT=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."

BINARY=${2:-}
ARCH=${SCONCE_ARCH:-$(uname -m)}
target=$ARCH-unknown-linux-musl
if [ -z "$BINARY" ]; then
    rustup target add "$target"
    # Packed relocations are two megabytes less; zig's linker has none.
    build=(rustc) pack=(-- -C link-arg=-Wl,-z,pack-relative-relocs)
    [ "$ARCH" = "$(uname -m)" ] || build=(zigbuild) pack=()
    cargo "${build[@]}" --release --locked --bin sconce --target "$target" "${pack[@]}"
    BINARY=${CARGO_TARGET_DIR:-target}/$target/release/sconce
fi
install -D -m 755 "$BINARY" "$ROOT/usr/local/bin/sconce"
install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$ROOT/etc/ssl/certs/ca-certificates.crt"

# Who owns what is written to: models from the hub, what is stored, the odd temporary file.
echo 'nonroot:x:65532:65532:nonroot:/cache:/sbin/nologin' >"$ROOT/etc/passwd"
echo 'nonroot:x:65532:' >"$ROOT/etc/group"
install -d -m 755 -o 65532 -g 65532 "$ROOT/cache"
install -d -m 1777 "$ROOT/tmp"

# Without a way to install it there is no list, which is said; an image's build has one.
if [ -z "${SCONCE_NO_SBOM:-}" ]; then
    command -v cargo-cyclonedx >/dev/null || cargo install --quiet --locked cargo-cyclonedx
    cargo cyclonedx --format json --target "$target" --override-filename sconce.cdx
    install -D -m 644 sconce.cdx.json "$ROOT/usr/share/sbom/sconce.cdx.json"
    # It writes one for each member of the workspace, beside its manifest.
    rm -f sconce.cdx.json src/*/sconce.cdx.json benches/*/sconce.cdx.json
fi
