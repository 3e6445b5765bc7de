// Package catalog stores the campaigns and the quotas. Postgres follows the tables of the database and publishes each
// state as an immutable snapshot; Memory does the same without a database, for the demo and for tests. Both also store
// what daemons keep: positions of lanes and timers, progress and history.
//
// Admin changes campaigns and quotas for the commands and the HTTP API; Migrator updates the schema.
package catalog
