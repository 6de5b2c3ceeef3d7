# The only entry points. Each does all that it needs on a fresh Debian or Ubuntu machine that has
# Rust and a C compiler.

CARGO ?= cargo
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 10

.DEFAULT_GOAL := help
.PHONY: help setup build demo test bench lint fuzz test-vpp install

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install the distribution's packages that are missing
	@scripts/setup

build: ## build the causeway command (target/debug/causeway)
	$(CARGO) build --locked --bin causeway

demo: setup build ## the whole story on this machine, checked
	@target/debug/causeway demo

test: build ## every test that this machine can run
	@scripts/setup test
	@scripts/guest || true
	@scripts/clients
	@scripts/test

bench: setup ## measure beside peers, into target/bench/report.json
	@scripts/setup bench
	$(CARGO) build --locked --release -p causeway -p causeway-bench --bins
	@target/release/causeway-bench

lint: ## rustfmt, clippy, rustdoc, and cargo-deny where it is installed
	@scripts/lint

fuzz: ## every fuzz target for FUZZ_SECONDS each
	@fuzz/run $(FUZZ_SECONDS)

test-vpp: ## the live VPP suite and the demo, against the VPP that is found here
	@scripts/setup test
	@scripts/guest || true
	@scripts/test-vpp

install: ## build with optimisation and install under PREFIX (default /usr/local)
	$(CARGO) build --locked --release --bin causeway
	install -D -m 0755 target/release/causeway $(DESTDIR)$(PREFIX)/bin/causeway
