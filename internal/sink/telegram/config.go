package telegram

import (
	"regexp"

	"github.com/pacer/pacer/internal/sink/httpcall"
)

// Config configures a telegram sink.
type Config struct {
	httpcall.Service
	// Token is that of the bot.
	Token string `yaml:"token" secret:"value"`
	// Method is the method of the Bot API that jobs are sent by.
	Method string `yaml:"method"`
}

// Default returns the configuration of a telegram sink without a token.
func Default() *Config {
	c := &Config{Service: httpcall.DefaultService("https://api.telegram.org"), Method: "sendMessage"}
	c.MaxInFlight = 64
	return c
}

var (
	tokenPattern  = regexp.MustCompile(`^[0-9]{1,20}:[A-Za-z0-9_-]{8,100}$`)
	methodPattern = regexp.MustCompile(`^[a-zA-Z]{1,64}$`)
)

const notAToken = "token: not the token of a bot; use one such as 123456:ABC-DEF1234ghIkl, best by file:PATH"

// Problems returns the errors in the configuration: one line each, beginning with the key, without secrets.
func (c *Config) Problems() []string {
	p := c.Service.Problems()
	switch {
	case c.Token == "":
		p.Add("token: required; use that of the bot, best by file:PATH")
	case !tokenPattern.MatchString(c.Token):
		p.Add(notAToken)
	}
	p.When(!methodPattern.MatchString(c.Method), "method: not a method of the Bot API; use one such as sendMessage")
	return p
}
