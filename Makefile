# Everything from a fresh clone: make demo, make test, make lint. Needs Python 3.11+ and the package registries, nothing else.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)
BIN := .venv/bin
# Wherever that is set: a run of the tests starts more than a hundred processes, each of which would compile every module again.
export PYTHONDONTWRITEBYTECODE :=
DEMO ?=
TESTS ?= tests
# Test runners side by side (tests/runners.py says who runs what); 0: one, in this very process.
RUNNERS ?= 2
# The order of the tests is shuffled by this number; SEED=last, or any other, gives another order.
SEED ?= 1777530280

# The stamp of an installation is the hash of what was asked for, so that an unchanged checkout installs nothing.
define install
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@wanted=$$($(BIN)/python -c "import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], 'rb').read()).hexdigest())" $(1)); \
	if ! grep -qs "$$wanted" .venv/.installed; then \
		echo "Installing $(1) ..."; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(1) && echo "$$wanted" >> .venv/.installed; \
	fi
endef

.PHONY: help
help:
	@echo "make demo          run everything and submit real requests; DEMO=once stops afterwards"
	@echo "make up            run everything until Ctrl-C"
	@echo "make test          all tests (TESTS=path to choose); make test-full adds the long runs"
	@echo "make chaos         2,000 requests under 5 % faults of each kind and a kill -9 every 2 s, for five minutes"
	@echo "make chaos-payments  10,000 payments in the same storm, with foreign executions and contradictions"
	@echo "make test-browser  browser tests of the admin (installs Debian's chromium)"
	@echo "make fuzz          schemathesis over the OpenAPI document for FUZZ_SECONDS (300)"
	@echo "make lint          ruff, formatting, mypy, import rules, migrations, OpenAPI"
	@echo "make bench         every bar of the design in one table (half an hour); the parts of it:"
	@echo "make bench-http    requests a second of POST and GET against a plain DRF echo"
	@echo "make bench-flow    from POST to completed through everything, at 30 and 66 requests a second"
	@echo "make bench-jobs    the queue against a bare loop and other projects' queues"
	@echo "make bench-settle  payments a second against signing, one process and two"
	@echo "make bench-webhooks  what the outbox costs an end; deliveries claimed and recorded a second"
	@echo "make bench-envelopes  the envelope log against COPY, with the bars of the design"
	@echo "make bench-scale   pages, API and workers' statements at 10 k and 10 M finished requests (15 GB, half an hour the first time)"
	@echo "make reset         forget the database, the devnet and everything else under var/"

.PHONY: install
install:
	$(call install,requirements.txt)

.PHONY: install-dev
install-dev:
	$(call install,requirements-dev.txt)

.PHONY: demo
demo: install
	@$(BIN)/python manage.py relayer_up --demo $(if $(filter once,$(DEMO)),--once)

.PHONY: up
up: install
	@$(BIN)/python manage.py relayer_up

# Fetches and compiles what the tests would otherwise fetch and compile first, in each runner. They do not depend on it.
.PHONY: test-ready
test-ready: install-dev
	@$(BIN)/python -m tests.installing install_anvil relayer_sdk fhevm_sdk schemathesis
	@$(BIN)/python -m pytest $(TESTS) --collect-only -q

.PHONY: test
test: install-dev
	@PYTHONHASHSEED=0 $(BIN)/python -m pytest $(TESTS) -m "not full and not browser" --randomly-seed=$(SEED) -n $(RUNNERS)

.PHONY: test-full
test-full: install-dev
	@$(BIN)/python -m pytest $(TESTS) -m "not browser"

# Random kills and faults on every call of a chain for five minutes; CHAOS_SECONDS, CHAOS_REQUESTS, CHAOS_SEED, CHAOS_FAULTS choose.
.PHONY: chaos
chaos: install-dev
	@$(BIN)/python -m tests.chaos.run

# The same for payments: CHAOS_INTENTS, and the others as above.
.PHONY: chaos-payments
chaos-payments: install-dev
	@$(BIN)/python -m tests.chaos.payments

.PHONY: test-browser
test-browser: install-dev
	@command -v chromium >/dev/null || (apt-get update -qq && apt-get install -y -qq chromium >/dev/null)
	@$(BIN)/python -m pytest $(TESTS) -m browser

# schemathesis (its own environment under var/fuzz) over the OpenAPI document, against a stack with devnet; a short run is part of `make test`.
FUZZ_SECONDS ?= 300
.PHONY: fuzz
fuzz: install-dev
	@FUZZ_SECONDS=$(FUZZ_SECONDS) $(BIN)/python -m pytest tests/wire/test_fuzz.py -s -q

# The pictures of docs/reviewer-guide.md, from a database that is the same every time, and of every page in three forms in var/screenshots.
# Of a running stack:
# .venv/bin/python -m tests.browser.screenshots --url http://127.0.0.1:$(cat var/api-port) --demo var/demo.json --out DIR
.PHONY: screenshots
screenshots: install-dev
	@command -v chromium >/dev/null || (apt-get update -qq && apt-get install -y -qq chromium >/dev/null)
	@mkdir -p var/screenshots
	@GUIDE_OUT=docs/screenshots $(BIN)/python -m pytest tests/browser/test_guide.py -q
	@PAGES_OUT=var/screenshots $(BIN)/python -m pytest tests/browser/test_desk.py -k every_page -q

# One target a question, so that `make -k lint` answers all of them.
.PHONY: lint ruff format types imports migrations openapi
lint: ruff format types imports migrations openapi
ruff: install-dev
	$(BIN)/ruff check .
format: install-dev
	$(BIN)/ruff format --check .
types: install-dev
	$(BIN)/mypy
imports: install-dev
	$(BIN)/lint-imports --no-logo
migrations: install-dev
	$(BIN)/python manage.py makemigrations --check --dry-run
openapi: install-dev
	$(BIN)/python manage.py relayer_openapi --check

# The bars of design 4.1 in one table, one program after the other: about half an hour. BENCH="--snapshot 60 --json FILE", or --only jobs.
.PHONY: bench
bench: install-dev peers
	@PEERS=$(CURDIR)/var/peers/bin/python $(BIN)/python -m bench.everything $(BENCH)

# POST and GET against a DRF echo on the same server (P4, P5): takes about two minutes and wants the machine for itself.
.PHONY: bench-http
bench-http: install-dev
	@$(BIN)/python -m bench.http $(BENCH)

# P6: a whole relayer with its devnet. BENCH="--seconds 60 --rates 30,66,90"; wants the machine for itself.
.PHONY: bench-flow
bench-flow: install-dev
	@$(BIN)/python -m bench.flow $(BENCH)

# BENCH="--seconds 60" for the full length of the eight writers; --json FILE also writes the results there.
# Other projects' queues live in an environment of their own. SNAPSHOT=60 shortens the ten minutes of an open snapshot.
SNAPSHOT ?= 600
.PHONY: bench-jobs peers
peers:
	@test -x var/peers/bin/python || { $(PYTHON) -m venv var/peers && var/peers/bin/pip install --quiet --disable-pip-version-check -r bench/requirements-peers.txt; }
bench-jobs: install-dev peers
	@PEERS=$(CURDIR)/var/peers/bin/python $(BIN)/python -m bench.jobs --snapshot $(SNAPSHOT)

# The path of a payment without RPC latency (P2): --payments N, --rounds N, --json FILE. Wants the machine for itself.
.PHONY: bench-settle
bench-settle: install-dev
	@$(BIN)/python -m bench.settle $(BENCH)

.PHONY: bench-webhooks
bench-webhooks: install-dev
	@$(BIN)/python -m bench.webhooks $(BENCH)

.PHONY: bench-envelopes
bench-envelopes: install-dev
	@$(BIN)/python -m bench.envelopes $(BENCH)

# The databases are built once under SCALE_DATA (var/scale) and used again. BENCH="--sizes 10k,200k" for a small run, --remove to keep nothing.
.PHONY: bench-scale
bench-scale: install-dev
	@$(BIN)/python -m bench.scale $(BENCH)

.PHONY: requirements
requirements: install-dev
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes pyproject.toml -o requirements.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra dev -c requirements.txt \
		pyproject.toml -o requirements-dev.txt

.PHONY: reset
reset:
	rm -rf var
