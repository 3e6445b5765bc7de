// Package catalog knows the campaigns and the quotas. Postgres follows the tables of the database and publishes
// each state as an immutable snapshot; Memory is the same without a database, for the demo and for tests. Beside
// that, both keep what the daemons have to agree on: which lane a campaign overflows into, and how far lanes and
// timers have been read.
//
// Admin changes campaigns and quotas on behalf of a person; Migrator brings the schema up to date.
package catalog
