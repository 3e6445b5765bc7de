#!/usr/bin/env bash
# Real Kafka, Redis and PostgreSQL on 127.0.0.1 for tests, benchmarks and a person at the terminal.
#
#   scripts/services.sh up [SERVICE...]     start what does not run yet, wait until each answers
#   scripts/services.sh down [SERVICE...]   end what this checkout started; the data stays
#   scripts/services.sh status              one line each; exit 1 unless all run
#   scripts/services.sh env                 the addresses, for eval "$(scripts/services.sh env)"
#   scripts/services.sh topic NAME [N]      create a topic with N partitions (6), unless it is there
#   scripts/services.sh kill-kafka          kill -9: the crash of a broker
#   scripts/services.sh start-kafka         start it again, on the same data and port
#   scripts/services.sh restart-kafka       an orderly stop and start, on the same data and port
#   scripts/services.sh wipe                down, and remove the data
#
# SERVICE is kafka, redis or postgres; without one, all three. Everything lives in .services/ of the checkout, so
# several checkouts can run their own at the same time. A test that needs services to itself sets PACER_STACK to a
# name: that stack lives in .services/stacks/NAME, with its own ports, and ends with the checkout's `down`.
# PACER_SECURE=yes at the first `up` of such a stack makes it secure: TLS, and a password for everyone.
# PACER_BRIEF=yes is for services of tests, which need them for minutes: what `up` starts under it keeps its data in memory,
# where there is enough, and loses them at its end. The next `up` without it starts them again, on the data that stay.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
base="$root/.services"
stack=${PACER_STACK:-}
case $stack in
  *[!A-Za-z0-9_-]*) echo "services: PACER_STACK may hold letters, digits, - and _ only" >&2; exit 2 ;;
esac
dir="$base${stack:+/stacks/$stack}"
all_services=(kafka redis postgres)

# shellcheck source=scripts/services/process.sh
. "$root/scripts/services/process.sh"
# shellcheck source=scripts/services/install.sh
. "$root/scripts/services/install.sh"
# shellcheck source=scripts/services/secure.sh
. "$root/scripts/services/secure.sh"
# shellcheck source=scripts/services/kafka.sh
. "$root/scripts/services/kafka.sh"
# shellcheck source=scripts/services/redis.sh
. "$root/scripts/services/redis.sh"
# shellcheck source=scripts/services/postgres.sh
. "$root/scripts/services/postgres.sh"

# up starts the services side by side: Kafka takes two seconds, in which PostgreSQL makes its files.
up() {
  local service
  secure_prepare
  for service in "$@"; do
    "${service}_install"
  done
  for service in "$@"; do
    if is_brief "$service" && ! wants_brief; then stop "$service"; fi
    if running "$service" && "${service}_answers"; then continue; fi
    if running "$service"; then stop "$service"; fi # alive, but deaf: it was frozen, or its disk was full
    choose_ports "$service"
    place "$service"
    launch "$service"
  done
  await_launched
}

# launch runs a start beside the others; await_launched collects them all. The starts are background jobs also
# because errexit holds in those, which it does not in the operand of an if.
launched=() launch_pids=()
launch() {
  "${1}_start" >"$dir/$1.start.log" 2>&1 &
  launched+=("$1") launch_pids+=($!)
}

await_launched() {
  local i service failed=0
  for i in "${!launched[@]}"; do
    service=${launched[i]}
    if ! wait "${launch_pids[i]}" || ! await "$service"; then
      complain "$service"
      failed=1
    fi
  done
  return "$failed"
}

down() {
  local service
  for service in "$@"; do
    stop "$service"
    lift "$service"
  done
}

# down_stacks ends the stacks that tests left behind, each by its own recorded pids.
down_stacks() {
  local each
  [ -z "$stack" ] || return 0
  for each in "$base"/stacks/*/; do
    [ -d "$each" ] || continue
    PACER_STACK=$(basename "$each") "$root/scripts/services.sh" wipe
  done
}

status() {
  local service missing=0 state
  for service in "$@"; do
    state=stopped
    if running "$service"; then
      state="running, pid $(pid_of "$service")"
      "${service}_answers" || state="$state, does not answer" missing=1
    else
      missing=1
    fi
    printf '%-9s 127.0.0.1:%-6s %s\n' "$service" "$(port_of "$service")" "$state"
  done
  return "$missing"
}

# print_env names the services that were ever started here; a stopped one keeps its port.
print_env() {
  if [ ! -f "$dir/ports/redis" ] && [ ! -f "$dir/ports/kafka" ] && [ ! -f "$dir/ports/postgres" ]; then
    die "nothing was started here yet; run scripts/services.sh up"
  fi
  [ ! -f "$dir/ports/kafka" ] || echo "export PACER_KAFKA_BROKERS=127.0.0.1:$(port_of kafka)"
  [ ! -f "$dir/ports/redis" ] || echo "export PACER_REDIS_ADDRS=127.0.0.1:$(port_of redis)"
  [ ! -f "$dir/ports/postgres" ] || printf 'export PACER_POSTGRES_DSN=%q\n' "$(postgres_dsn)"
  if secure; then secure_env; fi
}

start_kafka() {
  if running kafka && kafka_answers; then return 0; fi
  if running kafka; then stop kafka; fi
  [ -f "$dir/ports/kafka" ] || die "no Kafka was started here yet; run scripts/services.sh up"
  local attempt
  for attempt in 1 2 3 4 5; do
    launch kafka
    if await_launched; then return 0; fi
    launched=() launch_pids=()
    sleep "$attempt" # its port may have been taken while it was down, for a moment
  done
  return 1
}

wipe() {
  down "${all_services[@]}"
  postgres_wipe
  # The lock in run/ stays for those who wait for it.
  if [ -n "$stack" ]; then rm -rf "$dir"; else rm -rf "${dir:?}"/{kafka,redis,postgres,ports,stacks,*.log}; fi
}

usage() {
  sed -n '2,/^set -euo/{/^set -euo/d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}"
}

command=${1:-help}
[ $# -eq 0 ] || shift
case $command in
  up | down)
    chosen=("$@")
    [ $# -gt 0 ] || chosen=("${all_services[@]}")
    for name in "${chosen[@]}"; do
      case $name in kafka | redis | postgres) ;; *) die "no service $name; there are ${all_services[*]}" ;; esac
    done
    lock
    if [ "$command" = up ]; then up "${chosen[@]}"; exit; fi
    [ $# -gt 0 ] || down_stacks
    down "${chosen[@]}"
    ;;
  status) status "${all_services[@]}" ;;
  env) print_env ;;
  topic) kafka_topic "${1:?name the topic}" "${2:-6}" ;;
  kill-kafka) lock; crash kafka ;;
  start-kafka) lock; start_kafka ;;
  restart-kafka) lock; stop kafka; start_kafka ;;
  wipe) lock; down_stacks; wipe ;;
  help | -h | --help) usage ;;
  *) usage >&2; exit 2 ;;
esac
