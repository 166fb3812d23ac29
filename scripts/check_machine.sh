#!/bin/sh
# Name, in one line each, what the build needs and the machine lacks, with the package that brings it.
missing=0
need() { # need COMMAND PACKAGE
  command -v "$1" >/dev/null 2>&1 || { echo "make: $1 is missing; install it: apt-get install $2" >&2; missing=1; }
}
need go golang
need g++ g++
need python3 python3
if command -v python3 >/dev/null 2>&1 && ! python3 -m pip --version >/dev/null 2>&1; then
  echo "make: python3 has no pip; install it: apt-get install python3-pip" >&2
  missing=1
fi
exit $missing
