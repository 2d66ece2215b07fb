# rackready. `make` lists the targets. Each target runs the set-up that it needs.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:

# Environment: inventories/$(ENV)/site.yml.
ENV ?= sim
# Python that creates .venv: the first of these that is new enough.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
# More options for `rackready deploy`, for pytest and for the chaos rounds.
ARGS ?=
# Chaos: number of racks, the seed of the first (if empty, a random seed that is printed), and workers (if empty, none).
ROUNDS ?= 1
SEED ?=
WORKERS ?=

BIN := $(CURDIR)/.venv/bin
export PATH := $(BIN):$(CURDIR)/.rackready/tools/bin:$(PATH)

# Nothing phones home: no update check, no telemetry, no automatic download of plug-ins.
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
setup: python ## create .venv and the Pulumi engine (no root needed)
	@$(SETUP)

.PHONY: setup-sim
setup-sim: python ## setup, and the host packages of the simulated rack (root if some are missing)
	@$(SETUP) --sim

.PHONY: setup-dev
setup-dev: python ## setup, and what tests need
	@$(SETUP) --dev

.PHONY: setup-kubernetes
setup-kubernetes: python ## setup-dev, and a Kubernetes control plane for tests and sim-k8s, and operators' charts: from Go modules, 5 to 15 minutes, once
	@$(SETUP) --dev --kubernetes

.PHONY: setup-cosign
setup-cosign: python ## setup-dev, and cosign for tests of certificates: built from its Go module, about 5 minutes, once
	@$(SETUP) --dev --cosign

.PHONY: setup-pipelines
setup-pipelines: python ## setup-dev, and actionlint for tests of pipelines: built from its Go module, once
	@$(SETUP) --dev --actionlint

.PHONY: setup-sops
setup-sops: python ## setup-dev, and sops and age-keygen for tests of secrets: built from Go modules, about 5 minutes, once
	@$(SETUP) --dev --sops

.PHONY: setup-object-store
setup-object-store: python ## setup-dev, and versitygw, an S3 server for tests of raw outputs: built from its Go module, about 3 minutes, once
	@$(SETUP) --dev --object-store

.PHONY: wheel
wheel: setup ## build the wheel, which needs no checkout, into dist/
	@$(BIN)/python -m hatchling build -t wheel

.PHONY: lock
lock: setup-dev ## regenerate the lock files from pyproject.toml
	scripts/lock $(ARGS)

# --- deploy -----------------------------------------------------------------------------------------------------------

# What a deploy needs to run first; prepare.mk of the environment may give it a recipe.
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
test: setup-test checks ## set-up, lint, types, unit, golden and integration tests (all but `make slow` and `make chaos`)
	@scripts/pytest-all test $(ARGS)

.PHONY: setup-test
setup-test: python
	@$(SETUP) --dev $(if $(ROOT_USER),--sim)

.PHONY: lint
lint: setup-dev ## ruff, ansible-lint (profile production) and yamllint
	@scripts/lint

.PHONY: checks
checks: setup-dev ## lint and types, side by side
	@scripts/checks

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
chaos: setup-test ## kill deploys of simulated racks at random points (root): ROUNDS=n racks, SEED=n repeats a seed, WORKERS=n kills workers and the database and pulls cables, ARGS="--points n" kills per phase, ARGS="--nodes n --every s --partition s" with workers
	@$(BIN)/python -m tests.integration.chaos --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED)) $(if $(WORKERS),--workers $(WORKERS)) $(ARGS)

.PHONY: fault-matrix
fault-matrix: setup-test ## inject every fault into simulated racks, run the gate that should catch it, judge 200 healthy nodes, write the table (root): ARGS="--fault NAME"
	@$(BIN)/python -m tests.integration.fault_matrix --write docs/reference/fault-matrix.md --healthy 200 $(ARGS)

.PHONY: test-metal
test-metal: setup-test ## image a bare-metal machine in QEMU: network and virtual media, kills, power cuts, RAID1, Secure Boot (root): ARGS="-k blank"
	@$(BIN)/rackready image ramdisk
	@$(BIN)/rackready image build debian12
	@$(BIN)/python -m pytest -v -o faulthandler_timeout=3600 tests/metal $(ARGS)

.PHONY: test-kubernetes
test-kubernetes: setup-kubernetes ## hand nodes over to a real Kubernetes API server, with kills and outages: ARGS="-k evict"
	@$(BIN)/python -m pytest -v tests/kubernetes $(ARGS)

.PHONY: test-cosign
test-cosign: setup-cosign ## verify certificates with a real cosign, good and forged ones: ARGS="-k forged"
	@$(BIN)/python -m pytest -v tests/cosign $(ARGS)

.PHONY: test-pipelines
test-pipelines: setup-pipelines ## lint the exported pipelines with actionlint, and run them with gitlab-ci-local and act if those are on the PATH
	@$(BIN)/python -m pytest -v tests/pipelines $(ARGS)

.PHONY: test-object-store
test-object-store: setup-object-store ## store raw outputs in a real S3 server, good and damaged, away and refused: ARGS="-k kill"
	@$(BIN)/python -m pytest -v tests/unit/drivers/test_object_store.py tests/unit/evidence/test_object_outputs.py $(ARGS)

.PHONY: test-sops
test-sops: setup-sops ## read and write secrets with a real sops and age, good files and damaged ones: ARGS="-k changed"
	@$(BIN)/python -m pytest -v tests/sops $(ARGS)

.PHONY: variants
variants: setup-test ## deploy every simulated environment twice on a new rack, cross two cables, and write the support table (root): ENVS="sim-hgx ..." plays some; what passed on this state is not played again
	@$(if $(and $(ROOT_USER),$(if $(ENVS),$(filter sim-k8s,$(ENVS)),all)),$(SETUP) --dev --sim --kubernetes)
	@$(BIN)/python scripts/variants $(ENVS)

.PHONY: fuzz
fuzz: setup-dev ## damage every output of the gate tests in every way; no gate may crash or pass a bad one: ARGS="--mutants N --seed N --seed M --gate ID --kept"
	@$(BIN)/python -m tests.gates.corpus $(ARGS)

.PHONY: slow
slow: setup-test ## the integration tests that take many minutes: nodes in production, reboots, two roles by molecule (root)
	@scripts/pytest-all slow $(ARGS)

.PHONY: goldens
goldens: setup-dev ## regenerate golden files; read the diff before you commit it
	@GOLDENS=rewrite $(BIN)/pytest -q tests/golden $(ARGS)
	@git --no-pager diff --stat -- tests/golden

# --- measure: each prints one JSON line per case --------------------------------------------------------------------

.PHONY: bench-site
bench-site: setup ## measure loading and checking a site file, by number of nodes
	@$(BIN)/python scripts/bench/site.py $(ARGS)

.PHONY: bench-topology
bench-topology: setup ## measure wiring and proving a three-tier fabric, by number of GPUs
	@$(BIN)/python scripts/bench/topology.py $(ARGS)

.PHONY: bench-plan
bench-plan: setup ## measure loading and the full plan of a site, by number of GPUs
	@$(BIN)/python scripts/bench/plan.py $(ARGS)

.PHONY: bench-fabric
bench-fabric: setup ## measure judging the cables and both ends of a fabric, by number of ports
	@$(BIN)/python scripts/bench/fabric.py $(ARGS)

.PHONY: bench-gates
bench-gates: setup-dev ## measure judging stored outputs again and reporting, by number of nodes
	@$(BIN)/python scripts/bench/gates.py $(ARGS)

.PHONY: bench-engine
bench-engine: setup-dev ## measure a whole deploy with fake nodes, and its resume after kill -9, by number of nodes, on SQLite and PostgreSQL
	@$(BIN)/python scripts/bench/engine.py $(ARGS)

.PHONY: bench-status
bench-status: setup-dev ## measure status and the live table in the middle of a deploy, by number of nodes, on SQLite and PostgreSQL
	@$(BIN)/python scripts/bench/status.py $(ARGS)

.PHONY: bench-provision
bench-provision: setup-dev ## measure powering on 256 machines through simulated BMCs: ARGS="NODES NODES_A_RACK BOOT_S"
	@$(BIN)/python scripts/bench/provision.py $(ARGS)

.PHONY: bench-install
bench-install: setup-sim ## measure install on 16 simulated nodes against stock Ansible with the same roles (root)
	@$(BIN)/python scripts/bench/install.py $(ARGS)

.PHONY: bench-deploy
bench-deploy: site-exists setup prepare ## measure one deploy of ENV in its present state
	@$(BIN)/python scripts/bench/deploy.py $(ENV)

# --- add to rackready ----------------------------------------------------------------------------------------------

.PHONY: reference
reference: setup ## regenerate docs/reference from the code: schemas, commands, gates, keys of the site file
	@$(BIN)/python scripts/reference $(ARGS)

.PHONY: docs
docs: python ## build the documentation as a site into .rackready/site; broken links and missing pages fail
	@$(SETUP) --docs --no-pulumi
	@scripts/docs

.PHONY: new-role
new-role: setup-dev ## create a role: make new-role NAME=x
	@scripts/new-role "$(NAME)"

# --- roles alone ------------------------------------------------------------------------------------------------

.PHONY: molecule
molecule: setup-test ## test every role, or ROLE=name, on a fresh node of a simulated rack (root); ROLE=all/trouble: every trouble
	@$(BIN)/python scripts/molecule $(if $(SIM),--env $(SIM)) $(ROLE)
