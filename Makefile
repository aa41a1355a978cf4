# Every command a user types. `make help` lists them.
#
# make TARGET                        in .venv; packages that the target needs are installed first
# make TARGET PYTHON=python3 VENV=   on an interpreter that has the packages; installs nothing
# make TARGET ARGS="--nets 1"        options for the script behind the target

PYTHON = python3
VENV = .venv
ARGS =

# Markers: the packages of requirements/*.lock that are in .venv. CUDA's come with the core where
# there is an NVIDIA driver, which a machine may get later, and elsewhere with what compiles kernels.
ifeq ($(strip $(VENV)),)
RUN = $(PYTHON)
export PYTHONPATH := $(CURDIR)/cuda-on-cpu/src$(if $(PYTHONPATH),:$(PYTHONPATH))
CORE = check-packages
CUDA = $(CORE)
NOTEBOOKS = $(CORE)
TESTS = $(CORE)
else
RUN = $(VENV)/bin/python
DRIVER := $(shell $(PYTHON) -m deepbig_runtime.driver 2>/dev/null)
# Not the shell's, whose packages would come before those of .venv.
export PYTHONPATH := $(CURDIR)/cuda-on-cpu/src
CORE = $(if $(DRIVER),$(VENV)/.cuda) check-venv
CUDA = $(VENV)/.cuda
NOTEBOOKS = $(VENV)/.notebooks
TESTS = $(VENV)/.test
endif

# Packages come without compiled modules: if Python did not keep its own, each start would take seconds.
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help table1 cnn committee study ladder figure1 recognise draw pictures report notebooks watch export bench blocks kernels gpu-check setup test test-all lint record readme clean

# A target's text stands behind ##, the title of a group behind ##@.
help:
	@awk -F': .*## |^##@ ' '/^##@ / {printf "\n%s\n", $$2} /^[a-z0-9-]+: .*## / {printf "  make %-15s%s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo 'Options for the script behind a target: make table1 ARGS="--nets 1 --epochs 10"'
	@echo 'On an interpreter that has the packages: make table1 PYTHON=python3 VENV='

# A test process per core, where pytest-xdist is installed; the first that dies ends the run. Without
# a GPU, kernels compiled for one are executed on the CPU.
PYTEST = $(RUN) -m pytest $(shell $(RUN) -c 'import xdist' 2>/dev/null && echo '--dist loadfile --no-loadscope-reorder -n auto --max-worker-restart 0')

##@ train

table1: $(CORE)  ## train the five nets of Table 1, print it beside the paper's; ARGS=--no-distortion: Table 3's
	$(RUN) -m experiments.table1 $(ARGS)

cnn: $(CORE)  ## train the convolutional nets of 2011, print them beside the paper's
	$(RUN) -m experiments.cnn $(ARGS)

committee: $(CORE)  ## train the committees of 2012, print them beside the paper's
	$(RUN) -m experiments.committee $(ARGS)

study: $(CORE)  ## vary one guess at a time, judged by training images held out
	$(RUN) -m experiments.study $(ARGS)

ladder: $(CORE)  ## one small net, seven rungs of kernels: the work and the time of each
	$(RUN) -m experiments.ladder $(ARGS)

##@ look

figure1: $(CORE)  ## draw the digits that the best net there is gets wrong
	$(RUN) -m experiments.figure1 $(ARGS)

recognise: $(CORE)  ## recognise digits in pictures of your own: ARGS="photo.png"
	$(RUN) -m experiments.recognise $(ARGS)

draw: $(CORE)  ## write a sketchpad for digits, which a net recognises in the browser
	$(RUN) -m experiments.draw $(ARGS)

pictures: $(CORE)  ## save the figures of the runs there are as PNG and PDF
	$(RUN) -m experiments.pictures $(ARGS)

report: $(CORE)  ## one page of your runs beside the records, and of all records: runs/report.html
	$(RUN) -m experiments.report $(ARGS)

notebooks: $(NOTEBOOKS)  ## execute the notebooks, as pages in runs/notebooks
	$(RUN) -m experiments.notebooks $(ARGS)

watch: $(CORE)  ## show the trainings that run
	$(RUN) -m experiments.watch $(ARGS)

export: $(CORE)  ## hand out runs and nets as other programs read them: ARGS="runs/table1/net1-seed0.h5"
	$(RUN) -m experiments.export $(ARGS)

##@ measure

bench: $(CORE)  ## time kernels, engines, PyTorch and more: docs/benchmarks.md
	$(RUN) -m experiments.bench $(ARGS)

blocks: $(CORE)  ## compare training in blocks with exact on-line steps, in float64
	$(RUN) -m experiments.blocks $(ARGS)

kernels: $(CUDA)  ## compile every kernel, print registers, shared memory, spills; needs no GPU
	$(RUN) -m experiments.kernels $(ARGS)

gpu-check: $(TESTS)  ## prove everything on this machine's GPU, then time it
	$(RUN) -m experiments.gpu_check $(ARGS)

##@ maintain

setup: $(TESTS)  ## install all that development needs, the exact versions of requirements/

# Without compiling modules beforehand: so it takes half the time and 100 MB less. A marker is written
# last, so that an install that broke off is done again.
INSTALL = $(VENV)/bin/python -m pip install --no-compile --require-hashes --requirement
EDITABLE = $(VENV)/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable

$(VENV)/.core: pyproject.toml requirements/core.lock
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' || \
		{ echo "error: $(PYTHON) is not Python 3.11 to 3.14; name one with PYTHON=" >&2; exit 2; }
	@echo "installing into $(VENV): 550 MB, a minute"
	@$(PYTHON) -m venv $(VENV)
	$(INSTALL) requirements/core.lock
	@$(EDITABLE) .
	@touch $@

$(VENV)/.cuda: $(VENV)/.core cuda-on-cpu/pyproject.toml requirements/cu12.lock requirements/cu13.lock
	@echo "installing CUDA's compiler into $(VENV): 550 MB"
	$(INSTALL) requirements/$(or $(DRIVER),cu12).lock
	@$(EDITABLE) cuda-on-cpu
	@touch $@

$(VENV)/.notebooks: $(VENV)/.core requirements/notebooks.lock
	$(INSTALL) requirements/notebooks.lock
	@touch $@

$(VENV)/.test: $(VENV)/.cuda requirements/test.lock
	@echo "installing the tools of tests into $(VENV): 700 MB"
	$(INSTALL) requirements/test.lock
	@touch $@

test: $(TESTS)  ## run the quick tests, or pytest with ARGS
ifneq ($(strip $(ARGS)),)
	$(RUN) -m pytest $(ARGS)
else
	$(PYTEST) -m 'not slow'
endif

test-all: $(TESTS)  ## run all tests, the slow ones too
	$(PYTEST)

lint: $(TESTS)  ## check style, format and types
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

record: $(CORE)  ## copy the figures of finished runs into results/: ARGS="runs/table1/net1-seed0.h5"
	$(RUN) -m experiments.record $(ARGS)

readme: $(CORE)  ## write the pages' tables and dark pictures anew from results/
	$(RUN) -m experiments.readme $(ARGS)

clean:  ## remove .venv and caches; runs and data stay
	rm -rf $(VENV) build cuda-on-cpu/build *.egg-info cuda-on-cpu/src/*.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One sentence instead of a traceback where something is missing, too old or too new.
.PHONY: check-packages check-venv
check-packages:
	@$(PYTHON) -m deepbig_runtime.requirements || \
		{ echo "name another interpreter with PYTHON=, or leave out VENV= to have them installed" >&2; exit 2; }

check-venv: $(VENV)/.core
	@$(RUN) -m deepbig_runtime.requirements || \
		{ echo "'make clean' removes $(VENV); the same command then installs it anew" >&2; exit 2; }
