#!/usr/bin/env bash
# Records two copies of the example `index`, a refusal, `redlock status`, a kill, and the next holder. Writes
# `two-copies.txt`, and its picture `two-copies.svg`, beside this script.
#
#     examples/recording/record.sh            builds the programs, and runs them with three servers of its own
#     BIN=target/debug examples/recording/record.sh          uses programs that are built already
#
# The picture is the output of the programs. The name of the machine is replaced by `shop`; headers, the detail of the refusal and the
# answers of the nodes are left out. Needs redis-server, redis-cli and curl.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
here=examples/recording

if [ -z "${BIN:-}" ]; then
    cargo build --quiet --locked -p redlock-core --features cli --bin redlock
    cargo build --quiet --locked -p redlock-examples --example index
    BIN=${CARGO_TARGET_DIR:-target}/debug
fi
folder=$(mktemp -d)
started=()
finish() {
    for process in "${started[@]}"; do kill "$process" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT

# Waits until a command succeeds, for up to a minute.
until_true() {
    local end=$((SECONDS + 60))
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || {
            echo "never: $*" >&2
            exit 1
        }
        sleep 0.1
    done
}

urls=
for port in 7101 7102 7103; do
    redis-server --port "$port" --bind 127.0.0.1 --save '' --dir "$folder" >"$folder/$port.log" &
    started+=($!)
    urls+=${urls:+,}redis://127.0.0.1:$port
done
export LOCKS_URLS=$urls
for port in 7101 7102 7103; do until_true redis-cli -p "$port" ping; done

text=$folder/text
say() { printf '%s\n' "$*" >>"$text"; }
# Replaces the name of the machine, and keeps the columns.
shown() {
    awk -v name="$(hostname):" '{
        longer = length("shop:") - length(name)
        gap = sprintf("%" (longer < 0 ? -longer : longer) "s", "")
        if (longer > 0) sub(/OWNER/, "OWNER" gap)
        place = index($0, name)
        if (place) $0 = substr($0, 1, place - 1) "shop:" substr($0, place + length(name))
        if (place && longer < 0) sub(/shop:[0-9]+/, "&" gap)
        print
    }' >>"$text"
}
# `redlock status` ends with 1 while somebody holds the lock.
holds() { [[ $("$BIN/redlock" status order:42) = *' of 3'* ]]; }

say '# three Redis servers, and two copies of a service'
say '$ LISTEN=127.0.0.1:3001 index &'
say '$ LISTEN=127.0.0.1:3002 index &'
copies=()
for port in 3001 3002; do
    LISTEN=127.0.0.1:$port "$BIN/examples/index" >"$folder/copy-$port.log" 2>&1 &
    copies+=($!)
    started+=($!)
    until_true curl -s "127.0.0.1:$port/"
done

say '# a payment works in the first copy. The second copy refuses another one for the same order:'
say "$ curl -X POST '127.0.0.1:3001/orders/42/pay?hold_ms=60000' &"
curl -s -X POST '127.0.0.1:3001/orders/42/pay?hold_ms=60000' >/dev/null 2>&1 &
started+=($!)
until_true holds
say '$ curl -i -X POST 127.0.0.1:3002/orders/42/pay'
curl -s -i -X POST 127.0.0.1:3002/orders/42/pay | tr -d '\r' | grep -E '^(HTTP|retry-after)|"status"' |
    sed 's/,"detail".*/, ..}/' | shown
say '$ redlock status order:42'
("$BIN/redlock" status order:42 || true) | sed -e '/^NODE /,$d' -e '/^$/d' | shown

say '# the first copy dies, and renews its lease no more: it ends after 10 s, and the next payment is served'
say '$ kill -9 %1'
kill -9 "${copies[0]}"
say "$ until curl -sf -X POST 127.0.0.1:3002/orders/42/pay; do sleep 0.5; done"
began=$(date +%s%N)
until answer=$(curl -sf -X POST 127.0.0.1:3002/orders/42/pay); do
    [ $(($(date +%s%N) - began)) -lt 60000000000 ] || exit 1
    sleep 0.5
done
say "$answer"
say "# after $(awk -v ns=$(($(date +%s%N) - began)) 'BEGIN { printf "%.1f s", ns / 1e9 }')"

cp "$text" "$here/two-copies.txt"
awk -f "$here/picture.awk" "$text" >"$here/two-copies.svg"
