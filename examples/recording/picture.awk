# Draws the text of a terminal as SVG. A line that begins with `$` is a command, and one with `#` a remark.
function escaped(text) {
    gsub(/&/, "\\&amp;", text)
    gsub(/</, "\\&lt;", text)
    gsub(/>/, "\\&gt;", text)
    return text
}
{
    line[NR] = $0
    if (length($0) > columns) columns = length($0)
}
END {
    step = 20
    width = int(columns * 8.45 + 40)
    height = NR * step + 36
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" ", width, height, width, height
    print "role=\"img\" aria-label=\"Two copies of a service lock an order\">"
    print "<style>text { font: 14px 'DejaVu Sans Mono', ui-monospace, Menlo, Consolas, monospace; fill: #d7dae0; white-space: pre }"
    print ".command { fill: #8fd18b } .remark { fill: #9aa4b5 } .refused { fill: #f0a36e }</style>"
    printf "<rect width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#1c2029\"/>\n", width, height
    for (i = 1; i <= NR; i++) {
        kind = ""
        if (line[i] ~ /^\$/) kind = " class=\"command\""
        else if (line[i] ~ /^#/) kind = " class=\"remark\""
        else if (line[i] ~ /409/) kind = " class=\"refused\""
        printf "<text x=\"20\" y=\"%d\" xml:space=\"preserve\"%s>%s</text>\n", i * step + 12, kind, escaped(line[i])
    }
    print "</svg>"
}
