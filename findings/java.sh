# Java libraries for a finding. Sourced after environment.sh. Needs a JDK and Maven.
#
#     . "$(dirname "$0")/java.sh"
#     libraries org.apache.zookeeper:zookeeper:3.9.4 org.apache.curator:curator-recipes:5.7.1
#     run_java <<'JAVA'
#
# Everything is put into the temporary folder, also what Maven downloads.

# libraries <group:artifact:version ..>: these versions, and what they need.
libraries() {
    {
        echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        echo '<groupId>finding</groupId><artifactId>finding</artifactId><version>1</version><packaging>pom</packaging>'
        echo '<dependencies>'
        local group artifact version
        for library in "$@"; do
            IFS=: read -r group artifact version <<<"$library"
            echo "<dependency><groupId>$group</groupId><artifactId>$artifact</artifactId><version>$version</version></dependency>"
        done
        echo '</dependencies></project>'
    } >"$folder/pom.xml"
    mvn --quiet --batch-mode -Dmaven.repo.local="$folder/maven" --file "$folder/pom.xml" \
        org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory="$folder/lib" </dev/null
    # It logs to the standard output.
    rm -f "$folder"/lib/logback-*.jar
    printf 'fetched: %s\n' "$*"
}

# compile: compiles the class Finding from standard input.
compile() {
    cat >"$folder/Finding.java"
    javac -classpath "$folder/lib/*" -d "$folder/classes" "$folder/Finding.java"
}

# run_java: compiles the class Finding from standard input together with ZookeeperServer.java, and executes it. It ends with
# an error if the behaviour has changed.
run_java() {
    cat >"$folder/Finding.java"
    javac -classpath "$folder/lib/*" -d "$folder/classes" "$here/ZookeeperServer.java" "$folder/Finding.java"
    java -Xmx256m -Djava.io.tmpdir="$folder" -Dzookeeper.forceSync=no -classpath "$folder/classes:$folder/lib/*" Finding "$folder"
}
