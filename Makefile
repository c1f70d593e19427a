# Every target sets up what it needs: the first one run makes .venv, later ones reuse it.
#
#   make demo        train a digits classifier over two virtual IPUs
#   make test        run the tests (minutes)
#   make test-all    run them, and the exhaustive sweeps (half an hour)
#   make test-complete  run what these leave out (one to two hours)
#   make lint        ruff and pyright, as CI does
#   make notebooks   execute the notebooks into build/notebooks (-j2: two at a time), and check
#                    that those beside their sources show the same, and that it is as told
#   make kept-notebooks  execute them, and keep the results beside their sources
#   make docs        build the site into build/docs
#   make bench       print the benchmarks' table of ratios
#   make clean       remove .venv and everything generated

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

NOTEBOOKS := $(patsubst notebooks/%.py,build/notebooks/%.ipynb,$(wildcard notebooks/*.py))

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-complete lint format notebooks $(NOTEBOOKS) kept-notebooks docs bench clean

help:
	@sed -n 's/^#   //p' Makefile

demo: $(STAMP)-progress
	@$(BIN)/python -m ipujax.demo

test: $(STAMP)-test
	$(BIN)/python -m pytest -n logical --dist loadfile

# Sweeps are few long files of many even parts: whoever has nothing left takes some.
test-all: test
	$(BIN)/python -m pytest -n logical --dist worksteal -m "exhaustive and not complete"

test-complete: $(STAMP)-test
	$(BIN)/python -m pytest -n logical --dist worksteal -m complete

lint: $(STAMP)-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(STAMP)-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

notebooks: $(NOTEBOOKS)
	$(BIN)/python -m tests.keep_notebooks --check $(NOTEBOOKS)
	$(BIN)/python -m pytest --quiet tests/test_notebook_statements.py --notebooks build/notebooks

$(NOTEBOOKS): build/notebooks/%.ipynb: notebooks/%.py $(STAMP)-test
	@mkdir -p build/notebooks
	@echo "executing $<"
	@$(BIN)/jupytext --quiet --to ipynb --output "$@" "$<"
	@$(BIN)/jupyter-execute --inplace "$@"

docs: $(STAMP)-test
	$(BIN)/python -m sphinx --jobs auto --fail-on-warning --keep-going --quiet docs build/docs
	$(BIN)/python -m tests.check_site build/docs
	@echo "built build/docs/index.html"

kept-notebooks: $(NOTEBOOKS)
	$(BIN)/python -m tests.keep_notebooks $(NOTEBOOKS)

bench: $(STAMP)-test
	@$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find ipujax lowering tests benchmarks validation notebooks -type d -name __pycache__ \
	  -exec rm -rf {} + 2>/dev/null || true

# One stamp per extra of pyproject.toml, so that the demo does not wait for the linters.
$(STAMP)-%: pyproject.toml setup.cfg constraints.txt | $(BIN)/python
	@echo "Installing ipujax[$*] into $(VENV) (once; a minute or two) ..."
	@$(PIP) install --constraint constraints.txt --editable '.[$*]'
	@touch $@
	@echo "Installed."

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "ipujax needs Python 3.11 or newer; '$(PYTHON)' is not:" \
	    "$$($(PYTHON) --version 2>&1 | head -n 1)"; \
	  echo "Name another one: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "Creating $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu install python3-venv."; exit 1; }
