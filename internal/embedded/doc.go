// Package embedded is the stack that `pacer demo` brings along, so that a person can see pacer work with
// nothing installed: a Kafka broker and a Redis that live in this process, and a destination that receives what
// pacer sends and remembers it.
//
// Broker and Redis prove logic, not durability and not speed: they are single processes in memory. The Receiver is
// the demo's witness. What it wrote down, and nothing that pacer says of itself, is what the report is made from.
//
// Everything listens on the loopback interface, on ports that the kernel chooses.
package embedded
