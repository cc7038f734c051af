# Every target that needs Python depends on the install stamp, so any of them works on a fresh clone.

# The first of these that runs and is new enough; PYTHON=/path/to/python overrides.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.rendergen-installed

.DEFAULT_GOAL := help
.PHONY: help install demo up test fuzz check format bench clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt scripts/install.py
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer found; install one, or say make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c '' || { echo "make: PYTHON=$(PYTHON) does not run" >&2; exit 1; }
	@$(PYTHON) scripts/install.py --venv $(VENV) --stamp $(STAMP)

install: $(STAMP) ## Create .venv and install everything into it (a minute or two, once)

demo: $(STAMP) ## Start the stack, send a red image through it, print each stage and "Red", stop
	@$(PY) scripts/demo.py

up: $(STAMP) ## Start the stack on this machine and keep it running until Ctrl-C (ARGS="--help" for its flags)
	@$(PY) -m rendergen up $(ARGS)

test: $(STAMP) ## Run the whole test suite on real vLLM, with the plugin and without it (ARGS="-k name": once, what is named)
	@$(PY) -m pytest $(ARGS)
	@test -n "$(ARGS)" || $(PY) -m pytest -m e2e --no-plugin

fuzz: $(STAMP) ## Send thousands of tampered payloads to a real engine (ARGS="--help" for its flags)
	@$(PY) scripts/fuzz.py $(ARGS)
	@test -n "$(ARGS)" || $(PY) scripts/fuzz.py --signed

check: $(STAMP) ## Format, lint, types, generated docs and unit tests: what to run before every commit
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(PY) scripts/settings_doc.py --check
	$(PY) -m pytest -m "not e2e" -q

format: $(STAMP) ## Rewrite the code in the one format, with the safe lint fixes
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

bench: $(STAMP) ## Run the benchmarks (ARGS="--help" for their flags)
	@$(PY) -m benchmarks $(ARGS)

clean: ## Remove .venv, caches and logs
	rm -rf $(VENV) .rendergen .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
