PYTHON ?= python3
BIN := .venv/bin

# `make test` in minutes, for all day; `make test-all`, with what is marked slow, before a change is handed over.
.PHONY: demo about test test-all check format bench parity coverage

demo: about .venv
	$(BIN)/python main.py --config=experiments/quickstart.py

about:
	@echo "The demo trains an encoder and a decoder, measures every checkpoint and draws figures: 4 minutes on two idle"
	@echo "cores, and a minute or two before them where the pinned requirements are not in .venv yet."

# Half of the quick suite's time is XLA's; it optimises less here, and as for users in the whole suite.
test: .venv
	JAX_DISABLE_MOST_OPTIMIZATIONS=1 $(BIN)/python -m pytest -m "not slow"

test-all: .venv
	sh tests/report/chromium.sh
	$(BIN)/python -m pytest

check: .venv
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: .venv
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv-bench .venv-dadapy
	.venv-bench/bin/python -m benchmarks.train_step
	.venv-bench/bin/python -m benchmarks.metrics
	.venv-bench/bin/python -m benchmarks.panel
	.venv-bench/bin/python -m benchmarks.cloud

parity: .venv-bench .venv-dadapy
	.venv-bench/bin/python -m benchmarks.parity

coverage: .venv
	$(BIN)/python -m benchmarks.coverage

.venv: .venv/installed

.venv/installed: requirements.txt constraints.txt tests/requirements.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=...")'
	@echo "installing the pinned requirements into .venv"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check -q -r requirements.txt -r tests/requirements.txt
	touch $@

.venv-bench: .venv-bench/installed

.venv-bench/installed: requirements.txt constraints.txt benchmarks/requirements.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --disable-pip-version-check -q -r requirements.txt -r benchmarks/requirements.txt
	touch $@

.venv-dadapy: .venv-dadapy/installed

.venv-dadapy/installed: benchmarks/requirements-dadapy.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info >= (3, 13) and "DADApy needs a numpy of Python 3.11 or 3.12; set PYTHON=...")'
	$(PYTHON) -m venv .venv-dadapy
	.venv-dadapy/bin/python -m pip install --disable-pip-version-check -q -r benchmarks/requirements-dadapy.txt
	touch $@
