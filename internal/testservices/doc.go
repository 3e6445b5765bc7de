// Package testservices provides real services to tests. It has the addresses of the shared Kafka, Redis and PostgreSQL of
// scripts/services.sh, and a test's own topics and databases there. Tests that stop, kill or empty a service get private processes.
//
// Under -short every function that needs a service skips the test. Otherwise a missing service fails it, so that a run
// without services cannot be mistaken for a run with them.
package testservices
