#!/bin/sh
# check_machine.sh [test]: name, in one line each, what the build needs and the machine lacks, with the package that brings it; with test
# also what some tests need. The packages are those of README.md.
missing=0
need() { # need COMMAND PACKAGE [WHAT FOR]
  command -v "$1" >/dev/null 2>&1 || { echo "make: $1 is missing${3:+, which $3 need}; install it: apt-get install $2" >&2; missing=1; }
}
need go golang
need g++ g++
need python3 python3
if command -v python3 >/dev/null 2>&1 && ! python3 -m pip --version >/dev/null 2>&1; then
  echo "make: python3 has no pip; install it: apt-get install python3-pip" >&2
  missing=1
fi
if test "${1-}" = test; then
  need bwrap bubblewrap "tests of the sandbox"
  need prlimit util-linux "tests of the sandbox"
  need setpriv util-linux "tests of the sandbox"
  need mount mount "tests of the sandbox"
  if command -v python3 >/dev/null 2>&1 && ! python3 -c 'import ensurepip' 2>/dev/null; then
    echo "make: python3 makes no virtual environments, which tests of the package for pip need; install it: apt-get install python3-venv" >&2
    missing=1
  fi
fi
exit $missing
