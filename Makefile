# One entry point for every task. `demo` and `test` set themselves up; they need Python 3.11, Java 17 and make.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
JUDGE := .venv-judge
BIN := $(VENV)/bin
export SPARK_LOCAL_IP := 127.0.0.1
# The tests start many processes. Where nothing may be written, each would compile the package's modules anew.
export PYTHONDONTWRITEBYTECODE :=

# Both parts of the suite run in several processes. For one at a time: make test PYTEST_ARGS='-n 0'
WITHOUT_JVM := --part no-jvm -n auto --maxprocesses 4 --dist worksteal --benchmark-disable
WITH_JVM := --part jvm -n 2 --benchmark-disable

# What draws, or tries moments. The rest of these folders is the same in every run, and `make test` has all of it.
SOAKED := tests/property tests/fault/test_every_operation.py tests/fault/test_killed_processes.py \
  tests/fault/test_killed_bucket_writers.py tests/fault/test_dynamic_buckets.py \
  tests/fault/test_bit_flips.py tests/fault/test_second_rounds.py tests/fault/test_stream_batches.py \
  tests/fault/test_killed_streams.py tests/unit/streaming $(addprefix tests/interop/test_,metadata_table_judged.py \
  record_index_judged.py secondary_index_judged.py random_tables.py writes_judged.py)
SEED ?= $(shell date +%Y%m%d)
MINUTES ?= 60

VERSITYGW := github.com/versity/versitygw/cmd/versitygw@v1.8.0

.PHONY: help setup setup-test demo demo-stream test test-fast check docs pages format bench features changelog dist lock soak clean java

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: java $(VENV)/.ready ## Create the environment that runs bucketlake

setup-test: setup $(JUDGE)/.ready .tools/ready ## And the judge's environment and the S3 server

demo: setup ## Make a table, load it, upsert, delete, show its layout, verify every row
	@$(BIN)/python examples/demo.py

demo-stream: setup ## Upsert a stream, kill its driver in a batch, start it again, verify every row
	@$(BIN)/python examples/demo_stream.py

test: setup-test ## Run all tests, the JVM judge and the S3 server included
	@failed=0; chosen=0; \
	for part in "$(WITHOUT_JVM)" "$(WITH_JVM)"; do \
	  result=0; $(BIN)/python -m pytest tests src benchmarks $$part $(PYTEST_ARGS) || result=$$?; \
	  case $$result in 0) chosen=1 ;; 5) ;; *) failed=1 ;; esac; \
	done; \
	if [ $$failed = 0 ] && [ $$chosen = 0 ]; then echo "PYTEST_ARGS chose no test"; exit 5; fi; \
	exit $$failed

test-fast: setup ## Run the tests that need no Spark, judge or S3 server, and not a whole minute
	@$(BIN)/python -m pytest tests src -m 'not s3 and not thorough' $(WITHOUT_JVM) $(PYTEST_ARGS)

check: $(VENV)/.ready ## Lint, types, dependency direction, and the docs site
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(MAKE) --no-print-directory docs

format: $(VENV)/.ready ## Put the sources into their one format
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

bench: setup-test ## Measure everything, Hudi and the floor beside us, and fill docs/benchmarks.md
	@$(BIN)/python -m benchmarks --write docs/benchmarks.md $(BENCH_ARGS)
	@$(BIN)/python -m benchmarks.cold --write
	@$(BIN)/python -m benchmarks.cold_profile --write
	@$(BIN)/python -m benchmarks.commits --write
	@$(BIN)/python -m benchmarks.aging --write
	@$(BIN)/python -m benchmarks.resizing
	@$(BIN)/python -m benchmarks.metadata_table
	@$(BIN)/python -m benchmarks.record_index
	@$(BIN)/python -m benchmarks.secondary_index
	@$(BIN)/python -m benchmarks.secondary_reads
	@$(BIN)/python -m benchmarks.dynamic_buckets
	@$(BIN)/python -m benchmarks.many_files --write many-files
	@$(BIN)/python -m benchmarks.small_batches --write small-batches
	@$(BIN)/python -m benchmarks.streams
	@$(BIN)/python -m benchmarks.limits
	@mkdir -p build/bench
	@$(BIN)/python -m benchmarks.growth --results build/bench/growth.json
	@$(BIN)/python -m benchmarks.growth --page build/bench/growth.json

soak: setup-test ## The suites that draw, with wide seeds, for about MINUTES=60 on two cores; SEED=7 draws the same again
	@echo "soak: SEED=$(SEED) MINUTES=$(MINUTES)"
	@HYPOTHESIS_PROFILE=soak BUCKETLAKE_SOAK_SEED=$(SEED) BUCKETLAKE_SOAK_MINUTES=$(MINUTES) BUCKETLAKE_KILL_SECONDS=$$((4 * $(MINUTES))) \
	  $(BIN)/python -m pytest $(SOAKED) -n 2 --timeout=7200 --hypothesis-seed=$(SEED) $(PYTEST_ARGS)

docs: $(VENV)/.ready ## Build the docs site into build/site; every link is checked
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

pages: $(VENV)/.ready ## Write the pages of the docs that are made from the code: options, commands
	@$(BIN)/python tools/options.py
	@$(BIN)/python tools/commands.py

features: $(VENV)/.ready ## List every requirement with the tests that show it
	@$(BIN)/python tools/features.py $(FEATURES_ARGS)

changelog: $(VENV)/.ready ## Print what the next release says; VERSION=0.2.0 DATE=2026-06-18 writes it
	@$(BIN)/python tools/changelog.py --version "$(VERSION)" --date "$(DATE)"

dist: $(VENV)/.ready ## Build the wheel and the source distribution into build/dist, and check them
	@rm -rf build/dist build/lib build/bdist.* && $(BIN)/python -m build --no-isolation --outdir build/dist . >/dev/null
	@$(BIN)/python -m twine check --strict build/dist/*

lock: ## Resolve the dependencies anew (needs uv)
	uv pip compile -q --python-version 3.11 --generate-hashes --no-header pyproject.toml --extra test --extra check --extra docs -o requirements/dev.lock
	uv pip compile -q --python-version 3.11 --generate-hashes --no-header requirements/judge.in -o requirements/judge.lock

clean: ## Remove the environments and everything generated
	rm -rf $(VENV) $(JUDGE) .tools build artifacts .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks

java:
	@tools/check-java.sh

$(VENV)/.ready: requirements/dev.lock pyproject.toml
	@echo "setting up $(VENV) (once)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "bucketlake needs Python 3.11 or newer; name one: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv module is missing; on Debian: apt-get install python3-venv"; exit 1; }
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

$(JUDGE)/.ready: requirements/judge.lock
	@echo "setting up $(JUDGE) (once)"
	@$(PYTHON) -m venv $(JUDGE)
	@$(JUDGE)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/judge.lock
	@touch $@

.tools/ready:
	@mkdir -p .tools/bin
	@if command -v go >/dev/null; then echo "building the S3 server (once)"; GOBIN=$(CURDIR)/.tools/bin go install $(VERSITYGW) && touch $@; \
	elif [ "$${CI:-}" = true ]; then echo "Go is missing: the S3 suite cannot run, and in CI nothing is left out"; exit 1; \
	else echo "Go is missing: the S3 suite will be left out (install Go to run it)"; fi
