#!/bin/sh
# Programs for tests that no package index has: unpacks libfuse, Prometheus and a headless Chromium of this Debian
# or Ubuntu into a folder (default .servers), and Azurite of npm, installs nothing. Where that cannot be done, the tests
# that need them are skipped with the reason.
set -eu
folder=$(realpath -m "${1:-.servers}")
mkdir -p "$folder"
cd "$folder"
browser=chromium-headless-shell

if command -v npm >/dev/null; then
    timeout 180 npm install --silent --no-audit --no-fund --prefix . azurite >/dev/null 2>&1 || echo "servers: npm cannot install azurite" >&2
fi

if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
    echo "servers: no apt-get or dpkg here" >&2
    touch .ready
    exit 0
fi

# What a package needs and this host has not; nothing of what is installed.
missing() {
    apt-get install --simulate --no-install-recommends "$1" 2>/dev/null | awk '/^Inst/ { print $2 }'
}

unpack() {
    if ! apt-get download "$@" >/dev/null 2>&1; then
        echo "servers: apt-get cannot download $*" >&2
        return
    fi
    for file in *.deb; do
        dpkg -x "$file" .
        rm -f "$file"
    done
}

unpack libfuse3-3
unpack prometheus
needed=$(missing "$browser")
# shellcheck disable=SC2086  # names without blanks
[ -z "$needed" ] || unpack $needed
touch .ready
