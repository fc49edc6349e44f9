# `just` lists the recipes. CI runs `.ci/run`, which is `just check` on a fresh machine.

# Everything that must be green before a change lands.
check: fmt lint test doc deny

# Formatting.
fmt:
    cargo fmt --all --check

# Lints, warnings denied. The same profile as the tests, so everything compiles once.
lint:
    cargo clippy --release --workspace --all-targets -- -D warnings

# All tests: domain, conformance, contract, architecture, services, end to end.
test:
    cargo test --release --workspace

# Seeded simulation, so many histories; FANFOLD_SIM_SEED=n replays one with a trace.
sim SEEDS="2000":
    FANFOLD_SIM_SEEDS={{SEEDS}} cargo test --release -p fanfold-tests --test sim -- --nocapture --test-threads 1

# Documentation, warnings denied.
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --release --workspace --no-deps --document-private-items

# Bans, licences and sources of dependencies.
deny:
    cargo deny --config deny.toml check bans licenses sources

# The main job, on an embedded server.
demo *ARGS:
    cargo run --release -- demo {{ARGS}}

# Processes killed, frozen and doubled under load: `just chaos SEED DISTURBANCES`, with the table of what was done.
chaos SEED="1" DISTURBANCES="100":
    FANFOLD_CHAOS_SEED={{SEED}} FANFOLD_CHAOS_DISTURBANCES={{DISTURBANCES}} cargo test --release -p fanfold-tests --test e2e_chaos -- --nocapture

# The whole job against bare publishes of the same bytes: `just bench --tasks 100000 --durable false`.
bench *ARGS:
    cargo run --release -- bench {{ARGS}}

# Instructions a task, under valgrind: reading and folding its events, deciding about it, its part of a summary. Steady where clocks are not.
bench-instructions:
    cargo build --release -p fanfold-ledger --example instructions
    for what in fold decide summary; do valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*measured*' target/release/examples/instructions $what 2>&1 | awk -v what=$what '/Collected/ { printf "%-8s %6d instructions a task\n", what, $NF / 10000 }'; done
