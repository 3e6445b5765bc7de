// Package harness gives tests the real services they need: the addresses of the shared Kafka, Redis and
// PostgreSQL that scripts/services.sh starts, things of a test's own inside them (a topic, a database), and
// private processes for tests that have to stop, kill or empty a service without disturbing anyone else.
//
// Under -short every function that needs a service skips the test. Otherwise a missing service fails it, so
// that a run without services can never pass for a run with them.
package harness
