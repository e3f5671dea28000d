# Everything a person or CI runs. A machine needs only make and Python 3.11 or newer: each target sets up what it needs.

PYTHON ?= python3
LOCK_FLAGS ?=
# How many random kernels `make random-kernels` compiles.
KERNELS ?= 2000
# How many products, rows of convolutions, networks and blocks the targets of the same names compile, and for how many
# machines `make random-chips` does.
PRODUCTS ?= 2000
CHAINS ?= 1000
NETWORKS ?= 300
TRANSFORMERS ?= 120
QUANTISED ?= 300
MACHINES ?= 120
# How many programs `make agree` draws, inputs `make fuzz` damages, and runs a mutant of `make mutate-sync` survives.
PROGRAMS ?= 2000
MUTATIONS ?= 10000
MUTANT_RUNS ?= 100
# How many models and tests run at a time.
AT_A_TIME ?= 2
SPREAD := --numprocesses $(AT_A_TIME) --dist worksteal
# Which models `make models` observes, smoke, gate or full; what else `ci.models` takes.
TIER ?= full
MODELS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# The environment decides where packages come from; what they must be is decided by the hashes in the lock files.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Targets start Python hundreds of times: what it has compiled of our sources is kept for the next one, as users have it.
unexport PYTHONDONTWRITEBYTECODE

JOBS := agree bench bench-compile bench-graph bench-models calibrate check-passes cost-accuracy demo determinism examples fuzz models mutate-sync onnx-cases pass-table performance random-chains random-chips random-kernels random-networks random-products random-quantised random-transformers ranking-quality ray-setup record-models sync-count test-ray train-ranking tvm-next
.PHONY: help chromium setup test test-slow lint format types timeline isa-docs lock clean $(JOBS)
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv from the lock file, every package checked by hash

$(STAMP): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: $(PYTHON) is missing or older than Python 3.11; name another: make PYTHON=python3.12 setup" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "error: $(PYTHON) cannot make virtual environments (no ensurepip): install its venv package" \
	    "(on Debian and Ubuntu: python3-venv) or name another Python: make PYTHON=python3.12 setup" >&2; exit 2; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(STAMP) ## compile a network, run it on the emulated chip, and show what it predicts and costs
	$(BIN)/python -m ci.demo

test: $(STAMP) ## run the fast tests, and the smallest models of the zoo
	$(BIN)/python -m pytest $(SPREAD)
	$(BIN)/python -m ci.models --tier smoke --jobs $(AT_A_TIME)

test-slow: $(STAMP) ## run the tests marked slow
	$(BIN)/python -m pytest $(SPREAD) -m slow

lint: $(STAMP) ## check style and formatting
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(STAMP) ## fix what `make lint` can fix
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: $(STAMP) ## check types: mypy --strict
	$(BIN)/mypy

random-kernels: $(STAMP) ## compile random TE kernels, run them, and compare with TVM's CPU code
	$(BIN)/python -m ci.random_cases kernels --count $(KERNELS)

random-products: $(STAMP) ## compile random products of parts of matrices, and sums of products over any axes, run them, and compare with numpy
	$(BIN)/python -m ci.random_cases products --count $(PRODUCTS)
	$(BIN)/python -m ci.random_cases contractions --count $(PRODUCTS)

random-chains: $(STAMP) ## compile random rows of convolutions as one kernel each, run them, and compare with numpy
	$(BIN)/python -m ci.random_cases chains --count $(CHAINS)

random-networks: $(STAMP) ## compile random networks of convolutions with calls in bands, or sections by rows, run them, and compare with onnxruntime
	$(BIN)/python -m ci.random_cases networks --count $(NETWORKS)
	$(BIN)/python -m ci.random_cases sections --count $(NETWORKS)

random-transformers: $(STAMP) ## compile random blocks of transformers, run them, and compare with onnxruntime
	$(BIN)/python -m ci.random_cases transformers --count $(TRANSFORMERS)

random-quantised: $(STAMP) ## compile random quantised networks, run them, and compare with onnxruntime
	$(BIN)/python -m ci.random_cases quantised --count $(QUANTISED)

random-chips: $(STAMP) ## compile models of the zoo for random machines, run them, and compare with onnxruntime
	$(BIN)/python -m ci.random_cases chips --count $(MACHINES)

check-passes: $(STAMP) ## run every kernel of the zoo on the CPU before and after each pass (long)
	$(BIN)/python -m ci.check_passes

onnx-cases: $(STAMP) ## run a sample of ONNX's own cases of its operators on the smallest chip
	$(BIN)/python -m ci.onnx_cases --sample 200

pass-table: $(STAMP) ## what each TIR pass is good for, over the models
	$(BIN)/python -m ci.pass_table

bench-compile: $(STAMP) ## how long compiling takes, beside TVM's CPU build, and for stacks of up to 2,000 layers
	$(BIN)/python -m ci.bench_compile

chromium: ## install what the tests of reports look at them with, where it is missing (Debian, as root)
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -qq --no-install-recommends chromium; } \
	  || echo "no Chromium, and none could be installed: the tests that look at reports are skipped" >&2

bench-graph: $(STAMP) ## served models at full batch, with one more part of graph scheduling each time (long)
	$(BIN)/python -m ci.performance ladder

bench-models: $(STAMP) ## a functional run of ResNet-50 beside TVM's untuned CPU build
	$(BIN)/python -m ci.bench_models

models: $(STAMP) ## compile and run every model of the zoo, and compare with onnxruntime and the record
	$(BIN)/python -m ci.models --tier $(TIER) --jobs $(AT_A_TIME) $(MODELS)

ray-setup: ## make .venv-ray, with what the model regression needs on a Ray cluster's machines
	@test -x .venv-ray/bin/pip || $(PYTHON) -m venv .venv-ray
	.venv-ray/bin/python -m pip install --quiet --require-hashes -r requirements-ray.lock

test-ray: ray-setup ## run the model regression on a local Ray cluster, of which a worker is killed
	.venv-ray/bin/python -m pytest -m slow tests/ci/models/test_ray_engine.py

record-models: $(STAMP) ## write down what every model takes, after changes of what is compiled (long; goes on where it was)
	$(BIN)/python -m ci.models --tier full --record --jobs $(AT_A_TIME) $(MODELS)

agree: $(STAMP) ## interpreter and simulator agree bit for bit on random race-free programs
	$(BIN)/python -m ci.agreement --programs $(PROGRAMS)

sync-count: $(STAMP) ## flags and barriers of small kernels before and after minimising, and at least
	$(BIN)/python -m ci.sync_count

mutate-sync: $(STAMP) ## the hazard checker notices every synchronisation that is taken away
	$(BIN)/python -m ci.sync_mutation --seeds $(MUTANT_RUNS)

cost-accuracy: $(STAMP) ## the static cycle model beside the simulator: kernels, and whole models
	$(BIN)/python -m ci.cost_accuracy

train-ranking: $(STAMP) ## teach the ranking of tiles from the simulator again, after changes of what is compiled
	$(BIN)/python -m ci.train_ranking --chip tw1
	$(BIN)/python -m ci.train_ranking --chip tw2

ranking-quality: $(STAMP) ## what the search picks beside the best of all tiles, on kernels not learned from
	$(BIN)/python -m ci.ranking_quality --chip tw1
	$(BIN)/python -m ci.ranking_quality --chip tw2

tvm-next: $(STAMP) ## try the newest TVM in a fresh environment: which patches fit it, which tests change
	$(BIN)/python -m ci.tvm_next

examples: $(STAMP) ## the operators in examples/ beside what their work needs at least
	$(BIN)/python -m ci.examples

calibrate: $(STAMP) ## simulated cycles against the public measurements of the modelled chip
	$(BIN)/python -m ci.calibration

determinism: $(STAMP) ## same input, same bytes and same cycles, run after run
	$(BIN)/python -m ci.determinism

fuzz: $(STAMP) ## hostile programs, artifacts, chips and arrays end in an error, never in a crash
	$(BIN)/python -m ci.fuzz --mutations $(MUTATIONS)

bench: $(STAMP) ## how fast the emulation is, and whether the cycles of compiled operators are as recorded
	$(BIN)/python -m ci.bench
	$(BIN)/python -m ci.performance --check

performance: $(STAMP) ## measure how good compiled programs are, and write docs/performance.md (long)
	$(BIN)/python -m ci.performance --write --record

timeline: $(STAMP) ## draw docs/timeline.svg again
	$(BIN)/tilewright profile docs/examples/digits.onnx --chip tiny --precision fp16 --timeline docs/timeline.svg

isa-docs: $(STAMP) ## write docs/isa.md from the instruction table
	@mkdir -p docs
	$(BIN)/tilewright isa --markdown > docs/isa.md.tmp || { rm -f docs/isa.md.tmp; exit 1; }
	@mv docs/isa.md.tmp docs/isa.md

lock: $(STAMP) ## resolve the lock files again (all to their newest: make lock LOCK_FLAGS=--upgrade)
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet uv
	$(BIN)/uv $(UV_COMPILE) --extra dev --output-file requirements-dev.lock pyproject.toml
	$(BIN)/uv $(UV_COMPILE) --constraint requirements-dev.lock --output-file requirements.lock pyproject.toml
	$(BIN)/uv $(UV_COMPILE) --extra dev --extra ray --constraint requirements-dev.lock --output-file requirements-ray.lock pyproject.toml

# One resolution for every Python and platform, and one version of each package in it: the same numbers everywhere.
UV_COMPILE = pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $(LOCK_FLAGS)

clean: ## remove the environment, caches and builds
	rm -rf $(VENV) .venv-ray build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
