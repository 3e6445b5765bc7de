#!/bin/sh
# The service is not enabled: it has to be configured first. Where it runs already, the new version begins with its next restart,
# which is for the operator to choose, after `pacer migrate up`.
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
