.DEFAULT_GOAL := help
.PHONY: help run test test-quick test-long test-cluster test-kafka check deny fmt migrate bench bench-quick estimates lab loadtest chaos up down up-stores stop clean

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

test-kafka: ## run the tests of orders that wait in Kafka; needs Java and Maven
	@scripts/test kafka

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

lab: ## the known ways to sell a seat to one of many, with its cost and its bug (docs/LOCKING.md); ARGS=--help for more
	@scripts/lab $(ARGS)

loadtest: ## load a private server with k6 and 10,000 open streams; ARGS='full-flow streams' chooses some
	@scripts/loadtest $(ARGS)

chaos: ## sell while everything goes wrong, for a minute; ARGS='--seed 7 --seconds 120', ARGS=--help for more
	@scripts/chaos $(ARGS)

# The first line of each recipe that needs containers.
need_compose = docker compose version >/dev/null 2>&1 || { \
	echo "make $@: docker compose is missing; install Docker with Compose 2.24 or newer" >&2; exit 1; }

up: ## build and start server, stores, Prometheus and Grafana in containers, and wait until they are healthy
	@$(need_compose)
	@docker compose up --build --wait -d
	@echo 'pages and API        http://127.0.0.1:8080'
	@echo 'health and metrics   http://127.0.0.1:18080/actuator/health'
	@echo 'Grafana              http://127.0.0.1:3000'
	@echo 'Prometheus           http://127.0.0.1:9090'
	@echo 'Example concerts: docker compose exec server zticket seed'
	@echo '"make down" stops it all and keeps the data.'

down: ## stop the containers of "make up" and "make up-stores", and keep their data
	@$(need_compose)
	@docker compose --profile k6 --profile kafka down

up-stores: ## start all these containers but the server, for a server that you run by hand
	@$(need_compose)
	@docker compose stop server
	@HOST_NAME_IN_PROMETHEUS=server docker compose up --wait -d \
		postgres redis prometheus grafana redis-exporter postgres-exporter
	@echo 'Grafana              http://127.0.0.1:3000'
	@echo 'Prometheus           http://127.0.0.1:9090'
	@echo 'For the server (POSTGRES_PASSWORD, POSTGRES_PORT and REDIS_PORT change these):'
	@echo '  export DATABASE_URL=postgres://zticket:zticket@127.0.0.1:5432/zticket'
	@echo '  export REDIS_URL=redis://127.0.0.1:6379/'
	@echo '  export ZTICKET_MANAGEMENT_BIND=172.17.0.1:18080   # on Linux: where Prometheus looks for it'
	@echo 'Then "make run" starts it, and "make down" stops the rest and keeps the data.'

stop: ## stop private PostgreSQL and Redis servers that were left running
	@scripts/services stop run test bench chaos loadtest

clean: ## stop them, and delete their data and everything built
	@scripts/services clean run test bench chaos loadtest
	rm -rf .services
	cargo clean
