// Package local grants slots while the store does not answer: each daemon sends its share, by the last known
// state.
package local
