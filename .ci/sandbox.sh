#!/usr/bin/env bash
# Makes the image that plays the sandbox where egret is tried in containers, and prints its name: a
# small Debian with the clients that people use. It is kept until this script changes.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/packages.sh

key=$({ echo "$suite"; cat .ci/sandbox.sh .ci/packages.sh; } | sha256sum | cut -c 1-16)
readonly key image=egret-sandbox:$key
readonly packages=ca-certificates,curl,git,nodejs,npm,python3,python3-pip,wget

if ! docker image inspect "$image" >/dev/null 2>&1; then
  # Those of earlier versions would be kept for ever.
  docker image ls --format '{{.Repository}}:{{.Tag}}' egret-sandbox |
    xargs --no-run-if-empty docker image rm --force >/dev/null
  mapfile -t sources < <(package_sources)
  # Where packages come from stays on this machine: in the sandbox nobody is to be asked.
  mmdebstrap --quiet --variant=apt --include="$packages" \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook='rm -rf "$1/etc/apt/sources.list" "$1/etc/apt/sources.list.d" "$1/var/lib/apt/lists" "$1/var/cache/apt"' \
    --customize-hook='mkdir "$1/etc/apt/sources.list.d"' \
    "$suite" - "${sources[@]}" |
    docker import --change "LABEL egret.stage=sandbox" - "$image" >/dev/null
fi
echo "$image"
