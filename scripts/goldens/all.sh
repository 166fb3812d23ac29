#!/bin/sh
# Write every golden anew with the reference implementations. Needs Python 3.11; takes about ten minutes.
set -eu
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/../.."
venv=$(scripts/goldens/venv.sh)
python="$venv/bin/python"
scripts/goldens/fetch_tokenizers.sh
verl=${XDG_CACHE_HOME:-$HOME/.cache}/agentfly/verl-0.9.1
test -d "$verl" || "$venv/bin/pip" install -q --disable-pip-version-check --no-deps --target "$verl" verl==0.9.1
for script in models.py adapters.py half.py rope.py gguf_models.py tokenizer_unicode.py tokenizer.py templates.py jinja.py smollm2.py sft.py; do
  echo "== $script"
  "$python" "scripts/goldens/$script"
done
"$python" scripts/goldens/losses.py --verl "$verl"
git status --short -- '*testdata*'
