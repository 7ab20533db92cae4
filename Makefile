.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e ".[dev]"
	@touch $@

setup: $(STAMP)  ## create .venv and install the pinned versions

demo: $(STAMP)  ## every method on six prompts; asserts identity with AR in float32 (minutes)
	rm -rf results/raw/demo
	$(BIN)/python -m experiments.run experiment=demo

EXPERIMENT ?= demo
report: $(STAMP)  ## one page of an experiment: results/EXPERIMENT/report.html
	$(BIN)/python -m experiments.report experiment=$(EXPERIMENT)

fetch-docs: $(STAMP)  ## fetch the documentation packages behind the translation and summarisation sets
	$(BIN)/python -m experiments.fetch_docs

pin: $(STAMP)  ## write the revisions of the data sets that are read into conf/dataset
	$(BIN)/python -m experiments.pin

bench: $(STAMP)  ## paired ratios on more prompts, results/bench (up to an hour; needs the machine to itself)
	$(BIN)/python -m experiments.bench

CHAIN ?= smollm2
certify: $(STAMP)  ## exactness of a chain, shown: results/certify/CHAIN (under 15 minutes for the default)
	$(BIN)/python -m experiments.certify chain=$(CHAIN)

certify-pipelined: $(STAMP)  ## rungs 0 to 4 with every prediction right, every one wrong, and slow workers in turn
	$(BIN)/python -m experiments.certify chain=$(CHAIN) schedule=pipelined

check-chain: $(STAMP)  ## one page about a chain of your own: make check-chain CHAIN=my_chain.yaml
	$(BIN)/python -m experiments.check chain=$(CHAIN)

verification: $(STAMP)  ## token against block verification in speed, results/verification (minutes)
	$(BIN)/python -m experiments.verification

plan: $(STAMP)  ## which sub-chain to use, predicted then measured: results/plan (under five minutes)
	$(BIN)/python -m experiments.plan

plan-validate: $(STAMP)  ## predicted against measured speedups: results/plan_validate (under 20 minutes)
	$(BIN)/python -m experiments.plan_validate

calibrate: $(STAMP)  ## temperatures per level, chosen and measured: results/calibrate (quarter of an hour)
	$(BIN)/python -m experiments.calibrate

cascade: $(STAMP)  ## acceptance of each edge alone, in the chain, and by fate: results/cascade (minutes)
	$(BIN)/python -m experiments.cascade

schedule-demo: $(STAMP)  ## levels in turns against levels working ahead: results/schedule (minutes)
	$(BIN)/python -m experiments.schedule_demo

runtime-bench: $(STAMP)  ## what faster passes are worth, results/runtime (under five minutes; needs the machine to itself)
	$(BIN)/python -m experiments.runtime_bench

what-if: $(STAMP)  ## what a chain does where it cannot be run here, simulated: results/what_if (minutes)
	$(BIN)/python -m experiments.what_if

gpu-bench: $(STAMP)  ## chains at LLaMA-2 scale on one GPU: results/h200 (four stages of under four minutes)
	$(BIN)/python -m experiments.gpu_bench

check: $(STAMP)  ## format, lint, types, import layers
	$(BIN)/ruff format --check ssd experiments analysis tests
	$(BIN)/ruff check ssd experiments analysis tests
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(STAMP)  ## all CPU tests (under ten minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 -m "not gpu"

test-oldest: $(STAMP)  ## core tests against the oldest transformers supported
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/pip install --quiet -c constraints-oldest.txt -e ".[dev]"
	OMP_NUM_THREADS=1 .venv-oldest/bin/python -m pytest -q -n 2 -m "not gpu and not slow"

readme-check: $(STAMP)  ## run the README's blocks on a fresh clone and check its numbers
	$(BIN)/python -m experiments.readme_check

clean:  ## remove the virtual environments and raw results
	rm -rf .venv .venv-oldest results/raw

.PHONY: help setup demo report fetch-docs pin bench certify certify-pipelined check-chain verification plan plan-validate calibrate cascade schedule-demo runtime-bench what-if gpu-bench check test test-oldest readme-check clean
