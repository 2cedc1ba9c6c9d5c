#!/usr/bin/env bash
# Runs every test of the workspace.
#
#     tests/run.sh [--install] [arguments of cargo test]
#
# The tests need Rust and a redis-server (or valkey-server); without a server the script ends. The tests
# against redis-py also need Python 3, those against Redisson a JDK and Maven, and those of the fencing
# example PostgreSQL; without these tools the script skips the tests, and reports that at the end. In both
# cases it prints how to install the missing tool. It also skips the tests of TLS if the server was built
# without TLS. The script prepares valgrind, too, for the bench that counts instructions.
#
# With --install, and in CI, the script installs missing tools by apt-get or dnf (as root, with sudo if
# necessary) or by brew. Otherwise it installs nothing outside of the target directory.
#
# A password or a token in the logs of the tests, at any level, fails the run. So does one in the output
# of the run, including the output of successful tests.
#
#     REDIS_SERVER=/path/to/server   test against this server instead of the one in PATH
#     PROPTEST_CASES=100000          number of cases of each test with random values
#     CI=true                        install missing tools, and fail instead of skipping tests
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mkdir -p "${CARGO_TARGET_DIR:-target}"
# An absolute path, because the tests run in the folders of their packages.
target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
skipped=()
install_missing=false
if [ "${1:-}" = --install ]; then
    install_missing=true
    shift
fi

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

# how_to_install <apt packages> <dnf packages> <brew formulas>
how_to_install() {
    local command
    if has apt-get; then
        command="sudo apt-get install $1"
    elif has dnf; then
        command="sudo dnf install $2"
    elif has brew; then
        command="brew install $3"
    else
        return
    fi
    printf '   Install it: %s\n   Or let this script do that: tests/run.sh --install\n' "$command"
}

# install <apt package> <dnf package> <brew formula>
install() {
    if ! in_ci && ! $install_missing; then
        return 1
    elif has apt-get; then
        say "Installing $1 by apt-get"
        as_root apt-get update -q </dev/null || say "apt-get update failed; trying to install anyway"
        as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -q -y --no-install-recommends "$1" </dev/null
    elif has dnf; then
        say "Installing $2 by dnf"
        as_root dnf install -q -y "$2" </dev/null
    elif has brew; then
        say "Installing $3 by brew"
        brew install --quiet "$3" </dev/null
    else
        say "Cannot install $1: found neither apt-get nor dnf nor brew"
        return 1
    fi
}

find_server() {
    if [ -n "${REDIS_SERVER:-}" ]; then
        has "$REDIS_SERVER" || die "REDIS_SERVER is $REDIS_SERVER, which is not an executable program."
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
        # Fedora has replaced the package redis by valkey.
        install redis-server redis redis || { has dnf && install valkey valkey valkey; } || true
        hash -r
        find_server || die "redis-server is missing. The tests need Redis 6.2 or newer, or Valkey: redis-server or
   valkey-server in PATH, or its path in REDIS_SERVER.
$(how_to_install redis-server redis redis)
   Other ways: https://redis.io/docs/latest/operate/oss_and_stack/install/"
    fi
    export REDIS_SERVER
    say "Testing against $("$REDIS_SERVER" --version)"
}

# skip <name of the other program> <reason> [<apt packages> <dnf packages> <brew formulas>]
skip() {
    if in_ci; then
        die "$2. In CI no test may be skipped."
    fi
    local message="$2: skipped the tests with $1."
    if [ $# -gt 2 ]; then
        message+=$'\n'$(how_to_install "${@:3}")
    fi
    skipped+=("$message")
    say "$message"
}

# Installs redis-py into a virtual environment, so that the system does not change.
prepare_python() {
    if ! has python3; then
        install python3 python3 python3 || true
        hash -r
    fi
    if ! has python3; then
        skip redis-py "python3 is missing" "python3 python3-venv" python3 python3
        return
    fi
    local environment=$target/redis-py
    if ! "$environment/bin/python" -c 'import redis' 2>/dev/null; then
        say "Preparing redis-py in $environment"
        rm -rf "$environment"
        # Debian's package python3 does not contain venv.
        if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
            install python3-venv python3 python3 || true
        fi
        if ! python3 -m venv "$environment" ||
            ! "$environment/bin/python" -m pip install -q 'redis>=5,<9' </dev/null; then
            rm -rf "$environment"
            skip redis-py "redis-py could not be installed by python3's venv and pip" \
                python3-venv "python3 python3-pip" python3
            return
        fi
    fi
    REDLOCK_TEST_PYTHON=$(cd "$environment/bin" && pwd)/python
    export REDLOCK_TEST_PYTHON
}

has_jdk() {
    # macOS has a placeholder javac that only reports that no JDK is installed.
    if ! javac -version >/dev/null 2>&1 && has brew && brew --prefix openjdk >/dev/null 2>&1; then
        PATH=$(brew --prefix openjdk)/bin:$PATH
        export PATH
    fi
    javac -version >/dev/null 2>&1
}

# Puts Redisson and the program that uses it into the target directory, where the tests expect them.
prepare_redisson() {
    has_jdk || install default-jdk-headless java-devel openjdk || true
    has mvn || install maven maven maven || true
    hash -r
    if ! has_jdk || ! has mvn; then
        skip Redisson "a JDK or Maven is missing" \
            "default-jdk-headless maven" "java-devel maven" "openjdk maven"
    elif ! tests/interop/java/prepare.sh "$target/redisson"; then
        skip Redisson "Redisson could not be downloaded"
    fi
}

has_postgres() {
    has initdb && has postgres || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

# Checks only that the programs exist: the tests start their own server.
prepare_postgres() {
    if ! has_postgres; then
        install postgresql postgresql-server postgresql || true
        hash -r
    fi
    has_postgres ||
        skip PostgreSQL "initdb and postgres are missing" postgresql postgresql-server postgresql
}

# A server without any port ends at once. A server without TLS names the directive that it does not know.
has_tls() {
    local output
    output=$(cd "$target" && "$REDIS_SERVER" --port 0 --tls-port 0 --save '' 2>&1 </dev/null) || true
    [[ $output != *"tls-port"*"Bad directive"* ]]
}

# Checks only that the server was built with TLS: the tests make their own certificates.
prepare_tls() {
    has_tls || skip "a server with TLS" "$REDIS_SERVER was built without TLS"
}

# The gate counts instructions after the tests: cargo bench -p redlock-instructions.
prepare_valgrind() {
    if ! has valgrind; then
        install valgrind valgrind valgrind || true
        hash -r
    fi
    has valgrind || skip valgrind "valgrind is missing" valgrind valgrind valgrind
}

has cargo || die "cargo is missing. Install Rust first: https://rustup.rs"
prepare_server
prepare_tls
prepare_python
prepare_redisson
prepare_postgres
prepare_valgrind

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
    say "All tests passed, except those that were skipped:"
    printf '   %s\n' "${skipped[@]}" >&2
else
    say "All tests passed."
fi
