# Begin with `make demo` and `make test`. Each installs what it needs.

CARGO ?= cargo
NEXTEST := $(shell command -v cargo-nextest 2>/dev/null)
# Features change how dependencies are built: the other build is not to lose its own.
SENTRY_TARGET = $${CARGO_TARGET_DIR:-target}/sentry
DEBUG_ATI = $$(realpath "$${CARGO_TARGET_DIR:-target}")/debug/ati

.PHONY: demo test test-full lint fuzz bench docs dist profile instructions deps test-deps

demo: deps
	$(CARGO) run --quiet -- demo --check

test: test-deps
ifdef NEXTEST
	$(CARGO) nextest run --no-fail-fast
else
	$(CARGO) test --no-fail-fast
endif

# Also what `test` leaves out because it is heavy, or needs programs and documents from the network,
# and the integration tests once more without the short way.
test-full: test-deps
	$(CARGO) build --quiet
	tests/wild/run "$(DEBUG_ATI)"
	tests/client/run "$(DEBUG_ATI)"
	tests/deploy/run "$(DEBUG_ATI)"
	$(CARGO) build --quiet --features sentry --target-dir "$(SENTRY_TARGET)"
	tests/deploy/sentry.py "$(SENTRY_TARGET)/debug/ati"
	deploy/dist
	$(MAKE) instructions
	tests/deploy/static.py "$$(ls dist/ati-*-gnu)"
	tests/deploy/vm "$$(realpath dist/ati-*-gnu)"
	tests/deploy/image --binary "$$(realpath dist/ati-*-gnu)"
ifdef NEXTEST
	$(CARGO) nextest run --no-fail-fast --run-ignored all
	ATI_SHORT_WAY=off $(CARGO) nextest run --no-fail-fast --test it
else
	$(CARGO) test --no-fail-fast -- --include-ignored
	ATI_SHORT_WAY=off $(CARGO) test --no-fail-fast --test it
endif

lint: deps
	$(CARGO) fmt --all -- --check
	$(CARGO) fmt --manifest-path tests/fuzz/Cargo.toml -- --check
	$(CARGO) clippy --all-targets --quiet -- -D warnings
	cp Cargo.lock tests/fuzz/Cargo.lock
	$(CARGO) clippy --quiet --manifest-path tests/fuzz/Cargo.toml --bins \
		--target-dir "$${CARGO_TARGET_DIR:-target}" -- -D warnings
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny check bans licenses sources; \
	 else echo "cargo-deny is not installed: bans, licenses and sources are not checked"; fi

# Each target of tests/fuzz for FUZZ_SECONDS, 600 unless set.
fuzz: deps
	tests/fuzz/run

# Measures nginx, HAProxy and bare Pingora in the same run; writes bench/results/.
bench: deps
	bench/run

# A static binary, its checksum and its bill of materials, in dist/.
dist: deps
	deploy/dist

# What `dist` is optimised with, from a training run: deploy/ati.profdata.gz, to be committed.
profile: deps
	deploy/profile

# Instructions per request to a route of what `dist` built, counted by callgrind, with a limit.
instructions:
	@scripts=$$(dirname "$(abspath $(lastword $(MAKEFILE_LIST)))"); "$$scripts/.ci/deps" callgrind
	bench/instructions.py --limit 35000 "$$(ls dist/ati-*-gnu)"

# The generated pages; a test says when they are stale.
docs: deps
	mkdir -p docs/reference
	$(CARGO) run --quiet -- reference docs/reference

deps:
	@scripts=$$(dirname "$(abspath $(lastword $(MAKEFILE_LIST)))"); "$$scripts/.ci/deps"

test-deps:
	@scripts=$$(dirname "$(abspath $(lastword $(MAKEFILE_LIST)))"); "$$scripts/.ci/deps" test
