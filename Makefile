# A fresh machine needs Python 3.11, git, make and pip.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help env peers demo test test-all check fix bench clean

help:
	@echo "make demo      the main job on real climate data, on a local Dask cluster"
	@echo "make test      the tests (make test-all: the slow ones too)"
	@echo "make check     formatting, lint, types, layers"
	@echo "make bench     the benchmarks, compared with other libraries"

# One environment for everything, built again when its requirements change.
$(VENV)/.made: pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: set PYTHON=python3.x (3.11 or later)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[s3,http,parquet,codecs,dtypes,demo]' --group test --group check
	@touch $@

env: $(VENV)/.made

# zarr-python 2, a reference implementation for the tests, which cannot be installed beside zarr-python 3
$(VENV)/peers/zarr2/.made: $(VENV)/.made
	$(PYTHON) -m venv $(VENV)/peers/zarr2
	$(VENV)/peers/zarr2/bin/python -m pip install --quiet zarr==2.18.7 numcodecs==0.15.2 numpy==2.4.6 fsspec==2026.9.0 msgpack==1.2.4 crc32c==2.9.post0
	@touch $@

peers: $(VENV)/peers/zarr2/.made

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
	$(call timed,demo,$(MAKE) --no-print-directory $(DEMO)/.made && $(DEMO)/bin/chunkmill demo --output demo-output)

test:
	$(call timed,test,$(MAKE) --no-print-directory env peers && $(BIN)/python -m pytest -q -n 2 -m "not slow")

test-all: env peers
	$(BIN)/python -m pytest -q -n 2

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

clean:
	rm -rf $(VENV) build dist demo-output .mypy_cache .ruff_cache .pytest_cache .hypothesis
