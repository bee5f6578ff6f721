#!/usr/bin/env bash
# What an owner of an Ascend NPU runs to check what no emulator can show; see docs/npu.md.
#
#   scripts/npu_acceptance.sh             on a host with an NPU, CANN and torch_npu, in an environment with gearcache
#   scripts/npu_acceptance.sh --emulated  the same steps on the emulated device of tests/npu
#
# Further arguments name the scenarios of tests/npu/served.py to run; without any, all run.
# $PYTHON chooses the interpreter. Exit status 0 when all steps passed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${PYTHON:-python}
arguments=("$@")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
export PYTHONPATH="$PWD/src:$PWD${PYTHONPATH:+:$PYTHONPATH}"
emulated=${1:-}
if [ "$emulated" = --emulated ]; then
    export TORCH_DEVICE_BACKEND_AUTOLOAD=0
else
    "$python" -m gearcache doctor || true
fi

echo "== cold: every scenario is traced, converted, compiled and compared with eager"
"$python" -m tests.npu.acceptance cold "$root" "${arguments[@]}"
echo "== relaunched: the same without a trace or a conversion"
"$python" -m tests.npu.acceptance relaunched "$root" "${arguments[@]}"
echo "== GE's own files: they exist, and a relaunch leaves them as they are"
"$python" -m tests.npu.acceptance files "$root" "${arguments[@]}"
echo "== export: the graph of a small model, and ATC where it is installed"
"$python" -m tests.npu.acceptance export "$root" "${arguments[@]}"
if command -v atc > /dev/null && [ "$emulated" != --emulated ]; then
    soc=$("$python" -c 'import torch_npu; print(torch_npu.npu.get_device_name())')
    atc --model="$root/export/net.air" --framework=1 --output="$root/net" --soc_version="$soc"
fi
echo "all steps passed"
