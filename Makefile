# Both targets do all their set-up on a fresh machine: a virtual environment in .venv with the tested versions.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test clean

demo: $(VENV)/.demo
	$(BIN)/python demos/quickstart.py

test: $(VENV)/.dev
	$(BIN)/ruff check agentzoo tests demos setup.py
	$(BIN)/ruff format --check agentzoo tests demos setup.py
	$(BIN)/mypy
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) torch
	$(PIP) -e ".[all]"
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) torch
	$(PIP) -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) demos/out build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
