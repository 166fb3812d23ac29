# The skipped tests in the output of `go test -v`, each with what it said. A subtest's words stand far above its result.
/^=== (RUN|NAME|CONT)/ { test = $3 }
/^ *[A-Za-z0-9_]+\.go:[0-9]+: / { line = $0; sub(/^ */, "", line); said[test] = said[test] "  " line "\n" }
/--- SKIP: / { n++; name = $0; sub(/.*--- SKIP: /, "", name); sub(/ \(.*/, "", name); printf "%s\n%s", name, said[name] }
END { if (!n) print "none" }
