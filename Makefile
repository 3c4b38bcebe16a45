# Two commands: `make demo` runs the main job, `make test` runs the tests. Each installs what it needs, and no more.
# `make test-all` adds the long forms: many kills, every parameter, whole ensembles.
# `make test-lowest` and `make test-newest` run the tests with the lowest and newest versions that pyproject.toml allows, and
# `make dist` builds wheel and source archive into output/dist.
# `make faults` injects 150 random faults into a copy (about two hours); it goes on where it was stopped.
# `make benchmarks` prints CPU times over those of named baselines (ten minutes).
# `make docs` builds the site into output/docs, every page executed; `make docs-all` trains what its gallery needs, too;
# `make site` checks the links of what `make docs` built and packs it into output/site.zip.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
TESTS := $(VENV)/.ready-for-tests
DOCS := $(VENV)/.ready-for-docs
# Options for pip; with an index among them, the build of PyTorch is not chosen here.
PIP ?=
# Python compiles what is imported; compiling all that is installed doubles the time of an installation.
INSTALL = $(RUN) -m pip install --quiet --disable-pip-version-check --no-compile $(PIP) -c constraints.txt
# Without an NVIDIA GPU, the CPU's build of PyTorch spares 4 GB. It has an index of its own, which may be out of reach.
CPU_TORCH := torch --index-url https://download.pytorch.org/whl/cpu --timeout 5 --retries 0
CPU_TORCH_IS_THERE = timeout 10 $(RUN) -m pip index versions $(PIP) $(CPU_TORCH) >/dev/null 2>&1
GPU = nvidia-smi -L >/dev/null 2>&1
# While pip works, it says so every quarter of a minute.
define WHILE_ALIVE
{ while sleep 15 >/dev/null 2>&1; do echo "  $$(du -sm $(VENV) | cut -f1) MB so far"; done; } & sign=$$!; trap "kill $$sign" EXIT;
endef
WITH_TESTS := -e ".[test]" -e ./examples/linear_attention
DEMO := output/demo
# Python keeps compiled sources: without, each process of tests and pages compiles the toolkit again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-lowest test-newest dist faults benchmarks check docs-setup docs docs-all site setup clean

setup: $(TESTS)

$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) not found; install Python 3.11 or newer, or say make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c '' || { echo "error: $(PYTHON) does not start; say make PYTHON=/path/to/python3.11 (or newer)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $(PYTHON) is $$($(PYTHON) --version 2>&1), and 3.11 or newer is needed; say make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "error: $(PYTHON) has no venv module (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@test -x $(RUN) || $(PYTHON) -m venv --clear $(VENV)
	@if test -n "$(findstring index,$(PIP))" || test "$$(uname)" != Linux; then echo "installing into $(VENV): a few minutes"; \
	elif $(GPU); then echo "installing into $(VENV), with PyTorch for this NVIDIA GPU: 6 GB, several minutes"; \
	elif $(CPU_TORCH_IS_THERE); then echo "installing into $(VENV), with PyTorch for the CPU: 1.3 GB, a few minutes"; \
		$(WHILE_ALIVE) $(INSTALL) --no-deps $(CPU_TORCH); \
	else echo "installing into $(VENV): up to 6 GB, several minutes (PyTorch's index of smaller builds is out of reach)"; fi
	@$(WHILE_ALIVE) $(INSTALL) -e .
	@touch $@

$(TESTS): $(READY)
	@echo "adding what the tests need to $(VENV)"
	@$(WHILE_ALIVE) $(INSTALL) $(WITH_TESTS)
	@touch $@

demo: $(READY)
	@$(RUN) -m verify.demo --folder $(DEMO)

test: $(TESTS)
	$(RUN) -m pytest

test-all: $(TESTS)
	$(RUN) -m pytest -m "slow or not slow"

# Options for uv: UV="--torch-backend=auto" takes PyTorch's smaller builds.
UV ?=
test-lowest: $(READY)
	@$(RUN) -m venv output/lowest
	@output/lowest/bin/python -m pip install --quiet uv
	@output/lowest/bin/uv pip install --quiet $(UV) --python output/lowest/bin/python --resolution lowest-direct $(WITH_TESTS)
	output/lowest/bin/python -m pytest

test-newest: $(READY)
	@$(RUN) -m venv output/newest
	@output/newest/bin/python -m pip install --quiet --upgrade $(PIP) $(WITH_TESTS)
	output/newest/bin/python -m pytest

dist: $(TESTS)
	$(RUN) -m pytest -n 0 -m "slow or not slow" tests/test_release.py
	rm -rf build output/dist
	$(RUN) -c 'from setuptools import build_meta as make; make.build_sdist("output/dist"); make.build_wheel("output/dist")' >/dev/null
	@ls output/dist

faults: $(TESTS)
	$(RUN) -m tests.faults

$(DOCS): $(READY)
	@echo "installing Sphinx into $(VENV)"
	@$(WHILE_ALIVE) $(INSTALL) -e ".[docs]"
	@touch $@

benchmarks: $(READY)
	$(RUN) -m benchmarks

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
	rm -rf $(VENV) build output *.egg-info
