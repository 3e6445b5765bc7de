// Package limits is the distributed quota engine: it grants slots of campaigns' timelines, and units of the quotas
// they share, to any number of daemons, out of one Redis.
//
// An Engine answers a daemon's tick, all of its campaigns at once, in one round trip. All decisions are made inside
// Lua scripts (folder lua), atomically and by one clock; package model has the same rules in a more readable form,
// and tests compare the two.
//
// Keys are made in keys.go only, and all of a call carry one hash tag.
package limits
