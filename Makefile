# What a person who works on tpu-agent types. `make` alone lists it.
PYTHON ?= python3
DEPS ?= newest
VENV ?= .venv
bin := $(VENV)/bin
version := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' tpuagent/__init__.py)
deb := dist/tpu-agent_$(version)_all.deb

.DEFAULT_GOAL := help
.PHONY: help demo test lint format docs venv deb lint-deb reproducible piuparts vm-test vm-shell bench clean

help:
	@echo 'Without root, on any Linux with Python 3.10 or newer; each sets up what it needs in $(VENV):'
	@echo '  make demo      the real agent on a simulated TPU host, about 15 seconds'
	@echo '  make test      style, types, import contracts, and every test that needs neither root nor a guest'
	@echo '  make format    rewrite the Python files in the project'"'"'s format'
	@echo '  make docs      what is made of the description of the configuration: page, manual, schema'
	@echo 'On Debian or Ubuntu:'
	@echo '  make deb       $(deb)'
	@echo '  make lint-deb  lintian on that package'
	@echo '  make reproducible  build it twice, and compare every byte'
	@echo 'As root on Debian, with mmdebstrap; the first run builds images and keeps them:'
	@echo '  make piuparts  piuparts and autopkgtest on that package, in chroots of Debian 12 and 13'
	@echo '  make vm-test   the package in chroots and in guests with emulated TPU functions'
	@echo '  make vm-shell  a prompt inside such a guest'
	@echo '  make bench     how fast it is, against the documented hook and raw sysfs writes, in such a guest'
	@echo
	@echo 'PYTHON=python3.12  another interpreter        DEPS=lowest  the oldest supported dependencies'
	@echo 'VENV=FOLDER        another environment        ARGS=...     handed to pytest: make test ARGS="-k holders"'

venv:
	@scripts/venv $(VENV) $(PYTHON) $(DEPS)

demo: venv
	@$(bin)/python -m tests.fakes.demo

test: lint
	$(bin)/pytest -n auto $(ARGS)

# The oldest dependencies ship no types, so that run only tests; the code is the same as in the run that is linted.
ifeq ($(DEPS),lowest)
lint: venv
else
lint: venv
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy
	$(bin)/lint-imports --no-cache
endif

format: venv
	$(bin)/ruff check --fix-only .
	$(bin)/ruff format .

docs: venv
	$(bin)/python -m manual docs

deb:
	@scripts/build-deb $(deb)

lint-deb: deb
	lintian --fail-on error,warning --info --tag-display-limit 0 $(deb)

reproducible:
	@scripts/reproduce $(deb)

# Both are a part of vm-test.
piuparts: venv deb
	$(bin)/pytest -v tests/packaging_chroot/test_tools.py $(ARGS)

# Chroots beside guests; two guests at a time would only keep each other from working.
vm-test: venv deb
	$(bin)/pytest -v -n 2 tests/packaging_chroot tests/vm $(ARGS)

vm-shell: venv deb
	$(bin)/python -m tests.vm.shell

bench: venv deb
	$(bin)/python -m bench.fetch
	$(bin)/python -m bench.check
	$(bin)/python -m bench.restarts
	$(bin)/python -m bench.boot
	$(bin)/python -m bench

clean:
	rm -rf .venv .venv-* build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
