# Everything a fresh machine needs: Python 3.11 to 3.13, a C++20 compiler and the package registries.
#
#   make run     set up, build, and print a first receipt: of BERT-base, on a CPU with narrow widths
#   make test    set up, build, and run the tests that find most for their time (no GPU is needed)
#   make test-all  the slow ones too: compilers, whole receipts, killed fleets
#   make lint    formatting, types and static analysis
#   make docs    the documentation as a site, in build/site; a link that leads nowhere is an error
#   make bench   the CPU's figures of bench/, appended to bench/results/
#   make wheel   an sdist, a wheel for the CPU, and one for CUDA where there is nvcc, in dist/
#   make run-wheel-aarch64  a wheel of `ftax run` for ARM, in dist/aarch64/
#   make oldest  set up, build and test with the oldest torch that is supported (6.5 GB)
#
# TORCH chooses the torch to build against: `make run TORCH=torch==2.14.1`. It is installed first and
# then held by a constraints file, so that no dependency can bring another.
TORCH ?= torch==2.13.0
VENV ?= .venv
PYTHON ?= python3
PIP := $(VENV)/bin/python -m pip
# One build folder a virtual environment: two torches must never share object files.
PLACE := $(patsubst .%,%,$(notdir $(VENV)))
SHARED := --no-build-isolation -C build-dir=build/$(PLACE)
EDITABLE := $(SHARED) -e
# The GPU build of ONNX Runtime only where there is a GPU: it is ten times as large.
EXTRAS := models,gpu,ray,report,dev,$(if $(shell command -v nvidia-smi),onnx-gpu,onnx)
# Processes of tests, of one thread each: one a core, or none but this where they share a GPU.
WORKERS ?= $(if $(shell command -v nvidia-smi),0,$(shell nproc))
# `ftax run`, a package for itself; its libraries lie beside its files, so it is not editable.
RUN_PACKAGE := --no-build-isolation -C build-dir=$(CURDIR)/build/run-$(PLACE) python/ftax_run
RUN_SOURCES := $(shell find python/ftax_run/src -name '*.py' -o -path '*/templates/*') $(addprefix python/ftax_run/,CMakeLists.txt pyproject.toml)
SOURCES := $(shell find csrc cmake -type f -not -name "*.pyc") CMakeLists.txt pyproject.toml
CXX_FILES := $(shell find csrc tests/cpp -name '*.cpp' -o -name '*.h' -o -name '*.cu')

.PHONY: run build test test-all test-python test-cpp sanitize sanitize-python lint format docs bench cuda-build wheel this-wheel \
        run-wheel-aarch64 oldest clean

# On a GPU the whole ladder. On a CPU narrow layers on one thread: the host's work shows, and is
# resolved in seconds also beside a busy neighbour. RUN= adds what takes compilers and minutes:
# `make run RUN="--runtimes available"`.
CHOOSE := import torch; gpu = torch.cuda.is_available()
CHOOSE += ; print("--device cuda --dtype fp16" if gpu else "--tiny --threads 1 --duration 15 --patience 10")
RUN ?=
run: build
	$(VENV)/bin/ftax tax bert-base $$($(VENV)/bin/python -c '$(CHOOSE)') $(RUN)
	@echo
	@echo "Next, your own model: a function that returns a module and the inputs of one request."
	@echo "  $(VENV)/bin/ftax tax my_package.model:make"
	@echo "torch.compile and AOTInductor too, which take minutes: make run RUN=\"--runtimes available\""

build: $(VENV)/.built

# One stamp per kind of torch, so that another TORCH= installs it.
$(VENV)/.torch-$(subst =,_,$(TORCH)):
	@echo "Setting up $(VENV) with $(TORCH): a CPU build is about 0.2 GB, a CUDA build 3 to 6 GB."
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --progress-bar on "$(TORCH)"
	$(PIP) list --format=freeze | grep -E '^(torch|triton)==' > $(VENV)/constraints.txt
	rm -f $(VENV)/.torch-* && touch $@

$(VENV)/.dependencies: $(VENV)/.torch-$(subst =,_,$(TORCH)) pyproject.toml
	@echo "Installing build tools and dependencies (about 0.5 GB)."
	$(PIP) install -q -c $(VENV)/constraints.txt scikit-build-core pybind11 cmake ninja
	@echo "Building ftax: two to three minutes the first time, seconds later."
	$(PIP) install -q -c $(VENV)/constraints.txt $(RUN_PACKAGE)
	$(PIP) install -q -c $(VENV)/constraints.txt $(EDITABLE) ".[$(EXTRAS)]"
	touch $@ $(VENV)/.built

$(VENV)/.built: $(VENV)/.dependencies $(SOURCES) $(RUN_SOURCES)
	$(PIP) install -q --no-deps --force-reinstall $(RUN_PACKAGE)
	$(PIP) install -q --no-deps $(EDITABLE) .
	touch $@

test: test-cpp test-python

test-all: AND_NOT_SLOW :=
test-all: test

# Tests of measured times come after the others, and run alone.
TESTS ?= tests
AND_NOT_SLOW := and not slow
test-python: build
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal -m "not timing $(AND_NOT_SLOW)" $(TESTS)
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -m "timing $(AND_NOT_SLOW)" $(TESTS)

# The torch-free core alone, with its own tests; $(1) is a preset of CMakePresets.json.
define run_core_tests
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cmake --preset $(1)
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cmake --build --preset $(1)
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" ctest --preset $(1)
endef

test-cpp: $(VENV)/.dependencies
	$(call run_core_tests,core)

sanitize: $(VENV)/.dependencies
	$(call run_core_tests,asan)
	$(call run_core_tests,tsan)

# The extension under the address sanitizer, by tests that record, capture and replay: it is in an
# environment of its own, which sees the packages of $(VENV). Torch is not instrumented: wrong uses of
# its memory by ours are found, leaks are not looked for. Exceptions need the C++ library to be there
# when the sanitizer begins.
ASAN := build/asan-python
ASAN_TESTS ?= tests/unit/tape tests/unit/captures
ASAN_PRELOAD = $(foreach name,libasan.so libstdc++.so.6,$(shell $(CXX) -print-file-name=$(name)))
sanitize-python: build
	$(PIP) install -q --no-deps --no-build-isolation --upgrade --target $(ASAN)/site \
	    -C build-dir=$(ASAN)/build -C install.strip=false -C cmake.define.FTAX_SANITIZE=address \
	    -C cmake.define.CMAKE_CXX_FLAGS_RELEASE="-O1 -DNDEBUG" .
	$(VENV)/bin/python -m venv --without-pip --clear $(ASAN)/venv
	$(VENV)/bin/python -c '$(LIST_SITES)' > $$(echo $(ASAN)/venv/lib/python*/site-packages)/sites.pth
	LD_PRELOAD="$(ASAN_PRELOAD)" ASAN_OPTIONS=detect_leaks=0 OMP_NUM_THREADS=1 \
	    $(ASAN)/venv/bin/python -m pytest -n $(WORKERS) --dist worksteal $(ASAN_TESTS)
LIST_SITES := import os, sys; sites = [path for path in sys.path if "site-packages" in path]
LIST_SITES += ; print(os.path.abspath("$(ASAN)/site"), *sites, sep="\n")

lint: build
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	! MYPYPATH=tests:bench $(VENV)/bin/mypy --check-untyped-defs tests/cuda | grep -e call-arg -e prevented  # few can run them
	$(VENV)/bin/lint-imports --no-logo --no-cache
	$(VENV)/bin/clang-format --dry-run --Werror $(CXX_FILES)
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cmake --preset tidy -DPython_EXECUTABLE=$(CURDIR)/$(VENV)/bin/python > /dev/null
	$(VENV)/bin/python -c '$(LIST_TIDY)' | xargs -P $$(nproc) -n 1 $(VENV)/bin/clang-tidy --quiet -p build/tidy
# What is compiled here, but for what includes CUDA.
LIST_TIDY := import json; files = [item["file"] for item in json.load(open("build/tidy/compile_commands.json"))]
LIST_TIDY += ; print(*(file for file in files if "/csrc/" in file and "/cuda/" not in file), sep="\n")

format: build
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .
	$(VENV)/bin/clang-format -i $(CXX_FILES)

# Its tools are 140 MB (themes and icons), so they are installed by whoever first asks for the site.
docs: build $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet

LIST_DOCS := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])
$(VENV)/.docs: $(VENV)/.dependencies
	$(PIP) install -q -c $(VENV)/constraints.txt $$($(VENV)/bin/python -c '$(LIST_DOCS)')
	touch $@

bench: build
	for script in loop import_time tape intervention tax_wall runtimes; do $(VENV)/bin/python bench/$$script.py || exit; done

# An sdist and wheels, in dist/. A wheel is made of the objects of the editable install: what is
# shipped is what was tested. auditwheel finds the platform that it needs, and refuses libraries that
# it would have to bring, but for those that torch brings.
wheel: this-wheel $(if $(shell command -v nvcc),cuda-build)

this-wheel: build
	$(VENV)/bin/python -c 'from scikit_build_core.build import build_sdist; build_sdist("dist")'
	rm -rf build/wheel-$(PLACE)
	tag=$$($(VENV)/bin/python cmake/ftax_torch.py | cut -d ";" -f 4) && rm -f dist/*-$$tag-*.whl && \
	    $(PIP) wheel -q --no-deps $(SHARED) -C wheel.build-tag=$$tag -w build/wheel-$(PLACE) .
	rm -f dist/ftax_run-*.whl && $(PIP) wheel -q --no-deps -w build/wheel-$(PLACE) $(RUN_PACKAGE)
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" auditwheel repair -w dist build/wheel-$(PLACE)/ftax_run-*.whl
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" auditwheel repair --exclude "libtorch*" --exclude "libc10*" \
	    --exclude "libcudart*" -w dist build/wheel-$(PLACE)/ftax-*.whl

# `ftax run` for ARM servers (Grace), compiled here by g++-aarch64-linux-gnu. What it reads of CUDA's
# headers is the same on both.
ARM := SYSTEM_NAME=Linux SYSTEM_PROCESSOR=aarch64 CXX_COMPILER=aarch64-linux-gnu-g++
run-wheel-aarch64: build
	rm -rf build/wheel-aarch64
	_PYTHON_HOST_PLATFORM=linux-aarch64 $(PIP) wheel -q --no-deps -w build/wheel-aarch64 \
	    $(ARM:%=-C cmake.define.CMAKE_%) $(subst build/run-$(PLACE),build/run-aarch64,$(RUN_PACKAGE))
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" auditwheel repair -w dist/aarch64 build/wheel-aarch64/ftax_run-*.whl

# The wheel for CUDA, which proves that the CUDA sources compile; needs nvcc but no GPU.
cuda-build:
	$(MAKE) this-wheel VENV=.venv-cuda TORCH=$(CUDA_TORCH)
	.venv-cuda/bin/python -c "import ftax._build_info as b; assert b.WITH_CUDA, b; import ftax"
CUDA_TORCH ?= torch==2.14.1

# The oldest torch that is supported (cmake/ftax_torch.py), and the tests of what meets torch.
oldest:
	$(MAKE) test-python VENV=.venv-oldest TORCH=torch==2.8.0 TESTS="$(TORCH_TESTS)"
TORCH_TESTS := $(addprefix tests/unit/,machines steps timing tape captures runtimes ladders)

clean:
	rm -rf build $(VENV)/.built
