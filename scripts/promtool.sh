#!/usr/bin/env bash
# Prints the path of promtool, which tests the alerting rules, or of the program that is named: prometheus. Where it is not installed, it
# is taken out of Debian's package prometheus, into .services/: the package itself would start a server.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
dir="$root/.services/promtool"
program=${1:-promtool}

if command -v "$program"; then exit 0; fi
if [ -x "$dir/usr/bin/$program" ]; then
  echo "$dir/usr/bin/$program"
  exit 0
fi
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
  echo "$program is missing; install Prometheus" >&2
  exit 1
fi
mkdir -p "$dir"
cd "$dir"
download() { apt-get download -qq prometheus >apt.log 2>&1; }
# Without root the package lists can only be used as they are.
download || { apt-get -o DPkg::Lock::Timeout=300 update -qq >apt.log 2>&1 && download; } || {
  tail -n 3 apt.log >&2
  echo "$program is missing, and the package prometheus cannot be downloaded" >&2
  exit 1
}
dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x "./usr/bin/$program"
rm -f prometheus_*.deb
echo "$dir/usr/bin/$program"
