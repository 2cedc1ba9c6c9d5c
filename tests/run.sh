#!/usr/bin/env bash
# Runs the tests of the workspace.
#
#     tests/run.sh [options] [filter ..]
#
#     --install[=TOOL,..]   install redis-server, or these tools (redis, python, java, postgres, go, monitoring, all), by
#                           the package manager of the system; otherwise nothing outside of the target folder changes
#     --kind KIND[,KIND]    only these kinds: unit, simulation, real, storms, measured, doc, thorough, mistakes,
#                           nightly, monitoring
#     --all                 also the tests that the gate leaves to the night: every kind of node, long storms
#                           (thorough), times (measured), compile errors (mistakes)
#     --seed N              the seed of all random values (REDLOCK_SEED)
#     --explore SECONDS     fresh seeds for so many seconds in each test that explores
#     --repeat N            run every test N times, and end at the first failure
#     --resume              continue an interrupted --repeat, with its kinds, filters and number
#     --prepare             install and download what the tests need, then end
#     --built FILE          create this file when the tests are built
#
# A filter is a part of a test's path, or of the name of its binary. Without filters all tests of the gate run: the kinds after each
# other, the storms alone. A tool that is missing skips its tests; in CI (CI=true) it is installed, and no test may be
# skipped. tests/README.md describes the kinds.
#
# A password, a token, or a warning of the order of locks in the output of the tests, also of successful ones, fails the run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

started=$SECONDS
wanted='' kinds='' seed='' explore='' repeat='' resume=false all=false only_prepare=false built_file=''
filters='' skipped=() interrupted=false

usage() {
    sed -n '2,/^set /s/^# \{0,1\}//p' tests/run.sh
}

# title <kind>
title() {
    case $1 in
    unit) echo "tests without servers" ;;
    simulation) echo "simulation and model" ;;
    real) echo "tests with servers" ;;
    storms) echo "storms, two at once" ;;
    measured) echo "measured, one after another: other programs disturb them" ;;
    thorough) echo "long storms" ;;
    mistakes) echo "compile errors" ;;
    nightly) echo "downloaded servers and doubles" ;;
    monitoring) echo "Prometheus reads the metrics" ;;
    doc) echo "examples in the documentation" ;;
    explore) echo "fresh seeds, $explore s for each test" ;;
    *) return 1 ;;
    esac
}

wrong() {
    echo "$1: tests/run.sh --help lists the options." >&2
    exit 2
}

while [ $# != 0 ]; do
    case $1 in
    --install) wanted=redis ;;
    --install=*) wanted=${1#*=} ;;
    --built | --kind | --seed | --explore | --repeat)
        [ $# -gt 1 ] || wrong "$1 needs a value"
        case $1 in
        --built) built_file=$2 ;;
        --kind) kinds=${2//,/ } ;;
        --seed) seed=$2 ;;
        --explore) explore=$2 ;;
        --repeat) repeat=$2 ;;
        esac
        [[ " --built --kind " == *" $1 "* ]] || [[ $2 =~ ^(0|[1-9][0-9]{0,17})$ ]] || wrong "$1 $2 is not a whole number"
        shift
        ;;
    --all) all=true ;;
    --resume) resume=true ;;
    --prepare) only_prepare=true ;;
    --help)
        usage
        exit
        ;;
    -*) wrong "$1 is not an option" ;;
    *) filters+="$1 " ;;
    esac
    shift
done

for tool in ${wanted//,/ }; do
    [[ " redis python java postgres go monitoring all " == *" $tool "* ]] || wrong "--install=$tool: there is no such tool"
done
for kind in $kinds; do
    title "$kind" >/dev/null || wrong "--kind $kind: there is no such kind"
done

# An absolute path, because the tests run in the folders of their packages.
mkdir -p "${CARGO_TARGET_DIR:-target}"
target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)

# shellcheck source-path=SCRIPTDIR source=tools.sh
. tests/tools.sh

# Two runs would write the same logs.
if has flock; then
    exec 9>"$target/tests.lock"
    flock -n 9 || die "Another run uses $target."
fi

announce
prepare
say_skipped
! $only_prepare || exit 0
$uses_nextest || say "cargo-nextest is missing, so cargo test runs the tests, one program after another. That takes longer.
   The script needs Python 3 with venv for it (--install=python), or a cargo-nextest in PATH."

#### What runs: .config/nextest.toml has the filter of each kind.

# shellcheck source-path=SCRIPTDIR source=packages.sh
. tests/packages.sh

# build_of <kind> prints the name of the array with its packages.
build_of() { [ "$1" = simulation ] && echo simulation || echo product; }

directory=$target/tests/$([ -n "$repeat" ] || $resume && echo repeat || echo log)
results=$directory/results.tsv
if $resume; then
    [ -z "$kinds$filters$seed$explore$repeat" ] || wrong "--resume takes all options of the interrupted run"
    [ -f "$directory/options" ] || die "No run with --repeat was interrupted."
    { read -r repeat && read -r kinds && read -r filters && read -r seed; } <"$directory/options"
fi
if [ -z "$kinds" ]; then
    kinds="unit simulation real storms"
    [ -n "$repeat" ] || kinds+=" doc"
    [ -z "$explore" ] || kinds="simulation explore"
    ! $all || kinds="mistakes $kinds measured thorough"
fi
if ! $uses_nextest; then
    # cargo test selects tests by their paths alone, which do not tell whether a test needs servers.
    [ "$kinds" != unit ] || die "--kind unit needs cargo-nextest. Without it: cargo test -p redlock-core"
    [ -z "$filters" ] || kinds="real simulation"
    # `real` runs them all.
    [[ " $kinds " != *" unit "* ]] || kinds="real ${kinds//unit/}"
    [[ " $kinds " != *" real "*" real "* ]] || kinds=${kinds#real }
fi
! $all || export REDLOCK_ALL_NODES=1
[[ " $kinds " != *" mistakes "* ]] || export REDLOCK_TRYBUILD=1
[ -z "$seed" ] || export REDLOCK_SEED=$seed PROPTEST_RNG_SEED=$seed
if [ -n "$explore" ]; then
    export REDLOCK_EXPLORE_SECONDS=$explore PROPTEST_RNG_SEED=${seed:-$RANDOM$RANDOM}
    # The number of random values that each property is tried with: as many as fit into the time, about.
    export PROPTEST_CASES=$((explore * 50))
    echo "PROPTEST_RNG_SEED=$PROPTEST_RNG_SEED PROPTEST_CASES=$PROPTEST_CASES"
fi

#### Files of this run.

if ! $resume; then
    rm -rf "$directory"
    mkdir -p "$directory/failed"
    : >"$results"
    [ -z "$repeat" ] || printf '%s\n' "$repeat" "$kinds" "$filters" "$seed" >"$directory/options"
fi
export REDLOCK_TEST_PASSWORDS=$directory/passwords REDLOCK_TEST_SKIPPED=$directory/skipped
# A part of the names of all folders in which the tests start servers.
run=$$-$RANDOM
zookeeper=
trap 'interrupted=true' INT TERM
trap '[ -z "$zookeeper" ] || kill "$zookeeper" 2>/dev/null || true' EXIT

minutes() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# counted <column 3 of the results>
counted() { awk -F '\t' -v state="$1" '$3 == state { n++ } END { print n + 0 }' "$results"; }

# Where no terminal shows the progress bar of nextest: a line after 10 seconds or more, and everything but the passed
# tests.
progress() {
    local line passed=0 failed=0 last=$SECONDS
    trap '' INT
    while IFS= read -r line; do
        case $line in
        *' PASS ['* | 'test '*' ... ok') passed=$((passed + 1)) ;;
        *' FAIL ['* | *' TIMEOUT ['* | *' ABORT ['* | *' SIG'*' ['* | 'test '*' ... FAILED')
            failed=$((failed + 1))
            printf '%s\n' "$line"
            ;;
        *) printf '%s\n' "$line" ;;
        esac
        if [ $((SECONDS - last)) -ge 10 ]; then
            last=$SECONDS
            printf '    %s  %d passed, %d failed\n' "$(minutes $((SECONDS - started)))" "$passed" "$failed"
        fi
    done
}

# expression <list of binaries> prints the filters as a filterset of nextest, which refuses a name without a binary.
expression() {
    local filter separator=
    for filter in $filters; do
        printf '%stest(~%s)' "$separator" "$filter"
        separator=' | '
        ! grep -q '"binary-id":"[^"]*'"$filter" "$1" || printf ' | binary_id(~%s)' "$filter"
    done
}

# by_nextest <kind>
by_nextest() {
    local kind=$1 profile=$1 status=0 junit options binaries
    [ -z "$explore" ] || profile=explore
    junit=$target/nextest/$profile/junit.xml
    # What `build` has built, also in the last round of --repeat.
    binaries=$directory/$(build_of "$kind").json
    options=(-P "$profile" --no-tests pass --binaries-metadata "$binaries")
    [ -z "$repeat" ] || options+=(--fail-fast)
    [ -z "$filters" ] || options+=(-E "$(expression "$binaries")")
    rm -f "$junit"
    if [ -t 2 ]; then
        env REDLOCK_TEST_RUN=$run cargo nextest run "${options[@]}" --status-level fail \
            --final-status-level none </dev/null 9>&- || status=$?
    else
        env REDLOCK_TEST_RUN=$run cargo nextest run "${options[@]}" --status-level pass \
            --final-status-level none </dev/null 2>&1 9>&- | progress || status=$?
    fi
    if [ -f "$junit" ]; then
        awk -v kind="$kind" -v failed="$directory/failed" -f tests/report.awk "$junit" >>"$results"
        # Later rounds of --repeat show nothing new.
        [ -s "$directory/$kind.xml" ] || cp "$junit" "$directory/$kind.xml"
    fi
    return "$status"
}

# by_cargo <kind>: the documentation, and all tests on machines without nextest. The tests of a binary share a process.
# `real` includes `unit`.
by_cargo() {
    local kind=$1 build output=$directory/$1.txt status=0 arguments=()
    build="$(build_of "$kind")[@]"
    set -- "${!build}" --no-fail-fast
    case $kind in
    # The documentation of redlock-axum contains that of the macros.
    doc) set -- "$@" --doc --exclude redlock-macros ;;
    mistakes) set -- "$@" --test mistakes ;;
    *) set -- "$@" --tests --examples ;;
    esac
    case $kind in
    real | simulation)
        arguments=(--show-output --skip measured:: --skip monitoring:: --skip storm:: --skip thorough:: --skip nightly::
            --skip pooler:: --skip versions:: --skip without_a_promise::)
        ;;
    storms) arguments=(--show-output storm:: --skip thorough:: --skip _are_detected --test-threads 1) ;;
    measured | monitoring | thorough | nightly) arguments=(--show-output "$kind::" --test-threads 1) ;;
    esac
    # libtest runs a test that contains any of its filters.
    # shellcheck disable=SC2206 # several filters
    [ -z "$filters" ] || arguments=(--show-output $filters --test-threads 1)
    env REDLOCK_TEST_RUN=$run cargo test "$@" -- ${arguments[@]+"${arguments[@]}"} </dev/null 2>&1 9>&- |
        tee "$output" | awk '/^test .* \.\.\. / { print; fflush() }' | progress || status=$?
    awk -v kind="$kind" -v failed="$directory/failed" -f tests/libtest.awk "$output" >>"$results"
    # A test that has ended its process has no line of its own.
    [ "$status" = 0 ] || grep -E '^(error|Caused by|  process)' "$output" || true
    return "$status"
}

# Starts a server of ZooKeeper for all tests, each of which has a folder of its own, because Java takes a second to start.
# The tests that stop or kill a server start others.
start_zookeeper() {
    local program=$target/debug/zookeeper-server port=$directory/zookeeper
    [ -z "$zookeeper" ] && [ -d "$target/curator/lib" ] || return 0
    rm -f "$port"
    "$program" </dev/null >"$port" 9>&- &
    zookeeper=$!
    until [ -s "$port" ]; do
        kill -0 "$zookeeper" 2>/dev/null || die "ZooKeeper did not start."
        sleep 0.1
    done
    REDLOCK_TEST_ZOOKEEPER=$(cat "$port")
    export REDLOCK_TEST_ZOOKEEPER
}

# run_kind <kind>
run_kind() {
    [[ " unit simulation mistakes doc " == *" $1 "* ]] || start_zookeeper
    if [ "$1" = doc ] || ! $uses_nextest; then
        by_cargo "$1"
    else
        by_nextest "$1"
    fi
}


build() {
    local kind build list built=
    for kind in $kinds; do
        build=$(build_of "$kind")
        [[ " $built " != *" $build "* ]] || continue
        built+=" $build"
        list=$directory/$build.json
        build="${build}[@]"
        if ! cargo test "${!build}" --no-run --quiet || { $uses_nextest && ! cargo nextest list --cargo-quiet \
            "${!build}" --list-type binaries-only --message-format json </dev/null >"$list"; }; then
            ! $interrupted || exit 130
            die "The tests do not compile."
        fi
    done
}

# left_behind prints the processes that tests of this run left behind.
left_behind() {
    local process
    for process in /proc/[0-9]*; do
        if [[ $(readlink "$process/cwd" 2>/dev/null) == */redlock-test-"$run"-* ]]; then
            echo "${process#/proc/}"
        fi
    done
}

# A server ends some moments after its test.
end_left_behind() {
    local processes
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        processes=$(left_behind)
        [ -n "$processes" ] || return 0
        sleep 1
    done
    say "These processes outlived their tests, and are ended now:"
    # shellcheck disable=SC2086 # several numbers
    ps -o pid=,args= -p "$(join_by , $processes)" >&2 || true
    # shellcheck disable=SC2086
    kill -KILL $processes || true
    return 1
}

no_secrets() {
    find "$directory" -maxdepth 1 \( -name '*.xml' -o -name '*.txt' \) -exec cat {} + |
        sed -e 's/&lt;/</g; s/&gt;/>/g; s/&quot;/"/g; s/&apos;/'\''/g; s/&amp;/\&/g' |
        "$target/debug/redlock-logs" || {
        say "A password, a token, or a warning of the order of locks was printed: see $directory."
        return 1
    }
}

# summary <status>: the failed tests, the slowest ones, and one line that counts.
summary() {
    local status=$1 tests failed skips passed file how
    if [ -n "$repeat" ]; then
        awk -F '\t' '{ runs[$4]++; failed[$4] += $3 == "failed"; if ($2 > slowest[$4]) slowest[$4] = $2; kind[$4] = $1 }
            END { for (test in runs)
                printf "%8.2f s %6d %6d  %-10s %s\n", slowest[test], runs[test], failed[test], kind[test], test }' \
            "$results" | sort -rn >"$directory/table.txt"
        printf '\n   slowest   runs failed  kind       test\n'
        head -n 20 "$directory/table.txt"
        echo "All $(wc -l <"$directory/table.txt") tests: $directory/table.txt"
    elif [ -z "$filters" ]; then
        printf '\nThe slowest tests:\n'
        sort -t $'\t' -k 2 -rn "$results" | awk -F '\t' 'NR <= 10 { printf "%8.2f s  %s\n", $2, $4 }'
    fi
    for file in "$directory"/failed/*.txt; do
        [ -f "$file" ] || continue
        test=$(head -n 1 "$file")
        # A test prints each of its seeds, so the last one is the one that failed.
        how=$(sed -n 's/.*REDLOCK_SEED=\([0-9][0-9]*\).*/--seed \1 /p' "$file" | tail -n 1)
        printf '\nFAILED %s\n    log:    %s\n    repeat: tests/run.sh %s%s\n' "$test" "$file" "$how" "${test##* }"
        status=1
    done
    failed=$(counted failed)
    skips=0
    if [ -s "$REDLOCK_TEST_SKIPPED" ]; then
        skips=$(grep -c . "$REDLOCK_TEST_SKIPPED")
        printf '\nSkipped:\n'
        sed 's/^SKIPPED [^ ]*: //' "$REDLOCK_TEST_SKIPPED" | sort | uniq -c
    fi
    passed=$(($(counted passed) - skips))
    printf '\nIn %s. Logs: %s\n' "$(minutes $((SECONDS - started)))" "$directory"
    if $interrupted; then
        echo "Interrupted.$([ -z "$repeat" ] || echo " tests/run.sh --resume continues.")"
        status=130
    elif [ ! -s "$results" ]; then
        echo "No test has ${filters:-these kinds }in its path."
        status=1
    fi
    $interrupted || rm -f "$directory/options"
    [ "$failed" = 0 ] || [ "$status" = 130 ] || status=1
    [ ! -d /proc/self ] || echo "No server is left running."
    printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skips"
    exit "$status"
}

#### The run.

number=1
total=$(($(wc -w <<<"$kinds") + 1))
step() {
    printf '\n[%d/%d] %s  %s\n' "$number" "$total" "$1" "$(minutes $((SECONDS - started)))"
    number=$((number + 1))
}

step build
build
[ -z "$built_file" ] || : >"$built_file"
begun=$SECONDS

status=0
if [ -z "$repeat" ]; then
    for kind in $kinds; do
        step "$(title "$kind")"
        run_kind "$kind" || status=1
        ! $interrupted || break
        if [ "$kind" = unit ] && [ "$kinds" != unit ]; then
            echo "$(counted passed) tests without servers passed in $(minutes $((SECONDS - begun))); Ctrl-C stops here safely."
        fi
    done
else
    # Of a round that was interrupted, no row counts.
    last=0 rows=0 index=0
    [ ! -f "$directory/done" ] || read -r last rows <"$directory/done"
    head -n "$rows" "$results" >"$results.whole"
    mv "$results.whole" "$results"
    for ((round = 1; round <= repeat; round++)); do
        for kind in $kinds; do
            index=$((index + 1))
            [ "$index" -gt "$last" ] || continue
            begun=$SECONDS before=$(counted passed)
            # The others have the seeds of tests/seeds.txt.
            [ "$kind" != unit ] || [ -n "$seed" ] || export REDLOCK_SEED=$round
            run_kind "$kind" || status=1
            [ -n "$seed" ] || unset REDLOCK_SEED
            [ "$status" = 0 ] && ! $interrupted || break 2
            echo "$index $(wc -l <"$results")" >"$directory/done"
            printf 'round %d of %d, %s: %d passed in %s\n' "$round" "$repeat" "$kind" \
                $(($(counted passed) - before)) "$(minutes $((SECONDS - begun)))"
        done
    done
fi

end_left_behind || status=1
no_secrets || status=1
summary "$status"
