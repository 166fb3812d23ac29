# shellcheck shell=sh
# For scripts that make something in the cache folder: . scripts/alone.sh, then
#
# alone PATH WHAT    the caller makes PATH alone from here on: another process that makes it is waited for, up to its end. Then PATH may be there.
alone() {
  mkdir -p "$(dirname "$1")"
  if command -v flock >/dev/null; then
    exec 9>"$1.lock"
    flock -n 9 || { echo "$2 is at work already; waiting for it" >&2; flock 9; }
  fi
}
