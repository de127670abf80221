# Two commands matter: `make quickstart` and `make test`. Each builds .venv by itself.
PYTHON ?= python3
TORCH  ?= cpu
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
READY  := $(VENV)/.ready
KERNELS := lsr_prod/search/kernels/native.abi3.so
OPTIMUM := .venv-optimum
PEERS  := .venv-peers
AUDIT  := .venv-audit
# Every listener of a local Ray stays on loopback; no hub is ever asked.
export RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER := 0
export RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO := 0
export RAY_USAGE_STATS_ENABLED := 0
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false
# Tests start hundreds of processes: none should compile the package again.
export PYTHONDONTWRITEBYTECODE :=

DATA ?= ../shared/data

.PHONY: help kernels quickstart search bench bench-serving bench-encode bench-search bench-search-quick bench-thresholds bench-filters bench-scale bench-train bench-pruning gpu cluster faults mutants nights soak store-test test test-long test-root test-all test-core matrix lint types models optimum lock image-test infra-test deploy-test audit sbom licenses browser site clean

help:
	@echo "make quickstart  the whole way on real text: train, export, encode, index, publish, evaluate; QUICKSTART_ARGS=--pair also trains a query encoder"
	@echo "make search      a prompt on the quickstart's index, hybrid"
	@echo "make kernels     compile the kernels of search (C compiler, headers of Python); tests do it by themselves"
	@echo "make bench       search the quickstart's index from threads, and from text across version swaps and on cold pages"
	@echo "make bench-encode  race encoding against sentence-transformers; DATA=folder with scifact/ and debian_packages/"
	@echo "make bench-search  race search against its peers (long); SEARCH_ARGS=--quick tries it; DATA=folder with splade_queries/, scifact/, msmarco_5k/ and wikitext2/"
	@echo "make bench-search-quick  a race of two minutes that fails when search falls more than 15 % behind its recorded ratios"
	@echo "make bench-thresholds  what thresholds keep of the exact answer, on real vectors; DATA=folder with scifact/, msmarco_5k/ and wikitext2/"
	@echo "make bench-train  memory and speed of a training step against SpladeLoss; make bench-pruning: what pruning-aware training gains"
	@echo "make gpu         what one NVIDIA GPU does: parity, the encode job, a training step; without a GPU at a toy size"
	@echo "make bench-serving  requests per second of the example backend and of lsr-prod serve, from autocannon (npm), with overload and kills"
	@echo "make bench-filters  what filters cost; make bench-scale: 1, 4 and 16 million documents"
	@echo "make test        the quick tests; make test-long: the others, which CI runs too"
	@echo "make test-root   the tests that need root, and only those; make test as root runs them too"
	@echo "make test-all    the slow tests too"
	@echo "make matrix      make test on each Python from 3.11 to 3.14 that is installed, and the core at its lowest and newest dependencies; MATRIX=3.12"
	@echo "make faults      live 2,000 random lives of a table and its index, break encode jobs some 400 times, and trainings, let writes of the jobs find a full disk, and count what is lost; detect wrong protocols; LSR_FAULTS_SEED=N repeats one"
	@echo "make mutants     change every guard, raise and call of the protocol, one at a time, and list the changes that no test detects"
	@echo "make soak        30 minutes of searches from four threads while versions are published; SOAK_ARGS='--seconds 60' tries it"
	@echo "make store-test  the tests of object stores against Ceph's gateway of Debian (root), also races, faults and a cluster; STORE_ARGS='--parts suite'"
	@echo "make nights      30 nights of the reindex job on machines in namespaces (root), disturbed; each compared with a full rebuild; LSR_NIGHTS_SEED=N"
	@echo "make cluster     the whole way on machines that share only an object store, also with killed nodes, partitions and a busy store"
	@echo "make optimum     open an exported bundle with optimum, in an environment of its own"
	@echo "make image-test  build the container images for CPUs and encode and search in them (root, buildah, debootstrap)"
	@echo "make deploy-test  run every command of docs/deploy.md: kubectl against a stand-in, machines as namespaces (root)"
	@echo "make infra-test  validate the manifests of Kubernetes, and find faults planted in them; LSR_INFRA_SEED=N"
	@echo "make site        build the documentation site into build/site, strictly, and check its links"
	@echo "make audit       look up known vulnerabilities of all locked packages; make sbom: bills of materials of the images; make licenses"
	@echo "make lock        resolve requirements/*.txt anew (needs uv)"

# torch first and pinned, with what its build needs (a CUDA build does not load without it); then everything else by
# hash, which also puts torch's own dependencies at their locked versions.
$(READY): pyproject.toml build_kernels.py requirements/torch-$(TORCH).txt requirements/dev.txt
	@start=$$(date +%s); \
	$(PYTHON) -m venv $(VENV) && \
	$(PIP) -r requirements/torch-$(TORCH).txt && \
	$(PIP) --no-deps --require-hashes -r requirements/dev.txt && \
	$(PIP) --no-deps --no-build-isolation --editable . && \
	$(BIN)/python -m pip check && \
	touch $@ && echo "installed into $(VENV) in $$(( $$(date +%s) - start )) s"

$(KERNELS): $(READY) $(wildcard lsr_prod/search/kernels/src/*)
	@$(BIN)/python build_kernels.py && touch $@

kernels: $(KERNELS)

models: $(KERNELS)
	@$(BIN)/python quickstart/models.py splade-tiny

quickstart: $(KERNELS) models
	@$(BIN)/python -m quickstart --config quickstart/deployment.yaml $(QUICKSTART_ARGS)

bench: $(KERNELS)
	@$(BIN)/python -m benchmarks.search.threads .quickstart/index .quickstart/collection/queries.jsonl
	@$(BIN)/python -m benchmarks.search.text .quickstart/index .quickstart/collection/queries.jsonl

bench-serving: $(KERNELS) models
	@$(BIN)/python -m benchmarks.serving

bench-encode: $(KERNELS) models $(OPTIMUM)/.ready
	@$(BIN)/python -m benchmarks.encode.against_peer $(DATA) --peer-python $(OPTIMUM)/bin/python

SPLADE := $(DATA)/splade_queries/msmarco-passage.dev-subset.splade-v3.jsonl.gz
bench-search: $(KERNELS) $(PEERS)/.ready
	@$(BIN)/python -m benchmarks.search.against_peers --peer-python $(PEERS)/bin/python --splade $(SPLADE) --passages $(DATA) $(SEARCH_ARGS)

bench-search-quick: $(KERNELS) $(PEERS)/.ready
	@$(BIN)/python -m benchmarks.search.quick --peer-python $(PEERS)/bin/python --splade $(SPLADE) $(QUICK_ARGS)

bench-thresholds: $(KERNELS) models
	@$(BIN)/python -m benchmarks.search.thresholds $(DATA)

bench-filters: $(KERNELS)
	@$(BIN)/python -m benchmarks.search.filters

bench-scale: $(KERNELS)
	@$(BIN)/python -m benchmarks.search.scale

bench-train: $(KERNELS)
	@$(BIN)/python -m benchmarks.train.train_step
	@$(BIN)/python -m benchmarks.train.large_batch

gpu: $(KERNELS) models
	@$(BIN)/python -m benchmarks.gpu $(GPU_ARGS)

bench-pruning: $(KERNELS) models
	@$(BIN)/python -m benchmarks.train.pruning $(DATA) --work .pruning

search: $(KERNELS)
	@$(BIN)/lsr-prod search .quickstart/index --words 2

# Tests of pages need a browser: they skip where there is none, and fail without one in CI.
browser:
	@command -v chromium > /dev/null || { apt-get update -qq && apt-get install --yes -qq chromium > /dev/null; }

lint: $(KERNELS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pylint lsr_prod

types: $(KERNELS)
	$(BIN)/mypy

PYTEST = OMP_NUM_THREADS=1 $(BIN)/pytest -q --max-worker-restart 0 --dist loadfile --no-loadscope-reorder --durations=30
# Three processes on two cores: tests wait for processes that they start.
test: $(KERNELS) models
	$(PYTEST) -n 3 -m "not slow and not long"

# What takes more than a second of a core: exports, jobs that are killed and resumed, disturbed nights. CI runs it too.
test-long: $(KERNELS) models
	$(PYTEST) -n 3 -m "long and not slow"

# Only tests that others skip; those leave the rights of root alone.
test-root: $(KERNELS) models
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -m "root and not slow"

test-all: $(KERNELS) models
	$(BIN)/pytest -q --durations=30

# Each Python in an environment of its own, and what searches with the lowest and the newest versions of its dependencies.
MATRIX ?= 3.11 3.12 3.13 3.14
matrix:
	@set -e; tested=; missing=; for version in $(MATRIX); do \
	  if ! python$$version -c "import venv" 2> /dev/null; then missing="$$missing $$version"; continue; fi; \
	  $(MAKE) test test-core VENV=.venv-$$version PYTHON=python$$version; tested="$$tested $$version"; \
	done; echo "tested on$${tested:- none}; not installed here, so untested:$${missing:- none}"

test-core: $(KERNELS) models
	$(BIN)/pytest -q tests/e2e/test_core_wheel.py

# Needs root on Linux: each machine is a network and mount namespace.
cluster: $(KERNELS) models
	@$(BIN)/python -m tests.cluster

faults: $(KERNELS) models
	@$(BIN)/python -m tests.faults

# Changes of the code of the protocol, each in a fork of one process.
mutants: $(KERNELS)
	@OMP_NUM_THREADS=1 nice -n 5 $(BIN)/python -m tests.mutation $(MUTANTS_ARGS)

store-test: $(KERNELS) models
	@$(BIN)/python -m tests.objectstore $(STORE_ARGS)

soak: $(KERNELS)
	@$(BIN)/python -m tests.search.soak $(SOAK_ARGS)

nights: $(KERNELS) models
	@$(BIN)/python -m tests.nights

# optimum-onnx pins an older transformers (docs/adr/0001): it gets an environment of its own.
$(OPTIMUM)/.ready: requirements/optimum.txt requirements/torch-cpu.txt
	$(PYTHON) -m venv $(OPTIMUM)
	$(OPTIMUM)/bin/pip install --quiet -r requirements/torch-cpu.txt
	$(OPTIMUM)/bin/pip install --quiet --no-deps --require-hashes -r requirements/optimum.txt
	touch $@

optimum: $(OPTIMUM)/.ready
	$(OPTIMUM)/bin/python tests/optimum/open_bundle.py .quickstart/bundle

# Peers of the search benchmark stay out of our own environment.
$(PEERS)/.ready: requirements/peers.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --no-deps --require-hashes -r requirements/peers.txt
	touch $@

# The tools of the supply chain stay out of our own environment.
$(AUDIT)/.ready: requirements/audit.txt
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/pip install --quiet --no-deps --require-hashes -r requirements/audit.txt
	touch $@

# Fails on vulnerabilities, and if the advisory service cannot be used or does not know all packages.
audit: $(AUDIT)/.ready
	@$(AUDIT)/bin/python -m infra.supply.audit $(AUDIT_ARGS)

sbom: $(AUDIT)/.ready
	@$(AUDIT)/bin/python -m infra.supply.sbom build/sbom $(SBOM_ARGS)

licenses: $(KERNELS) $(AUDIT)/.ready
	@$(BIN)/python -m infra.supply.licenses

LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-package torch \
	--no-annotate --no-header --constraint requirements/torch-cpu.txt
# The images have the versions that the tests run with. Reading a tokenizer from a file needs none of the clients of hubs.
# The image for GPUs takes torch and CUDA from the package index: there the metadata of torch is that of its CUDA build.
AS_TESTED := --constraint requirements/dev.txt
HUB := anyio colorama filelock fsspec h11 hf-xet httpcore2 httpx2 httpx2-jsfetch huggingface-hub idna pyyaml tqdm \
	truststore typing-extensions
LOCK_CUDA := uv pip compile --quiet --no-config --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
	--generate-hashes --no-annotate --no-header --constraint requirements/torch-cuda.txt
lock:
	$(LOCK) pyproject.toml $(foreach extra,cpu jobs pages train dev bench iceberg haystack ir-datasets langchain llama-index mcp mteb opentelemetry pyterrier,--extra $(extra)) -o requirements/dev.txt
	$(LOCK) pyproject.toml --extra cpu -o requirements/core.txt
	$(LOCK) requirements/optimum.in -o requirements/optimum.txt
	$(LOCK) requirements/peers.in -o requirements/peers.txt
	$(LOCK) requirements/audit.in -o requirements/audit.txt
	$(LOCK) requirements/build.in $(AS_TESTED) -o requirements/build.txt
	$(LOCK) pyproject.toml --extra cpu $(AS_TESTED) $(addprefix --no-emit-package ,$(HUB)) -o requirements/search.txt
	$(LOCK) pyproject.toml --extra cpu --extra jobs --extra pages $(AS_TESTED) -o requirements/jobs.txt
	$(LOCK_CUDA) pyproject.toml --extra gpu --extra jobs --extra pages --extra train $(AS_TESTED) -o requirements/cuda.txt

# The CPUs of this computer are shared: a build waits for everything else.
image-test: $(KERNELS) models
	@nice -n 15 $(BIN)/python -m tests.infra.image $(IMAGE_ARGS)

deploy-test: $(KERNELS) models
	@nice -n 15 $(BIN)/python -m tests.infra.deploy $(DEPLOY_ARGS)

infra-test: $(KERNELS)
	@$(BIN)/python -m tests.infra.manifests

# Warnings are errors (mkdocs.yml), but not with --quiet, which hides them from the build. The notice is about the end of life of the theme, not about this site.
site: $(READY)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@$(BIN)/python infra/site/check_links.py build/site

clean:
	rm -rf $(VENV) .venv-3.* $(OPTIMUM) $(PEERS) $(AUDIT) .quickstart build dist *.egg-info
