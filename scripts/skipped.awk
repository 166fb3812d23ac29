# The skipped tests in the output of `go test -v`, each with what it said; then each reason with the number of tests that it kept from
# running. A subtest's words stand far above its result.
/^=== (RUN|NAME|CONT)/ { test = $3 }
/^ *[A-Za-z0-9_]+\.go:[0-9]+: / { line = $0; sub(/^ */, "", line); said[test] = said[test] "  " line "\n"; last[test] = line }
/--- SKIP: / {
  n++; name = $0; sub(/.*--- SKIP: /, "", name); sub(/ \(.*/, "", name)
  printf "%s\n%s", name, said[name]
  reason = last[name]; sub(/^[^ ]*: /, "", reason)
  if (reason == "") reason = "no reason given"
  if (!count[reason]++) order[++reasons] = reason
}
END {
  if (!n) { print "none"; exit }
  print "== skipped, by reason"
  for (i = 1; i <= reasons; i++) printf "%4d  %s\n", count[order[i]], order[i]
}
