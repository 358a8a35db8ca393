# Every command does its own set-up, on a machine with nothing but Python >= 3.11, git and make.
# ARGS are handed on: `make demo ARGS=--once`, `make test ARGS="-k stale"`.

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SYSTEM := $(VENV)/.system
TYPESCRIPT := 5.9.3
TSC := node_modules/typescript/bin/tsc
TORCH := $(shell sed -n 's/^torch==/torch==/p' constraints.txt)
NAME ?= all
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo serve check fix test test-all bench golden docs gpu-check

help:  ## list these commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 19

# torch comes first and alone: a range resolved before it takes the newest one, CUDA and all.
$(INSTALLED): pyproject.toml constraints.txt
	@test -x $(BIN)/python || { python=$$(.ci/find-python) && "$$python" -m venv $(VENV); }
	@echo "Installing (the first time takes minutes, most of it torch) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[server,postgres,test]"
	@touch $@

$(SYSTEM): .ci/system-packages $(INSTALLED)
	@.ci/system-packages
	@touch $@

$(TSC): $(SYSTEM)
	@if command -v npm >/dev/null; then \
		npm install --no-save --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel=error typescript@$(TYPESCRIPT) && touch $@; \
	fi

setup: $(INSTALLED)  ## make .venv with everything the other commands need

demo: $(INSTALLED)  ## train a small GPT with a fault waiting, and watch it (ARGS=--once: end by itself)
	@$(BIN)/watchkeeper demo $(ARGS)

serve: $(INSTALLED)  ## run the server on 127.0.0.1:8765
	@$(BIN)/watchkeeper serve $(ARGS)

check: $(INSTALLED) $(TSC)  ## format, lint, types, import rules, sizes, page modules
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/size_guard.py
	@if command -v node >/dev/null && test -f $(TSC); then \
		echo "node $(TSC) -p web/jsconfig.json --noEmit" && node $(TSC) -p web/jsconfig.json --noEmit; \
	else \
		echo "Skipped: types of the page modules (needs Node and npm)"; test "$$WATCHKEEPER_REQUIRE" != all; \
	fi

fix: $(INSTALLED)  ## format, and repair what can be repaired mechanically
	$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

test: $(INSTALLED) $(TSC)  ## every promise once: both databases, a browser, a real training run
	$(BIN)/pytest -m "not slow" $(ARGS)

test-all: $(INSTALLED) $(TSC)  ## the long tests too
	$(BIN)/pytest $(ARGS)

bench: $(INSTALLED)  ## measure; NAME=hooks|ingest|read|... one bench
	@set -e; for file in $(if $(filter all,$(NAME)),$(filter-out %/gpu_check.py,$(wildcard tests/bench/*.py)),tests/bench/$(NAME).py); do \
		echo "== $$file"; $(BIN)/python -m tests.bench.$$(basename "$$file" .py) $(ARGS); \
	done

golden: $(INSTALLED)  ## write the recorded answers anew; review the difference before committing it
	WATCHKEEPER_WRITE_GOLDEN=1 $(BIN)/pytest tests/golden tests/docs/test_architecture.py $(ARGS)

docs: $(INSTALLED)  ## check that the documents say what the program does
	$(BIN)/pytest tests/docs $(ARGS)

# With the machine's own Python where that has torch: nothing is installed for it.
gpu-check:  ## what the hooks cost on a CUDA device, as one line of JSON
	@python=$$(PYTHON="$(PYTHON)" .ci/find-torch) && "$$python" -m tests.bench.gpu_check $(ARGS)
