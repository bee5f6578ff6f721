#!/usr/bin/env bash
# Make an environment that has all packages of another one, and the torch_npu wheel: npu_venv.sh BASE_PYTHON FOLDER VERSION
#
# torch_npu is never imported here (it needs CANN): tests/npu puts stand-ins before its Python half.
set -euo pipefail
base=$1
folder=$2
version=$3

"$base" -m venv --without-pip "$folder"
packages=$("$base" -c 'import site; print(site.getsitepackages()[0])')
own=$("$folder/bin/python" -c 'import site; print(site.getsitepackages()[0])')
echo "import site; site.addsitedir('$packages')" > "$own/base.pth"
# protobuf and pyyaml need nothing else either.
"$base" -m pip --python "$folder/bin/python" install --quiet --no-deps "torch_npu==$version" protobuf pyyaml
