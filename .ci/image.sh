#!/usr/bin/env bash
# Builds the image with the local container engine, under the name that is the first argument.
#
# No registry is asked for the builder: it is made of Debian's packages, of this machine's Rust
# toolchain, and of the crates that Cargo.lock names, and is kept until one of them changes.
# Packages and crates come from where this machine's own settings say.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/packages.sh

readonly IMAGE=${1:?usage: .ci/image.sh NAME}
host=$(rustc -vV | sed -n 's/^host: //p')
key=$({ rustc -vV; echo "$suite"; cat Cargo.lock .ci/image.sh .ci/packages.sh; } | sha256sum | cut -c 1-16)
readonly host key builder=egret-builder:$key

# Removes what has no name any more of the images that the final one was made from.
prune() {
  docker image prune --force --filter label=egret.stage "$@" >/dev/null
}

# Makes the builder, in a folder for what it takes on the way.
make_builder() {
  local work=$1
  # A cargo home with these crates alone, and with the settings that lead to them.
  mkdir "$work/cargo"
  local settings=${CARGO_HOME:-$HOME/.cargo}/config.toml
  [[ ! -f $settings ]] || cp "$settings" "$work/cargo/"
  CARGO_HOME=$work/cargo cargo fetch --quiet --locked --target "$host"
  rm -rf "$work/cargo/registry/src"

  export EGRET_SYSROOT EGRET_CARGO_HOME=$work/cargo EGRET_HOST=$host
  EGRET_SYSROOT=$(rustc --print sysroot)
  # Runs with the new root in $1.
  # shellcheck disable=SC2016
  local install_toolchain='
    set -eu
    mkdir -p "$1/usr/local/lib/rustlib"
    cp "$EGRET_SYSROOT/bin/cargo" "$EGRET_SYSROOT/bin/rustc" "$1/usr/local/bin/"
    cp -d "$EGRET_SYSROOT"/lib/*.so* "$1/usr/local/lib/"
    cp -r "$EGRET_SYSROOT/lib/rustlib/$EGRET_HOST" "$1/usr/local/lib/rustlib/"
    cp -r "$EGRET_CARGO_HOME" "$1/usr/local/cargo"'
  mapfile -t sources < <(package_sources)
  mmdebstrap --quiet --variant=essential --include=gcc,libc6-dev \
    --customize-hook="$install_toolchain" "$suite" - "${sources[@]}" |
    docker import --change "ENV CARGO_HOME=/usr/local/cargo CARGO_NET_OFFLINE=true" \
      --change "LABEL egret.stage=builder" - "$builder" >/dev/null
}

if ! docker image inspect "$builder" >/dev/null 2>&1; then
  # Those of earlier versions would be kept for ever.
  docker image ls --format '{{.Repository}}:{{.Tag}}' egret-builder |
    xargs --no-run-if-empty docker image rm --force >/dev/null
  prune
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  make_builder "$work"
  echo "made the builder in $SECONDS s"
fi
# The builder has what it needs: without a network the build works where the engine has none.
docker build --quiet --force-rm --network none --build-arg "BUILDER=$builder" --tag "$IMAGE" . >/dev/null
# The stages before the last one, which make a second build of the same source quick.
prune --filter until=24h
echo "built $IMAGE: $(docker image inspect --format '{{.Size}}' "$IMAGE") octets"
