# A fresh machine needs Python 3.11, git, make and pip.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin

# modules are compiled once, whatever the shell says: the tests start many processes
export PYTHONDONTWRITEBYTECODE :=

# `make test-versions`: the newest version of everything, or the lowest ones that pyproject.toml allows
VERSIONS ?= newest
MATRIX = .venv-matrix/$(notdir $(PYTHON))-$(VERSIONS)

.PHONY: help env peers without-zarr3 demo test test-all test-versions test-matrix check fix bench docs serve-docs notebooks dist clean

help:
	@echo "make demo      the main job on real climate data, on a local Dask cluster"
	@echo "make test      the tests without clusters, killed processes, other implementations (make test-all: all of them)"
	@echo "make test-matrix  the tests on Python 3.12 and 3.13 with the newest versions, on 3.11 with the lowest"
	@echo "make check     formatting, lint, types, layers"
	@echo "make docs      the documentation, into site/ (make serve-docs: in a browser, rebuilt on changes)"
	@echo "make notebooks run the notebooks and keep their outputs"
	@echo "make bench     the benchmarks, compared with other libraries"

# One environment, built again when its requirements change: of `make test` at first, and of everything else when that is
# asked for. --no-compile: the tests import a fourth of the modules
INSTALL = $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: set PYTHON=python3.x (3.11 or later)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'

$(VENV)/.tests: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) '.[cloud,parquet,codecs,dtypes]' --group test
	@touch $@

$(VENV)/.made: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) '.[cloud,parquet,codecs,dtypes,demo]' --group slow --group check
	@touch $(VENV)/.tests $@

env: $(VENV)/.made

# zarr-python 2, a reference implementation for the tests, which cannot be installed together with zarr-python 3
$(VENV)/peers/zarr2/.made:
	$(PYTHON) -m venv $(VENV)/peers/zarr2
	$(VENV)/peers/zarr2/bin/python -m pip install --quiet zarr==2.18.7 numcodecs==0.15.2 numpy==2.4.6 fsspec==2026.9.0 msgpack==1.2.4 crc32c==2.9.post0
	@touch $@

# the newest zarr-python, which needs Python 3.12
PEER_PYTHON ?= $(shell for each in python3.13 python3.12; do $$each -c "" 2>/dev/null && echo $$each && break; done)
$(VENV)/peers/zarr3/.made:
	$(PEER_PYTHON) -m venv $(VENV)/peers/zarr3
	$(VENV)/peers/zarr3/bin/python -m pip install --quiet zarr==3.4.2 numcodecs==0.17.1 msgpack==1.2.4 crc32c==2.9.post0 zfpy==1.0.1 cast-value-rs==0.5.1 pcodec==1.1.0
	@touch $@

# Icechunk 2, which needs Python 3.12 as well, with chunkmill to write to it
$(VENV)/peers/icechunk2/.made:
	$(PEER_PYTHON) -m venv $(VENV)/peers/icechunk2
	$(VENV)/peers/icechunk2/bin/python -m pip install --quiet icechunk==2.3.0 zarr==3.4.2 pytest==9.2.0 hypothesis==6.170.15 -e .
	@touch $@

# anndata, whose tables are a hierarchy of arrays, with chunkmill to show it some; and zarrita.js, where there is npm
$(VENV)/peers/anndata/.made:
	$(PYTHON) -m venv $(VENV)/peers/anndata
	$(VENV)/peers/anndata/bin/python -m pip install --quiet anndata==0.12.19 zarr==3.1.6 -e .
	@touch $@

$(VENV)/peers/js/.made:
	@mkdir -p $(VENV)/peers/js
	cd $(VENV)/peers/js && npm install --silent --no-audit --no-fund zarrita@0.7.5 @zarrita/storage@0.2.0
	@touch $@

# libraries of OME-Zarr, which want other versions of zarr-python and Dask than the tests
$(VENV)/peers/ome/.made:
	$(PYTHON) -m venv $(VENV)/peers/ome
	$(VENV)/peers/ome/bin/python -m pip install --quiet napari-ome-zarr==0.10.0 ngff-zarr==0.50.0 ome-zarr==0.18.0 yaozarrs==0.3.4 zarr==3.1.6
	@touch $@

peers: $(VENV)/peers/zarr2/.made $(if $(PEER_PYTHON),$(VENV)/peers/zarr3/.made $(VENV)/peers/icechunk2/.made,without-zarr3) $(VENV)/peers/anndata/.made \
	$(if $(shell command -v npm),$(VENV)/peers/js/.made)

without-zarr3:
	@echo "neither python3.12 nor python3.13 found: the newest zarr-python and Icechunk 2 are not asked (set PEER_PYTHON=python3.x)"

# What the demo needs and nothing else: the environment of the tests is three times as large. Of nilearn it reads one file,
# without scipy, scikit-learn and lxml.
DEMO := $(VENV)/demo
$(DEMO)/.made: pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: set PYTHON=python3.x (3.11 or later)"; exit 1; }
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --constraint constraints.txt \
		--editable . cftime h5netcdf h5py iris-sample-data kerchunk matplotlib nibabel
	$(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --constraint constraints.txt \
		--no-deps nilearn
	@touch $@

# $(call timed,NAME,COMMAND): run, and print how long it took, whether it succeeded or not
timed = @start=$$(date +%s); $(2); code=$$?; echo "make $(1): $$(( $$(date +%s) - start )) s"; exit $$code

demo:
	$(call timed,demo,$(MAKE) --no-print-directory $(DEMO)/.made && $(DEMO)/bin/python notebooks/demo.py --output demo-output)

# neither clusters nor other processes that take long, nor other implementations: those are of test-all
test:
	$(call timed,test,$(MAKE) --no-print-directory $(VENV)/.tests && $(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow" --ignore tests/interop)

# three at once on two cores: the tests with clusters wait a fourth of the time (685 s instead of 874). worksteal: the tests
# of a module stay together, and its cluster or server is started once, not by each of the three (93 tests: 86 s of the
# processor instead of more than 99)
test-all: env peers $(VENV)/peers/ome/.made
	$(BIN)/python -m pytest -q -n 3 --dist worksteal -m "not brief"

# moto and s3fs must agree on a botocore, for which pip would search until it met packages that cannot be built
S3_SERVER := aiobotocore|boto3|botocore|moto|s3transfer

# Nothing else of constraints.txt: what users get who install chunkmill today, and what those have who never upgrade
$(MATRIX)/.made: pyproject.toml constraints.txt tests/support/lowest_versions.py
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: set PYTHON=python3.x (3.11 or later)"; exit 1; }
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(if $(filter lowest,$(VERSIONS)),$(PYTHON) tests/support/lowest_versions.py,grep -E '^($(S3_SERVER))==' constraints.txt) > $(@D)/constraints.txt
	$(@D)/bin/python -m pip install --quiet --constraint $(@D)/constraints.txt --editable '.[cloud,parquet,codecs,dtypes,demo]' --group slow
	@touch $@

test-versions: $(MATRIX)/.made
	$(<D)/bin/python -m pytest -q -n 2 --dist worksteal -m "not slow"

test-matrix:
	$(MAKE) test-versions PYTHON=$(or $(PYTHON312),python3.12)
	$(MAKE) test-versions PYTHON=$(or $(PYTHON313),python3.13)
	$(MAKE) test-versions PYTHON=$(or $(PYTHON311),python3.11) VERSIONS=lowest

check: env
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: env
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: env
	$(BIN)/python -m benchmarks

# What the site needs and nothing else: mkdocs, and the package whose docstrings and commands it shows.
DOCS := $(VENV)/docs
$(DOCS)/.made: pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: set PYTHON=python3.x (3.11 or later)"; exit 1; }
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(DOCS)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[zarr]' --group docs
	@touch $@

# strict: a broken link, or a name that is not there, is an error; --quiet would hide both, and build
docs: $(DOCS)/.made
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --site-dir site

serve-docs: $(DOCS)/.made
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs serve

# run the notebooks, and keep their outputs
notebooks: env
	$(BIN)/python docs/run_notebooks.py

# the source distribution, and the wheel from it
dist: env
	rm -rf dist
	$(BIN)/python -m build

clean:
	rm -rf $(VENV) .venv-matrix build dist site demo-output .mypy_cache .ruff_cache .pytest_cache .hypothesis
