PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
RACE ?=  # options of benchmarks/peers/race.py, such as --quick or --resume

.PHONY: demo test test-slow lint docs bench bench-peers clean

demo: $(STAMP)
	$(BIN)/bidual demo

test: $(DEV_STAMP)
	$(BIN)/python -m pytest -n 2

test-slow: $(DEV_STAMP)
	$(BIN)/python -m pytest -n 2 -m "slow or not slow"

lint: $(DEV_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(DEV_STAMP)
	$(BIN)/mkdocs build --strict --site-dir site

bench: $(STAMP)
	$(BIN)/bidual bench

bench-peers: $(STAMP)
	$(BIN)/python benchmarks/peers/environments.py
	$(BIN)/python benchmarks/peers/race.py --out benchmarks/results $(RACE)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP): $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(DEV_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test,lint,docs,dask]'
	touch $@

clean:
	rm -rf $(VENV)
