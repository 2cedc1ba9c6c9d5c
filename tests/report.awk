# Reads the JUnit report of nextest, and prints a line for each test: kind, seconds, passed or failed, path.
# Writes the output of each failed test to a file in the folder `failed`.

function attribute(name,   value) {
    value = $0
    if (!sub(".* " name "=\"", "", value)) return ""
    sub("\".*", "", value)
    return plain(value)
}

function plain(text) {
    gsub("&lt;", "<", text)
    gsub("&gt;", ">", text)
    gsub("&quot;", "\"", text)
    gsub("&apos;", "'", text)
    gsub("&#10;", "\n", text)
    gsub("&amp;", "\\&", text)
    return text
}

/^ *<testcase / {
    test = attribute("classname") " " attribute("name")
    seconds = attribute("time")
    state = "passed"
    file = ""
}
# Ctrl-C ended the test.
/^ *<failure .*signal (2|15) \(/ { state = "ended" }
/^ *<(failure|error)[ >]/ && state != "ended" {
    state = "failed"
    file = test
    gsub(/[^A-Za-z0-9_-]+/, "-", file)
    file = failed "/" file ".txt"
    print test > file
}
file { print plain($0) > file }
/<\/testcase>|^ *<testcase .*\/>$/ {
    printf "%s\t%s\t%s\t%s\n", kind, seconds, state, test
    if (file) close(file)
    file = ""
}
