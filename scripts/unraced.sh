#!/usr/bin/env bash
# The tests that do more without the race detector: those that call harness.Simulation or look at harness.Raced, by
# themselves or in a function that they call. All others do the same in both passes, and run in one.
#
#   scripts/unraced.sh packages     the packages that have such tests, the longest first
#   scripts/unraced.sh tests        the tests, as an expression for go test -run
set -euo pipefail
cd "$(dirname "$0")/.."

# tests names those of the package in a folder. A function that is called by its name alone is taken for one of the package.
tests() {
  awk '
    /^func / { sub(/^func (\([^)]*\) )?/, ""); name = $0; sub(/[^A-Za-z0-9_].*/, "", name); $0 = substr($0, length(name) + 1) }
    /harness\.(Simulation|Raced)/ { marked[name] = 1 }
    name { body[name] = body[name] "\n" $0 }
    END {
      do {
        more = 0
        for (f in body) if (!(f in marked))
          for (m in marked) if (m != "TestMain" && body[f] ~ "[^A-Za-z0-9_]" m "\\(") { marked[f] = more = 1; break }
      } while (more)
      for (f in marked) if (f ~ /^Test[A-Z0-9]/ && f != "TestMain") print f
    }' "$1"/*_test.go
}

longest='limits|demo|pacer|limits/eventual'
packages=$(grep -rlE --include='*_test.go' 'harness\.(Simulation|Raced)' internal | xargs -n 1 dirname | sort -u | sed 's,^,./,')
packages=$(grep -xE "./internal/($longest)" <<<"$packages"; grep -vxE "./internal/($longest)" <<<"$packages")
case ${1:-} in
packages) echo "$packages" ;;
tests) echo "^($(for p in $packages; do tests "$p"; done | sort -u | paste -sd '|'))\$" ;;
*) echo "usage: scripts/unraced.sh packages|tests" >&2 && exit 2 ;;
esac
