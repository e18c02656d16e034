# Each makes what it needs: `make demo`, `make test`, and `make docs` for the documentation site.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test types units fuzz faults load docs clean

demo: $(VENV)/.installed-demo
	$(BIN)/acf demo

test: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --no-print-directory --jobs 2 types units

# One core: beside the tests, whose workers do not keep two cores busy while they are collected.
types: $(VENV)/.installed-dev
	$(BIN)/mypy

# Each worker starts with one half of the tests, in order, so that what neighbours compile and set up is made once.
units: $(VENV)/.installed-dev
	$(BIN)/pytest -n 2 --dist worksteal

# Seeded cases over every door through which files and values come in; `make fuzz CASES=700` is a quick look.
CASES ?= 10000
fuzz: $(VENV)/.installed-dev
	$(BIN)/python -m tests.fuzz --cases $(CASES)

# Runs that are killed, and runs on a disk that is full at one of their writes; both go on and end as uninterrupted ones.
KILLS ?= 200
FULL  ?= 200
faults: $(VENV)/.installed-dev
	$(BIN)/python -m tests.faults --kills $(KILLS) --full $(FULL)

# A million moved blocks, a million packets, 100,000 launches; `make load SHARE=0.01` is a quick look.
SHARE ?= 1
load: $(VENV)/.installed-dev
	$(BIN)/python -m tests.load --share $(SHARE)

docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx -W --keep-going -q -d build/doctrees docs build/docs
	@echo "open build/docs/index.html"

# A stamp per extra: a second call installs nothing unless pyproject.toml changed.
$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	@touch $@

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("acf needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; call make PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) build runs .mypy_cache .pytest_cache .ruff_cache
