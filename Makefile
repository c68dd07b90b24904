# Five commands; each makes .venv where it is missing and brings it up to date when setup.py changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check
SOURCES := tinytensor test setup.py $(wildcard extra)

.PHONY: demo digits test test-torch format check clean
.DELETE_ON_ERROR:

demo: $(VENV)/.installed
	@$(BIN)/python -m tinytensor

digits: $(VENV)/.installed-examples
	@$(BIN)/python -m extra.examples.digits

test: check
	$(BIN)/python -m pytest -q -n 2

test-torch: $(VENV)/.installed-test-torch
	$(BIN)/python -m pytest -q -n 2

check: $(VENV)/.installed-test
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

format: $(VENV)/.installed-test
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

clean:
	rm -rf $(VENV) build tinytensor.egg-info

$(BIN)/python:
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: setup.py | $(BIN)/python
	@$(INSTALL) --editable .
	@touch $@

$(VENV)/.installed-examples: setup.py $(VENV)/.installed
	@$(INSTALL) --editable '.[examples]'
	@touch $@

$(VENV)/.installed-test: setup.py $(VENV)/.installed
	@$(INSTALL) --editable '.[test]'
	@touch $@

$(VENV)/.installed-test-torch: setup.py $(VENV)/.installed-test
	@$(INSTALL) --editable '.[test-torch]'
	@touch $@
