#!/bin/sh
# All linters; exit status 1 if one complains. Versions are pinned in go.mod as tools.
set -u
status=0
cd "$(dirname "$0")/.."
unformatted=$(go tool gofumpt -l $(git ls-files '*.go'))
test -z "$unformatted" || { echo "gofumpt: run make fmt: $unformatted"; status=1; }
go vet ./... || status=1
native=$(scripts/build_native.sh) && . "$native/env.sh"
for tags in "" torch; do
  go vet -tags "$tags" ./... || status=1
  go tool staticcheck -tags "$tags" ./... || status=1
  go tool go-errorlint -tags "$tags" ./... || status=1
done
if command -v shellcheck >/dev/null; then shellcheck -x $(git ls-files '*.sh') scripts/torchgo .ci/run || status=1; else echo "lint: shellcheck is missing, not run (apt-get install shellcheck)"; fi
if command -v clang-format >/dev/null; then clang-format --dry-run -Werror $(git ls-files 'cgo/src/*.cc' 'cgo/src/*.h') || status=1; else echo "lint: clang-format is missing, not run (apt-get install clang-format)"; fi
exit $status
