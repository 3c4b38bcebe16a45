# Two commands: `make demo` runs the main job, `make test` runs the tests. Each installs what it needs, and no more.
# `make test-all` adds the long forms: many kills, every parameter, whole ensembles.
# `make faults` injects 150 random faults into a copy (about two hours); it goes on where it was stopped.
# `make docs` builds the site into output/docs, every page executed; `make docs-all` trains what its gallery needs, too;
# `make site` checks the links of what `make docs` built and packs it into output/site.zip.
# On a machine with a CUDA GPU, `make gpu` measures everything there with PYTHON as it is: nothing is installed.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
TESTS := $(VENV)/.ready-for-tests
DOCS := $(VENV)/.ready-for-docs
# Options for pip. Without a GPU, PIP="--extra-index-url https://download.pytorch.org/whl/cpu" spares gigabytes.
PIP ?=
# Python compiles what is imported; compiling all that is installed doubles the time of an installation.
INSTALL = $(RUN) -m pip install --quiet --disable-pip-version-check --no-compile $(PIP) -c constraints.txt
DEMO := output/demo
OUT ?= output/device
SECONDS_LEFT ?= 1800
# Python keeps compiled sources: without, each process of tests and pages compiles the toolkit again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all faults check docs-setup docs docs-all site setup clean gpu gpu-dry-run

setup: $(TESTS)

$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) not found; install Python 3.11 or newer, or say make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $(PYTHON) is older than 3.11; say make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "error: $(PYTHON) has no venv module (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@echo "setting up $(VENV) (first time: a few minutes)"
	@test -x $(RUN) || $(PYTHON) -m venv --clear $(VENV)
	@$(INSTALL) -e .
	@touch $@

$(TESTS): $(READY)
	@echo "adding what the tests need to $(VENV)"
	@$(INSTALL) -e ".[test]" -e ./examples/linear_attention
	@touch $@

demo: $(READY)
	@$(RUN) -m verify.demo --folder $(DEMO)

test: $(TESTS)
	$(RUN) -m pytest

test-all: $(TESTS)
	$(RUN) -m pytest -m "slow or not slow"

faults: $(TESTS)
	$(RUN) -m tests.faults

gpu:
	$(PYTHON) -m verify.device --device cuda --out $(OUT) --seconds $(SECONDS_LEFT)

gpu-dry-run: $(TESTS)
	$(RUN) -m verify.device --dry-run

$(DOCS): $(READY)
	@echo "installing Sphinx into $(VENV)"
	@$(INSTALL) -e ".[docs]"
	@touch $@

docs-setup: $(DOCS)

docs: $(DOCS)
	$(RUN) docs/_extensions/forked.py -j 2 -W --keep-going -q -d output/docs-doctrees docs output/docs
	@echo "open output/docs/index.html"

site: docs
	$(RUN) docs/_extensions/links.py output/docs
	$(RUN) -m zipfile -c output/site.zip output/docs

docs-all: $(DOCS)
	DOCS_TRAIN=1 $(RUN) -m sphinx -W --keep-going -q -d output/docs-doctrees docs output/docs

check: $(TESTS)
	$(RUN) -m ruff check .
	$(RUN) -m mypy
	$(RUN) -m mypy docs/_extensions/*.py

clean:
	rm -rf $(VENV) output *.egg-info
