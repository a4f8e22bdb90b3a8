#!/usr/bin/env bash
# Installs what the tests need and this machine lacks: system packages as root, cargo's tools into
# the cargo home. Touches nothing that is there already.
set -euo pipefail

packages=()
# Adds a package unless its program runs.
need() {
  local package=$1
  shift
  "$@" >/dev/null 2>&1 </dev/null || packages+=("$package")
}

# The clients that egret is tried with.
need curl curl --version
need git git --version
need nodejs node --version
need npm npm --version
need python3 python3 --version
need python3-pip python3 -m pip --version
need wget wget --version
need bind9-dnsutils dig -v
need python3-requests /usr/bin/python3 -c "import requests"
need python3-socks /usr/bin/python3 -c "import socks"
need python3-httpx /usr/bin/python3 -c "import httpx"
need node-https-proxy-agent env NODE_PATH=/usr/share/nodejs node -e "require('https-proxy-agent')"
# The proxies that egret is tried behind, and compared with.
need squid squid -v
need tinyproxy tinyproxy -v
# Namespaces, in which the tests have a network of their own.
need iproute2 ip -V
need nftables nft --version
need util-linux unshare --version
need nftables nft --version
need openssl openssl version
# The compiler of the cryptographic library and of the fuzzer.
need g++ c++ --version
need make make --version

# What images are made with, and tried in.
need mmdebstrap mmdebstrap --version
need docker.io docker --version
need docker-compose docker-compose version

if ((${#packages[@]})); then
  export DEBIAN_FRONTEND=noninteractive
  echo "installing ${packages[*]}"
  apt-get -qq update
  apt-get -qq install --no-install-recommends --yes "${packages[@]}" >/dev/null
fi

# Installs a tool of cargo's, unless this very version is there.
cargo_tool() {
  local name=$1 version=$2
  if ! cargo install --list | grep -qx "$name v$version:"; then
    echo "installing $name $version"
    # Unoptimised: it is built in a third of the time and runs for seconds. Outside the checkout,
    # whose settings are not meant for it.
    (cd / && env -u CARGO_TARGET_DIR cargo install --quiet --locked --debug "$name@$version")
  fi
}

cargo_tool cargo-deny 0.20.2
cargo_tool cargo-fuzz 0.13.2
