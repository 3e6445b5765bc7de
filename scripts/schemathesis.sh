#!/usr/bin/env bash
# Prints the path of schemathesis, which tries an API against its document. It comes from PyPI, and is kept in .services/.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
version=4.32.5
dir="$root/.services/schemathesis-$version"

if [ ! -x "$dir/bin/schemathesis" ]; then
  rm -rf "$dir"
  mkdir -p "$root/.services"
  if ! { python3 -m venv "$dir" && "$dir/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 15 \
    "schemathesis==$version"; } >"$root/.services/schemathesis.log" 2>&1; then
    rm -rf "$dir"
    tail -n 1 "$root/.services/schemathesis.log" >&2
    echo "schemathesis $version cannot be installed: that takes Python with venv, and PyPI" >&2
    exit 1
  fi
fi
echo "$dir/bin/schemathesis"
