# make test      everything, on a machine with Rust, a C and a C++ compiler, Python 3 and make
# make quick     formatting, lints, the habits of the repository, and the unit tests that take little time
# make steady    suites again and again beside loops that never rest: N=20 times, BUSY=4 loops, SUITE="unit process";
#                COMMAND="cargo test -p larder-cache --test it" runs that instead
# make bench     how to measure
# make evidence  the figures of docs/evidence that do not depend on the clock, made anew and compared; `make
#                evidence-timed` those on the clock, beside other servers. ONLY=RUN,RUN does these alone; some runs need
#                real traces: TRACES=FOLDER
#
# Each stage is also a target of its own: install fmt clippy tidy program unit zns loom miri fuzz transcripts reference
# differential clients python kernels fleets process stress. Tests install what they need in .tools and build in
# target.
#
# The program that the tests run is built as the unit tests are, from the same compiled parts, with the assertions of a
# debug build: target/debug/larder. `make test SERVER="target/release/larder serve"`, after `make release` or
# `cargo build --release --locked`, tests the program as it is shipped.
#
# `make release` makes all that a release has: archive, Debian package, image, list of crates, checksums
# (packaging/release.sh, which names the tools that it lacks).
#
# `make package` tries the Debian package and the image in clean roots. It is no part of `make test`: it needs root,
# namespaces and, the first time, the network for some minutes (tests/package/run.sh). It takes target/release/larder.
#
# `make test` runs two lanes of stages side by side (tests/lanes.py). The first lane compiles and keeps the processor
# busy. The second lane mostly waits: for downloads, and for servers that answer. `@program` waits for the program that
# the first lane builds. The lane that ends first takes the stages of LANE_THAT_IS_FREE.
# `make test SIDE_BY_SIDE=no` runs one stage after another.

SHELL := /bin/bash
PYTHON ?= python3
SERVER ?= target/debug/larder serve
FUZZ_SECONDS ?= 20
STRESS_SECONDS ?= 8
# Random tests begin with this seed, so that a run plays what the run before it played. `SEED=` chooses new ones: for
# longer runs, which look for what nobody has thought of. `make differential MINUTES=10` runs each comparison for so
# long, and `make fuzz FUZZ_SECONDS=600 SEED=` all targets together.
SEED ?= $(if $(MINUTES),,1)
DIFFERENTIAL_SECONDS ?= $(if $(MINUTES),$$(( $(MINUTES) * 60 )),8)
SEAMS_SECONDS ?= $(if $(MINUTES),$(DIFFERENTIAL_SECONDS),4)
N ?= 20
BUSY ?= 4
SUITE ?= unit transcripts differential clients fleets process stress
STAGE := $(PYTHON) tests/stage.py
VENV_PYTHON := .tools/venv/bin/python
LANE_THAT_COMPILES := program clippy unit@install loom
LANE_THAT_WAITS := install fmt tidy transcripts@program reference differential clients python kernels \
	fleets process stress
LANE_THAT_IS_FREE := miri@install fuzz zns
STAGES := install fmt clippy tidy program unit zns loom miri fuzz transcripts reference differential clients python \
	kernels fleets process stress
SIDE_BY_SIDE ?= yes
# Tests that `make quick` leaves out because they take long: a part of a name names all tests with it.
SLOW_TESTS := stress flood overwritten burst compared with_many_threads killed_at_any_moment bytes_that_were_changed \
	a_mix_of_lifetimes log_table::tests tier::tests::model tier::tests::failures model:: sizing:: nodes:: namespaces::a_ \
	takes_one_and_a_half_bytes what_takes_a_part a_lost_device twin:: \
	shared_lines:: tier::tests::holds crash:: whatever_is_torn devices::two_servers a_lower_limit the_real_cache

# The memcached servers that the transcripts are checked against, where they are there: the release that Larder answers
# like (tests/peers.sh brings it), and the one that Debian 12 installs, which lacks what is newer.
REFERENCES := .tools/peers/memcached=1.6.45 memcached=1.6.18

export CARGO_TERM_COLOR ?= never
export PYTHONDONTWRITEBYTECODE := 1
ifneq ($(SEED),)
export LARDER_SEED := $(SEED)
export PROPTEST_RNG_SEED := $(SEED)
endif
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: test quick steady bench evidence evidence-timed clean package release unit-quick $(STAGES)

test:
	@$(STAGE) --begin
	@MAKE=$(MAKE) $(PYTHON) tests/lanes.py $(if $(filter no,$(SIDE_BY_SIDE)),--one-after-another) \
		"$(LANE_THAT_COMPILES)" "$(LANE_THAT_WAITS)" \
		--then "$(LANE_THAT_IS_FREE)"; ended=$$?; $(STAGE) --summary && exit $$ended

quick: fmt clippy tidy unit-quick

steady: program
	@MAKE=$(MAKE) $(PYTHON) tests/steady.py --times $(N) --busy $(BUSY) \
		$(if $(COMMAND),--command '$(COMMAND)',$(SUITE))

install:
	@$(STAGE) install tests/install.sh

fmt:
	@$(STAGE) fmt cargo fmt --all --check

clippy:
	@$(STAGE) clippy cargo clippy --workspace --all-targets --locked -- -D warnings

tidy:
	@$(STAGE) tidy sh -c "$(PYTHON) tests/tidy/test_tidy.py; shown=\$$?; $(PYTHON) tests/tidy/tidy.py && exit \$$shown"

program:
	@$(STAGE) program cargo build --profile test --workspace --locked --lib --bins --tests

# One example in the documentation is a test: what the compiler refuses, in larder-memory. The whole workspace is named
# so that nothing is compiled for it anew.
unit:
	@$(STAGE) unit cargo test --workspace --locked --no-fail-fast --tests || failed=yes; \
	$(STAGE) "unit doc" cargo test --workspace --locked --doc || failed=yes; [ -z "$$failed" ]

unit-quick:
	@$(STAGE) unit-quick cargo test --workspace --locked --no-fail-fast --tests -- $(addprefix --skip ,$(SLOW_TESTS))

zns:
	@$(STAGE) zns tests/zns/run.sh

loom:
	@RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom CARGO_PROFILE_TEST_DEBUG=0 $(STAGE) loom \
		cargo test -p larder-index -p larder-memory -p larder-flash --locked --lib --test loom loom_

miri:
	@CARGO_TARGET_DIR=target/miri $(STAGE) miri tests/needs.sh \
		"Miri is not installed (rustup component add --toolchain nightly miri rust-src)" \
		"cargo +nightly miri --version" -- \
		tests/miri.sh larder-index larder-memory larder-temperature

release:
	@packaging/release.sh

fuzz:
	@$(STAGE) fuzz fuzz/run.sh $(FUZZ_SECONDS) $(SEED)

transcripts:
	@for cut in whole bytes; do \
		$(STAGE) "transcripts $$cut" $(PYTHON) tests/transcripts/run.py --server "$(SERVER)" --cut $$cut || failed=yes; \
	done; [ -z "$$failed" ]

reference:
	@for reference in $(REFERENCES); do server=$${reference%=*} release=$${reference#*=}; \
		$(STAGE) "reference $$release" tests/needs.sh \
			"there is no memcached $$release (see tests/peers.sh): the transcripts are not compared with it" \
			"[ \"\$$($$server -V)\" = 'memcached $$release' ]" -- \
			$(PYTHON) tests/transcripts/run.py --server $$server --release $$release || failed=yes; \
	done; [ -z "$$failed" ]

differential:
	@for pair in text:memcached binary:memcached resp:valkey-server resp:redis-server; do \
		protocol=$${pair%:*} reference=.tools/peers/$${pair#*:} program="run.py --protocol $${pair%:*}"; \
		[ $$protocol = resp ] && program=resp.py; \
		$(STAGE) "differential $$protocol $$(basename $$reference -server)" tests/needs.sh \
			"there is no $$reference (see tests/peers.sh): nothing is compared with it" "[ -x $$reference ]" -- \
			$(PYTHON) tests/differential/$$program --server "$(SERVER)" --reference $$reference \
			--seconds $(DIFFERENTIAL_SECONDS) $(if $(SEED),--seed $(SEED)) || failed=yes; \
	done; \
	for combination in users keep limits namespaces; do \
		$(STAGE) "differential $$combination" $(PYTHON) tests/differential/seams.py --server "$(SERVER)" \
			--combination $$combination --seconds $(SEAMS_SECONDS) $(if $(SEED),--seed $(SEED)) || failed=yes; \
	done; [ -z "$$failed" ]

clients:
	@$(STAGE) clients $(PYTHON) tests/clients/run.py --server "$(SERVER)"

python:
	@$(STAGE) python tests/needs.sh \
		"NumPy cannot be had (tests/requirements.txt): the Python module larder_sim is not tested" \
		"$(PYTHON) tests/clients/run.py --install-only pymemcache && $(VENV_PYTHON) -c 'import numpy'" -- \
		$(VENV_PYTHON) tests/python/test_larder_sim.py

kernels:
	@$(STAGE) kernels tests/needs.sh \
		"ptxas cannot be had (tests/requirements.txt): the kernels for GPUs are not assembled" \
		"$(PYTHON) tests/clients/run.py --install-only pymemcache && \
		ls .tools/venv/lib/python*/site-packages/nvidia/cuda_nvcc/bin/ptxas" -- \
		$(VENV_PYTHON) tests/kernels/assemble.py

fleets:
	@$(STAGE) fleets $(PYTHON) tests/fleets/run.py --server "$(SERVER)"

process:
	@$(STAGE) process $(PYTHON) tests/process/test_process.py --server "$(SERVER)"

stress:
	@for kind in entry hitmap hitmap-published; do \
		$(STAGE) "stress $$kind" $(PYTHON) tests/process/stress.py --server "$(SERVER) --temperature $$kind" \
			--seconds $(STRESS_SECONDS) || failed=yes; \
	done; \
	$(STAGE) "stress invariants" $(PYTHON) tests/process/invariants.py --server "$(SERVER)" \
		--seconds $(STRESS_SECONDS) || failed=yes; \
	[ -z "$$failed" ]

package:
	@$(STAGE) package tests/package/run.sh target/release/larder

bench:
	@echo "Each room has its own:         cargo bench -p larder-index   (-p larder-protocol, ...)"
	@echo "The server beside memcached:   cargo run --release -p larder-bench-compare -- --help"
	@echo "Figures that were measured:    docs/internals/numbers.md"

EVIDENCE := $(PYTHON) bench-compare/evidence.py $(if $(ONLY),--only $(ONLY)) $(if $(TRACES),--traces $(TRACES))

evidence:
	cargo build --release --locked
	cargo build --release --locked -p larder-laboratory --examples
	$(EVIDENCE)

evidence-timed:
	tests/peers.sh || true
	cargo build --release --locked --workspace --bins
	cargo build --release --locked -p larder-laboratory --examples
	$(EVIDENCE) --timed

clean:
	cargo clean
	chmod -R u+w .tools 2>/dev/null || true
	rm -rf .tools
