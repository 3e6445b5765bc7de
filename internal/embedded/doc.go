// Package embedded contains a Kafka broker and a Redis that run in this process, so that the demo and tests need
// nothing installed. They show that the logic works, not durability or speed: each is a single process in memory.
//
// They listen on the loopback interface, on ports that the kernel chooses.
package embedded
