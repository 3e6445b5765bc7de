#!/usr/bin/env bash
# Looks for known vulnerabilities in what pacer calls; exit 1 if there are any. Where the database of them cannot be
# reached, it prints instead which direct dependencies have newer versions, and exits with 0.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

database=${GOVULNDB:-https://vuln.go.dev}
govulncheck=golang.org/x/vuln/cmd/govulncheck@v1.9.0

reachable() {
  case $database in file:*) return 0 ;; esac
  if command -v curl >/dev/null; then
    curl -fsS -m 10 -o /dev/null "$database/index/db.json" 2>/dev/null
  else
    local host=${database#*://}
    timeout 10 bash -c "exec 3<>/dev/tcp/${host%%/*}/443" 2>/dev/null
  fi
}

outdated() {
  local modules
  mapfile -t modules < <(go list -m -f '{{if not (or .Main .Indirect)}}{{.Path}}{{end}}' all | sed '/^$/d')
  timeout 60 go list -m -u -f '{{with .Update}}  {{.Path}} {{$.Version}}, newest {{.Version}}{{end}}' "${modules[@]}" 2>/dev/null |
    sed '/^$/d' || echo "  not known: no network"
}

if ! reachable; then
  echo "vulnerabilities: $database cannot be reached; direct dependencies with newer versions:"
  outdated
  exit 0
fi
failed=0
for module in . test; do
  status=0
  (cd "$module" && go run "$govulncheck" -db "$database" -test ./...) || status=$?
  # 3: vulnerabilities were found. Everything else is a fault of the check itself.
  if [ "$status" = 3 ]; then
    failed=1
  elif [ "$status" != 0 ]; then
    echo "vulnerabilities: govulncheck could not look at $module (exit code $status)"
  fi
done
exit "$failed"
