# Every target first makes the environment in .venv, if it is missing or out of date. Only Python >= 3.11 and make are needed.
# PYTHON=/path/to/python chooses the interpreter; NOTEBOOKS=notebooks/NAME.ipynb chooses what `make notebooks` runs.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help env lab test lint notebooks clean always

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
STAMP := $(VENV)/.made-for
JOBS ?= 2
# A notebook that is new may be a text only, so the list is made from the texts.
NOTEBOOKS ?= $(patsubst %.py,%.ipynb,$(wildcard notebooks/*.py notebooks/solutions/*.py))
PYTEST := $(PY) -m pytest
SYNC := $(PY) -m jupytext --quiet --sync

# The stamp holds the folder the environment was made in. A moved or broken environment is made again.
ifneq ($(shell $(PY) -c "print(open('$(STAMP)').read())" 2>/dev/null),$(CURDIR))
$(STAMP): always
endif

help: ## Show this list.
	@echo "attnlab can do the following:"
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/^([a-z]+):[^#]*## (.*)/  make \1|\2/' | \
		while IFS='|' read -r name text; do printf '%-18s %s\n' "$$name" "$$text"; done

env: $(STAMP) ## Make the environment in .venv.
	@echo "The environment in $(VENV) is ready."

$(STAMP): pyproject.toml constraints.txt
	@python="$(PYTHON)"; \
	if [ -z "$$python" ]; then \
		for candidate in python3.11 python3.12 python3.13 python3 python; do \
			if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
				python="$$candidate"; break; \
			fi; \
		done; \
	fi; \
	if [ -z "$$python" ]; then \
		echo "attnlab needs Python 3.11 or newer, and none was found. Install one, or name it: make PYTHON=/path/to/python ..." >&2; \
		exit 1; \
	fi; \
	if ! "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
		echo "attnlab needs Python 3.11 or newer; PYTHON=$$python is not one." >&2; \
		exit 1; \
	fi; \
	if ! "$$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then \
		echo "$$python has no venv module. On Debian and Ubuntu it comes with the package python3-venv." >&2; \
		exit 1; \
	fi; \
	if ! $(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || ! $(PY) -m pip --version >/dev/null 2>&1; then \
		echo "Making a virtual environment in $(VENV) with $$("$$python" --version)."; \
		"$$python" -m venv --clear $(VENV); \
	fi; \
	echo "Installing attnlab and the versions pinned in constraints.txt. The first time this takes a few minutes."; \
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[notebooks,test]'; \
	printf '%s' "$(CURDIR)" > $(STAMP)

lab: env ## Open JupyterLab on the first notebook.
	@echo "Trusting the notebooks of this checkout, so that their stored pictures are shown."
	@$(PY) -m jupyter trust $(NOTEBOOKS) >/dev/null
	@echo "Starting JupyterLab on this machine only. Stop it with Control-C."
	@$(PY) -m attnlab lab

lint: env ## Check style, formatting and types.
	@echo "Checking style and formatting with ruff."
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@echo "Checking types with mypy."
	@$(PY) -m mypy

test: lint ## Run every check and every test, notebooks and browser included.
	@echo "Running the unit and property tests."
	@$(PYTEST) -n $(JOBS) --dist worksteal -m "not browser"
	@echo "Running them again with every shape and dtype in a signature checked."
	@$(PYTEST) -n $(JOBS) --dist worksteal -m "not unchecked and not browser and not slow" \
		--jaxtyping-packages=attnlab,beartype.beartype
	@echo "Running every notebook and comparing its outputs with the stored ones."
	@$(PYTEST) --nbval --nbval-current-env -n $(JOBS) --dist loadfile $(NOTEBOOKS)
	@echo "Using the explorers in JupyterLab with a real browser."
	@$(PYTEST) -m browser

notebooks: env ## Pair the notebooks with their texts and run them afresh.
	@echo "Bringing each notebook and its text to the newer of the two."
	@$(SYNC) --set-kernel python3 --update-metadata '{"jupytext": null}' $(NOTEBOOKS:.ipynb=.py)
	@$(PY) -m ruff check --quiet --fix --select I $(NOTEBOOKS)
	@$(PY) -m ruff format --quiet $(NOTEBOOKS)
	@$(SYNC) $(NOTEBOOKS)
	@$(PY) -m attnlab.show.store $(NOTEBOOKS)
	@$(SYNC) $(NOTEBOOKS)

clean: ## Remove what the tools leave behind. The environment stays.
	@echo "Removing caches and build folders; .venv stays."
	@rm -rf build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find attnlab tests notebooks data -type d \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} + 2>/dev/null || true
