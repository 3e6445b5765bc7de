# Everything a person or a machine does with this repository. `make` alone lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GOFLAGS_BUILD := -trimpath -ldflags "-s -w -X github.com/pacer/pacer/internal/app.Version=$(VERSION)"
# Processes under end-to-end test are this binary, built without -race.
export PACER_BIN := $(CURDIR)/bin/pacer
# The race detector would otherwise wait a second at the end of each of some forty test programs.
export GORACE := atexit_sleep_ms=50
# What is tested from outside is a module of its own, so that what only it needs never mixes with the daemon's modules.
GO_TEST := go -C test
# So are the official clients and receivers of others, which have more packages than all the rest.
GO_CLIENTS := go -C test/clients
# Helm has more still.
GO_CHART := go -C test/chart
# The addresses of the services, for recipes that need them.
WITH_SERVICES := scripts/services.sh up && eval "$$(scripts/services.sh env)" &&

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/pacer: static, without paths of this machine
	@CGO_ENABLED=0 go build $(GOFLAGS_BUILD) -o bin/pacer ./cmd/pacer

.PHONY: demo
demo: build ## Watch campaigns being paced; needs nothing but Go (ARGS="--duration 60s", ARGS=--json for JSON alone)
	@bin/pacer demo $(ARGS)

.PHONY: test
# Tests that simulate at length skip themselves under the race detector, so their packages are also tested without it.
SIMULATED := ./internal/limits/... ./internal/pacer ./internal/progress ./internal/keyed ./internal/consumer/offset ./internal/demo
# Compilers, linkers and raced programs that live for seconds spend a fifth of their time on collecting memory. Not the
# end-to-end tests: their daemons would inherit it.
test: export PACER_BRIEF := yes
test: build ## All tests, over real services (started here; `make down` ends them)
	scripts/toolchain.sh
	$(WITH_SERVICES) GOGC=300 go test -race -ldflags=-s -shuffle=on -timeout 9m -p 3 ./...
	$(WITH_SERVICES) GOGC=300 CGO_ENABLED=0 go test -ldflags=-s -shuffle=on -timeout 9m -p 3 $(SIMULATED)
	$(WITH_SERVICES) CGO_ENABLED=0 $(GO_TEST) test -ldflags=-s -shuffle=on -timeout 9m -p 1 -parallel 4 ./... && $(GO_CLIENTS) test -shuffle=on .

.PHONY: console-test
console-test: build ## The console in a Chromium, over real services (SCREENSHOTS=docs/images takes the pictures of docs/console.md anew; PAGES=folder those of all pages)
	$(WITH_SERVICES) SCREENSHOTS="$(abspath $(SCREENSHOTS))" PAGES="$(abspath $(PAGES))" $(GO_TEST) test -tags browser -count=1 -timeout 5m -run "TestConsole.*InABrowser" .
	go test -tags browser -count=1 -run "TestConsole.*InABrowser" ./internal/console

.PHONY: test-fast
test-fast: ## The tests that need no services
	go test -short -shuffle=on -timeout 5m ./...
	$(GO_TEST) test -short -shuffle=on -timeout 5m ./...
	$(GO_CLIENTS) test -short -shuffle=on -timeout 5m .

.PHONY: e2e
e2e: build ## Figures of speed, latency, backlog, ETA and destinations over real services (FIGURE=name for one; RATE=n of destinations)
	$(WITH_SERVICES) $(GO_TEST) test -count=1 -timeout 40m -tags e2e -run 'TestFigure$(FIGURE)' -v .

.PHONY: bench
bench: ## Figures of the quota engine, beside another limiter's (BENCH=name, COUNT=n, PKG=./internal/... for all)
	$(WITH_SERVICES) go test -timeout 15m -run '^$$' -bench '$(or $(BENCH),.)' -count $(or $(COUNT),1) $(or $(PKG),./internal/limits)
	$(if $(PKG),,$(WITH_SERVICES) $(GO_TEST) test -timeout 15m -run '^$$' -bench '$(or $(BENCH),.)' -count $(or $(COUNT),1) .)

.PHONY: properties
properties: ## 10,000 random histories for each promise of the quota engine (CHECKS=n); some hours, minutes with CHECKS=200
	$(WITH_SERVICES) go test -count=1 -timeout 12h -run 'Scripts|Histories|ClocksThatStep|ServersThatPart|Forecasts' -v \
		./internal/limits ./internal/limits/ledger ./internal/progress -rapid.checks=$(or $(CHECKS),10000)
	$(WITH_SERVICES) go test -count=1 -timeout 1h ./internal/limits -everywhere

.PHONY: pace
pace: build ## How exactly rates are kept: a table, over real services (FIGURE=pace, campaigns, storm or stall, ARGS="--rates 1000 --daemons 3"; docs/measured.md)
	$(WITH_SERVICES) $(GO_TEST) test -count=1 -timeout 2h -tags e2e -run '^TestPace$$/^$(or $(FIGURE),pace)$$' -v . -args $(ARGS)

.PHONY: chaos
# The table goes to docs/chaos.md when every case ran, or with REPORT=docs/chaos.md; other cases keep their rows there.
chaos: build ## Break one thing after the other under load, and count (CASE=name for one, ROUNDS=n, LASTS=1h of random faults; docs/chaos.md)
	$(WITH_SERVICES) CHAOS=full CHAOS_LASTS=$(LASTS) CHAOS_ROUNDS=$(or $(ROUNDS),1) CHAOS_REPORT=$(abspath $(if $(CASE),$(REPORT),docs/chaos.md)) \
		$(GO_TEST) test -count=1 -timeout 6h -run '^TestChaos$$/$(CASE)' -v .

.PHONY: sinks
# The table goes to docs/sinks-chaos.md; with SINK=name the other sinks keep their rows there.
sinks: build ## Destinations that misbehave, of each type, and 20,000 jobs to each: one table (SINK=name for one; docs/sinks-chaos.md)
	$(WITH_SERVICES) SINKS=full SINKS_REPORT=$(CURDIR)/docs/sinks-chaos.md \
		$(GO_TEST) test -count=1 -timeout 3h -parallel 2 -run '^TestSinks$$/$(SINK)' -v .

.PHONY: lanes
lanes: build ## Figures of re-enqueueing and lanes: one table, over real services (FIGURE=name, JOBS=n; docs/measured.md)
	$(WITH_SERVICES) $(GO_TEST) test -count=1 -timeout 60m -tags e2e -run '^TestLanes$$/$(FIGURE)' -v .

.PHONY: keys
# The table goes to docs/measured.md when every row was measured at full size.
keys: build ## What keyed quotas promise, and what they cost: one table, over real services (FIGURE=name, JOBS=n, PAUSE=5s; docs/measured.md)
	$(WITH_SERVICES) PAUSE=$(PAUSE) SPEED_REPORT=$(abspath $(SPEED_REPORT)) SPEED_TABLE=$(if $(FIGURE)$(JOBS)$(PAUSE),,$(CURDIR)/docs/measured.md) \
		$(GO_TEST) test -count=1 -timeout 1h -tags e2e -run '^TestKeys$$/($(FIGURE))' -v .

.PHONY: speed
# The table goes to docs/measured.md when every row was measured at full size.
speed: build ## How fast pacer is, beside what could be: one table (FIGURE=name, ROUNDS=n, JOBS=n, SPEED_REPORT=file; docs/measured.md)
	$(WITH_SERVICES) SPEED_REPORT=$(abspath $(SPEED_REPORT)) SPEED_TABLE=$(if $(FIGURE)$(JOBS),,$(CURDIR)/docs/measured.md) \
		$(GO_TEST) test -count=1 -timeout 3h -tags e2e -run '^TestSpeed$$/($(FIGURE))' -v .

.PHONY: scale
scale: build ## How speed grows with daemons and campaigns: a table and plots (FIGURE=name, ROUNDS=n, JOBS=n; docs/measured.md)
	$(WITH_SERVICES) SPEED_REPORT=$(abspath $(SPEED_REPORT)) PLOTS=$(or $(abspath $(PLOTS)),$(if $(FIGURE)$(JOBS),,$(CURDIR)/docs/measured)) \
		SPEED_TABLE=$(if $(FIGURE)$(JOBS),,$(CURDIR)/docs/measured.md) \
		$(GO_TEST) test -count=1 -timeout 3h -tags e2e -run '^TestScale$$/($(FIGURE))' -v .

.PHONY: rules
rules: ## Test the alerting rules: each alert fires by what it is for, and none in an hour of ordinary load
	promtool=$$(scripts/promtool.sh) && go run ./scripts/rules deploy/prometheus/rules_test.yml .services/rules_variants.yml && \
	"$$promtool" check rules deploy/prometheus/rules.yml && \
	"$$promtool" test rules deploy/prometheus/rules_test.yml .services/rules_variants.yml

.PHONY: alerts
alerts: build ## Make alerts fire by what they are for: daemons and services that run, and a Prometheus with shorter times; three minutes
	prometheus=$$(scripts/promtool.sh prometheus) && $(WITH_SERVICES) \
		PROMETHEUS="$$prometheus" $(GO_TEST) test -tags alerts -count=1 -timeout 15m -run '^TestAlerts$$' -v .

.PHONY: ordinary
ordinary: build ## An hour of ordinary load, in which no alert may fire: daemons and services that run, and a Prometheus with the rules (LOAD=duration)
	prometheus=$$(scripts/promtool.sh prometheus) && $(WITH_SERVICES) \
		PROMETHEUS="$$prometheus" $(GO_TEST) test -tags alerts -count=1 -timeout 25h -run '^TestOrdinaryLoad$$' -v .

.PHONY: chart
chart: build ## Render the Helm chart, with defaults and with everything on, and hold it against the types and schemas of Kubernetes
	rm -rf .services/chart && mkdir -p .services/chart
	$(GO_CHART) test -count=1 -shuffle=on -timeout 5m -out $(CURDIR)/.services/chart .
	scripts/kubernetes-validate.sh .services/chart

.PHONY: schemathesis
schemathesis: build ## Try the API against its document with schemathesis: a daemon over real services, all checks; a minute (EXAMPLES=n, SEED=n, REPORT=file)
	schemathesis=$$(scripts/schemathesis.sh) && $(WITH_SERVICES) SCHEMATHESIS="$$schemathesis" REPORT="$(abspath $(REPORT))" \
		$(GO_TEST) test -tags schemathesis -count=1 -timeout 30m -run '^TestTheAPIWithstandsSchemathesis$$' -v .

.PHONY: reference
reference: ## Write the pages of docs/reference anew (metrics, tables), openapi.json and the dashboard
	go run ./scripts/reference
	$(WITH_SERVICES) go test -count=1 -timeout 5m -run '^(TestThePageOf|TestAPI$$)' ./internal/app ./internal/console ./internal/catalog -update

.PHONY: fuzz
fuzz: ## Fuzz every parser, one after the other (FUZZTIME=10m for each, FUZZ=name for one)
	for target in $$(grep -ro --include='*_test.go' '^func Fuzz$(FUZZ)[A-Za-z]*' internal | sed -E 's#^(.*)/[^/]*:func #./\1:#'); do \
		go test -run '^$$' -fuzz "^$${target#*:}$$" -fuzztime $(or $(FUZZTIME),10m) "$${target%:*}"; \
	done

.PHONY: lint
lint: bin/golangci-lint ## Check style, and which package imports which
	bin/golangci-lint run ./...
	cd test && ../bin/golangci-lint run ./...
	cd test/clients && ../../bin/golangci-lint run ./...
	cd test/chart && ../../bin/golangci-lint run ./...

.PHONY: vulnerabilities
vulnerabilities: ## Look for known vulnerabilities of what is called; without a network, list updates
	scripts/vulnerabilities.sh

.PHONY: digests
digests: ## Pin the images of docker-compose.yml and Dockerfile to what their registries have now; needs docker and a network
	scripts/digests.sh

.PHONY: fmt
fmt: bin/golangci-lint ## Format the code
	bin/golangci-lint fmt ./...
	cd test && ../bin/golangci-lint fmt ./...
	cd test/clients && ../../bin/golangci-lint fmt ./...
	cd test/chart && ../../bin/golangci-lint fmt ./...

# The linter's dependencies are a module of their own, so that they never mix with the daemon's.
bin/golangci-lint: tools/go.mod tools/go.sum
	go -C tools build -o ../bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: up
up: ## Start the services: docker-compose.yml where Docker answers, else local processes (always under CI)
	@if [ -z "$${CI:-}" ] && docker info >/dev/null 2>&1; then \
		docker compose up --detach --build --wait; \
	else \
		scripts/services.sh up && scripts/services.sh topic pacer.jobs 6 && \
		scripts/services.sh status && scripts/services.sh env; \
	fi

.PHONY: down
down: ## End the services; their data stays
	@if [ -z "$${CI:-}" ] && docker info >/dev/null 2>&1; then docker compose down; fi
	@scripts/services.sh down

.PHONY: clean
clean: ## Remove what was built, and the services with their data
	@scripts/services.sh wipe
	rm -rf bin dist .services
