# shellcheck shell=bash disable=SC2034
# What Cargo builds for the tests: options for `cargo test`. Sourced.

# The product is tested as users build it. Only the simulation needs the hooks `unstable-simulation`, and Cargo switches
# them on for everything that it builds together with the simulation.
features=$(printf 'redlock-core/%s,' cli metrics postgres redis serde test-util tls zookeeper)
features+=$(printf 'redlock-axum/%s,' aide board idempotency postgres serde test-util tls utoipa zookeeper)
product=(--workspace --exclude redlock-simulation --exclude redlock-model --exclude redlock-instructions
    --features "${features}redlock-tests/metrics" --locked)
# redlock-logs has the program that searches the output.
simulation=(-p redlock-simulation -p redlock-model -p redlock-logs --locked)
