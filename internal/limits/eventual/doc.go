// Package eventual counts quotas that need not be exact: each daemon in memory, synchronised about once a second.
package eventual
