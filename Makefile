PYTHON ?= python3
VENV := .venv
TOOLS := .venv-tools
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
CAMPAIGN ?=  # options of the soundness campaign, such as --problems 20000 --seconds 3600
FUZZ ?= 600  # seconds of `make fuzz`, half of them for atheris
MUTANTS ?=  # options of .ci/mutants.py, such as --share 0.1 --seed 1
INDEX ?=  # the package index that make lock asks
RACE ?=  # options of benchmarks/peers/race.py, such as --quick or --resume

.PHONY: demo test test-slow soundness fuzz mutation coverage lint docs bench bench-peers lock locked audit clean

demo: $(STAMP)
	$(BIN)/bidual demo

# Bytecode is kept, whatever the environment says: each process of the tests would compile them and the package again.
test test-slow coverage: export PYTHONDONTWRITEBYTECODE =

test: $(DEV_STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: $(DEV_STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "slow or not slow"

coverage: $(DEV_STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term-missing

fuzz: $(DEV_STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[fuzz]'
	$(BIN)/python tests/fuzz/campaign.py $(FUZZ)

mutation: $(DEV_STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[mutation]'
	$(BIN)/python .ci/mutants.py $(MUTANTS)

lint: $(DEV_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs: $(DEV_STAMP)
	$(BIN)/mkdocs build --strict --site-dir site

soundness: $(DEV_STAMP)
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m soundness.campaign $(CAMPAIGN)

bench: $(STAMP)
	$(BIN)/python benchmarks/bench.py

bench-peers: $(STAMP)
	$(BIN)/python benchmarks/peers/environments.py
	$(BIN)/python benchmarks/peers/race.py --out benchmarks/results $(RACE)

lock: $(DEV_STAMP)
	$(BIN)/python .ci/lock.py $(INDEX)

# The exact files of requirements.lock, checked by their hashes: Python 3.11 on Linux x86_64, with the CPU build of torch.
locked: $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -m pip check
	touch $(STAMP) $(DEV_STAMP)

# Known vulnerabilities of what is pinned; asks the advisory database, so it needs the network. What cannot be audited fails.
audit: $(TOOLS)/bin/pip-audit
	$(TOOLS)/bin/pip-audit --strict --disable-pip --no-deps --progress-spinner off --requirement constraints.txt

$(TOOLS)/bin/pip-audit:
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet 'pip-audit==2.10.1'

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP): $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all]'
	touch $@

$(DEV_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all,test,lint,docs]'
	touch $@

clean:
	rm -rf $(VENV) $(TOOLS)
