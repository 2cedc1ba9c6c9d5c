# A PostgreSQL server for a finding. Sourced after environment.sh; sets DATABASE_URL.
#
#     . "$(dirname "$0")/postgres.sh"
#
# Needs PostgreSQL's initdb and postgres in PATH or in /usr/lib/postgresql. As root, it runs them as the user `postgres`. The
# server ends with the script.
PATH=$PATH:$(printf '%s:' /usr/lib/postgresql/*/bin)
as=()
if [ "$(id -u)" = 0 ]; then
    as=(setpriv "--reuid=$(id -u postgres)" "--regid=$(id -g postgres)" --clear-groups)
    chown postgres "$folder"
fi
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"${as[@]}" initdb -D "$folder/data" -U postgres -A trust --no-sync >/dev/null
"${as[@]}" postgres -D "$folder/data" -k "$folder" -p "$port" -c listen_addresses=127.0.0.1 2>"$folder/log" &
server=$!
trap 'kill -QUIT "$server"; wait "$server" || true; rm -rf "$folder"' EXIT
postgres --version
export DATABASE_URL=postgres://postgres@127.0.0.1:$port/postgres
