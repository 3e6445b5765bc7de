// Package auth says who asks the console, and what they may do: by a bearer token, a session that was begun with one, or the headers of
// a proxy that is trusted.
package auth

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"strings"
)

// Role is what a user may do. Each may do what those before it may.
type Role int

// The roles.
const (
	None     Role = iota // log in
	Viewer               // look
	Operator             // pause, resume, change rates, replay dead letters
	Admin                // everything
)

var roleNames = []string{"none", "viewer", "operator", "admin"}

func (r Role) String() string { return roleNames[min(max(r, None), Admin)] }

// ParseRole reads the name of a role.
func ParseRole(name string) (Role, bool) {
	for role, known := range roleNames {
		if name == known {
			return Role(role), true
		}
	}
	return None, false
}

// Identity is who asks.
type Identity struct {
	Name    string // "" if it is not known
	Role    Role
	Address string // of the client
	Session bool   // begun by logging in
	Request string // its id, which its log line and its recorded changes carry
}

// Actor names the identity in the record of changes.
func (i *Identity) Actor() string {
	if i.Address == "" {
		return i.Name
	}
	return i.Name + "@" + i.Address
}

type identityKey struct{}

// With returns a context of requests of the identity.
func With(ctx context.Context, who *Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, who)
}

// Of returns the identity of a request. Without a Guard it is the zero identity.
func Of(ctx context.Context) *Identity {
	if who, ok := ctx.Value(identityKey{}).(*Identity); ok {
		return who
	}
	return &Identity{}
}

// token is one that may be used.
type token struct {
	name string
	role Role
	hash [sha256.Size]byte
}

// maxTokens bounds how many tokens a request is compared with.
const maxTokens = 1000

// CheckTokens returns an error, which names the line, unless the text is a list of tokens: lines of a name, a role, and the SHA-256 of
// the token in hexadecimal digits.
func CheckTokens(text string) error {
	_, err := parseTokens(text)
	return err
}

func parseTokens(text string) (list []token, err error) {
	seen := map[string]bool{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 3 {
			return nil, fmt.Errorf("line %d must be a name, a role, and the SHA-256 of the token", n)
		}
		t := token{name: fields[0]}
		var known bool
		if t.role, known = ParseRole(fields[1]); !known || t.role == None {
			return nil, fmt.Errorf("line %d: the role must be viewer, operator or admin", n)
		}
		hash, err := hex.DecodeString(fields[2])
		if err != nil || len(hash) != len(t.hash) {
			return nil, fmt.Errorf("line %d: the third word must be the SHA-256 of the token, 64 hexadecimal digits", n)
		}
		if copy(t.hash[:], hash); t.hash == sha256.Sum256(nil) {
			return nil, fmt.Errorf("line %d: the third word is the SHA-256 of nothing; make a token, and hash it", n)
		}
		if seen[t.name] || len(list) == maxTokens {
			return nil, fmt.Errorf("line %d: names must differ, and at most %d tokens are possible", n, maxTokens)
		}
		seen[t.name] = true
		list = append(list, t)
	}
	return list, lines.Err()
}

// find returns the token with this hash; nil if there is none. It takes the same time for each.
func find(list []token, hash [sha256.Size]byte) (found *token) {
	for i := range list {
		if subtle.ConstantTimeCompare(list[i].hash[:], hash[:]) == 1 {
			found = &list[i]
		}
	}
	return found
}
