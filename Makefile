PYTHON ?= python3
VENV ?= .venv
HOST ?= 127.0.0.1
PORT ?= 8000
MODEL ?= mini
PYTEST_ARGS ?=
WORKERS ?= auto
BENCH_ARGS ?=
EXTRAS ?= test,dev
COMMA := ,
# Exact versions with their hashes. LISTS= (empty) takes whatever files the package index has of these versions.
LISTS ?= $(wildcard $(patsubst %,deploy/requirements/%.txt,server $(subst $(COMMA), ,$(EXTRAS))))

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
STAMP := $(VENV)/.installed
# A module's tests stay on one worker: what they share is made once.
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadscope --no-loadscope-reorder
FAST := tests/decoding tests/test_repository.py tests/test_structure.py $(addprefix tests/gate_models/,features forest statistics)
PACKAGES := decoding gate_models service
SDK := $(wildcard clients/python/pyproject.toml)
SDK_SOURCE := $(if $(SDK),clients/python/src/astargate_client clients/python/generate_types.py)

.DEFAULT_GOAL := help
.PHONY: help install serve test check fast lint wire locks sbom format bench clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

install: $(STAMP) ## Create .venv and install everything (a second run does nothing and needs no network)

serve: $(STAMP) ## Start the service (HOST, PORT, MODEL)
	$(BIN)/astargate serve --host $(HOST) --port $(PORT) --model $(MODEL)

test: $(STAMP) ## Run the test suite on every core (WORKERS=0: in one process; PYTEST_ARGS="-m 'not slow'" and the like)
	$(PYTEST) $(PYTEST_ARGS)

check: $(STAMP) ## Lint and fast at once: what to run before each commit
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target lint fast

fast: $(STAMP) ## Run the tests of code that needs no server
	$(PYTEST) --quiet -m 'not slow and not bench' $(FAST)

lint: $(STAMP) ## Check format, lint rules, types and import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict $(PACKAGES) $(SDK_SOURCE)
	$(BIN)/lint-imports

wire: $(STAMP) ## Write service/openapi.json and the client's wire types anew, after a change of the API
	$(BIN)/python -m service.openapi
	$(BIN)/python clients/python/generate_types.py

locks: $(STAMP) ## Write the lists of hashes anew, after a change of pyproject.toml or constraints.txt (EXTRAS with release)
	$(BIN)/python -m deploy.requirements.build

sbom: ## Write deploy/sbom.cdx.json, the bill of materials of what a server needs
	$(MAKE) install VENV=build/sbom EXTRAS=postgres,otel SDK=
	$(PYTHON) -m venv build/release
	build/release/bin/python -m pip install --require-hashes --no-deps --requirement deploy/requirements/release.txt
	build/release/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application --output-reproducible \
	  --sv 1.6 --output-file deploy/sbom.cdx.json build/sbom/bin/python

format: $(STAMP) ## Format the code and apply the safe lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP) ## Measure throughput against a plain sequential loop (BENCH_ARGS)
	$(BIN)/astargate bench $(BENCH_ARGS)

clean: ## Remove build outputs and caches (keeps .venv)
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage *.egg-info
	find $(PACKAGES) tests $(wildcard clients deploy) -type d -name __pycache__ -prune -exec rm -rf {} +

# pip is the last thing that venv writes: an interrupted creation is started again.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.12 ...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

# torch has no hash: its build is chosen at the installation, and its index by pip's own configuration. It goes before the
# project: a range met in the middle of a resolution may pick another, far larger build.
$(STAMP): pyproject.toml constraints.txt $(LISTS) $(SDK) | $(BIN)/pip
	$(if $(LISTS),$(PIP) install --require-hashes --no-deps $(LISTS:%=--requirement %))
	$(PIP) install --constraint constraints.txt torch
	$(PIP) install --constraint constraints.txt $(if $(LISTS),--no-build-isolation) \
	  --editable '.[$(EXTRAS)]' $(if $(SDK),--editable './clients/python[plot]')
	$(PIP) check
	@touch $@
