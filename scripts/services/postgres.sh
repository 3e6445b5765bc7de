# shellcheck shell=bash disable=SC2154
# PostgreSQL. It refuses to run as root, so root runs it as the user of Debian's package. Sourced; needs $dir.

postgres_install() {
  need "PostgreSQL, 15 or later," has_postgres postgresql
  if [ "$(id -u)" = 0 ] && ! id postgres >/dev/null 2>&1; then
    die "PostgreSQL does not run as root, and there is no user postgres; create one or run this as another user"
  fi
}

has_postgres() { [ -n "$(postgres_bin)" ]; }

# postgres_bin is the folder of the newest server binaries: Debian keeps them out of the path.
postgres_bin() {
  local candidate newest="" found=14 version
  for candidate in $(command -v initdb 2>/dev/null || true) /usr/lib/postgresql/*/bin/initdb; do
    [ -x "$candidate" ] || continue
    version=$("$candidate" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
    if [ "${version:-0}" -gt "$found" ]; then
      newest=$(dirname "$(readlink -f "$candidate")") found=$version
    fi
  done
  echo "$newest"
}

as_postgres() {
  if [ "$(id -u)" = 0 ]; then (cd / && runuser -u postgres -- "$@"); else "$@"; fi
}

# postgres_data is where the data lies: in memory, in the checkout, or, where user postgres cannot get there, in a folder
# below /var/tmp whose name is kept in postgres-elsewhere.
postgres_data() { data_of postgres "$(cat "$dir/postgres-elsewhere" 2>/dev/null || echo "$dir/postgres")"; }

postgres_place() {
  local elsewhere
  elsewhere=$(cat "$dir/postgres-elsewhere" 2>/dev/null || true)
  if [ -n "$(data_of postgres "")" ]; then
    : # in memory, where user postgres gets to
  elif [ -n "$elsewhere" ] && [ -d "$elsewhere" ]; then
    return 0
  elif rm -f "$dir/postgres-elsewhere" && as_postgres test -x "$dir"; then
    mkdir -p "$dir/postgres"
  else
    elsewhere=$(mktemp -d "/var/tmp/pacer-postgres-$(printf %s "$dir" | cksum | cut -d' ' -f1).XXXXXX")
    echo "$elsewhere" >"$dir/postgres-elsewhere"
  fi
  if [ "$(id -u)" = 0 ]; then chown postgres "$(postgres_data)"; fi
  chmod 0700 "$(postgres_data)"
}

postgres_start() {
  local bin data
  bin=$(postgres_bin)
  postgres_place
  data=$(postgres_data)
  if [ ! -f "$data/ready" ]; then
    # An initdb that was interrupted leaves a folder that neither starts nor can be filled again.
    find "$data" -mindepth 1 -delete
    local login=(-A trust)
    if secure; then
      secure_password >"$data/password"
      if [ "$(id -u)" = 0 ]; then chown postgres "$data/password"; fi
      login=(-A scram-sha-256 --pwfile "$data/password")
    fi
    as_postgres "$bin/initdb" "${login[@]}" -U pacer -E UTF8 --locale=C --no-sync -D "$data/data" 9>&-
    if secure; then postgres_secure "$data"; fi
    as_postgres touch "$data/ready"
  fi
  # What a killed server left says nothing about who has its pid now; running() has looked at that.
  rm -f "$data/data/postmaster.pid"
  postgres_launch "$bin" "$data/data"
  as_client "$bin/psql" -qAt -h 127.0.0.1 -p "$(port_of postgres)" -U pacer -d postgres \
    -c "SELECT 1 FROM pg_database WHERE datname = 'pacer'" | grep -q 1 ||
    as_client "$bin/createdb" -h 127.0.0.1 -p "$(port_of postgres)" -U pacer pacer
}

# postgres_secure makes the server accept TLS only. It reads its key only where nobody else may.
postgres_secure() {
  rm "$1/password"
  cp "$dir/secure/server.pem" "$dir/secure/server.key" "$1/data/"
  chmod 0600 "$1/data/server.key"
  if [ "$(id -u)" = 0 ]; then chown postgres "$1/data/server.pem" "$1/data/server.key"; fi
  cat >>"$1/data/postgresql.conf" <<'CONF'
ssl = on
ssl_cert_file = 'server.pem'
ssl_key_file = 'server.key'
CONF
  sed -i.orig 's/^host /hostssl /' "$1/data/pg_hba.conf"
  if [ "$(id -u)" = 0 ]; then chown postgres "$1/data/pg_hba.conf" "$1/data/pg_hba.conf.orig"; fi
}

# as_client runs a client of PostgreSQL as the user who may do everything.
as_client() {
  if ! secure; then "$@"; return; fi
  PGPASSWORD=$(secure_password) PGSSLMODE=verify-full PGSSLROOTCERT="$dir/secure/ca.pem" "$@"
}

postgres_dsn() {
  local login=pacer verify=
  if secure; then login+=:$(secure_password) verify="?sslmode=verify-full&sslrootcert=$dir/secure/ca.pem"; fi
  echo "postgres://$login@127.0.0.1:$(port_of postgres)/pacer$verify"
}

# postgres_launch tries for a while: the children of a killed server live for a moment longer and hold its
# shared memory. No Unix socket: its path would be too long in a deep checkout.
postgres_launch() {
  local i log few=""
  log="$(dirname "$2")/server.log"
  if is_brief postgres; then few="-c shared_buffers=16MB"; fi # each process maps them, and each database dropped looks at all
  for i in 1 2 3 4 5; do
    if as_postgres "$1/pg_ctl" -w -t 30 -s -D "$2" -l "$log" -o "-p $(port_of postgres) -c listen_addresses=127.0.0.1 \
      -c unix_socket_directories='' -c fsync=off -c synchronous_commit=off -c full_page_writes=off \
      -c max_connections=200 -c jit=off -c autovacuum_naptime=5min -c wal_level=minimal -c max_wal_senders=0 $few" start </dev/null 9>&-; then
      remember postgres "$(head -n 1 "$2/postmaster.pid")"
      return 0
    fi
    sleep "0.$((i * 2))"
  done
  tail -n 10 "$log"
  return 1
}

postgres_answers() {
  local bin
  bin=$(postgres_bin)
  [ "$(as_client "$bin/psql" -qAt -h 127.0.0.1 -p "$(port_of postgres)" -U pacer -d pacer -c 'SELECT 1' 2>/dev/null)" = 1 ]
}

postgres_wipe() {
  local elsewhere
  elsewhere=$(cat "$dir/postgres-elsewhere" 2>/dev/null || true)
  case $elsewhere in /var/tmp/pacer-postgres-*) rm -rf "$elsewhere" ;; esac
  rm -f "$dir/postgres-elsewhere"
}
