package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// SecretFrom is called by LoadFor for each secret of the services that refers to a file.
func (c *Config) SecretFrom(key string, read func() (string, error)) {
	if c.sources == nil {
		c.sources = map[string]func() (string, error){}
	}
	c.sources[key] = read
}

// Reread returns a copy of the configuration with the secrets that their files have now. A secret that cannot be read, or is not valid, keeps
// its value, and gets a line that begins with its key. Those of sinks are read by the sinks.
func (c *Config) Reread() (*Config, error) {
	fresh := *c
	settings, old := schemaOf("", &fresh).byPath, schemaOf("", c).byPath
	var faults []error
	for _, key := range slices.Sorted(maps.Keys(c.sources)) {
		value, err := c.sources[key]()
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", key, err))
			continue
		}
		settings[key].value.SetString(value)
	}
	for _, problem := range fresh.secretProblems() {
		key := keyOf(problem)
		if unused := func(known string) bool { return keyOf(known) == key }; !slices.ContainsFunc(c.unused, unused) {
			settings[key].value.Set(old[key].value)
			faults = append(faults, errors.New(problem))
		}
	}
	return &fresh, errors.Join(faults...)
}
