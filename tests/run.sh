#!/usr/bin/env bash
# Installs missing tools, then runs every test of the workspace.
#
#     tests/run.sh [arguments of cargo test]
#
# Needs Rust and a redis-server (or valkey-server), which is installed if it is missing. The tests
# against redis-py need Python 3, those against Redisson a JDK and Maven, those of fencing tokens
# PostgreSQL. In CI these tools are installed if they are missing; elsewhere their tests are skipped,
# and the end of the output lists them.
#
# The tests' logs at every level and the whole output, including that of successful tests, are searched
# for the passwords and tokens in use. If one is found, the run fails.
#
#     REDIS_SERVER=/path/to/server   test against this server instead of the one in PATH
#     PROPTEST_CASES=100000          more cases for the tests with random values
#     CI=true                        a test that would be skipped fails
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mkdir -p "${CARGO_TARGET_DIR:-target}"
# The path is absolute, because tests run in the folders of their packages.
target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
skipped=()

say() { printf '\n== %s\n' "$*" >&2; }

die() {
    say "$1"
    exit 1
}

in_ci() { [ "${CI:-}" = true ] || [ "${CI:-}" = 1 ]; }

has() { command -v "$1" >/dev/null 2>&1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif has sudo && [ -t 0 ]; then
        sudo "$@"
    elif has sudo; then
        sudo -n "$@"
    else
        say "Cannot run as root (no sudo): $*"
        return 1
    fi
}

# install <apt package> <dnf package> <brew formula>
install() {
    if has apt-get; then
        say "Installing $1 by apt-get"
        as_root apt-get update -q </dev/null || say "apt-get update failed, trying to install anyway"
        as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -q -y --no-install-recommends "$1" </dev/null
    elif has dnf; then
        say "Installing $2 by dnf"
        as_root dnf install -q -y "$2" </dev/null
    elif has brew; then
        say "Installing $3 by brew"
        brew install --quiet "$3" </dev/null
    else
        say "No apt-get, dnf or brew here to install $1 with"
        return 1
    fi
}

find_server() {
    if [ -n "${REDIS_SERVER:-}" ]; then
        has "$REDIS_SERVER" || die "REDIS_SERVER is $REDIS_SERVER, which cannot be run."
    elif has redis-server; then
        REDIS_SERVER=$(command -v redis-server)
    elif has valkey-server; then
        REDIS_SERVER=$(command -v valkey-server)
    else
        return 1
    fi
}

prepare_server() {
    if ! find_server; then
        # Fedora has replaced redis by valkey.
        install redis-server redis redis || { has dnf && install valkey valkey valkey; } || true
        hash -r
        find_server || die "redis-server is missing and could not be installed. Install Redis 6.2 or newer, or Valkey, by hand,
   so that redis-server is in PATH (https://redis.io/docs/latest/operate/oss_and_stack/install/),
   or set REDIS_SERVER to its path. Then run this script again."
    fi
    export REDIS_SERVER
    say "Testing against $("$REDIS_SERVER" --version)"
}

# skip <the other library> <why>
skip() {
    if in_ci; then
        die "$2. In CI a skipped test is a failure."
    fi
    local message="$2: the tests against $1 were skipped."
    skipped+=("$message")
    say "$message"
}

# redis-py is installed into a virtual environment, so that the system stays unchanged.
prepare_python() {
    if ! has python3 && in_ci; then
        install python3 python3 python3 || true
        hash -r
    fi
    if ! has python3; then
        skip redis-py "python3 is missing"
        return
    fi
    local environment=$target/redis-py
    if ! "$environment/bin/python" -c 'import redis' 2>/dev/null; then
        say "Preparing redis-py in $environment"
        rm -rf "$environment"
        # Debian's python3 lacks the modules that create virtual environments.
        if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
            install python3-venv python3 python3 || true
        fi
        if ! python3 -m venv "$environment" ||
            ! "$environment/bin/python" -m pip install -q 'redis>=5,<9' </dev/null; then
            rm -rf "$environment"
            skip redis-py "redis-py could not be installed"
            return
        fi
    fi
    REDLOCK_TEST_PYTHON=$(cd "$environment/bin" && pwd)/python
    export REDLOCK_TEST_PYTHON
}

has_jdk() {
    # macOS has a javac without a JDK, which only prints that the JDK is missing.
    if ! javac -version >/dev/null 2>&1 && has brew && brew --prefix openjdk >/dev/null 2>&1; then
        PATH=$(brew --prefix openjdk)/bin:$PATH
        export PATH
    fi
    javac -version >/dev/null 2>&1
}

# Redisson and the Java program are put into the target directory, where the tests look for them.
prepare_redisson() {
    if in_ci; then
        has_jdk || install default-jdk-headless java-devel openjdk || true
        has mvn || install maven maven maven || true
        hash -r
    fi
    if ! has_jdk || ! has mvn; then
        skip Redisson "a JDK or Maven is missing"
    elif ! tests/interop/java/prepare.sh "$target/redisson"; then
        skip Redisson "Redisson could not be downloaded"
    fi
}

has_postgres() {
    has initdb && has postgres || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

# The tests start their own PostgreSQL server.
prepare_postgres() {
    if ! has_postgres && in_ci; then
        install postgresql postgresql-server postgresql || true
        hash -r
    fi
    has_postgres || skip PostgreSQL "initdb and postgres are missing"
}

has cargo || die "cargo is missing. Install Rust first: https://rustup.rs"
prepare_server
prepare_python
prepare_redisson
prepare_postgres

arguments=("$@")
[[ " $* " == *" -- "* ]] || arguments+=(--)
arguments+=(--show-output)

output=$target/test-output.txt
export REDLOCK_TEST_PASSWORDS=$target/test-passwords.txt
rm -f "$REDLOCK_TEST_PASSWORDS"

say "cargo test --workspace --all-features --locked ${arguments[*]}"
cargo test --workspace --all-features --locked "${arguments[@]}" </dev/null 2>&1 | tee "$output"

cargo run --quiet --locked --package redlock-logs <"$output" ||
    die "A password or a token was printed: see $output."

if [ "${#skipped[@]}" != 0 ]; then
    say "All tests that ran passed, but:" "${skipped[@]}"
else
    say "All tests passed."
fi
