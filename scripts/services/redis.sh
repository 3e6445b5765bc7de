# shellcheck shell=bash disable=SC2154
# Redis, without persistence. Sourced; needs $dir.

redis_install() { need "redis-server" has_redis redis-server; }

has_redis() { command -v redis-server >/dev/null; }

redis_start() {
  mkdir -p "$dir/redis"
  spawn redis redis-server --port "$(port_of redis)" --bind 127.0.0.1 --save "" --appendonly no --dir "$dir/redis"
}

redis_answers() {
  local answer
  answer=$(
    exec 2>/dev/null
    exec 3<>"/dev/tcp/127.0.0.1/$(port_of redis)" || exit 1
    printf 'PING\r\n' >&3
    timeout 3 head -c 5 <&3
  ) || return 1
  [ "$answer" = +PONG ]
}
