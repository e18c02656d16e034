# Each makes what it needs: `make demo`, `make test`, and `make docs` for the documentation site. `make test-oldest` and
# `make test-newest` run the suite at both ends of the versions that the metadata allows; `make coverage` measures it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# The suite starts many Pythons: each would compile the package, and rewrite the assertions of all tests, anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-oldest test-newest types units coverage fuzz faults load docs clean

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

# Environments of their own with every extra. `make test-newest PYTHON=python3.13` takes that Python, and
# `make test-oldest TESTS="tests/ops tests/nn"` runs a part; `tests/dependencies/suite_record.py` keeps what came of it.
EXTRAS := test,adapters,data,ray,rl,sweep,text
TESTS  ?=
test-oldest test-newest: test-%: .venv-%/.installed
	.venv-$*/bin/python -m pytest -n 2 --dist worksteal --junitxml build/suite-$*.xml $(TESTS)

.venv-oldest/.installed: pyproject.toml
	$(PYTHON) -m venv --clear $(@D)
	$(PYTHON) tests/dependencies/oldest.py $(EXTRAS) > $(@D)/constraints.txt
	$(@D)/bin/python -m pip install --quiet --constraint $(@D)/constraints.txt --editable '.[$(EXTRAS)]'
	@touch $@

.venv-newest/.installed: pyproject.toml
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade --upgrade-strategy eager --editable '.[$(EXTRAS)]'
	@touch $@

# Lines and branches that the suite runs in Python, in all of its processes; `make coverage TESTS="tests/nn tests/train"`
# measures a part.
coverage: $(VENV)/.installed-coverage
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n 2 --dist worksteal $(TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --show-missing
	$(BIN)/coverage json -o build/coverage.json
	$(BIN)/python -m tests.coverage_record build/coverage.json

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
	rm -rf $(VENV) .venv-oldest .venv-newest build runs .mypy_cache .pytest_cache .ruff_cache
