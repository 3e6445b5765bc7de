// Package model is the reference implementation of the limits engine: the same rules as the Lua scripts, in plain Go, over memory, with
// the time as an argument. It serves three purposes. It defines what the scripts must do (the two are compared on random histories). It
// replaces Redis in tests in virtual time. It is the place to read why a grant has the size it has.
//
// Everything is an integer: times are microseconds of store time, amounts are units. All decisions of one call use
// one instant, and that instant never goes back.
//
// # Fair sharing
//
// Daemons that compete for the slots of one campaign are served like flows of a fair queue (start-time fair queueing, Goyal, Vin and
// Cheng 1996). The timeline counts the units granted to each daemon. Each slot inside the horizon is assigned to the daemon with the
// fewest granted units. An asker gets the slots assigned to it and leaves the others. A slot that is left for too long is not lost: once
// it is nearer than half a horizon, it goes to the first daemon that asks.
//
// The obvious rule, a cap of rate * horizon / competitors, is exact only when a share is many slots. With a share of one and a half
// slots, the rounding favours the first to ask, in every round. Counting granted units works for a tenth of a slot per horizon as well as
// for thousands.
//
// Only daemons whose last ask was cut short for want of slots compete. A daemon with few jobs has been served less
// than the others and so gets all it wants, without reducing the others' shares.
//
// Daemons that compete for a quota share it by the same rule, with service divided by the weights of their campaigns that wait for it
// (delivery.Joint). Each shares what falls to it among these campaigns (limits/contention).
package model
