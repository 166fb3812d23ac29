# The failures in the output of `go test -v`: of each failed test everything that it wrote, whole, then what a failed package wrote outside
# its tests (a panic, a race, a build that failed). Of a package that failed without a failed test, as where it was killed, the test that
# began last and did not end has failed. Prints nothing where all passed.
function keep(line) { if (test != "") said[test] = said[test] line "\n"; else loose = loose line "\n" }
function ended(package) {
  for (i = begun; i > 0 && !failures; i--) if (began[i] in running) { failed[++failures] = began[i]; break }
  for (i = 1; i <= failures; i++) {
    name = failed[i]
    if (said[name] != "") printf "--- FAIL: %s (%s)\n%s", name, package, said[name]
    else if (!(name in above)) printf "--- FAIL: %s (%s)\n", name, package
  }
  if (loose ~ /[^ \n]/) printf "--- FAIL: %s, outside its tests\n%s", package, loose
}
function forget() {
  split("", said); split("", failed); split("", above); split("", running); split("", began); failures = begun = 0; test = loose = ""
}
/^# / && test == "" { building = 1 } # a package that is built, or what a program prints
/^=== RUN/ { began[++begun] = $3; running[$3] }
/^=== (RUN|NAME|CONT|PAUSE)/ { building = 0; test = $3; next }
/^ *--- (PASS|SKIP|FAIL): / {
  building = 0
  name = $0; sub(/^ *--- [A-Z]*: /, "", name); sub(/ \([0-9.]*s\)$/, "", name)
  delete running[name]
  if ($2 == "FAIL:") {
    failed[++failures] = name
    for (parent = name; sub(/\/[^\/]*$/, "", parent);) above[parent]
  }
  test = ""
  next
}
/^FAIL\t/ {
  some = 1
  if (!/\[(build|setup) failed\]/) ended($2)
  else { printf "%s--- FAIL: %s does not build\n", built, $2; built = "" }
  forget(); building = 0; next
}
/^ok  \t|^\?   \t/ { forget(); building = 0; next }
/^(PASS|FAIL|exit status [0-9]+)$/ { test = ""; next }
building { built = built $0 "\n"; next }
/^panic: |^fatal error: |^WARNING: DATA RACE/ { test = "" }
{ keep($0) }
END {
  if (failures || begun || loose ~ /panic: |fatal error: /) ended("a package that did not end")
  if (some) printf "%s", built
}
