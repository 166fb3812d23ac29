#!/bin/bash
# Makes the site of docs/ in build/docs/site, with navigation and search, and tries it in Chromium. A link to a page or a heading that is not there
# is an error. `python3 -m http.server -d build/docs/site` shows it.
set -euo pipefail
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
zensical=$(scripts/site_packages.sh)
python3 scripts/site.py build/docs
(cd build/docs && "$zensical" build --clean --strict)
AGENTFLY_SITE=$PWD/build/docs/site go test -count=1 -v -run '^TestSite$' ./docs
