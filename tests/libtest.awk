# Reads the output of `cargo test -- --show-output`, and prints a line for each test: kind, seconds, passed or failed,
# path. Writes the output of each failed test to a file in the folder `failed`.

/^ +(Running|Doc-tests) / {
    binary = $NF
    gsub(/.*\/|-[0-9a-f]+\)$|\)$/, "", binary)
    failing = 0
}
/^test .* \.\.\. (ok|FAILED)$/ {
    state = $NF == "ok" ? "passed" : "failed"
    test = $0
    gsub(/^test | \.\.\. .*| - should panic$/, "", test)
    printf "%s\t0\t%s\t%s %s\n", kind, state, binary, test
}
# The outputs of the passed tests are between `successes:` and `failures:`.
/^failures:$/ { failing = 1; next }
/^---- .* stdout ----$/ {
    if (file) close(file)
    file = ""
    if (failing) {
        test = binary " " $2
        file = test
        gsub(/[^A-Za-z0-9_-]+/, "-", file)
        file = failed "/" file ".txt"
        print test > file
    }
    next
}
/^test result: / { file = "" }
file { print > file }
