package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Section is a part of the configuration that a command uses.
type Section string

// The sections.
const (
	NeedKafka    Section = "kafka"    // brokers
	NeedTopics   Section = "topics"   // brokers and ingress topics
	NeedRedis    Section = "redis"    // addresses
	NeedPostgres Section = "postgres" // DSN
	NeedSinks    Section = "sinks"    // at least one
	NeedServer   Section = "server"   // what a daemon or a console serves with
)

// NeedSink is the section of one sink.
func NeedSink(name string) Section { return NeedSinks + Section("."+name) }

// uses reports whether a command that needs these sections uses the value of a key.
func uses(sections []Section, key string) bool {
	switch {
	case strings.HasPrefix(key, "kafka."):
		return slices.Contains(sections, NeedKafka) || slices.Contains(sections, NeedTopics)
	case strings.HasPrefix(key, "redis."):
		return slices.Contains(sections, NeedRedis)
	case strings.HasPrefix(key, "postgres."):
		return slices.Contains(sections, NeedPostgres)
	case strings.HasPrefix(key, "sinks."):
		_, of, _ := strings.Cut(key, ".")
		return slices.ContainsFunc(sections, func(s Section) bool {
			_, name, one := strings.Cut(string(s), ".")
			return s == NeedSinks || one && strings.HasPrefix(of, name+".")
		})
	case key == tokensKey, key == "admin_token", strings.HasPrefix(key, "tracing."):
		return slices.Contains(sections, NeedServer)
	}
	return true
}

// missing lists the settings without a default that are not set and that the sections contain.
func (c *Config) missing(sections []Section) (p Problems) {
	shown := *c // schemaOf needs an addressable value; nothing is written to it
	for _, leaf := range schemaOf("", &shown).leaves {
		needed := strings.Split(leaf.tags.Get("need"), ",")
		if (leaf.value.Kind() == reflect.Slice && leaf.value.Len() == 0 || leaf.value.IsZero()) && slices.ContainsFunc(sections, func(s Section) bool { return slices.Contains(needed, string(s)) }) {
			p = append(p, fmt.Sprintf("%s: required; set it in pacer.yaml or %s", leaf.path, EnvName(leaf.path)))
		}
	}
	if slices.Contains(sections, NeedSinks) && len(c.Sinks) == 0 {
		p = append(p, "sinks: at least one is required; set one in pacer.yaml, such as "+
			`receiver: {type: http, url: "http://127.0.0.1:9000/deliver"}, or with PACER_SINKS_RECEIVER_TYPE and PACER_SINKS_RECEIVER_URL`)
	}
	return p
}

// Fault returns the first problem of a section that LoadFor has left out, since the command does not need the section; nil for none.
func (c *Config) Fault(s Section) error {
	for _, problem := range c.unused {
		if uses([]Section{s}, keyOf(problem)) {
			return errors.New(problem)
		}
	}
	return nil
}
