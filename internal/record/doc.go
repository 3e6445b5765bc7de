// Package record writes a job as a Kafka record and reads it back. Decode reads what a producer published, with headers or
// as a JSON envelope, and what Encode wrote when pacer moved the job to a lane, a timer or the dead letters.
//
// The record keeps the key, the foreign headers and the payload byte for byte; what pacer knows of the job is
// written as headers (see package delivery). A job that came as a JSON envelope is written with headers and its
// inner payload. A record that could not be decoded is kept as it came, with all its headers.
package record
