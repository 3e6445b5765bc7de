# shellcheck shell=bash disable=SC2154
# Apache Kafka, one process as broker and controller. Sourced; needs $root, $base and $dir.

# The jars are shared by all stacks of a checkout. The version here and in the pom are changed together.
kafka_version=4.3.1
kafka_libs="$base/kafka-$kafka_version-libs"

kafka_install() {
  need "a JDK, 17 or later," has_java default-jdk-headless
  [ -d "$kafka_libs" ] || kafka_fetch
}

has_java() {
  local version
  version=$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1) || return 1
  [ "${version:-0}" -ge 17 ]
}

has_maven() { command -v mvn >/dev/null; }

# kafka_fetch copies the jars beside their final place and moves them there whole, so that an interrupted
# download is never taken for a finished one.
kafka_fetch() {
  local incoming
  need "Maven" has_maven maven
  grep -q "<version>$kafka_version</version>" "$root/scripts/kafka/pom.xml" ||
    die "scripts/kafka/pom.xml does not ask for Kafka $kafka_version"
  echo "services: fetching Apache Kafka $kafka_version" >&2
  mkdir -p "$base"
  incoming=$(mktemp -d "$base/kafka-incoming.XXXXXX")
  if ! mvn -q -B -Dstyle.color=never -f "$root/scripts/kafka/pom.xml" dependency:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$incoming" >"$dir/kafka-fetch.log" 2>&1 9>&-; then
    tail -n 5 "$dir/kafka-fetch.log" >&2
    rm -rf "$incoming"
    die "Maven could not fetch Apache Kafka $kafka_version; the whole story is in $dir/kafka-fetch.log"
  fi
  # Another stack may have been faster; its jars are as good.
  if [ -d "$kafka_libs" ]; then rm -rf "$incoming"; else mv "$incoming" "$kafka_libs"; fi
}

kafka_data() { data_of kafka "$dir/kafka/data"; }

# The classes of a broker as its JVM keeps them, written when one is stopped in order for the first time here: reading and checking
# them is half of what a start costs. An archive that does not fit, such as one of another JDK, is passed over; half a one is not, so it
# gets its name when it is whole.
kafka_classes="$base/kafka-$kafka_version-classes.jsa"

kafka_stopped() {
  if [ -z "$stack" ] && [ -f "$kafka_classes.new" ]; then mv -f "$kafka_classes.new" "$kafka_classes"; fi
}

kafka_start() {
  mkdir -p "$dir/kafka"
  kafka_configure
  local first=()
  if secure; then first=(--add-scram "SCRAM-SHA-512=[name=admin,password=$(secure_password)]"); fi
  if [ ! -f "$(kafka_data)/meta.properties" ]; then kafka_format "${first[@]}"; fi
  local compiler=()
  if is_brief kafka; then compiler=(-XX:TieredStopAtLevel=1); fi # it is not worth compiling well
  if [ -f "$kafka_classes" ]; then
    compiler+=("-XX:SharedArchiveFile=$kafka_classes" -Xlog:disable -Xlog:all=error:stderr)
  elif [ -z "$stack" ]; then
    compiler+=("-XX:ArchiveClassesAtExit=$kafka_classes.new" -Xlog:disable -Xlog:all=error:stderr)
  fi
  spawn kafka java "${compiler[@]}" -Xms256m -Xmx512m -XX:+UseSerialGC \
    -Dlog4j2.configurationFile="file:$dir/kafka/log4j2.properties" \
    -cp "$kafka_libs/*" kafka.Kafka "$dir/kafka/server.properties"
}

# What formatting writes besides meta.properties: the same for all brokers without secrets, and two seconds of java.
kafka_bootstrap="$base/kafka-$kafka_version-bootstrap.checkpoint"

# kafka_format formats the storage. A broker of tests copies what an earlier one has written.
kafka_format() {
  local data incoming
  data=$(kafka_data)
  if is_brief kafka && ! secure && [ -f "$kafka_bootstrap" ]; then
    mkdir -p "$data"
    cp "$kafka_bootstrap" "$data/bootstrap.checkpoint"
    printf 'version=1\nnode.id=1\ndirectory.id=%s\ncluster.id=%s\n' "$(kafka_cluster_id)" "$(kafka_cluster_id)" >"$data/meta.properties"
    return
  fi
  java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp "$kafka_libs/*" \
    -Dlog4j2.configurationFile="file:$dir/kafka/log4j2.properties" \
    kafka.tools.StorageTool format -t "$(kafka_cluster_id)" -c "$dir/kafka/server.properties" "$@" 9>&-
  if ! secure; then
    incoming=$(mktemp "$base/kafka-incoming.XXXXXX")
    cp "$data/bootstrap.checkpoint" "$incoming"
    mv "$incoming" "$kafka_bootstrap"
  fi
}

# kafka_cluster_id makes a random id as the storage tool does, without another second of java.
kafka_cluster_id() {
  head -c 16 /dev/urandom | base64 | tr '+/' 'pq' | tr -d '=\n'
}

# A broker that was killed may register again only when its last session has run out. Those that tests kill have a session of
# three seconds; the one that all others share has nine, or a machine that is busy for a moment would fence it.
#
# PACER_KAFKA_PROXY=PORT:PROXY adds a listener at PORT for those who come through a proxy at PROXY: they are told the
# proxy's port as the broker's address, so that all of their connections pass it. With PORT:PROXY:MS they log in as the user pacer, with
# that as the password too, and their sessions end after MS milliseconds unless they log in again.
kafka_configure() {
  local port controller listeners advertised protocol=PLAINTEXT session=9000 own proxy expires='' proxied=PLAINTEXT
  [ -z "$stack" ] || session=3000
  port=$(port_of kafka)
  controller=$(port_of kafka-controller)
  if secure; then protocol=SECURE; fi
  listeners=$protocol://127.0.0.1:$port advertised=$protocol://127.0.0.1:$port
  if [ -n "${PACER_KAFKA_PROXY:-}" ]; then
    IFS=: read -r own proxy expires <<<"$PACER_KAFKA_PROXY"
    listeners+=,PROXIED://127.0.0.1:$own advertised+=,PROXIED://127.0.0.1:$proxy
    if [ -n "$expires" ]; then proxied=SASL_PLAINTEXT; fi
  fi
  cat >"$dir/kafka/server.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
listeners=$listeners,CONTROLLER://127.0.0.1:$controller
advertised.listeners=$advertised
controller.listener.names=CONTROLLER
inter.broker.listener.name=$protocol
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:$proxied,SECURE:SASL_SSL
log.dirs=$(kafka_data)
log.retention.check.interval.ms=30000
broker.session.timeout.ms=$session
broker.heartbeat.interval.ms=500
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
PROPERTIES
  if [ -n "$expires" ]; then
    cat >>"$dir/kafka/server.properties" <<PROPERTIES
listener.name.proxied.sasl.enabled.mechanisms=PLAIN
listener.name.proxied.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_pacer="pacer";
listener.name.proxied.plain.connections.max.reauth.ms=$expires
PROPERTIES
  fi
  if secure; then
    secure_kafka >>"$dir/kafka/server.properties"
    secure_kafka_client >"$dir/kafka/client.properties"
  fi
  cat >"$dir/kafka/log4j2.properties" <<'PROPERTIES'
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
PROPERTIES
}

# kafka_answers asks for the cluster's metadata (request 3, version 1, no topics) and wants to see one broker in
# the answer. An open port is not enough: it opens before the broker may serve.
kafka_answers() {
  local answer
  if secure; then secure_shakes kafka; return; fi
  answer=$(
    exec 2>/dev/null
    exec 3<>"/dev/tcp/127.0.0.1/$(port_of kafka)" || exit 1
    printf '\x00\x00\x00\x0e\x00\x03\x00\x01\x00\x00\x00\x01\xff\xff\x00\x00\x00\x00' >&3
    timeout 3 head -c 12 <&3 | od -An -v -tu1 | tr -s ' \n' ' '
  ) || return 1
  case $answer in *" 0 0 0 1 0 0 0 1 ") return 0 ;; *) return 1 ;; esac
}

# kafka_topic creates a topic for a person to try things with; one that is there already stays as it is.
kafka_topic() {
  local login=()
  [ -d "$kafka_libs" ] || kafka_fetch
  running kafka || die "Kafka is not running here; run scripts/services.sh up"
  if secure; then login=(--command-config "$dir/kafka/client.properties"); fi
  java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp "$kafka_libs/*" \
    -Dlog4j2.configurationFile="file:$dir/kafka/log4j2.properties" \
    org.apache.kafka.tools.TopicCommand --bootstrap-server "127.0.0.1:$(port_of kafka)" "${login[@]}" --create \
    --if-not-exists --topic "$1" --partitions "$2" --replication-factor 1 >&2
}
