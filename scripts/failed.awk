# The failures in the output of `go test -v`: of each failed test everything that it wrote, whole, then what a failed package wrote outside
# its tests (a panic, a race, a build that failed). Prints nothing where all passed.
function keep(line) { if (test != "") said[test] = said[test] line "\n"; else loose = loose line "\n" }
function ended(package) {
  for (i = 1; i <= failures; i++) {
    name = failed[i]
    if (said[name] != "") printf "--- FAIL: %s (%s)\n%s", name, package, said[name]
    else if (!(name in above)) printf "--- FAIL: %s (%s)\n", name, package
  }
  if (loose ~ /[^ \n]/) printf "--- FAIL: %s, outside its tests\n%s", package, loose
}
function forget() { split("", said); split("", failed); split("", above); failures = 0; test = loose = "" }
/^# / { building = 1 }
/^=== (RUN|NAME|CONT|PAUSE)/ { building = 0; test = $3; next }
/^ *--- (PASS|SKIP|FAIL): / {
  building = 0
  name = $0; sub(/^ *--- [A-Z]*: /, "", name); sub(/ \([0-9.]*s\)$/, "", name)
  if ($2 == "FAIL:") {
    failed[++failures] = name
    for (parent = name; sub(/\/[^\/]*$/, "", parent);) above[parent]
  }
  test = ""
  next
}
/^FAIL\t/ { if (!sub(/\[build failed\]/, "&")) ended($2); else printf "--- FAIL: %s does not build\n", $2; forget(); building = 0; next }
/^ok  \t|^\?   \t/ { forget(); building = 0; next }
/^(PASS|FAIL|exit status [0-9]+)$/ { test = ""; next }
building { print; next }
/^panic: |^fatal error: |^WARNING: DATA RACE/ { test = "" }
{ keep($0) }
END { if (failures || loose ~ /panic: |fatal error: /) ended("a package that did not end") }
