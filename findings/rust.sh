# Rust crates for a finding. Sourced after environment.sh. Needs cargo.
#
#     . "$(dirname "$0")/rust.sh"
#     crates 'axum = "=0.8.9"' 'tower-http = { version = "=0.7.1", features = ["compression-gzip"] }'
#     run_rust <<'RUST'
#
# Everything that cargo builds is put into the temporary folder.

# crates <line of [dependencies] ..>: these versions, and what they need.
crates() {
    mkdir -p "$folder/rust/src"
    {
        printf '[package]\nname = "finding"\nedition = "2024"\n\n[workspace]\n\n[dependencies]\n'
        printf '%s\n' "$@"
    } >"$folder/rust/Cargo.toml"
    printf 'crate: %s\n' "$@"
}

# build_rust: builds the Rust program from standard input, as $finding.
build_rust() {
    cat >"$folder/rust/src/main.rs"
    CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=$folder/rust/target cargo build --quiet --manifest-path "$folder/rust/Cargo.toml"
    export finding=$folder/rust/target/debug/finding
}

# run_rust: executes the Rust program from standard input. It ends with an error if the behaviour has changed.
run_rust() {
    build_rust
    "$finding"
}
