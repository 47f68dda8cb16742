.DEFAULT_GOAL := help
.PHONY: help run test test-quick test-long test-cluster check deny fmt migrate bench bench-quick estimates chaos stop clean

# rustup puts cargo there, and not every shell has it on its PATH.
export PATH := $(PATH):$(HOME)/.cargo/bin

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F '|' '{ printf "%-20s%s\n", $$1, $$2 }'

run: ## start the server on http://127.0.0.1:8080, with private PostgreSQL and Redis; Ctrl-C ends it all
	@scripts/run

test: check ## check, then run all tests, also on clusters and in chaos; TESTARGS='--test it name' chooses some
	@scripts/test

test-quick: ## most of the tests in under three minutes, for the inner loop
	@scripts/test quick

test-long: check ## all tests, then long proofs: many more random cases, minutes of chaos
	@scripts/test long

test-cluster: ## run the integration tests on Redis Clusters of three masters
	@scripts/test cluster

check: deny ## formatting, lints, documentation and licences; needs no services
	cargo fmt --check
	cargo clippy --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --no-deps --workspace

deny: ## licences, sources and banned crates, if cargo-deny is installed
	@if cargo deny --version >/dev/null 2>&1; then cargo deny --log-level error check bans licenses sources; \
	else echo "deny: skipped; cargo install cargo-deny adds it"; fi

fmt: ## format the code
	cargo fmt

migrate: ## bring the database up to date without starting the server
	@scripts/run migrate

bench: ## measure the speed beside the ceiling and the obvious way, in under ten minutes; use a quiet machine
	@scripts/bench

bench-quick: ## the same in under two minutes, less certain
	@scripts/bench --quick

estimates: ## let simulated crowds wait, and judge the waiting times they are told (docs/WAITING.md)
	@cargo run --profile fast --example estimate -- --write docs/WAITING.md $(ARGS)

chaos: ## sell while everything goes wrong, for a minute; ARGS='--seed 7 --seconds 120', ARGS=--help for more
	@scripts/chaos $(ARGS)

stop: ## stop private PostgreSQL and Redis servers that were left running
	@scripts/services stop run test bench chaos

clean: ## stop them, and delete their data and everything built
	@scripts/services clean run test bench chaos
	rm -rf .services
	cargo clean
