# AgentFly. `make help` lists the targets. Everything that is fetched or compiled is kept in the user's cache folder.
SHELL := /bin/sh
GO := scripts/torchgo
NATIVE ?= plain
JOB ?= examples/calculator.yaml
export NATIVE

.DEFAULT_GOAL := help
.PHONY: gpu-bundle help setup build run test test-long test-vllm race asan lint fmt fuzz golden golden-data bench bench-engine bench-train bench-async bench-env bench-rollout soak install clean test-serve test-mcp test-export test-gateway test-grammar test-crowd bench-gateway test-env masksearch code test-bare bench-tree release test-release test-container wheel view-page test-view bench-view bench-watch cuda-build cuda-kernels site

help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1|\2/p' Makefile | awk -F'|' '{ printf "%-12s %s\n", $$1, $$2 }'

setup: ## fetch libtorch and the model, compile the C++ library
	@scripts/check_machine.sh
	@python3 scripts/fetch.py libtorch >/dev/null
	@python3 scripts/fetch.py model >/dev/null
	@scripts/build_native.sh $(NATIVE) >/dev/null

build: ## build bin/agentfly
	@scripts/check_machine.sh
	@python3 scripts/fetch.py libtorch >/dev/null
	$(GO) build -o bin/agentfly ./cmd/agentfly

run: setup build ## train SmolLM2-135M-Instruct to use a calculator (JOB=FILE for another job)
	bin/agentfly train $(JOB)

test-mcp: ## MCP against the official Python library, versions 1 and 2
	@scripts/test_mcp.sh

test-env: setup ## the environments against the real packages: Gymnasium, TextWorldExpress, ScienceWorld (Java), TextWorld, ALFWorld, MiniWoB++ (Chromium) and OpenEnv
	@scripts/test_env.sh

test-export: ## what agentfly export writes, read by TensorBoard, pandas, Inspect, Harbor, Trackio, W&B and MLflow
	@scripts/test_export.sh

test-grammar: ## the masks of forms against llguidance's, token by token of a real vocabulary
	@scripts/test_grammar.sh

test-gateway: setup ## the gateway against unmodified clients: openai, anthropic, openai-agents, LangGraph, pydantic-ai, pi
	@scripts/test_gateway.sh

test-crowd: ## 1,000 agents at once over the gateway, which is killed twice; some are killed, hang, lose connections (2 minutes; AGENTFLY_CROWD)
	AGENTFLY_CROWD=$${AGENTFLY_CROWD:-1000} go test -count=1 -v -timeout 20m -run '^TestACrowdOfAgents$$' ./orchestrator

masksearch: setup build ## SmolLM2 learns to fill masked passages by searching, three seeds and the control without search (35 minutes; SEEDS, ONLY)
	@SEEDS="$${SEEDS:-1 2 3}" scripts/learn.sh masksearch

code: setup build ## SmolLM2 learns to answer with a line of Python, three seeds and the control with shuffled rewards (35 minutes; SEEDS, ONLY)
	@SEEDS="$${SEEDS:-1 2 3}" scripts/learn.sh code

test: setup ## build what the tests need and run every test that fits in 8 minutes
	@scripts/test.sh

test-view: setup ## the page of `agentfly view` in a real Chromium, with axe; the committed page is what its sources build
	@scripts/test_view.sh

view-page: ## build the page of `agentfly view` anew from its lockfile (needs npm)
	@scripts/view_page.sh

bench-view: ## the page over 100,000 trajectories and 10,000 steps: first view, filters, memory, scrolling (needs an idle machine; VIEW_STORE=FOLDER keeps the run)
	@scripts/bench_view.sh

bench-watch: setup build ## what three pages that watch a run cost its training (needs an idle machine; 5 minutes; ROUNDS, STEPS)
	@scripts/bench_watch.sh

test-bare: setup ## the tests of what runs in a sandbox once more without bubblewrap, which is hidden from PATH
	@scripts/test_bare.sh

test-long: setup build ## the runs that take longer: five seeds of the main job, the two-step job, the controls (SEEDS; KINDS="native avx2")
	@scripts/test_long.sh

test-vllm: ## the vLLM engine against a real vLLM on the CPU, which is installed into the cache folder (2.2 GB)
	@scripts/test_vllm.sh

test-serve: setup build ## the server under the openai client and under load, on SmolLM2 (LOAD_SECONDS, VLLM_BENCH=1)
	@scripts/test_serve.sh

site: ## the site of docs/ in build/docs/site, strict, and its search in Chromium
	@scripts/site.sh

race: setup ## the Go tests that need no libtorch, under the race detector
	go test -race $$(go list ./... | grep -v /examples/)

asan: ## the C++ library under AddressSanitizer and UBSan
	@scripts/check_machine.sh
	NATIVE=asan $(GO) test -count=1 ./cgo/ ./engines/local/

lint: ## gofumpt, vet, staticcheck, errorlint, shellcheck and clang-format where installed
	@scripts/lint.sh

fmt: ## format Go and C++ sources
	go tool gofumpt -w $$(git ls-files '*.go')
	@if command -v clang-format >/dev/null; then clang-format -i $$(git ls-files 'cgo/src/*.cc' 'cgo/src/*.h'); else echo "fmt: clang-format is missing; C++ left alone (apt-get install clang-format)"; fi

fuzz: ## every fuzzer for FUZZTIME (10s)
	@scripts/fuzz.sh

golden: golden-data ## write the goldens anew with transformers, tokenizers, jinja2 and TRL in a virtual environment
	@scripts/goldens/all.sh

golden-data: ## fetch the public tokenizers that the exactness tests compare against
	@scripts/goldens/fetch_tokenizers.sh

bench: setup ## benchmarks of the engine and the training step
	$(GO) test -run '^$$' -bench . -benchtime 3x ./cgo/ ./engines/local/ ./masks/tokenizer/

bench-engine: setup ## the local engine beside transformers and llama.cpp; writes docs/performance.md (needs an idle machine; NO_LLAMA=1 without the latter)
	@scripts/bench_engine.sh

bench-gateway: setup ## what a call over the gateway costs, beside LiteLLM's proxy and a pass-through; writes docs/performance.md (needs an idle machine)
	@scripts/bench_gateway.sh

cuda-kernels: ## compile the CUDA kernels to machine code of sm_90 without a GPU: registers of each, none may spill (94 MB once)
	@scripts/cuda_kernels.sh check

cuda-build: ## compile the C++ library against PyPI's CUDA libtorch and load it, without a GPU (VERSIONS, 5 GB each)
	@scripts/cuda_build.sh $(VERSIONS)

gpu-bundle: ## what scripts/gpu_check.sh needs on a GPU machine without Go or network (DIR=FOLDER TORCH=2.11.0; 5 GB in the cache)
	@scripts/gpu_bundle.sh $(DIR)

bench-train: setup ## the trainer beside transformers with padded micro-batches; writes docs/performance.md (needs an idle machine)
	@scripts/bench_train.sh

bench-tree: setup ## a step of 16 trajectories that branch after 1,000 tokens, packed against each alone (needs an idle machine; 15 minutes)
	@scripts/bench_tree.sh

bench-rollout: setup ## rollouts of 100 to 10,000 trajectories at once beside Python clients; writes docs/performance.md (needs an idle machine; PEERS= leaves them out)
	@scripts/bench_rollout.sh

bench-env: ## what environments cost: a lease beside AgentFly's pattern, a step of a Python class, ScienceWorld through 8 workers (needs an idle machine)
	@scripts/bench_env.sh

soak: setup ## rollouts for an hour (AGENTFLY_SOAK_MINUTES) under faults; memory must stay flat; writes docs/results/soak.md
	@scripts/soak.sh

bench-async: setup ## mode async against sync with slow tools, three seeds; writes docs/async.md (25 minutes)
	@scripts/bench_async.sh

install: build ## a folder that can be moved: dist/agentfly (DEST=FOLDER)
	@scripts/install.sh

release: build ## an archive that runs on a Debian or Ubuntu without building: dist/agentfly-VERSION-linux-MACHINE.tar.gz
	@scripts/release.sh

test-release: ## the release archive in clean roots of Debian and Ubuntu (needs root, debootstrap and a network)
	@scripts/test_release.sh

test-container: ## build the image of Containerfile and train in it (needs root, buildah and a network)
	@scripts/test_container.sh

wheel: ## the Python module as wheel and sdist: dist/agentfly_go-VERSION
	@scripts/wheel.sh

clean: ## remove what the checkout built; the cache folder stays
	rm -rf bin build dist
