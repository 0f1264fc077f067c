# Two targets do everything on a machine with Python 3.11+ and make: `make demo`, `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
QUIET := --quiet --disable-pip-version-check

.PHONY: demo test test-long lint docs studies benchmark benchmark-once benchmark-page clean

# Compiling once lets the modules load faster at every start, whatever the shell's settings.
demo: $(VENV)/.installed
	$(BIN)/python -m compileall -q src
	rm -rf build/demo
	$(BIN)/libra new build/demo
	$(BIN)/libra optimize build/demo/gpt-3-4d.yaml -o build/demo/gpt-3-4d.result.json
	$(BIN)/libra report build/demo/gpt-3-4d.result.json -o build/demo/gpt-3-4d.html

test: $(VENV)/.tested
	$(BIN)/python -m compileall -q src
	$(BIN)/python -m pytest -n 2

# What takes minutes and `test` leaves out.
test-long: $(VENV)/.tested
	$(BIN)/python -m pytest -m long

lint: $(VENV)/.checked
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: $(VENV)/.checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Computes the numbers of docs/studies again: `make studies`, or `make studies NAMES=part-prices`.
studies: $(VENV)/.installed
	$(BIN)/python studies/run.py $(NAMES)

benchmark: $(VENV)/.measured
	$(BIN)/python benchmarks/run.py

benchmark-once: $(VENV)/.measured
	$(BIN)/python benchmarks/run.py --once

# On a quiet machine: docs/performance.md from a run of this machine.
benchmark-page: benchmark
	$(BIN)/python benchmarks/run.py --page build/benchmark.json

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("libra needs Python 3.11 or newer: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install $(QUIET) -e .
	touch $@

$(VENV)/.tested: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install $(QUIET) -e '.[test]'
	touch $@ $(VENV)/.installed

$(VENV)/.checked: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install $(QUIET) -e '.[test,lint,docs]'
	touch $@ $(VENV)/.tested $(VENV)/.installed

$(VENV)/.measured: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install $(QUIET) -e '.[test,bench]'
	touch $@ $(VENV)/.tested $(VENV)/.installed

clean:
	rm -rf $(VENV) build dist site
