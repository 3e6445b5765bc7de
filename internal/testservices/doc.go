// Package testservices provides real services to tests: the addresses of the shared Kafka, Redis and PostgreSQL that
// scripts/services.sh starts, a test's own topics and databases in them, and private processes for tests that have to
// stop, kill or empty a service.
//
// Under -short every function that needs a service skips the test. Otherwise a missing service fails it, so that a run
// without services cannot be mistaken for a run with them.
package testservices
