#!/bin/sh
# An upgrade is no removal: deb says so by its first argument, rpm by the number of versions that stay.
if [ "$1" = remove ] || [ "$1" = 0 ]; then
  if [ -d /run/systemd/system ]; then systemctl disable --now pacer.service || true; fi
fi
