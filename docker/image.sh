#!/usr/bin/env bash
# The CPU image of docker/Dockerfile without docker, as an OCI layout.
#
#   docker/image.sh LAYOUT           builds the program for this machine's architecture
#   docker/image.sh LAYOUT BINARY    takes a static binary that is there
#
# SCONCE_ARCH (x86_64 or aarch64) is another architecture than this machine's, as docker/static.sh has it.
#
# Needs buildah and what docker/static.sh needs. `podman run oci:LAYOUT` or a registry take it from there.
set -euo pipefail
if [ $# -lt 1 ]; then
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
    exit 2
fi
ARCH=${SCONCE_ARCH:-$(uname -m)}
case $ARCH in
x86_64) platform=amd64 ;;
aarch64) platform=arm64 ;;
*) echo "no name for the architecture $ARCH" >&2 && exit 2 ;;
esac
HERE=$(cd "$(dirname "$0")" && pwd)
WORK=$(mktemp -d)
# Layers that buildah has mounted are gone with their storage.
trap 'rm -rf "$WORK"' EXIT

"$HERE/static.sh" "$WORK/rootfs" "${@:2}"
# The last stage is the image; what it copies from the stage before is here already.
# Older versions of buildah don't know how often to look while a container starts.
sed -n '/^FROM scratch/,$p' "$HERE/Dockerfile" |
    sed 's|^COPY --from=builder /rootfs /|COPY . /|; s| --start-interval=[0-9]*s||' >"$WORK/Dockerfile"
grep -q '^COPY \. /$' "$WORK/Dockerfile"
buildah() { command buildah --storage-driver vfs --root "$WORK/storage" --runroot "$WORK/run" "$@"; }
buildah bud --quiet --isolation chroot --arch "$platform" --timestamp 0 --format docker \
    -f "$WORK/Dockerfile" -t sconce "$WORK/rootfs" >/dev/null
rm -rf "$1"
buildah push --quiet --format oci sconce "oci:$1:sconce"
