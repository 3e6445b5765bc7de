# shellcheck shell=bash disable=SC2154
# What the services need on this machine. Sourced.

# need makes sure that a condition holds, installing Debian packages where that can be done without asking.
#   need "what is missing" CHECK PACKAGE...
need() {
  local what=$1 check=$2
  shift 2
  if "$check"; then return 0; fi
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    die "$what is missing; install it (on Debian: apt-get install $*)"
  fi
  echo "services: installing $*" >&2
  if ! apt_install "$@" >"$dir/install.log" 2>&1; then
    tail -n 5 "$dir/install.log" >&2
    die "could not install $*; the whole story is in $dir/install.log"
  fi
  hash -r
  "$check" || die "$what is still missing after installing $*"
}

# apt_install: a package may start a server of its own; it is not used and not touched.
apt_install() {
  export DEBIAN_FRONTEND=noninteractive
  apt-get -o DPkg::Lock::Timeout=300 update -qq 9>&- &&
    apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$@" </dev/null 9>&-
}
