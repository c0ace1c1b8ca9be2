# Everything goes through CMake presets; this file only saves typing. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -e -o pipefail -c
.DEFAULT_GOAL := help

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60

# One thread each: both models train at the same time, and such small batches gain little from a second thread.
DEMO_VIT := build/release/topomask experiment image-table --config examples/recipes/strokes.toml --seeds 0 \
            --threads 1 --out build/demo/vit

# $(call build,preset): configure with the Python that the set-up chose, then build. Both do nothing when up to date.
define build
	cmake --preset $(1) -DTOPOMASK_PYTHON="$$(cat .setup/python)" --log-level=NOTICE
	cmake --build --preset $(1) --parallel $(JOBS)
endef

# $(call test,preset,prefix): the log stays for the summary of `make test`.
define test
	$(2) ctest --preset $(1) --parallel $(JOBS) 2>&1 | tee build/$(1)/test.log
endef

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Install what the build needs: Debian packages, and torch unless a Python here has it
	@scripts/setup.sh

.PHONY: build
build: setup ## Build build/release/topomask, the library and the tests
	@$(call build,release)

.PHONY: demo
demo: build ## Build everything and show it: errors, a mask, time against N, and two small ViTs with and without a mask
	build/release/topomask demo --out build/demo
	@rm -rf build/demo/vit
	@echo
	@echo "Training two vision transformers on pictures from a formula, with a GRF mask and without (1 to 2 minutes):"
	@$(DEMO_VIT) --variants linear --quiet & linear=$$!; $(DEMO_VIT) --variants grf > /dev/null; wait $$linear
	$(DEMO_VIT) --variants linear,grf

.PHONY: test
test: build ## Build and run all tests, the unit tests again under sanitizers, and 5 s of fuzzing
	@$(call test,release)
	@$(MAKE) --no-print-directory asan
	@if command -v clang++ >/dev/null; then \
	  $(MAKE) --no-print-directory fuzz FUZZ_SECONDS=5; \
	else \
	  echo "fuzz: skipped, clang++ is not installed"; \
	fi
	@echo
	@echo "release:         $$(grep 'tests passed' build/release/test.log)"
	@echo "asan and ubsan:  $$(grep 'tests passed' build/asan/test.log)"

.PHONY: dev
dev: setup ## Build with warnings as errors and run the tests
	@$(call build,dev)
	@$(call test,dev)

.PHONY: asan
asan: setup ## Run the unit tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(call build,asan)
	@$(call test,asan)

# GCC 12's ThreadSanitizer cannot place its shadow memory under strong address randomisation, hence setarch.
.PHONY: tsan
tsan: setup ## Run the unit tests under ThreadSanitizer
	@$(call build,tsan)
	@$(call test,tsan,$(shell setarch -R true 2>/dev/null && echo setarch -R))

.PHONY: cuda-test
cuda-test: setup ## On a machine with a GPU: build for it, test, look for races, and benchmark
	cmake --preset cuda -DTOPOMASK_PYTHON="$$(cat .setup/python)" --log-level=NOTICE
	cmake --build --preset cuda --parallel $(JOBS) --target topomask_cli topomask_ops cuda_tests
	@scripts/cuda_test.sh

.PHONY: fuzz
fuzz: setup ## Fuzz every reader for FUZZ_SECONDS each (60)
	@scripts/fuzz.sh $(FUZZ_SECONDS)

.PHONY: bench
bench: build ## Measure walks, attention and neighbours against their peers; on a GPU too where there is one
	build/release/topomask bench walks --graph grid:181x181
	build/release/topomask bench walks --graph regular:2000000,8
	build/release/topomask bench attention --graph grid:181x181
	cmake --build --preset release --parallel $(JOBS) --target run_benchmarks

.PHONY: docs
docs: build ## Write the API reference of the headers and the Python package to build/docs/api
	PYTHONPATH=build/release/python "$$(cat .setup/python)" scripts/make_api_reference.py

.PHONY: format
format: ## Format all C++ sources in place
	@scripts/format.sh

.PHONY: format-check
format-check: ## Fail if clang-format would change a source
	@scripts/format.sh --check

.PHONY: install
install: build ## Install the library, headers, program and CMake package into PREFIX (/usr/local)
	cmake --install build/release --prefix "$(PREFIX)"

.PHONY: clean
clean: ## Remove build/; .venv stays
	rm -rf build
