#!/usr/bin/env bash
# Brings a real registry of images for the tests: Debian's docker-registry, unpacked into a folder and not installed.
# Where it cannot be had this says so and succeeds: the tests that need it are skipped, with that reason.
set -euo pipefail

folder=$(realpath -m "$1")
program="$folder/usr/bin/docker-registry"
[[ -x $program ]] && exit 0

note() { echo "note: no docker-registry for the tests: $1" >&2; exit 0; }
command -v apt-get > /dev/null && command -v dpkg-deb > /dev/null || note "this is no Debian"

mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
download() { timeout 60 apt-get -qq -o APT::Sandbox::User=root download docker-registry > /dev/null 2>&1; }
if ! download; then
	[[ $(id -u) == 0 ]] && timeout 120 apt-get -qq update > /dev/null 2>&1 || note "its package lists are missing or old"
	download || note "it cannot be downloaded"
fi
dpkg-deb --extract docker-registry_*.deb unpacked
mkdir -p "$(dirname "$program")"
# Under another name first: a run that is cut off leaves no half of it.
cp unpacked/usr/bin/docker-registry "$program.new"
mv "$program.new" "$program"
