# `make check` is everything that a change has to pass. The virtual environment is the one that `bash tests/run` makes.
BIN = .venv/bin/

.PHONY: check format lint types imports test full soak bench

check: lint types imports test

format:
	$(BIN)ruff format .
	$(BIN)ruff check --fix .

lint:
	$(BIN)ruff format --check .
	$(BIN)ruff check .

types:
	$(BIN)mypy

imports:
	$(BIN)lint-imports

test:
	bash tests/run

# The same with hundreds of jobs, recoveries and tasks, and outages of minutes.
full:
	TOWLINE_TESTS=full bash tests/run

# Random faults over many jobs: make soak MINUTES=20 SEED=7
MINUTES ?= 20
soak:
	$(BIN)python -m tests.faults.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

# How close to the limit, measured here: make bench, or FIGURES="restart recovery" for some; the whole takes half an hour.
bench:
	$(BIN)python -m benchmarks $(FIGURES)
