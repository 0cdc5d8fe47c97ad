# make demo    set up and run the main job          make lint      format, lint, types, imports
# make test    set up and run the tests             make test-all  the slow ones too
# make bench   measure speed (an hour)              make lock      renew constraints.txt

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all lint format bench lock clean

help:
	@sed -n 's/^# //p' Makefile

# The stamp is newer than the pins and the metadata once everything is installed.
setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("batchlab needs Python 3.11 or newer" * (sys.version_info < (3, 11)) or None)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

demo: setup
	$(BIN)/batchlab demo --out results/demo --force

test: setup
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test-all: setup
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m ""

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup
	mkdir -p results
	$(BIN)/python -m pytest benchmarks --benchmark-only -m "" -p no:xdist --benchmark-json results/bench.json
	$(BIN)/python scripts/bench_table.py results/bench.json

lock: setup
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --universal --no-annotate --no-header --no-emit-index-url \
	  --extra dev --extra dask --extra notebooks --python-version 3.11 --upgrade pyproject.toml -o constraints.txt

clean:
	rm -rf $(VENV) results build dist .mypy_cache .ruff_cache .pytest_cache
