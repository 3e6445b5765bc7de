# shellcheck shell=bash disable=SC2154
# A secure stack: each service speaks TLS only, and lets nobody in without a password. Sourced; needs $dir, $stack.
#
# $dir/secure holds what clients need: ca.pem, the authority of all services, and password, that of the one user who
# may do everything (admin in Kafka and Redis, pacer in PostgreSQL). Whoever wants fewer rights makes them as admin.

secure() { [ -d "$dir/secure" ]; }

# secure_prepare makes the certificates before the first start. Whether a stack is secure never changes: Kafka and
# PostgreSQL get their first user when their data is made.
secure_prepare() {
  if [ -z "${PACER_SECURE:-}" ] || secure; then return 0; fi
  [ -n "$stack" ] || die "PACER_SECURE is for a stack of its own; set PACER_STACK to a name"
  if [ -d "$dir/kafka/data" ] || [ -d "$dir/redis" ] || [ -f "$(postgres_data)/ready" ]; then
    die "the stack $stack has data and is not secure; wipe it, or take another name"
  fi
  need "openssl" has_openssl openssl
  local incoming
  incoming=$(mktemp -d "$dir/secure-incoming.XXXXXX")
  if ! (cd "$incoming" && secure_certificates) >"$dir/secure.log" 2>&1; then
    rm -rf "$incoming"
    tail -n 5 "$dir/secure.log" >&2
    die "openssl could not make the certificates; the whole story is in $dir/secure.log"
  fi
  mv "$incoming" "$dir/secure"
}

has_openssl() { command -v openssl >/dev/null; }

# secure_certificates makes an authority and one certificate for all services, in the current directory.
secure_certificates() {
  local curve=(-newkey ec -pkeyopt "ec_paramgen_curve:P-256" -nodes -sha256)
  umask 077
  openssl rand -hex 16 >password
  openssl req -x509 "${curve[@]}" -days 365 -subj "/CN=services of $stack" -keyout ca.key -out ca.pem &&
    openssl req "${curve[@]}" -subj "/CN=127.0.0.1" -keyout server.key -out server.csr &&
    openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -set_serial 1 -days 365 -out server.pem \
      -extfile <(printf 'subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth\n') &&
    cat server.key server.pem >keystore.pem
}

secure_password() { cat "$dir/secure/password"; }

# secure_env is how pacer reaches the stack as the user who may do everything.
secure_env() {
  local service user
  for service in KAFKA REDIS; do
    printf 'export PACER_%s_TLS_ENABLED=true PACER_%s_TLS_CA_FILE=%q\n' "$service" "$service" "$dir/secure/ca.pem"
  done
  echo "export PACER_KAFKA_SASL_MECHANISM=scram-sha-512"
  for user in KAFKA_SASL REDIS; do
    printf 'export PACER_%s_USERNAME=admin PACER_%s_PASSWORD=%q\n' "$user" "$user" "file:$dir/secure/password"
  done
}

# secure_kafka prints the settings of a secure broker. The controller is the broker itself: its listener is on
# loopback, and only there nobody has to log in. Sessions are short, so that tests see many of them end.
secure_kafka() {
  cat <<PROPERTIES
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin;User:ANONYMOUS
allow.everyone.if.no.acl.found=false
sasl.enabled.mechanisms=SCRAM-SHA-512
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512
connections.max.reauth.ms=5000
listener.name.secure.scram-sha-512.sasl.jaas.config=$(secure_jaas)
ssl.keystore.type=PEM
ssl.keystore.location=$dir/secure/keystore.pem
ssl.truststore.type=PEM
ssl.truststore.location=$dir/secure/ca.pem
PROPERTIES
}

secure_jaas() {
  echo "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"admin\" password=\"$(secure_password)\";"
}

# secure_kafka_client prints the settings of Kafka's own tools.
secure_kafka_client() {
  cat <<PROPERTIES
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=$(secure_jaas)
ssl.truststore.type=PEM
ssl.truststore.location=$dir/secure/ca.pem
PROPERTIES
}

# secure_shakes tells whether a service completes a handshake.
secure_shakes() {
  timeout 3 openssl s_client -brief -verify_return_error -CAfile "$dir/secure/ca.pem" \
    -connect "127.0.0.1:$(port_of "$1")" </dev/null >/dev/null 2>&1
}
