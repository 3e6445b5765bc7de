package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"maps"
	"net/http"
	"time"
)

const (
	sessionFor = 12 * time.Hour
	// The name of a secure cookie makes browsers refuse one that was set without encryption, or by another host.
	secureCookie, plainCookie = "__Host-pacerSession", "pacerSession"
)

// session is one that was begun with a token. Only the hash of its name is kept.
type session struct {
	token   [sha256.Size]byte // its hash
	expires time.Time
}

// Login begins a session with a token, and sets its cookie.
func (g *Guard) Login(w http.ResponseWriter, r *http.Request, secret string) error {
	address, _ := g.client(r)
	secure := g.secure(r)
	if !secure && !g.options.InsecureLogin && !address.IsLoopback() {
		return ErrInsecure
	}
	t, err := g.check(address, secret)
	if err != nil {
		return err
	}
	name, now := rand.Text(), time.Now()
	g.mu.Lock()
	maps.DeleteFunc(g.sessions, func(_ [sha256.Size]byte, s session) bool { return now.After(s.expires) })
	g.sessions[sha256.Sum256([]byte(name))] = session{token: t.hash, expires: now.Add(sessionFor)}
	g.mu.Unlock()
	g.setCookie(w, secure, name, int(sessionFor.Seconds()))
	return nil
}

// Logout ends the session of the request.
func (g *Guard) Logout(w http.ResponseWriter, r *http.Request) {
	for _, name := range []string{secureCookie, plainCookie} {
		if c, err := r.Cookie(name); err == nil {
			g.mu.Lock()
			delete(g.sessions, sha256.Sum256([]byte(c.Value)))
			g.mu.Unlock()
		}
	}
	g.setCookie(w, g.secure(r), "", -1)
}

// ofSession returns the token that began the session of the request; nil without a session, or after its end.
func (g *Guard) ofSession(r *http.Request) *token {
	name := plainCookie
	if g.secure(r) {
		name = secureCookie
	}
	c, err := r.Cookie(name)
	if err != nil {
		return nil
	}
	g.mu.Lock()
	s, ok := g.sessions[sha256.Sum256([]byte(c.Value))]
	g.mu.Unlock()
	if !ok || time.Now().After(s.expires) {
		return nil
	}
	return find(g.known(), s.token)
}

// secure reports whether the client's connection is encrypted.
func (g *Guard) secure(r *http.Request) bool {
	_, trusted := g.client(r)
	return r.TLS != nil || trusted && r.Header.Get("X-Forwarded-Proto") == "https"
}

func (g *Guard) setCookie(w http.ResponseWriter, secure bool, value string, maxAge int) {
	c := &http.Cookie{ //nolint:gosec // not secure only where the connection is not: browsers refuse it otherwise
		Name: plainCookie, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: secure,
	}
	if secure {
		c.Name = secureCookie
	}
	http.SetCookie(w, c)
}
