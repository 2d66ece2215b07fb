# rackready. `make` lists what can be made; each target does its own set-up.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:

# Which environment: inventories/$(ENV)/site.yml.
ENV ?= sim
# Which Python makes .venv: the first of these that is new enough.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
# More options for `rackready deploy`, for pytest and for the chaos rounds.
ARGS ?=
# Chaos: how many racks are struck, and the seed of the first (drawn and said when empty).
ROUNDS ?= 1
SEED ?=

BIN := $(CURDIR)/.venv/bin
export PATH := $(BIN):$(CURDIR)/.rackready/tools/bin:$(PATH)

# Nothing phones home: no update check, no telemetry, no plug-in fetched behind our back.
export DO_NOT_TRACK := 1
export PULUMI_SKIP_UPDATE_CHECK := true
export PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION := true
export PIP_DISABLE_PIP_VERSION_CHECK := 1

SETUP := $(PYTHON) scripts/setup
ROOT_USER := $(filter 0,$(shell id -u))

.PHONY: help
help: ## list the targets
	@echo "usage: make TARGET [ENV=name]"
	@sed -n 's/^\([a-z][a-z-]*\):[^#]*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | awk -F '\t' '{printf "  %-12s %s\n", $$1, $$2}'

# --- set-up -----------------------------------------------------------------------------------------------------------

.PHONY: python
python:
	@test -n "$(PYTHON)" || { echo "set-up failed: no Python 3.11 or newer on the PATH. Install one (apt: python3), or name it: make setup PYTHON=/path/to/python3" >&2; exit 2; }

.PHONY: setup
setup: python ## make .venv and the Pulumi engine (no root needed)
	@$(SETUP)

.PHONY: setup-sim
setup-sim: python ## the same, and the host packages of the simulated rack (root, when some are missing)
	@$(SETUP) --sim

.PHONY: setup-dev
setup-dev: python ## the same as setup, and what tests need
	@$(SETUP) --dev

.PHONY: lock
lock: setup-dev ## write the lock files anew from pyproject.toml
	scripts/lock $(ARGS)

# --- deploy -----------------------------------------------------------------------------------------------------------

# What must be up before a deploy; a file of the environment may give it a recipe.
.PHONY: prepare
prepare:
-include inventories/$(ENV)/prepare.mk

.PHONY: deploy
deploy: site-exists setup prepare ## take ENV from powered off to ready (default: the simulated rack)
	@$(BIN)/rackready deploy --env $(ENV) $(ARGS)

.PHONY: site-exists
site-exists:
	@test -f inventories/$(ENV)/site.yml || { scripts/no-site $(ENV); exit 2; }

.PHONY: sim-down
sim-down: ## remove the simulated rack: its containers, networks and images
	@if test -x $(BIN)/rackready; then $(BIN)/rackready sim down; else echo "sim-down: nothing was set up here"; fi

# --- tests ------------------------------------------------------------------------------------------------------------

.PHONY: test
test: setup-test lint types ## set-up, lint, types, unit, golden and integration tests (all but `make slow` and `make chaos`)
	@scripts/pytest-all test $(ARGS)

.PHONY: setup-test
setup-test: python
	@$(SETUP) --dev $(if $(ROOT_USER),--sim)

.PHONY: lint
lint: setup-dev ## ruff, ansible-lint (profile production) and yamllint
	@scripts/lint

.PHONY: types
types: setup-dev ## mypy, strict
	@$(BIN)/mypy

.PHONY: unit
unit: setup-dev ## tests that need neither root nor containers
	@scripts/pytest-all unit $(ARGS)

.PHONY: integration
integration: setup-test ## tests on the simulated rack (root)
	@scripts/pytest-all integration $(ARGS)

.PHONY: chaos
chaos: setup-test ## kill deploys of simulated racks at random points (root): ROUNDS=n, SEED=n repeats one, ARGS="--points n" a phase
	@$(BIN)/python -m tests.integration.chaos --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: fault-matrix
fault-matrix: setup-test ## put every fault into simulated racks, run the gate that should catch it, judge 200 healthy nodes, print the table (root): ARGS="--fault NAME"
	@$(BIN)/python -m tests.integration.fault_matrix --write docs/reference/fault-matrix.md --healthy 200 $(ARGS)

.PHONY: fuzz
fuzz: setup-dev ## damage every output that the gate tests know in every way; no gate may crash or pass a bad one: ARGS="--mutants N --seed N --seed M --gate ID --kept"
	@$(BIN)/python -m tests.gates.corpus $(ARGS)

.PHONY: slow
slow: setup-test ## the integration tests that take many minutes: nodes in production, two roles by molecule (root)
	@scripts/pytest-all slow $(ARGS)

.PHONY: goldens
goldens: setup-dev ## write golden files anew; read the diff before it is committed
	@GOLDENS=rewrite $(BIN)/pytest -q tests/golden $(ARGS)
	@git --no-pager diff --stat -- tests/golden

# --- measure: each ends with one JSON line a case --------------------------------------------------------------------

.PHONY: bench-site
bench-site: setup ## measure loading and checking a site file, by number of nodes
	@$(BIN)/python scripts/bench/site.py $(ARGS)

.PHONY: bench-topology
bench-topology: setup ## measure wiring and proving a three-tier fabric, by number of GPUs
	@$(BIN)/python scripts/bench/topology.py $(ARGS)

.PHONY: bench-plan
bench-plan: setup ## measure loading and the full plan of a site, by number of GPUs
	@$(BIN)/python scripts/bench/plan.py $(ARGS)

.PHONY: bench-gates
bench-gates: setup-dev ## measure judging and reporting stored outputs again, by number of nodes
	@$(BIN)/python scripts/bench/gates.py $(ARGS)

.PHONY: bench-deploy
bench-deploy: site-exists setup prepare ## measure one deploy of ENV as it stands
	@$(BIN)/python scripts/bench/deploy.py $(ENV)

# --- help for those who add ----------------------------------------------------------------------------------------------

.PHONY: reference
reference: setup ## write docs/reference anew from the code: schemas, commands, gates, keys of the site file
	@$(BIN)/python scripts/reference $(ARGS)

.PHONY: docs
docs: python ## build the documentation as a site into .rackready/site; broken links and missing pages fail
	@$(SETUP) --docs --no-pulumi
	@scripts/docs

.PHONY: new-role
new-role: setup-dev ## begin a role: make new-role NAME=x
	@scripts/new-role "$(NAME)"

# --- roles by themselves ------------------------------------------------------------------------------------------------

.PHONY: molecule
molecule: setup-test ## try every role, or ROLE=name, on a fresh node of a simulated rack (root)
	@$(BIN)/python scripts/molecule $(ROLE)
