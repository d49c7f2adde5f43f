# Squall's chores. `make` alone lists them.
SHELL := /bin/bash
SQUALL := target/release/squall
# With what `make lab` adds.
LAB := target/lab/squall
# Optimised, with all checks: what tests run.
CHECKED := target/ci/squall
# All crates, with random worlds and planted bugs.
WHOLE := --locked --profile ci --workspace --features squall-cli/lab
LINTS := cargo clippy $(WHOLE) --all-targets -- -D warnings
SEEDS ?= 1..500
# Of `make test`: other ones for each commit.
TEST_SEEDS ?= $(shell scripts/seeds 60)
KILLS ?= 200
LAUNCHES ?= 1000
EVENTS ?= 125
TAKEOVERS ?= 1000
# Where `make install` puts things; SLURM_NAMES=no leaves Slurm's names out of PREFIX/bin.
PREFIX ?= /usr/local
DESTDIR ?=
SLURM_NAMES ?= yes
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
# Revision of packages of the same version.
REVISION ?= 1
PACKAGES := target/package

.PHONY: help build program lab install uninstall package-build deb rpm tarball wheel package-test roots-test demo test check sim nightly path checked crash drill upgrade-drill bench bench-throughput bench-fabric bench-gang bench-mpi bench-sched pictures fuzz advisories sbom deny clean

help: ## list the chores
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

build: ## the program, target/release/squall, the C library and the PAM module
	cargo build --release --locked -p squall-cli -p squall-c -p squall-pam

program:
	cargo build --release --locked -p squall-cli

lab: ## target/lab/squall: the program with random worlds, planted bugs, ESP, and the models behind figures of talks
	cargo build --profile lab --locked -p squall-cli --features lab

install: ## what `make build` has built, below DESTDIR and PREFIX (/usr/local): program, Slurm's names (SLURM_NAMES=no: only in PREFIX/lib/squall/slurm/bin), units, C library, pages
	@PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) SLURM_NAMES=$(SLURM_NAMES) VERSION=$(VERSION) packaging/install program daemons library

uninstall: ## removes what `make install` has installed; configuration and state stay
	@PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) packaging/uninstall

package-build: # what packages hold, in target/dist: no benchmarks, no simulator; a C library with a name for the linker
	cargo build --profile dist --locked -p squall-cli --no-default-features
	cargo build --profile dist --locked -p squall-pam
	cargo rustc --profile dist --locked -p squall-c --lib -- -C link-arg=-Wl,-soname,libsquallclient.so.0

deb: package-build ## Debian packages in target/package (wants cargo-deb): squall, squall-client, libsquallclient-dev
	packaging/stage deb
	cargo deb --quiet --no-build --no-strip --deb-revision $(REVISION) -o $(PACKAGES)/ -p squall-cli
	cargo deb --quiet --no-build --no-strip --deb-revision $(REVISION) -o $(PACKAGES)/ -p squall-cli --variant client
	cargo deb --quiet --no-build --no-strip --deb-revision $(REVISION) -o $(PACKAGES)/ -p squall-c

rpm: package-build ## RPM packages in target/package (wants cargo-generate-rpm): squall, squall-client, squall-devel
	packaging/stage rpm
	cargo generate-rpm -p crates/squall-cli -o $(PACKAGES)/ -s 'release = "$(REVISION)"'
	cargo generate-rpm -p crates/squall-cli -o $(PACKAGES)/ -s 'release = "$(REVISION)"' --variant client
	cargo generate-rpm -p crates/squall-c -o $(PACKAGES)/ -s 'release = "$(REVISION)"'

tarball: ## a tarball in target/package to unpack into /usr/local, for glibc 2.17 or later (wants cargo-zigbuild: pip install cargo-zigbuild; without it for this machine's); STATIC=yes: a program that needs no C library (wants the musl target, and cargo-zigbuild or musl-gcc)
	packaging/tarball $(if $(STATIC),static)

wheel: ## wheels in target/package: squall-hpc, the program for glibc 2.17 or later and its Python module, and squall-slurm-names for squall-hpc[slurm-names] (wants cargo-zigbuild)
	packaging/portable-build
	packaging/wheel target/$(shell uname -m)-unknown-linux-gnu/dist/squall

package-test: ## installs the Debian packages in a fresh Debian 12 with systemd, runs jobs, upgrades, removes (as root; wants debootstrap, cargo-deb; minutes)
	packaging/test-deb

roots-test: ## runs a job with tarball and wheel in fresh Debians 11, 12 and 13, and with the static tarball in a root with busybox alone (as root; wants debootstrap, cargo-zigbuild, the musl target; minutes)
	packaging/test-roots

demo: program ## a 4-node cluster on this machine: batch, srun, array, dependency, MPI, sacct; SQUALL_STATE=DIR: in that cluster
	scripts/demo $(SQUALL)

test: ## everything that must hold: lints, simulator, instructions of a job, unit, property and end-to-end tests, crashes (scaled)
	@rm -f target/stages
	@scripts/stage format cargo fmt --all --check
	@scripts/stage lints $(LINTS)
	@scripts/stage build cargo test $(WHOLE) --no-run
	@scripts/stage simulator $(CHECKED) sim --seeds $(TEST_SEEDS) --nodes 64 --hours 1
	@scripts/stage path bench/path $(CHECKED)
	@RUST_TEST_THREADS=4 scripts/stage tests scripts/tests 3 $(WHOLE)
	@echo && cat target/stages

check: ## formatting, lints, the house's walls
	cargo fmt --all --check
	$(LINTS)

nightly: checked ## what takes longer than a commit may: 20,000 small worlds, other ones each time; kills and 50 preemptions amid checkpoints, a job of 1 GB to disk, usage over time, the book on machines of 2 and 8 CPUs, tarball and wheel in old roots
	$(CHECKED) sim --seeds $$(scripts/seeds 20000) --nodes 4 --hours 0.1
	SQUALL_CHECKPOINT_KILLS=500 cargo test $(WHOLE) --test e2e kills_at_random_moments
	SQUALL_CHECKPOINT_ROUNDS=50 cargo test $(WHOLE) --test e2e a_preempted_job_steps_aside_and_comes_back_by_itself
	@if [ "$$(id -u)" = 0 ] && scripts/criu target/tmp/criu; then bench/checkpoint --mb=1024 --rounds=3 $(CHECKED) target/tmp/criu/criu; \
	else echo "a job of 1 GB is not checkpointed: that wants root and CRIU"; fi
	cargo test $(WHOLE) --test e2e -- --ignored
	SQUALL_BOOK_CPUS=2 cargo test $(WHOLE) --test book
	SQUALL_BOOK_CPUS=8 cargo test $(WHOLE) --test book
	@if command -v debootstrap >/dev/null && command -v cargo-zigbuild >/dev/null && [ "$$(id -u)" = 0 ]; then packaging/test-roots; \
	else echo "tarball and wheel are not tried: that wants root, debootstrap and cargo-zigbuild"; fi

sim: checked ## simulator: 500 seeds of 64 nodes for one simulated hour, and the planted bugs
	$(CHECKED) sim --seeds $(SEEDS) --nodes 64 --hours 1
	$(CHECKED) sim --mutations

path: checked ## instructions of the controller for a one-core job (wants valgrind): no more than bench/path.max
	bench/path $(CHECKED)

checked:
	cargo build $(WHOLE)

crash: build ## kill -9 of controller, node daemon and step daemon, KILLS times each, under load; of node daemons at LAUNCHES launches; on a full disk; EVENTS each of clock steps, `down` races, silences beyond node_lost_s and spools rolled back, a fifth as many restored backups
	SQUALL_CRASH_KILLS=$(KILLS) SQUALL_CRASH_LAUNCHES=$(LAUNCHES) SQUALL_CRASH_EVENTS=$(EVENTS) SQUALL_CRASH_BINARY=$(abspath $(SQUALL)) cargo test --locked --release -p squall-cli --features lab --test crash -- --nocapture --test-threads 1

drill: build ## three controllers under load, faults of every kind until one has begun to lead TAKEOVERS times; the time until the next submission is taken, by kind (as root; wants etcd)
	SQUALL_DRILL_TAKEOVERS=$(TAKEOVERS) SQUALL_CRASH_BINARY=$(abspath $(SQUALL)) cargo test --locked --release -p squall-cli --features lab --test drill -- --nocapture

upgrade-drill: build ## builds an older revision, OLD=REVISION (0.2.0 or later), and upgrades its running cluster to this one: no job is lost, repeated or ended; not a part of `make test`
	scripts/upgrade-drill $(OLD) $(SQUALL)

bench: build ## the figures of this machine: spawn, throughput, submit, restart
	$(SQUALL) bench spawn
	$(SQUALL) bench throughput --jobs 5000
	$(SQUALL) bench submit
	$(SQUALL) bench restart

bench-throughput: build ## jobs by the thousand in one table: the ladder, shares of bare spawn, a million jobs, submissions, commands, memory; and Debian's Slurm beside it where that is installed (as root)
	$(SQUALL) bench jobs
	@if command -v slurmctld >/dev/null && command -v munged >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  bench/peers/slurm-throughput $(SQUALL); \
	else echo "no Slurm to compare with: bench/peers/slurm-throughput wants root and Debian's slurmctld, slurmd, slurm-client, munge"; fi

bench-fabric: build ## the fabric's figures in one table beside the talks', pictures in target/bench
	$(SQUALL) bench fabric --pictures target/bench

bench-gang: lab ## gang scheduling: slowdown against the length of a slot, synchronising MPI jobs, switch, strobe (wants mpicc.openmpi)
	$(LAB) bench gang --pictures target/bench

bench-mpi: build ## MPI programs by srun beside their own launchers (wants Debian's openmpi-bin libopenmpi-dev mpich libmpich-dev), and beside Debian's Slurm where that is installed (as root)
	$(SQUALL) bench mpi
	@if command -v slurmctld >/dev/null && command -v munged >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  bench/peers/slurm-mpi $(SQUALL); \
	else echo "no Slurm to compare with: bench/peers/slurm-mpi wants root and Debian's slurmctld, slurmd, slurm-client, munge"; fi
	$(SQUALL) bench shmem
	$(SQUALL) bench pingpong --pictures target/bench
	$(SQUALL) bench fence --pictures target/bench

TRACE ?=
PEER ?=

bench-sched: lab ## scheduling's figures in one table beside the talk's: passes, placement and task layout on tori, the synthetic Blue Waters; TRACE="FILE.swf.gz… DIR…": workload traces (PEER="python3 bench/peers/accasim.py": beside AccaSim)
	$(LAB) bench scheduling $(TRACE) $(if $(PEER),--peer '$(PEER)')

pictures: lab ## the pictures in docs/pictures, made again: scheduling from synthetic workloads, the dashboard from a real run (as root; wants chromium, chromedriver)
	scripts/pictures $(LAB)

fuzz: ## each fuzz target for SECONDS (60) (wants cargo-fuzz)
	scripts/fuzz $(or $(SECONDS),60)

advisories: ## known faults of dependencies (wants cargo-deny; clones RustSec's database, or takes the clone in ADVISORIES=DIR)
	scripts/advisories $(ADVISORIES)

sbom: ## what the program is made of, as CycloneDX in target/sbom (wants cargo-cyclonedx)
	scripts/sbom

deny: ## licences, sources and duplicates of dependencies (needs cargo-deny)
	cargo deny --offline check licenses bans sources

clean: ## remove what was built
	cargo clean
