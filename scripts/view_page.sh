#!/bin/sh
# The page of `agentfly view`: built from view/page/src with the versions of its lockfile into view/page/dist. With --check it is built in
# another folder and compared with the committed files; without npm that says so and does nothing.
set -eu
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/../view/page"
command -v npm >/dev/null || { echo "view-page: npm is missing; install it: apt-get install npm" && exit "$([ "${1-}" = --check ] && echo 0 || echo 1)"; }
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cp -r src build.mjs package.json package-lock.json tsconfig.json "$work"
cd "$work"
npm ci --ignore-scripts --no-audit --no-fund >log 2>&1 || { tail -n 20 log && exit 1; }
npx --no-install tsc
node build.mjs dist
cd - >/dev/null
if [ "${1-}" = --check ]; then
	diff -r "$work/dist" dist >/dev/null || { echo "view-page: view/page/dist is not what the sources build; run make view-page and commit it" && exit 1; }
	echo "view-page: view/page/dist is what the sources build"
else
	rm -rf dist && cp -r "$work/dist" dist
fi
