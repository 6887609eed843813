# Every command that a person or CI runs. Longer steps live in scripts/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run test test-all test-k8s bench release changelog lint audit fmt

# rustup's folder is not on the PATH of every non-interactive shell. It goes first,
# because a sandboxed language needs the distribution's own, older rustc in /usr/bin.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

# A registry or a mirror that is away for a moment is asked again.
export CARGO_NET_RETRY ?= 10
export RUSTUP_MAX_RETRIES ?= 10

CARGO ?= cargo
XTASK := $(CARGO) run --quiet --locked --package sandstorm-xtask --
STARTED := $(shell date +%s)

# In CI a test that cannot run here is a failure, not a skip.
ifeq ($(CI),true)
export SANDSTORM_REQUIRE_ALL := 1
endif

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

run: ## Install what is missing, build, and show Sandstorm at work
	scripts/setup.sh run
	$(CARGO) build --release --locked --bin sandstorm
	scripts/demo.sh

# Tests use the dev profile only: a second profile would compile every crate
# again. Long tests are marked #[ignore] and belong to test-all. What CI tries at
# random is the same every time, so that it judges the change and not the day;
# test-all looks elsewhere each time.
test: export PROPTEST_RNG_SEED := 7300
test: ## What CI calls: lint, then every test that fits in a few minutes
	scripts/setup.sh test
	$(MAKE) lint
	scripts/kubernetes.sh build api
	$(CARGO) test --workspace --locked
	scripts/kernels.sh test short
	scripts/check-docs.sh
	scripts/fuzz-api.sh
	tests/mcp/run.sh
	tests/e2b/run.sh
	tests/packages/run.sh
	cd crates/language/kernels && /usr/bin/python3 -m unittest --failfast
	cd crates/jail/tests/zygote && /usr/bin/python3 -m unittest discover --failfast
	@echo "make test: passed in $$(( $$(date +%s) - $(STARTED) )) s"

test-all: ## The same plus the full matrix, soak and long fault runs
	scripts/setup.sh k8s
	$(MAKE) lint
	scripts/kubernetes.sh build node
	SANDSTORM_RACE_ROUNDS=12500 $(CARGO) test --workspace --locked -- --include-ignored
	scripts/kernels.sh test all
	scripts/check-docs.sh
	scripts/fuzz-api.sh 100
	tests/mcp/run.sh
	tests/e2b/run.sh
	tests/packages/run.sh
	tests/packages/run.sh static
	cd crates/language/kernels && /usr/bin/python3 -m unittest --failfast
	cd crates/jail/tests/zygote && /usr/bin/python3 -m unittest discover --failfast
	scripts/sanitize.sh
	@echo "make test-all: passed in $$(( $$(date +%s) - $(STARTED) )) s"

# What is built for it is kept outside the tree: a quarter of an hour the first time, a few minutes afterwards.
test-k8s: ## Pods on a real Kubernetes node of this machine (as root)
	scripts/setup.sh k8s
	scripts/kubernetes.sh build node
	$(CARGO) test --package sandstorm-kubernetes --locked -- --include-ignored --nocapture --test-threads 2
	$(CARGO) test --package sandstorm-cli --locked --test it -- --include-ignored --nocapture server::cluster

bench: ## Measure the promised numbers beside what a user would otherwise pick
	scripts/setup.sh bench
	$(CARGO) build --release --locked --bin sandstorm
	bench/run.sh

release: ## Build and pack what is released, into dist/
	scripts/setup.sh run
	scripts/release.sh build

# With VERSION=1.2.3 the fragments of changelog.d are published under it and deleted.
changelog: ## Write the fragments of changelog.d into CHANGELOG.md
	$(XTASK) changelog $(if $(VERSION),$(VERSION) $(shell date -u +%F))

lint: ## Format, clippy, repository rules, licences and sources of dependencies
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(XTASK) check
	$(CARGO) deny --locked check licenses bans sources

# Apart from lint because the advisory database is a Git clone from a forge,
# which build machines without general internet access cannot reach.
audit: ## Known vulnerabilities in dependencies (needs the internet)
	$(CARGO) deny --locked check advisories

fmt: ## Format the code
	$(CARGO) fmt --all
