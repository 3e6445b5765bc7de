// Package config reads, checks and prints the configuration: one YAML file, and environment variables, which override
// it.
package config
