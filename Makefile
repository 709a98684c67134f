# Every target sets up what it needs by itself; `make` alone says which there are.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN := .venv/bin
STAMP := .venv/setup-done

.PHONY: help setup demo test e2e bench chaos lint clean

help: ## this list
	@echo "paperclip-memory: long-term memory for the agents of a Paperclip instance."
	@echo
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "Needs Python 3.11 or newer. Start with 'make demo', then 'make test'."
	@echo "Tests use the first Kafka that is there: \$$PAPERCLIP_MEMORY_KAFKA_BOOTSTRAP_SERVERS, Docker, a JVM with Maven,"
	@echo "or a small broker from PyPI; on the last one, tests that need real Kafka are skipped by name."

setup: $(STAMP) ## make .venv, hash-checked, with the project in it

$(STAMP): requirements/dev.txt pyproject.toml scripts/setup
	@scripts/setup
	@touch $@

demo: $(STAMP) ## show the whole path on this machine: needs no Docker, no JVM, no keys
	@$(BIN)/python -m demo

test: $(STAMP) ## unit, contract and integration tests, with the coverage gate
	@echo "test: unit, contract and integration tests"
	@$(BIN)/pytest tests/unit tests/contract tests/integration --cov --cov-report=
	@echo "test: lines and branches of memory, stream and handlers must be covered whole"
	@$(BIN)/coverage report --include='consumer/memory/*,consumer/stream/*,consumer/handlers/*' --fail-under=100

e2e: $(STAMP) ## end to end: real Apache Kafka, Hindsight and Paperclip (PAPERCLIP=latest: npm's newest release only)
	@echo "e2e: real Apache Kafka, Hindsight and Paperclip"
	@PAPERCLIP_MEMORY_TEST_REQUIRE_REAL_KAFKA=1 PAPERCLIP_MEMORY_TEST_PAPERCLIP=$(PAPERCLIP) $(BIN)/pytest tests/e2e

chaos: $(STAMP) ## 5,000 events while workers, broker and sink fail at random (a JVM and Maven; 6 minutes)
	@$(BIN)/python -m tests.chaos

bench: $(STAMP) ## throughput, latency and memory beside the peers (a JVM and Maven; 15 minutes, quiet)
	@$(BIN)/python -m benchmarks $(ARGS)
	@[ -n "$(ARGS)" ] || $(BIN)/python -m benchmarks.tools
	@[ -n "$(ARGS)" ] || $(BIN)/python -m benchmarks.relay

lint: $(STAMP) ## ruff, mypy and the import rules
	@echo "lint: ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "lint: mypy"
	@$(BIN)/mypy
	@echo "lint: import rules"
	@$(BIN)/lint-imports

clean: ## remove .venv and what tools have left; servers' packages stay in the user's cache
	rm -rf .venv .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache dist
