#!/usr/bin/env bash
# Makes sure of what the tests and the Makefile need besides Go: a C compiler for the race detector, make, and systemd's analysis
# of the unit in deploy/.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
dir="$root/.services"

# shellcheck source=scripts/services/process.sh
. "$root/scripts/services/process.sh"
# shellcheck source=scripts/services/install.sh
. "$root/scripts/services/install.sh"

has_compiler() { command -v "${CC:-gcc}" >/dev/null && echo '#include <stdlib.h>' | "${CC:-gcc}" -E - >/dev/null 2>&1; }
has_make() { command -v make >/dev/null; }
has_systemd_analyze() { command -v systemd-analyze >/dev/null; }

mkdir -p "$dir"
need "a C compiler (the race detector needs one)" has_compiler gcc libc6-dev
need "make" has_make make
need "systemd-analyze" has_systemd_analyze systemd
