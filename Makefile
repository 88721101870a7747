# make quickstart   sets up .venv, then trains, scores, exports and serves a small translation model (about 10 minutes)
# make test         sets up .venv, then runs the quick tests
# PYTHON=python3.12 selects the interpreter that creates .venv: Python 3.11 to 3.13.
# TENSORFLOW=2.20 uses that version of TensorFlow instead of 2.21, in .venv-2.20.

PYTHON ?= python3
TENSORFLOW ?= 2.21
MINUTES ?= 5
BODIES ?= 5000
PROCESSES ?= 2
VENV := $(if $(filter 2.21,$(TENSORFLOW)),.venv,.venv-$(TENSORFLOW))
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# pip would compile one module after another; compileall uses all cores. It fails for the few files that are written for
# other versions of Python. PIP_NO_COMPILE has the opposite meaning of `--no-compile`: with 1, pip compiles.
export PIP_NO_COMPILE := 0
COMPILE := python -m compileall -qq -j 0 $(VENV)/lib
IN_PARALLEL := --numprocesses=$(PROCESSES) --dist=loadfile --no-loadscope-reorder

.PHONY: help venv quickstart test integration slow faults attack lint format docs ci release clean
.DEFAULT_GOAL := help

help:
	@echo "make venv                    creates the virtual environment $(VENV) and installs everything"
	@echo "make quickstart [MINUTES=5]  trains on real text, scores, translates, exports and serves"
	@echo "make test [PROCESSES=2]      the quick tests, in this number of processes (6 minutes)"
	@echo "make integration             whole programs, exports, families and tasks (20 minutes)"
	@echo "make slow                    the tests that take minutes each"
	@echo "make faults                  kills real trainings in many ways and compares the results (25 minutes)"
	@echo "make attack [BODIES=5000]    attacks the server as hostile clients do (10 minutes, on an idle machine)"
	@echo "make lint                    checks style, common mistakes and types; make format corrects the style"
	@echo "make docs                    builds the documentation as a website, docs/_build/html/index.html"
	@echo "make ci                      runs lint, test and integration, with the packages that only tests need"
	@echo "make release                 builds the release of the committed version in dist/, and prints how to publish it"
	@echo "make clean                   removes the environments and the files of builds and tests"
	@echo "TENSORFLOW=2.20 with any of these uses TensorFlow 2.20, in a separate environment; the default is 2.21"

venv: $(INSTALLED)

# The stamp is written at the end, so an interrupted installation starts again, and a complete one is reused.
# If Python lacks ensurepip (Debian without python3-venv), the pip of that Python installs into the environment.
$(INSTALLED): setup.py pyproject.toml
	@$(PYTHON) -c 'import sys; (3, 11) <= sys.version_info[:2] <= (3, 13) or sys.exit("Python 3.11, 3.12 or 3.13 is needed, this is " + sys.version.split()[0] + ": set PYTHON=")'
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv $(VENV); \
	else $(PYTHON) -m venv --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install pip; fi
	$(BIN)/python -m pip install --editable '.[dev,serve]' 'tensorflow==$(TENSORFLOW).*'
	@$(BIN)/$(COMPILE) || true
	@touch $@

quickstart: $(INSTALLED)
	$(BIN)/python -m launch.quickstart --minutes=$(MINUTES)

test: $(INSTALLED)
	$(BIN)/python -m pytest $(IN_PARALLEL) -m 'not integration and not slow and not faults and not attack'

integration: $(INSTALLED)
	$(BIN)/python -m pytest $(IN_PARALLEL) -m 'integration and not slow and not faults and not attack'

slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow

faults: $(INSTALLED)
	$(BIN)/python -m pytest -m faults tests/faults

attack: $(INSTALLED)
	$(BIN)/python -m pytest -m attack --bodies=$(BODIES) tests/attack

lint: $(INSTALLED)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

format: $(INSTALLED)
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

docs: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --editable '.[docs]' 'tensorflow==$(TENSORFLOW).*'
	$(BIN)/python -m sphinx --fail-on-warning --builder html --conf-dir docs --doctree-dir docs/_build/doctrees . docs/_build/html

ci: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --editable '.[ci]' 'tensorflow==$(TENSORFLOW).*'
	@$(BIN)/$(COMPILE) || true
	$(MAKE) lint test integration

release: $(INSTALLED)
	.ci/release $(BIN)/python

clean:
	rm -rf .venv .venv-2.20 build dist docs/_build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find benchmarks launch t2t_keras tests -name __pycache__ -type d -prune -exec rm -rf {} +
