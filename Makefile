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
SERVER_LIST := $(filter %/server.txt,$(LISTS))
EXTRA_LISTS := $(filter-out $(SERVER_LIST),$(LISTS))

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
SERVING := $(VENV)/.serving
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

serve: $(SERVING) ## Install what serving needs and start the service (HOST, PORT, MODEL)
	@echo "starting: some seconds until the three last lines"
	$(BIN)/astargate serve --host $(HOST) --port $(PORT) --model $(MODEL)

install: $(STAMP) ## Create .venv and install the tools of tests and checks too (a second run needs no network)

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
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# torch has no hash: its build is chosen at the installation, and its index by pip's own configuration. It goes before the
# project: a range met in the middle of a resolution may pick another, far larger build.
$(SERVING): pyproject.toml constraints.txt $(SERVER_LIST) $(SDK) | $(BIN)/pip
	@echo "installing into $(VENV) what serving needs, once: minutes, according to the network"
	$(if $(SERVER_LIST),@echo "the libraries (deploy/requirements/server.txt)")
	$(if $(SERVER_LIST),$(PIP) install --require-hashes --no-deps $(SERVER_LIST:%=--requirement %))
	@echo "torch, the largest"
	$(PIP) install --constraint constraints.txt torch
	@echo "astargate$(if $(SDK), and its client)"
	$(PIP) install --constraint constraints.txt $(if $(SERVER_LIST),--no-build-isolation) \
	  --editable . $(if $(SDK),--editable './clients/python[plot]')
	$(PIP) check
	@touch $@

$(STAMP): $(SERVING) $(EXTRA_LISTS)
	@echo "installing the tools of $(EXTRAS)"
	$(if $(EXTRA_LISTS),$(PIP) install --require-hashes --no-deps $(EXTRA_LISTS:%=--requirement %))
	$(PIP) install --constraint constraints.txt $(if $(SERVER_LIST),--no-build-isolation) --editable '.[$(EXTRAS)]'
	$(PIP) check
	@touch $@
