# Every target makes its own virtual environment in .venv; PYTHON chooses the interpreter (3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help venv demo ui test check lint types docs docs-check unit integration bench soak clean

help:
	@echo "make demo   walk the example on this machine: init, check, test, apply, edit, block, approve, apply through Dagster"
	@echo "make ui     open the Dagster UI on what make demo made"
	@echo "make test   every test; with Java 17 and Maven also on a real Flink, SQL Gateway and Kafka"
	@echo "make check  formatting, lint, types, unit tests, generated documentation"
	@echo "make bench  measurements, as ratios within one run"
	@echo "make soak   the long suites: kills, fuzzing"

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,ui]'
	@touch $(STAMP)

venv: $(STAMP)

demo: $(STAMP)
	@$(BIN)/python -m integration.demo build/demo

ui: $(STAMP)
	@test -d build/demo/shop || { echo "run make demo first"; exit 1; }
	DAGSTER_HOME=$(CURDIR)/build/demo/dagster_home $(BIN)/dagster dev -f build/demo/shop/definitions.py

test: $(STAMP)
	$(BIN)/python -m pytest tests integration

unit: $(STAMP)
	$(BIN)/python -m pytest tests

integration: $(STAMP)
	$(BIN)/python -m pytest integration

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy

docs: $(STAMP)
	$(BIN)/python -m tests.tools.write_docs

docs-check: $(STAMP)
	$(BIN)/python -m tests.tools.write_docs --check

check: lint types docs-check unit

bench: $(STAMP)
	$(BIN)/python -m tests.bench.run

soak: $(STAMP)
	$(BIN)/python -m pytest tests integration -m soak --override-ini "addopts=-q --strict-markers"

clean:
	rm -rf build .mypy_cache .ruff_cache .pytest_cache
