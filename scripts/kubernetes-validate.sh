#!/usr/bin/env bash
# Holds the manifests in a folder against the schemas of Kubernetes, with the package kubernetes-validate of PyPI, which contains
# them; it is kept in .services/. Without Python or PyPI it says so, and the types that the test in test/chart decodes into have to do.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
dir="$root/.services/kubernetes-validate"
version=1.37.0

if [ ! -x "$dir/bin/kubernetes-validate" ]; then
  rm -rf "$dir"
  mkdir -p "$root/.services"
  if ! { python3 -m venv "$dir" && "$dir/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 15 \
    "kubernetes-validate==$version"; } >"$root/.services/kubernetes-validate.log" 2>&1; then
    rm -rf "$dir"
    tail -n 1 "$root/.services/kubernetes-validate.log" >&2
    echo "not held against the schemas of Kubernetes: kubernetes-validate cannot be installed" >&2
    exit 0
  fi
fi
for kubernetes in 1.27 1.34; do
  "$dir/bin/kubernetes-validate" --strict --no-warn --quiet --kubernetes-version "$kubernetes" "$1"/*.yaml
  echo "$(find "$1" -name '*.yaml' | wc -l) sets of manifests are valid for Kubernetes $kubernetes"
done
