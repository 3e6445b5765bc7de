# shellcheck shell=bash disable=SC2154
# Processes and ports: how services.sh knows its own. Sourced; needs $dir.

die() {
  echo "services: $*" >&2
  exit 1
}

# complain says what went wrong with a service that did not come up, with the end of what it wrote.
complain() {
  echo "services: $1 did not start; the end of its output in ${dir#"$root"/}:" >&2
  tail -n 15 "$dir/$1.start.log" "$dir/$1.log" >&2 2>/dev/null || true
}

# lock makes commands of one stack take turns, so that two `up` at once start one of each service. Children
# must not inherit descriptor 9, or the lock would live as long as the services (see spawn).
lock() {
  mkdir -p "$dir/run" "$dir/ports"
  chmod go+rx "$base" "$dir" # PostgreSQL may run as another user, below here
  command -v flock >/dev/null || return 0
  exec 9>"$dir/run/lock"
  flock -w 300 9 || die "another services.sh has held $dir/run/lock for five minutes"
}

# spawn starts a service in a session of its own, so that an interrupt at the terminal does not reach it.
spawn() {
  local service=$1 detach=()
  shift
  if command -v setsid >/dev/null; then detach=(setsid); fi
  "${detach[@]}" "$@" </dev/null >"$dir/$service.log" 2>&1 9>&- &
  remember "$service" $!
}

# remember writes down a process as pid and birth: after a reboot, or when pids have wrapped around, a pid
# alone may be somebody else's.
remember() {
  printf '%s %s\n' "$2" "$(birth "$2")" >"$dir/run/$1.pid"
}

birth() {
  if [ -r "/proc/$1/stat" ]; then
    # The name in the second field may hold blanks; what follows its closing parenthesis is regular. The boot id
    # tells equal pids and clock ticks of two boots apart.
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
    # shellcheck disable=SC2086
    set -- ${stat##*) }
    echo "${20}@$(cat /proc/sys/kernel/random/boot_id)"
  else
    ps -o lstart= -p "$1" 2>/dev/null | tr -s ' ' _ || true
  fi
}

# wants_brief tells whether services are wanted for minutes at most, as those of tests are.
wants_brief() { [ -n "$stack" ] || [ "${PACER_BRIEF:-}" = yes ]; }

# is_brief tells whether a service was started like that.
is_brief() { [ -f "$dir/run/$1.brief" ]; }

# place decides about a service that `up` starts: is it brief, and does it keep its data in memory? Tests make and remove files by the
# ten thousand, of databases and of topics, which some file systems on disks take longer for the more were just removed. What a stack
# of a test writes stays in the stack: tests look at it.
memory=/dev/shm
place() {
  local folder=""
  if ! wants_brief; then lift "$1"; return; fi
  if is_brief "$1" && [ -d "$(cat "$dir/run/$1.brief")" ]; then return; fi
  case $1 in
    kafka | postgres) if [ -z "$stack" ] && has_memory; then folder=$(mktemp -d "$memory/pacer-$1.XXXXXX"); fi ;;
  esac
  echo "$folder" >"$dir/run/$1.brief"
}

# has_memory wants some times more than the data of all tests.
has_memory() { [ -w "$memory" ] && [ "$(df -Pk "$memory" | awk 'NR == 2 { print $4 }')" -gt 2000000 ]; }

# data_of prints where a service keeps its data: in memory, or in the folder that is given.
data_of() {
  local folder
  folder=$(cat "$dir/run/$1.brief" 2>/dev/null || true)
  echo "${folder:-$2}"
}

# lift is place undone: what was in memory is removed.
lift() {
  local folder
  folder=$(cat "$dir/run/$1.brief" 2>/dev/null || true)
  case $folder in "$memory/pacer-$1".*) rm -rf "$folder" ;; esac
  rm -f "$dir/run/$1.brief"
}

pid_of() {
  cut -d' ' -f1 "$dir/run/$1.pid" 2>/dev/null || true
}

running() {
  local pid born
  [ -f "$dir/run/$1.pid" ] || return 1
  read -r pid born <"$dir/run/$1.pid" || return 1
  [ -n "$born" ] && kill -0 "$pid" 2>/dev/null && [ "$(birth "$pid")" = "$born" ] && ! zombie "$pid"
}

# zombie tells whether a process is dead and merely not collected: where no init reaps, they stay. The first thread
# of a killed java is a zombie (Zl) while the others are still being ended and hold ports and files.
zombie() {
  case $(ps -o stat= -p "$1" 2>/dev/null) in Z*l*) return 1 ;; Z*) return 0 ;; *) return 1 ;; esac
}

# stop ends a service politely, and after ten seconds without ceremony. It touches recorded processes only.
stop() {
  local service=$1 pid
  if running "$service"; then
    pid=$(pid_of "$service")
    kill -CONT "$pid" 2>/dev/null || true # a frozen process would not hear what follows
    kill "-$(stop_signal "$service")" "$pid" 2>/dev/null || true
    if ! gone "$service" 100; then
      crash "$service"
    elif [ "$service" = kafka ]; then
      kafka_stopped
    fi
  fi
  rm -f "$dir/run/$service.pid"
}

# stop_signal: PostgreSQL waits for its clients on TERM and sends them home on INT.
stop_signal() {
  if [ "$1" = postgres ]; then echo INT; else echo TERM; fi
}

crash() {
  if running "$1"; then
    kill -KILL "$(pid_of "$1")" 2>/dev/null || true
    gone "$1" 100 || die "$1 (pid $(pid_of "$1")) survives kill -9"
  fi
  rm -f "$dir/run/$1.pid"
}

# gone waits until a service has ended, $2 tenths of a second at most.
gone() {
  local i
  for ((i = 0; i < $2; i++)); do
    running "$1" || return 0
    sleep 0.1
  done
  return 1
}

# await returns once a service answers, fails as soon as it has died, and gives up after a minute.
await() {
  local i
  for ((i = 0; i < 600; i++)); do
    if "${1}_answers"; then return 0; fi
    running "$1" || return 1
    sleep 0.1
  done
  return 1
}

port_of() {
  cat "$dir/ports/$1" 2>/dev/null || echo -
}

# choose_ports gives a service the port it had, unless somebody took it meanwhile.
choose_ports() {
  local name names=("$1")
  if [ "$1" = kafka ]; then names+=(kafka-controller); fi
  for name in "${names[@]}"; do
    if [ -f "$dir/ports/$name" ] && ! listening "$(port_of "$name")"; then continue; fi
    free_port >"$dir/ports/$name"
  done
}

# free_port draws from below the range of outgoing connections, which could otherwise slip into a service's
# port while it is down, and above what tests take for theirs. No other stack gets the port before the service listens,
# nor while it is down.
free_port() {
  local port i
  for ((i = 0; i < 200; i++)); do
    port=$((28000 + RANDOM % 4000))
    if ! claim "$port" || listening "$port" || grep -qsx "$port" "$base"/ports/* "$base"/stacks/*/ports/*; then continue; fi
    echo "$port"
    return 0
  done
  die "no free port between 28000 and 32000"
}

# claim locks a port's file for this process and for the services that it starts, which inherit the lock: several stacks
# choose at once, and a broker takes seconds until it listens.
claim() {
  local folder="${TMPDIR:-/tmp}/pacer-ports-$(id -u)" claimed
  command -v flock >/dev/null || return 0
  mkdir -p -m 700 "$folder"
  exec {claimed}>"$folder/$1"
  flock -n "$claimed" || { exec {claimed}>&-; return 1; }
}

listening() {
  (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}
