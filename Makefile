# Every command a user types. `make help` lists them.
#
# make TARGET                        in .venv, which is made first where it is missing
# make TARGET PYTHON=python3 VENV=   on an interpreter that has the packages; installs nothing
# make TARGET ARGS="--nets 1"        options for the script behind the target

PYTHON = python3
VENV = .venv
ARGS =
PACKAGES = filelock h5py matplotlib msgspec numba numpy PIL safetensors scipy threadpoolctl tqdm

ifeq ($(strip $(VENV)),)
RUN = $(PYTHON)
READY = check-packages
else
RUN = $(VENV)/bin/python
READY = $(VENV)/.ready
endif

.DEFAULT_GOAL := help
.PHONY: help table1 cnn committee ladder figure1 recognise draw deformations pictures report notebooks watch export bench blocks kernels gpu-check campaign setup test test-all lint record readme clean

# A target's text stands behind ##, the title of a group behind ##@.
help:
	@awk -F': .*## |^##@ ' '/^##@ / {printf "\n%s\n", $$2} /^[a-z0-9-]+: .*## / {printf "  make %-15s%s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo 'Options for the script behind a target: make table1 ARGS="--nets 1 --epochs 10"'
	@echo 'On an interpreter that has the packages: make table1 PYTHON=python3 VENV='

# A test process per core, where pytest-xdist is installed. Without a GPU, kernels compiled for one
# are executed on the CPU.
PYTEST = $(RUN) -m pytest $(shell $(RUN) -c 'import xdist' 2>/dev/null && echo '--dist loadfile -n auto')

##@ train

table1: $(READY)  ## train the five nets of Table 1, print it beside the paper's; ARGS=--no-distortion: Table 3's
	$(RUN) -m experiments.table1 $(ARGS)

cnn: $(READY)  ## train the convolutional nets of 2011, print them beside the paper's
	$(RUN) -m experiments.cnn $(ARGS)

committee: $(READY)  ## train the committees of 2012, print them beside the paper's
	$(RUN) -m experiments.committee $(ARGS)

ladder: $(READY)  ## one small net, seven rungs of kernels: the work and the time of each
	$(RUN) -m experiments.ladder $(ARGS)

##@ look

figure1: $(READY)  ## draw the digits that the best run there is gets wrong
	$(RUN) -m experiments.figure1 $(ARGS)

recognise: $(READY)  ## recognise digits in pictures of your own: ARGS="photo.png"
	$(RUN) -m experiments.recognise $(ARGS)

draw: $(READY)  ## write a sketchpad for digits, which a net recognises in the browser
	$(RUN) -m experiments.draw $(ARGS)

deformations: $(READY)  ## draw a digit deformed: fields, strips, 100 copies, widths
	$(RUN) -m experiments.deformations $(ARGS)

pictures: $(READY)  ## save the figures of the runs there are as PNG and PDF
	$(RUN) -m experiments.pictures $(ARGS)

report: $(READY)  ## one page of all runs and records there are, runs/report.html
	$(RUN) -m experiments.report $(ARGS)

notebooks: $(READY)  ## execute the notebooks, as pages in runs/notebooks
	$(RUN) -m experiments.notebooks $(ARGS)

watch: $(READY)  ## show the trainings that run
	$(RUN) -m experiments.watch $(ARGS)

export: $(READY)  ## hand out runs and nets as other programs read them: ARGS="runs/table1/net1-seed0.h5"
	$(RUN) -m experiments.export $(ARGS)

##@ measure

bench: $(READY)  ## time kernels, engines, PyTorch and more; --startup, --workers: see docs/benchmarks.md
	$(RUN) -m experiments.bench $(ARGS)

blocks: $(READY)  ## compare training in blocks with exact on-line steps, in float64
	$(RUN) -m experiments.blocks $(ARGS)

kernels: $(READY)  ## compile every kernel, print registers, shared memory, spills; needs no GPU
	$(RUN) -m experiments.kernels $(ARGS)

gpu-check: $(READY)  ## prove everything on this machine's GPU, then time it
	$(RUN) -m experiments.gpu_check $(ARGS)

# RECORD: where its counts go.
RECORD = runs/campaign.json
campaign: $(READY)  ## try for hours to break the commands: kills, power cuts, damaged files, faults
	CAMPAIGN=$(RECORD) $(PYTEST) tests/faults $(ARGS)

##@ maintain

setup: $(READY)  ## make .venv with the exact versions of requirements.lock

# The marker is written last, so that an install that broke off is done again.
$(VENV)/.ready: pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: $(PYTHON) is too old: expected Python 3.11 or newer; name one with PYTHON=" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --require-hashes --requirement requirements.lock
	$(VENV)/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

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

record: $(READY)  ## copy the figures of finished runs into results/: ARGS="runs/table1/net1-seed0.h5"
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
