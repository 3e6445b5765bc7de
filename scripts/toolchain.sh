#!/usr/bin/env bash
# Makes sure of what the race detector and the Makefile need besides Go: a C compiler and make.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
dir="$root/.services"

# shellcheck source=scripts/services/process.sh
. "$root/scripts/services/process.sh"
# shellcheck source=scripts/services/install.sh
. "$root/scripts/services/install.sh"

has_compiler() { command -v "${CC:-gcc}" >/dev/null && echo '#include <stdlib.h>' | "${CC:-gcc}" -E - >/dev/null 2>&1; }
has_make() { command -v make >/dev/null; }

mkdir -p "$dir"
need "a C compiler (the race detector needs one)" has_compiler gcc libc6-dev
need "make" has_make make
