# shellcheck shell=bash disable=SC2154
# Redis, without persistence. Sourced; needs $dir.

redis_install() { need "redis-server" has_redis redis-server; }

has_redis() { command -v redis-server >/dev/null; }

redis_start() {
  local listen=(--port "$(port_of redis)")
  mkdir -p "$dir/redis"
  if secure; then
    printf 'user default off\nuser admin on >%s ~* &* +@all\n' "$(secure_password)" >"$dir/redis/users.acl"
    listen=(--port 0 --tls-port "$(port_of redis)" --tls-cert-file "$dir/secure/server.pem"
      --tls-key-file "$dir/secure/server.key" --tls-ca-cert-file "$dir/secure/ca.pem" --tls-auth-clients no
      --aclfile "$dir/redis/users.acl")
  fi
  spawn redis redis-server "${listen[@]}" --bind 127.0.0.1 --save "" --appendonly no --dir "$dir/redis"
}

redis_answers() {
  local answer
  if secure; then secure_shakes redis; return; fi
  answer=$(
    exec 2>/dev/null
    exec 3<>"/dev/tcp/127.0.0.1/$(port_of redis)" || exit 1
    printf 'PING\r\n' >&3
    timeout 3 head -c 5 <&3
  ) || return 1
  [ "$answer" = +PONG ]
}
