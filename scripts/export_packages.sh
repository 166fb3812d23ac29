#!/bin/bash
# Installs the programs that read what `agentfly export` writes into virtual environments of their own in the cache folder, keyed by their versions,
# and prints the interpreter of the readers of files: AGENTFLY_EXPORT_PYTHON of the tests. With the argument mlflow it is that of the MLflow server,
# AGENTFLY_EXPORT_MLFLOW, which wants other versions and takes 850 MB.
set -euo pipefail
case ${1:-} in
"") # of harbor the models of ATIF alone are read, which need nothing but pydantic; as a whole it wants Python 3.12 and 200 packages
  alone="harbor==0.25.0"
  packages="tensorboard==2.21.0 inspect-ai==0.3.285 pyarrow==26.0.1 pandas==3.1.1 trackio==0.43.0 wandb==0.31.0 datasets==5.2.0 duckdb==2.0.1" ;;
mlflow) packages="mlflow==3.17.2" ;;
*) echo "export_packages: there is no set $1; the sets are the one without a name and mlflow" >&2 && exit 2 ;;
esac
# shellcheck disable=SC2086 # one word a package
venv=$("$(dirname "$0")/venv.sh" "export-$(echo "$packages" | cksum | cut -d' ' -f1)" $packages)
if test -n "${alone-}" && ! test -e "$venv/$alone"; then
  "$venv/bin/pip" -q install --no-cache-dir --no-deps --ignore-requires-python "$alone" >&2 || { echo "export_packages: $alone cannot be installed" >&2; exit 1; }
  touch "$venv/$alone"
fi
echo "$venv/bin/python"
