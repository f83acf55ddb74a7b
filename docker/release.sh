#!/usr/bin/env bash
# Makes what a release consists of, from this checkout, into a folder:
#
#   docker/release.sh [--out FOLDER] [--binary FILE] [TARGET...]
#
#   sconce-VERSION-ARCH-linux.tar.gz    program, man pages, completions, systemd unit, license
#   sconce_VERSION_ARCH.deb             the same, installed where Debian has such things
#   sconce.rb                           a Homebrew formula for the archives
#   SHA256SUMS
#
# A TARGET is x86_64-unknown-linux-gnu or aarch64-unknown-linux-gnu, this machine's without one; another
# machine's is built with its cross compiler (Debian: gcc-aarch64-linux-gnu) and rustup's target. --binary
# takes a program that is built already, for one target. Man pages and completions are written by a program
# of this machine, for they are the same everywhere.
set -euo pipefail
cd "$(dirname "$0")/.."

out=target/release-files binary= targets=()
while [ $# -gt 0 ]; do
    case "$1" in
    --out) out=$2; shift 2 ;;
    --binary) binary=$(realpath "$2"); shift 2 ;;
    -*) echo "release.sh: no such flag: $1" >&2; exit 2 ;;
    *) targets+=("$1"); shift ;;
    esac
done
host=$(rustc -vV | sed -n 's/^host: //p')
[ ${#targets[@]} -gt 0 ] || targets=("$host")
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
homepage=$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)
description=$(sed -n 's/^description = "\(.*\)"/\1/p' Cargo.toml)
# Of the last commit, so that the same commit makes the same files.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}

mkdir -p "$out"
out=$(realpath "$out")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The program of a target.
build() {
    local target=$1
    if [ -n "$binary" ]; then
        echo "$binary"
    elif [ "$target" = "$host" ]; then
        cargo build --locked --release --bin sconce >&2
        echo "target/release/sconce"
    else
        local name=${target//-/_}
        env "CARGO_TARGET_${name^^}_LINKER=${target%%-*}-linux-gnu-gcc" "CC_$name=${target%%-*}-linux-gnu-gcc" \
            "CXX_$name=${target%%-*}-linux-gnu-g++" \
            cargo build --locked --release --bin sconce --target "$target" >&2
        echo "target/$target/release/sconce"
    fi
}

# Man pages and completions, by a program that runs here.
words() {
    local program=$1 folder=$2
    mkdir -p "$folder/completions"
    "$program" man "$folder/man"
    gzip -9n "$folder"/man/*.1
    "$program" completions bash >"$folder/completions/sconce.bash"
    "$program" completions zsh >"$folder/completions/_sconce"
    "$program" completions fish >"$folder/completions/sconce.fish"
}

# Packs a folder so that only its content counts.
pack() {
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
        -C "$1" -cf - "${@:3}" | gzip -9n >"$2"
}

archive() {
    local program=$1 arch=$2 name=sconce-$version-$2-linux
    local folder=$work/$name
    mkdir -p "$folder"
    install -m 755 "$program" "$folder/sconce"
    cp -r "$work/words/man" "$work/words/completions" LICENSE README.md docker/sconce.service "$folder/"
    pack "$work" "$out/$name.tar.gz" "$name"
}

deb() {
    local program=$1 arch=$2 root=$work/deb-$2
    mkdir -p "$root/DEBIAN" "$root/etc/sconce"
    install -Dm 755 "$program" "$root/usr/bin/sconce"
    install -Dm 644 docker/sconce.service "$root/usr/lib/systemd/system/sconce.service"
    install -Dm 644 -t "$root/usr/share/man/man1" "$work"/words/man/*.1.gz
    install -Dm 644 "$work/words/completions/sconce.bash" "$root/usr/share/bash-completion/completions/sconce"
    install -Dm 644 "$work/words/completions/_sconce" "$root/usr/share/zsh/vendor-completions/_sconce"
    install -Dm 644 "$work/words/completions/sconce.fish" "$root/usr/share/fish/vendor_completions.d/sconce.fish"
    install -Dm 644 LICENSE "$root/usr/share/doc/sconce/copyright"
    cat >"$root/etc/sconce/sconce.toml" <<'TOML'
# Flags of `sconce serve`, one a line; `sconce config` shows all that there are.
# models = ["hub"]
# host = "0.0.0.0"
TOML
    echo /etc/sconce/sconce.toml >"$root/DEBIAN/conffiles"
    cat >"$root/DEBIAN/postinst" <<'POSTINST'
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # A service that runs goes on with the new program; one that doesn't isn't started unasked.
    systemctl try-restart sconce.service || true
fi
POSTINST
    cat >"$root/DEBIAN/prerm" <<'PRERM'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now sconce.service || true
fi
PRERM
    chmod 755 "$root/DEBIAN/postinst" "$root/DEBIAN/prerm"
    cat >"$root/DEBIAN/control" <<CONTROL
Package: sconce
Version: $version
Architecture: $arch
Maintainer: The sconce developers <sconce@localhost>
Installed-Size: $(du -ks --exclude=DEBIAN "$root" | cut -f1)
Depends: libc6 (>= 2.35), libgcc-s1, libstdc++6
Section: net
Priority: optional
Homepage: $homepage
Description: $description
CONTROL
    dpkg-deb --build --root-owner-group -Zxz "$root" "$out/sconce_${version}_$arch.deb" >/dev/null
}

formula() {
    cat >"$out/sconce.rb" <<RUBY
class Sconce < Formula
  desc "$description"
  homepage "$homepage"
  version "$version"
  license "Apache-2.0"

$(for arch in x86_64 aarch64; do
        file=$out/sconce-$version-$arch-linux.tar.gz
        [ -e "$file" ] || continue
        [ $arch = x86_64 ] && on=on_intel || on=on_arm
        cat <<BLOCK
  on_linux do
    $on do
      url "$homepage/releases/download/v$version/${file##*/}"
      sha256 "$(sha256sum "$file" | cut -d' ' -f1)"
    end
  end

BLOCK
    done)
  def install
    bin.install "sconce"
    man1.install Dir["man/*.1.gz"]
    bash_completion.install "completions/sconce.bash" => "sconce"
    zsh_completion.install "completions/_sconce"
    fish_completion.install "completions/sconce.fish"
  end

  service do
    run [opt_bin/"sconce", "serve"]
    keep_alive successful_exit: false
    log_path var/"log/sconce.log"
    error_log_path var/"log/sconce.log"
  end

  test do
    assert_match "sconce #{version}", shell_output("#{bin}/sconce --version")
  end
end
RUBY
}

for target in "${targets[@]}"; do
    case $target in
    x86_64-*-linux-gnu) arch=x86_64 debian=amd64 ;;
    aarch64-*-linux-gnu) arch=aarch64 debian=arm64 ;;
    *) echo "release.sh: no archive is made for $target" >&2; exit 2 ;;
    esac
    program=$(build "$target")
    if [ ! -d "$work/words" ]; then
        teller=$program
        [ "$target" = "$host" ] || { cargo build --locked --bin sconce && teller=target/debug/sconce; }
        words "$teller" "$work/words"
    fi
    archive "$program" "$arch"
    if command -v dpkg-deb >/dev/null; then
        deb "$program" "$debian"
    else
        echo "release.sh: there is no dpkg-deb here: no package" >&2
    fi
done
formula
cd "$out"
sha256sum -- *.tar.gz *.deb 2>/dev/null >SHA256SUMS || true
ls -l "$out" >&2
