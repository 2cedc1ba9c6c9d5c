#!/bin/sh
# Copies Redisson and the compiled RedissonPeer into a directory:
#
#     tests/interop/java/prepare.sh <directory>
#
# Needs Maven and a JDK, which also runs the program. Does nothing more if the directory is up to date.
set -eu
sources=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
done=$(cd "$1" && pwd)
stamp=$done/stamp

# macOS has a javac without a JDK, which only prints that the JDK is missing.
javac -version >/dev/null
cat "$sources/pom.xml" "$sources/RedissonPeer.java" "$sources/prepare.sh" | cksum >"$stamp.new.$$"
trap 'rm -rf "$stamp.new.$$" "$done/new.$$"' EXIT
if cmp -s "$stamp.new.$$" "$stamp"; then
    exit 0
fi
mvn --quiet --batch-mode -Dmaven.repo.local="$done/maven" --file "$sources/pom.xml" dependency:copy-dependencies \
    -DoutputDirectory="$done/new.$$" </dev/null
javac -classpath "$done/new.$$/*" -d "$done/new.$$" "$sources/RedissonPeer.java"
rm -rf "$done/lib"
mv "$done/new.$$" "$done/lib"
mv "$stamp.new.$$" "$stamp"
