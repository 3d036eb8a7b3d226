# Everything is made from python3 and make: a virtual environment in .venv, the locked dependencies, the package itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-for-demo

.PHONY: demo test check faults soak fuzz mutants peers grids nightly random coverage versions spark-versions lint bench bench-quick docs lock dist clean

demo: $(DEMO_STAMP)
	$(BIN)/kclient-quota demo

# Everything that this machine can run; 20 minutes on two cores, 8 without a JDK.
test: $(STAMP) lint
	$(BIN)/python -m pytest -n auto --budgets

# What needs no waiting, before a commit; 3 minutes.
check: $(STAMP) lint
	$(BIN)/python -m pytest -n logical tests/unit tests/property

# What clients lose, double and re-order when networks, brokers and processes fail; an hour and a half.
faults: $(STAMP)
	FAULTS_JSON=benchmarks/results/faults.json $(BIN)/python -m pytest tests/faults

# Clients and brokers for an hour: quotas change, clients come and go, brokers restart; nothing may grow or be lost.
soak: $(STAMP)
	$(BIN)/python -m tests.soak --json benchmarks/results/soak.json

# 10 million broken frames for every reader, 100,000 for Kafka's own classes, 100,000 on sockets; 20 minutes.
fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz --json benchmarks/results/fuzz.json

# Strangers' test suites against the embedded broker and Apache Kafka; needs Go and Java, an hour and a half.
# One alone: make peers SUITE="'franz-go kgo'"
SUITE ?=
peers: $(STAMP)
	$(BIN)/python -m tests.peers --json benchmarks/results/peers.json $(SUITE)

# Small faults in the pure cores, a sample of them: which of them unit tests notice; a quarter of an hour.
mutants: $(STAMP)
	$(BIN)/python -m pip install --quiet cosmic-ray==8.7.0
	$(BIN)/python -m tests.mutants --json benchmarks/results/mutants.json

# What `make test` has one of: the simulation in every cell of the README's tables, Spark on clusters, through Spark
# Connect and at other sizes; then, alone, figures by the wall clock of the embedded broker, and what takes minutes.
grids: $(STAMP)
	$(BIN)/python -m pytest -n logical tests/grids tests/spark_grid
	$(BIN)/python -m pytest tests/measured_grid

# Everything that there is, one after the other, each to its end; hours. It fails when any of them has.
NIGHTLY := test random grids faults fuzz soak peers mutants versions spark-versions
nightly:
	$(MAKE) --keep-going $(NIGHTLY)

# Properties with other examples every time; `make random SEED=...` plays those of the printed seed again.
SEED ?= $(shell date +%s)
random: $(STAMP)
	@echo "seed $(SEED)"
	$(BIN)/python -m pytest -n logical tests/property --hypothesis-profile=random --hypothesis-seed=$(SEED) --timeout=3600

# How much of the code the tests run through that need no waiting, and those beside the embedded broker. What bounds the
# broker's turns in seconds of processor would measure the tracer, and whose signals come within locks leaves its held.
coverage: $(STAMP)
	$(BIN)/python -m pytest -n auto -q --cov --cov-report=term --cov-report=html:build/coverage \
		tests/unit tests/property tests/contract tests/integration tests/examples \
		--deselect tests/unit/broker/test_telling.py::test_a_group_of_a_thousand_members_is_told_of_in_turns \
		--deselect tests/unit/telemetry/test_locks.py::test_a_lock_that_was_interrupted_is_free

# Python 3.11 to 3.14 and the lowest versions that are declared; Pythons that are missing come with uv.
versions: $(STAMP)
	$(BIN)/python -m pip install --quiet nox uv
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/nox

# The pipeline with PySpark 4.1, 4.2 and 4.3; half an hour.
spark-versions: $(STAMP)
	$(BIN)/python -m pip install --quiet nox uv
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/nox --session spark

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/python -m benchmarks

bench-quick: $(STAMP)
	$(BIN)/python -m benchmarks --quick

# The reference from the code, then everything as a site in build/site; a link that leads nowhere fails it
# (with --quiet it would not: what is not logged is not counted).
docs: $(STAMP)
	$(BIN)/python -m docs.generate
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# What makes the virtual environment, and says what is missing where it cannot be made.
define make-venv
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "kclient-quota needs Python 3.11 or newer: make PYTHON=python3.12"; exit 1; }
@$(PYTHON) -c 'import ensurepip' || { echo "python3 cannot make virtual environments here: install its venv package (Debian: python3-venv)"; exit 1; }
test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
endef

# Everything: clients, demo, Spark, tests, linters. The lock is whole, so pip is not to look for anything else: asked to, an
# older pip takes `coverage[toml]` for another package than the pinned `coverage` and fails on the day of its next release.
$(STAMP): requirements.lock pyproject.toml
	$(make-venv)
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	$(BIN)/python -m pip check
	touch $(STAMP) $(DEMO_STAMP)

# Only what the demo needs, a fifth of everything; the lock is whole, and what the demo never imports need not be compiled.
$(DEMO_STAMP): requirements-demo.lock pyproject.toml
	$(make-venv)
	$(BIN)/python -m pip install --quiet --no-deps --no-compile --require-hashes -r requirements-demo.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $(DEMO_STAMP)

# Needs uv; writes the versions and hashes that everybody installs. The demo's are some of those of the tests.
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header
lock:
	$(LOCK) pyproject.toml --all-extras --group test --group docs --group build -o requirements.lock
	$(LOCK) pyproject.toml --extra demo --group build -c requirements.lock -o requirements-demo.lock
	$(LOCK) --group release -c requirements.lock -o requirements-release.lock

# Wheel and sdist in dist/, the same bytes from the same commit: setuptools leaves the times of its own files in the sdist.
COMMITTED = $$(git log -1 --format=%ct)
dist: $(STAMP)
	rm -rf dist build
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements-release.lock
	SOURCE_DATE_EPOCH=$(COMMITTED) $(BIN)/python -m build --no-isolation
	mkdir -p build/sdist && tar -xzf dist/*.tar.gz -C build/sdist
	cd build/sdist && tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@$(COMMITTED) -cf - * | gzip -n > ../../dist/$$(ls).tar.gz
	$(BIN)/python -m twine check --strict dist/*

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
