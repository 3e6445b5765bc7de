package config

import (
	"fmt"
	"maps"
	"slices"
)

// SecretFrom is called by Load for each secret of the services that refers to a file.
func (c *Config) SecretFrom(key string, read func() (string, error)) {
	if c.sources == nil {
		c.sources = map[string]func() (string, error){}
	}
	c.sources[key] = read
}

// Reread returns a copy of the configuration whose secrets are read again from the files that they refer to. Those of
// sinks are read by the sinks. An error begins with the key.
func (c *Config) Reread() (*Config, error) {
	fresh := *c
	settings := schemaOf("", &fresh).byPath
	for _, key := range slices.Sorted(maps.Keys(c.sources)) {
		value, err := c.sources[key]()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		*settings[key].value.Addr().Interface().(*Secret) = Secret(value)
	}
	return &fresh, nil
}

// RereadTokens returns a copy of the configuration with the tokens of the console as their files have them now. What cannot be read keeps
// its value.
func (c *Config) RereadTokens() *Config {
	fresh := *c
	for key, token := range map[string]*Secret{tokensKey: &fresh.HTTP.Tokens, "admin_token": &fresh.AdminToken} {
		if read := c.sources[key]; read != nil {
			if value, err := read(); err == nil {
				*token = Secret(value)
			}
		}
	}
	return &fresh
}
