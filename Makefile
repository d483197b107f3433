# Every target sets up .venv by itself with python3 (3.11 or newer) and pip, and only when
# pyproject.toml, constraints.txt or the version changed since the last time.

PYTHON ?= python3
BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
# Tests wait for processes more than they compute: three keep two cores busy. A file stays together:
# its set-up is shared. A process that dies, or ends because a test hangs, ends the run: in place of
# restarted ones pytest-xdist waits for ever.
IN_PARALLEL := -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart=0
# Tests start some thousand processes: without bytecode each would compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=
INSTALLED_FROM := pyproject.toml constraints.txt src/penstock/__init__.py
SYSTEM_PACKAGES := radosgw ceph-mon ceph-osd zstd exfat-fuse exfatprogs

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Two targets at once would run two pips in one environment.
.NOTPARALLEL:
.PHONY: help demo test test-long test-system lint bench clean

help: ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/core ## write, train, kill both half-way, and go on as if nothing had happened
	@$(BIN)/penstock demo

test: .venv/dev ## all tests that need only Python, with small counts
	$(BIN)/python -m pytest -m "not system" $(IN_PARALLEL)

test-long: .venv/dev ## the same tests with the counts that the promises are made for
	PENSTOCK_ROUNDS=long $(BIN)/python -m pytest -m "not system" $(IN_PARALLEL) \
	    -o faulthandler_timeout=3600

test-system: .venv/dev ## the S3 tests on Ceph, zstd, a file system without hard links (by apt)
	@missing=; for package in $(SYSTEM_PACKAGES); do \
	    dpkg-query -W -f='$${db:Status-Abbrev}' $$package 2>/dev/null | grep -q '^ii' \
	        || missing="$$missing $$package"; \
	done; \
	if [ -n "$$missing" ]; then \
	    command -v apt-get >/dev/null || { \
	        echo "make test-system installs$$missing with apt, and there is no apt-get here:" \
	            "run it on Debian or Ubuntu, or in a container of one" >&2; exit 1; }; \
	    root=; [ "$$(id -u)" = 0 ] || root=sudo; \
	    echo "installing$$missing"; \
	    $$root apt-get -qq update && \
	    $$root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Dpkg::Use-Pty=0 \
	        install --no-install-recommends $$missing; \
	fi
	$(BIN)/python -m pytest -m "system or s3" --s3-server=radosgw

lint: .venv/dev ## ruff, ruff format, mypy, import-linter
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/dev ## every benchmark: tables of ratios against peers and ceilings
	@for program in benchmarks/[!_]*.py; do $(BIN)/python "$$program" || exit 1; done

clean: ## remove .venv and every cache
	rm -rf .venv build dist .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	find src tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "Penstock needs Python 3.11 or newer, and $(PYTHON) is:" \
	        "$$($(PYTHON) --version 2>&1 || true)." \
	        "Name another one: make PYTHON=python3.12" >&2; exit 1; }
	@echo "setting up .venv"
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then \
	    $(PYTHON) -m venv --clear .venv; \
	else \
	    $(PYTHON) -m venv --clear --without-pip .venv && \
	    $(PYTHON) -m pip --python $(BIN)/python install -qq pip; \
	fi

# What a user gets who trains with torch.
.venv/core: $(INSTALLED_FROM) | $(BIN)/python
	@$(PIP_INSTALL) -e '.[torch]'
	@touch $@

# What a contributor needs; it includes the core.
.venv/dev: $(INSTALLED_FROM) | $(BIN)/python
	@$(PIP_INSTALL) -e '.[dev]'
# It asks for the fbgemm that needs CUDA; `jagged-cpu` brought the one that does not.
	@$(PIP_INSTALL) --no-deps torchrec
	@touch .venv/core $@
