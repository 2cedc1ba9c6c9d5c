#!/bin/sh
# Copies the libraries of a Java program and the compiled program into a directory:
#
#     tests/interop/java/prepare.sh redisson|curator <directory> [<version>]
#
# The version is that of Redisson, or of ZooKeeper for curator; without it, that of pom.xml.
# Needs Maven and a JDK, which also runs the program. Does nothing more if the directory is up to date.
set -eu
case $1 in
redisson) property=redisson.version ;;
curator) property=zookeeper.version ;;
spring) property=spring.version ;;
esac
sources=$(cd "$(dirname "$0")/$1" && pwd)
mkdir -p "$2"
done=$(cd "$2" && pwd)
stamp=$done/stamp

# macOS has a javac without a JDK, which only prints that the JDK is missing.
javac -version >/dev/null
{ cat "$sources"/* "$0"; echo "${3:-}"; } | cksum >"$stamp.new.$$"
trap 'rm -rf "$stamp.new.$$" "$done/new.$$"' EXIT
if cmp -s "$stamp.new.$$" "$stamp"; then
    exit 0
fi
mvn --quiet --batch-mode -Dmaven.repo.local="$done/maven" --file "$sources/pom.xml" dependency:copy-dependencies \
    -DoutputDirectory="$done/new.$$" ${3:+-D$property="$3"} </dev/null
javac -classpath "$done/new.$$/*" -d "$done/new.$$" "$sources"/*.java
rm -rf "$done/lib"
mv "$done/new.$$" "$done/lib"
mv "$stamp.new.$$" "$stamp"
