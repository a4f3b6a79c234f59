# The two main commands: `make run` serves the default model, `make test` runs all tests.
.PHONY: oracle help deps build model run install package package-cuda wheel release test bench bench-families bench-grammar bench-models bench-quantised bench-states peers accuracy performance gpu fuzz soak clients format readme fresh-machine clean
.DEFAULT_GOAL := help

MODEL := models/SmolLM2-135M-Instruct.Q4_1.gguf
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
LLAMA := build/peers/llama.cpp/bin/python
ARGS ?=
FUZZ_SECONDS ?= 60
SEED ?= 1
SOAK_MINUTES ?= 30

help:
	@echo "make build          build/penstock (installs what is missing)"
	@echo "make model          fetch the default model into models/"
	@echo "make run            both, then serve on http://127.0.0.1:8080 (ARGS='--port 9000' adds flags)"
	@echo "make install        install under PREFIX=/usr/local (DESTDIR=FOLDER goes before it)"
	@echo "make package        a Debian package in build/package"
	@echo "make package-cuda   the package penstock-cuda, with kernels for all GPUs (needs nvcc; about an hour)"
	@echo "make wheel          a Python wheel in build/wheel: the program and its libraries"
	@echo "make release        sources, package, wheel, SPDX document and hashes of the last commit, in a new folder of build/releases"
	@echo "make test           every test"
	@echo "make bench          speed beside the peers that are installed (ARGS adds flags)"
	@echo "make bench-quantised   files of quantize beside those of llama.cpp's quantiser (ARGS adds flags)"
	@echo "make bench-states   recurrent layers, latent attention and MTP beside llama.cpp (ARGS adds flags)"
	@echo "make bench-grammar  masks of schemas, beside llguidance and xgrammar if they are installed (ARGS adds flags)"
	@echo "make peers          install llama.cpp, vLLM, OpenVINO and CTranslate2 to compare with, into build/peers/"
	@echo "make accuracy       perplexity, KL and greedy tokens of each file type beside the peers' (ARGS adds flags)"
	@echo "make performance    write the figures of FIGURES (files) and ACCURACY into docs/performance.md and docs/accuracy.md"
	@echo "make gpu            check and time the CUDA kernels on this machine's GPU"
	@echo "make oracle         judge the server by fresh tiny models of every family (SEED=1; fetches 6 GB the first time)"
	@echo "make fuzz           a minute of each fuzzer (FUZZ_SECONDS=60)"
	@echo "make soak           what takes too long for CI: fuzzers, slow suites under sanitizers, hostile clients, planted bugs, restarts (hours)"
	@echo "make clients        run suites of others and the server with their programs, and write docs/compatibility.md (fetches about 7 GB)"
	@echo "make format         format the C files"
	@echo "make readme         write the option table into docs/options.md"
	@echo "make fresh-machine  check make run and make test on a bare Debian 12 (as root; STAGES=run skips the tests)"
	@echo "make clean          remove build/"

deps:
	@docker/setup.sh

# With nvcc but without a GPU, this compiles the CUDA kernels for one architecture, and prints how to compile all.
build: deps
	@PENSTOCK_CUDA_ONLY=$${PENSTOCK_CUDA_ONLY:-default} docker/build.sh release $(JOBS) penstock

model: deps
	@docker/fetch_model.sh

# The CUDA kernels take most of the time of a first build. They are compiled only for this machine's GPU, and not at all
# without one.
run: deps model
	@if docker/gpus.sh >/dev/null; then cuda=AUTO; else cuda=OFF; fi; \
	    PENSTOCK_CUDA=$$cuda PENSTOCK_CUDA_ONLY=native docker/build.sh release $(JOBS) penstock
	@exec build/penstock serve --model $(MODEL) $(ARGS)

# Program, man pages, completion, units, an example of the service's options, licence.
install: deps
	@PENSTOCK_CUDA_ONLY=$${PENSTOCK_CUDA_ONLY:-default} docker/build.sh release $(JOBS) installed
	@DESTDIR="$(DESTDIR)" cmake --install build --prefix $(PREFIX) >/dev/null

# Packages have folders of their own, build/cpu and build/cuda, and no path of this machine in the program.
package: deps
	@docker/setup.sh packages
	@PENSTOCK_CUDA=OFF docker/build.sh cpu $(JOBS) installed
	@docker/package.sh build/package build/cpu

package-cuda: deps
	@docker/setup.sh packages
	@PENSTOCK_CUDA=ON PENSTOCK_CUDA_ONLY=$${PENSTOCK_CUDA_ONLY:-all} docker/build.sh cuda $(JOBS) installed
	@docker/package.sh build/package build/cuda

wheel: deps
	@docker/setup.sh packages
	@PENSTOCK_CUDA=OFF docker/build.sh cpu $(JOBS) installed
	@docker/wheel.sh build/wheel build/cpu

release: deps
	@docker/setup.sh packages
	@JOBS=$(JOBS) docker/release.sh build/releases/$$(git describe --always)

test: model
	@docker/setup.sh test packages browser
	@JOBS=$(JOBS) tests/run.sh

bench: build model bench-models
	@python3 bench/compare.py --model $(MODEL) $(ARGS)

# llama.cpp's quantiser makes the other file types; without that peer they are skipped.
bench-models: model
	@[ ! -x $(LLAMA) ] || { $(LLAMA) bench/models.py --model $(MODEL) && $(LLAMA) bench/random_files.py --model $(MODEL); }

# Compares files of `penstock quantize` with those of llama.cpp's quantiser, which must be installed.
bench-quantised: build model
	@$(LLAMA) bench/quantised.py --model $(MODEL) $(ARGS)

# Models of other shapes, folders and vocabularies; makes 12 GB of models the first time (PEERS="llama.cpp grammar" first).
bench-families: build
	@docker/build.sh release $(JOBS) tokens
	@$(LLAMA) bench/shapes.py
	@[ -e build/bench-shapes/vocabulary/tokenizer.json ] || build/peers/grammar/bin/python bench/shapes.py vocabulary
	@python3 bench/families.py $(ARGS)

# Models with recurrent layers and latent attention; makes 5 GB of models the first time (PEERS="llama.cpp" first).
bench-states: build model
	@$(LLAMA) bench/state_files.py --model $(MODEL)
	@python3 bench/states.py $(ARGS)

# Compares with llguidance and xgrammar if `bench/peers.sh grammar` has installed them.
bench-grammar: model
	@docker/setup.sh test
	@docker/build.sh release $(JOBS) schema_driver
	@docker/venv.sh build/schemas/venv tests/schemas/requirements.txt
	@build/schemas/venv/bin/python bench/grammar.py $(ARGS)

peers: model
	@bench/peers.sh

accuracy: build model bench-models
	@$(LLAMA) bench/accuracy.py --model $(MODEL) $(ARGS)

performance:
	@docker/venv.sh build/chart bench/requirements.txt
	@python3 bench/report.py $(FIGURES) $(if $(ACCURACY),--accuracy $(ACCURACY)) $(if $(QUANTISED),--quantised $(QUANTISED))
	@build/chart/bin/python bench/chart.py $(FIGURES) --ratios docs/performance.svg
	@[ -z "$(ACCURACY)" ] || build/chart/bin/python bench/chart.py $(FIGURES) --accuracy $(ACCURACY) --dots docs/divergence.svg

gpu:
	@bench/gpu.sh

oracle: deps
	@docker/setup.sh test
	@docker/build.sh release $(JOBS) penstock
	@docker/build.sh release $(JOBS) penstock_emulated
	@docker/venv.sh
	@docker/venv.sh build/oracle/venv tests/vectors/requirements.txt
	@build/oracle/venv/bin/python tests/oracle.py --seed $(SEED) $(ARGS)

fuzz: deps
	@JOBS=$(JOBS) FUZZ_SECONDS=$(FUZZ_SECONDS) tests/run.sh fuzz

soak: model
	@docker/setup.sh test
	@JOBS=$(JOBS) FUZZ_SECONDS=$(FUZZ_SECONDS) SOAK_MINUTES=$(SOAK_MINUTES) \
	    tests/run.sh fuzz asan_slow tsan_slow checked_slow chaos_soak mutants schemas_soak openapi_soak packages_soak restarts conversations kills ranks

clients: model
	@docker/setup.sh test
	@JOBS=$(JOBS) tests/run.sh clients

format: deps
	@docker/setup.sh format
	@python3 tests/format.py

readme: deps
	@docker/build.sh release $(JOBS) test_server_options
	@build/test_server_options --markdown >build/options.md
	@sed -i -e '/<!-- options -->/,/<!-- end of options -->/{/<!--/!d}' \
	    -e '/<!-- options -->/r build/options.md' docs/options.md

fresh-machine:
	@docker/fresh_machine.sh $(STAGES)

clean:
	rm -rf build
