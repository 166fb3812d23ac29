#!/bin/sh
# All linters; exit status 1 if one complains. Versions are pinned in go.mod as tools.
set -u
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.." || exit 1
status=0
unformatted=$(git ls-files '*.go' | xargs go tool gofumpt -l)
test -z "$unformatted" || { echo "gofumpt: run make fmt: $unformatted"; status=1; }
native=$(scripts/build_native.sh) || exit 1
# shellcheck source=/dev/null
. "$native/env.sh"
for tags in "" torch; do
  go vet -tags "$tags" ./... || status=1
  go tool staticcheck -tags "$tags" ./... || status=1
  go tool go-errorlint -tags "$tags" ./... || status=1
done
if command -v shellcheck >/dev/null; then
  git ls-files '*.sh' scripts/torchgo .ci/run | xargs shellcheck || status=1
else
  echo "lint: shellcheck is missing, not run (apt-get install shellcheck)"
fi
if command -v clang-format >/dev/null; then
  git ls-files 'cgo/src/*.cc' 'cgo/src/*.h' | xargs clang-format --dry-run -Werror || status=1
else
  echo "lint: clang-format is missing, not run (apt-get install clang-format)"
fi
exit $status
