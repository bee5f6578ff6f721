#!/bin/sh
# Servers for tests that no package index has: unpacks nginx and libfuse of this Debian or Ubuntu into a folder
# (default .servers), installs nothing. Where that cannot be done, the tests that need them are skipped with the reason.
set -eu
folder=$(realpath -m "${1:-.servers}")
mkdir -p "$folder"
cd "$folder"
for package in libfuse3-3 nginx; do
    if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
        echo "servers: no apt-get or dpkg here" >&2
        break
    fi
    if ! apt-get download "$package" >/dev/null 2>&1; then
        echo "servers: apt-get cannot download $package" >&2
        continue
    fi
    dpkg -x "$package"_*.deb .
    rm -f "$package"_*.deb
done
touch .ready
