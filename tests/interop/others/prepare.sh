#!/bin/sh
# Installs the libraries of a peer into a directory, and copies or builds its program there:
#
#     tests/interop/others/prepare.sh python|node|go <directory>
#
# Does nothing more if the directory is up to date.
set -eu
sources=$(cd "$(dirname "$0")/$1" && pwd)
mkdir -p "$2"
directory=$(cd "$2" && pwd)
stamp=$(cat "$sources"/* "$0" | cksum)
if [ "$stamp" = "$(cat "$directory/stamp" 2>/dev/null)" ]; then
    exit 0
fi
case $1 in
python)
    python3 -m venv "$directory/python"
    "$directory/python/bin/python" -m pip install -q --no-cache-dir -r "$sources/requirements.txt" </dev/null
    ;;
node)
    cp "$sources"/* "$directory"
    (cd "$directory" && npm install --silent --no-package-lock --no-audit --no-fund </dev/null)
    ;;
go)
    (cd "$sources" && go build -o "$directory/peer" .)
    ;;
esac
echo "$stamp" >"$directory/stamp"
