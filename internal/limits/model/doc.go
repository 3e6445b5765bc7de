// Package model is the reference implementation of the limits engine: the same rules as the Lua scripts, in plain
// Go, over memory, with the time as an argument. It serves three purposes. It says what the scripts must do (the
// two are compared on random histories), it stands in for Redis where a test wants virtual time, and it is the
// place to read when one wants to know why a grant came out as it did.
//
// Everything is an integer: times are microseconds of store time, amounts are units. All decisions of one call see
// one instant, and that instant never goes back.
//
// # Fair sharing
//
// Daemons that compete for the slots of one campaign are served like flows of a fair queue (start-time fair
// queueing, Goyal, Vin and Cheng 1996): the timeline counts the units each has been granted, and hands the slots
// inside the horizon, in thought, one by one to whoever has been given least. An asker gets the slots that fall to
// it this way and leaves the others to those they fall to. What is left for too long is not lost: a slot that
// comes nearer than half a horizon goes to whoever asks.
//
// A cap of rate * horizon / competitors, the obvious rule, is exact only when a share is many slots: with a share
// of one and a half slots the rounding favours whoever asks first, in every round. Counting what was served has no
// such regime: it holds for a tenth of a slot in a horizon as for thousands.
//
// Only daemons whose last ask was cut short for want of slots compete. A daemon with few jobs has been served less
// than the others and so takes what it wants off the top, without making anybody's share smaller.
//
// Campaigns that compete for a quota share it by the same rule, with service divided by the campaign's weight.
package model
