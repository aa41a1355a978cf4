# Every command a user types. `make help` lists them.
#
# make TARGET                        in .venv, which is made first where it is missing
# make TARGET PYTHON=python3 VENV=   on an interpreter that has the packages; installs nothing
# make TARGET ARGS="--nets 1"        options for the script behind the target

PYTHON = python3
VENV = .venv
ARGS =
PACKAGES = filelock h5py matplotlib msgspec numba numpy PIL scipy threadpoolctl tqdm

ifeq ($(strip $(VENV)),)
RUN = $(PYTHON)
READY = check-packages
else
RUN = $(VENV)/bin/python
READY = $(VENV)/.ready
endif

.DEFAULT_GOAL := help
.PHONY: help setup table1 table3 cnn ladder committee recognise redrawn draw figure1 deformations notebooks report pictures kernels bench blocks campaign gpu-check test test-all lint lock audit record readme clean

help:  ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-22s%s\n", $$1, $$2}'
	@echo 'Options for the script behind a target: make table1 ARGS="--nets 1 --epochs 10"'
	@echo 'On an interpreter that has the packages: make table1 PYTHON=python3 VENV='

setup: $(READY)  ## make .venv with the exact versions of requirements.lock

# The marker is written last, so that an install that broke off is done again.
$(VENV)/.ready: pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: $(PYTHON) is too old: expected Python 3.11 or newer; name one with PYTHON=" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --require-hashes --requirement requirements.lock
	$(VENV)/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# The versions that are there stay, unless pyproject.toml forbids them; ARGS=--upgrade takes new ones.
lock: $(READY)  ## write requirements.lock anew from pyproject.toml; needs pip install -e '.[audit]'
	@$(RUN) -c 'import uv' 2>/dev/null || \
		{ echo "error: make lock needs uv: $(RUN) -m pip install -e '.[audit]'" >&2; exit 2; }
	$(RUN) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
		--no-emit-index-url --custom-compile-command "make lock" --extra test --group build \
		--output-file requirements.lock pyproject.toml $(ARGS)

audit: $(READY)  ## look up known flaws of the versions in requirements.lock; needs the network
	@$(RUN) -c 'import pip_audit' 2>/dev/null || \
		{ echo "error: make audit needs pip-audit: $(RUN) -m pip install -e '.[audit]'" >&2; exit 2; }
	$(RUN) -m pip_audit --require-hashes --disable-pip --requirement requirements.lock $(ARGS)

table1: $(READY)  ## train the five nets of Table 1, print it beside the paper's
	$(RUN) -m experiments.table1 $(ARGS)

table3: $(READY)  ## the same nets without distortion: the last column of Table 3
	$(RUN) -m experiments.table1 --no-distortion --out runs/table3 $(ARGS)

cnn: $(READY)  ## train the convolutional nets of 2011, print them beside the paper's
	$(RUN) -m experiments.cnn $(ARGS)

ladder: $(READY)  ## one small net, seven rungs of kernels: what each does for an image, and its time
	$(RUN) -m experiments.ladder $(ARGS)

committee: $(READY)  ## train the committees of 2012, print them beside the paper's
	$(RUN) -m experiments.committee $(ARGS)

recognise: $(READY)  ## recognise digits in pictures of your own: ARGS="photo.png"
	$(RUN) -m experiments.recognise $(ARGS)

redrawn: $(READY)  ## count how many test digits are recognised when they are redrawn as pictures
	$(RUN) -m experiments.redrawn $(ARGS)

draw: $(READY)  ## write a page to draw digits on, which a net recognises in the browser
	$(RUN) -m experiments.draw $(ARGS)

figure1: $(READY)  ## draw the digits that the best run there is gets wrong
	$(RUN) -m experiments.figure1 $(ARGS)

deformations: $(READY)  ## draw what the deformation does to a digit: fields, strips, 100 copies, widths
	$(RUN) -m experiments.deformations $(ARGS)

notebooks: $(READY)  ## execute the notebooks, as pages in runs/notebooks
	$(RUN) -m experiments.notebooks $(ARGS)

report: $(READY)  ## one page of all runs and records there are, runs/report.html
	$(RUN) -m experiments.report $(ARGS)

pictures: $(READY)  ## save the figures of the runs there are as PNG and PDF
	$(RUN) -m experiments.pictures $(ARGS)

kernels: $(READY)  ## compile every kernel, print registers, shared memory, spills; needs no GPU
	$(RUN) -m experiments.kernels $(ARGS)

bench: $(READY)  ## time kernels, engines, PyTorch and more; --startup, --workers: see docs/benchmarks.md
	$(RUN) -m experiments.bench $(ARGS)

blocks: $(READY)  ## compare training in blocks with exact on-line steps, in float64
	$(RUN) -m experiments.blocks $(ARGS)

campaign: $(READY)  ## try to break the commands: kills, power cuts, damaged files, faults
	$(RUN) -m campaign $(ARGS)

gpu-check: $(READY)  ## prove everything on this machine's GPU, then time it
	$(RUN) -m experiments.gpu_check $(ARGS)

# One process a core tests, where pytest-xdist is installed. Without a GPU, what was compiled for one
# is executed.
PYTEST = $(RUN) -m pytest $(shell $(RUN) -c 'import xdist' 2>/dev/null && echo '--dist loadfile -n auto')

test: $(READY)  ## run the quick tests, or pytest with ARGS
ifneq ($(strip $(ARGS)),)
	$(RUN) -m pytest $(ARGS)
else
	$(PYTEST) -m 'not slow'
endif

test-all: $(READY)  ## run all tests, the slow ones too
	$(PYTEST)

lint: $(READY)  ## check style, format and types
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

record: $(READY)  ## copy what finished runs measured into results/: ARGS="runs/table1/net1-seed0.h5"
	$(RUN) -m experiments.record $(ARGS)

readme: $(READY)  ## write the README's tables anew from results/
	$(RUN) -m experiments.readme $(ARGS)

clean:  ## remove .venv and caches; runs and data stay
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# For VENV=: one sentence instead of a traceback where something is missing.
.PHONY: check-packages
check-packages:
	@$(PYTHON) -c 'import sys; from importlib.util import find_spec; \
	lacks = [name for name in "$(PACKAGES)".split() if not find_spec(name)]; \
	lacks += ["Python 3.11"] * (sys.version_info < (3, 11)); \
	lacks and sys.exit("error: $(PYTHON) lacks " + ", ".join(lacks) + ": name another interpreter \
	with PYTHON=, or leave out VENV= to have it installed")'
