#!/usr/bin/env bash
# Runs the fast tests under other releases of Python and torch, each in an environment of its own.
#
#   scripts/versions.sh                     every Python that is claimed, with the torch of the Makefile
#   scripts/versions.sh 3.12 3.13           these, with that torch
#   scripts/versions.sh 3.11:2.15.0         another torch: what fails shows what support needs
#
#   --keep      leave the environments where they are, and say where
#   --dry-run   say which interpreters would run with which torch
#   --help      this text
#
#   ARGS        arguments for pytest, such as ARGS="tests/cache tests/guards"
#   PROCESSES   of pytest (2)
#   TMPDIR      where the environments lie (/tmp): up to 7 GB, one at a time, removed after each
#
# Interpreters: those of pyenv, else python3.N of the PATH. torch without CUDA is taken where pip finds it (`2.13.0+cpu`, for
# instance with PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu), else the ordinary one with its libraries.
# The working tree is tested as it is, in a copy. What pytest says is in build/versions/, and docs/versions.md gets a row: release, tests,
# how many passed and failed, date. A combination takes about ten minutes
# on two cores. Exit status: 0 when all passed, 1 when one did not, 2 for a usage error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//; p}' "scripts/${0##*/}"; }
wrong() { echo "versions.sh: $1 (--help tells more)" >&2; exit 2; }

keep= dry_run= combinations=()
for argument in "$@"; do
    case $argument in
        --help | -h) usage; exit ;;
        --keep) keep=1 ;;
        --dry-run) dry_run=1 ;;
        3.[0-9]* ) combinations+=("$argument") ;;
        *) wrong "\`$argument\` is no combination: write PYTHON or PYTHON:TORCH, such as 3.12 or 3.11:2.15.0" ;;
    esac
done
claimed=$(sed -n 's/^    Programming Language :: Python :: \(3\.[0-9]*\)$/\1/p' setup.cfg)
tested=$(sed -n 's/^TORCH ?= //p' Makefile)
[ ${#combinations[@]} -gt 0 ] || read -ra combinations <<< "${claimed//$'\n'/ }"

interpreter() {  # the newest of a minor release
    local found
    found=$(ls -d "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python 2> /dev/null | sort -V | tail -n 1)
    echo "${found:-$(command -v "python$1" || true)}"
}

for combination in "${combinations[@]}"; do
    [ -n "$(interpreter "${combination%%:*}")" ] || wrong "there is no Python ${combination%%:*}"
done

place=
clean() { [ -z "$place" ] || [ -n "$keep" ] || rm -rf "$place"; }
trap clean EXIT
trap 'exit 130' INT TERM

record() {  # Python, torch, outcome: a row of the first table of docs/versions.md, in the place of an earlier one of these tests
    local tests="fast${ARGS:+, \`$ARGS\`}" new
    new=$(mktemp build/versions/table.XXXXXX)
    awk -v begin="| $1 | $2 | $tests |" -v row="| $1 | $2 | $tests | $3 | $(date +%F) |" '
        index($0, begin) == 1 { next }
        in_table && !/^\|/ && !done { print row; done = 1 }
        { in_table = /^\|/; print }
        END { if (!done) print row }' docs/versions.md > "$new"
    cat "$new" > docs/versions.md
    rm "$new"
}

mkdir -p build/versions
results=() failed=0
for combination in "${combinations[@]}"; do
    version=${combination%%:*}
    torch=$tested
    [ "$combination" = "$version" ] || torch=${combination#*:}
    python=$(interpreter "$version")
    if [ -n "$dry_run" ]; then
        echo "Python $version ($python), torch $torch"
        continue
    fi
    place=$(mktemp -d "${TMPDIR:-/tmp}/gearcache-versions.XXXXXX"); chmod 755 "$place"  # tests become another user
    log=build/versions/$version-$torch.log
    echo "== Python $version, torch $torch in $place, log in $log"
    git clone --quiet . "$place"
    git diff --quiet HEAD || git diff --binary HEAD | git -C "$place" apply
    git ls-files -z --others --exclude-standard | tar --create --null --files-from - | tar --extract --directory "$place"
    status=0
    (
        export PIP_DISABLE_PIP_VERSION_CHECK=1
        unset PYTHONPATH
        cd "$place"
        make --no-print-directory PYTHON="$python" .venv/bin/python
        .venv/bin/python -m pip install --quiet --upgrade pip  # that of an old Python may search for an hour
        .venv/bin/python -m pip install --quiet "torch==$torch+cpu" || .venv/bin/python -m pip install --quiet "torch==$torch"
        nice make --no-print-directory PYTHON="$python" TORCH="$torch" FAST=1 PROCESSES="${PROCESSES:-2}" ARGS="${ARGS:-}" test
    ) > "$log" 2>&1 || status=$?
    exact=$("$place/.venv/bin/python" -c 'import platform, torch; print(platform.python_version(), "torch", torch.__version__)' \
        2> /dev/null || echo "$version torch $torch (not installed)")
    outcome=$(grep -E '^(=+ )?[0-9]+ (passed|failed|error|skipped)' "$log" | tail -n 1 | tr -d '=' | xargs || true)
    [ "$status" -eq 0 ] || failed=1
    results+=("$([ "$status" -eq 0 ] && echo ok || echo FAILED)  Python $exact: ${outcome:-no test ran}")
    echo "${results[-1]}"
    [ -z "$outcome" ] || record "${exact%% *}" "${exact##* }" "$outcome"
    [ -z "$keep" ] || echo "kept: $place/.venv"
    clean
    place=
done
[ -n "$dry_run" ] || { echo "== $(date +%F), commit $(git rev-parse --short HEAD)"; printf '%s\n' "${results[@]}"; }
exit "$failed"
