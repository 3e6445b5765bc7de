package webpush

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
)

// Sizes of an encrypted message (RFC 8188, RFC 8291), in bytes.
const (
	maxBody    = 4096 // of a request; a push service need not take more
	saltSize   = 16
	authSize   = 16
	tagSize    = 16
	keySize    = 16
	nonceSize  = 12
	publicSize = 65
	headerSize = saltSize + 4 + 1 + publicSize

	maxMessage = maxBody - headerSize - tagSize - 1 // of what is encrypted
)

// subscription is a user agent's address for messages, with its keys.
type subscription struct {
	endpoint *url.URL
	public   *ecdh.PublicKey
	auth     []byte
}

var errSubscription = errors.New(`the job has no subscription; it has to be as the browser gives it, {"endpoint":"https://…","keys":{"p256dh":"…","auth":"…"}}`)

// readSubscription reads a subscription as JSON. An error repeats nothing of it.
func readSubscription(text string) (s subscription, err error) {
	var j struct {
		Endpoint string `json:"endpoint"`
		Keys     struct {
			Public string `json:"p256dh"`
			Auth   string `json:"auth"`
		} `json:"keys"`
	}
	if json.Unmarshal([]byte(text), &j) != nil || j.Endpoint == "" {
		return s, errSubscription
	}
	if s.endpoint, err = url.Parse(j.Endpoint); err != nil || s.endpoint.Opaque != "" || s.endpoint.Host == "" {
		return s, errors.New("the subscription's endpoint is no URL")
	}
	s.endpoint.Fragment, s.endpoint.RawFragment = "", ""
	public, err := decode(j.Keys.Public)
	if err != nil || len(public) != publicSize {
		return s, errors.New("the subscription's p256dh is no key of P-256 in base64url")
	}
	if s.public, err = ecdh.P256().NewPublicKey(public); err != nil {
		return s, errors.New("the subscription's p256dh is no key of P-256 in base64url")
	}
	if s.auth, err = decode(j.Keys.Auth); err != nil || len(s.auth) != authSize {
		return s, errors.New("the subscription's auth is not 16 bytes in base64url")
	}
	return s, nil
}

// decode decodes base64url, also with padding, and base64, since some libraries keep keys in it.
func decode(s string) ([]byte, error) {
	s = strings.NewReplacer("+", "-", "/", "_").Replace(strings.TrimRight(s, "="))
	return base64.RawURLEncoding.DecodeString(s)
}

// encrypt returns a message as the body of a request (RFC 8291), with a key and a salt of its own.
func encrypt(to subscription, message []byte) []byte {
	own, _ := ecdh.P256().GenerateKey(rand.Reader) // which never fails, as documented, and nor does the next line
	salt := make([]byte, saltSize)
	_, _ = rand.Read(salt)
	return seal(to, message, own, salt)
}

// seal encrypts a message with a key and a salt that have not been used before: one record, without padding. Its errors would be about the
// sizes of keys, which are right.
func seal(to subscription, message []byte, own *ecdh.PrivateKey, salt []byte) []byte {
	derive := func(secret, salt []byte, info string, size int) []byte {
		key, _ := hkdf.Key(sha256.New, secret, salt, info, size)
		return key
	}
	public := own.PublicKey().Bytes()
	shared, _ := own.ECDH(to.public)
	input := derive(shared, to.auth, "WebPush: info\x00"+string(to.public.Bytes())+string(public), sha256.Size)
	block, _ := aes.NewCipher(derive(input, salt, "Content-Encoding: aes128gcm\x00", keySize))
	gcm, _ := cipher.NewGCM(block)
	nonce := derive(input, salt, "Content-Encoding: nonce\x00", nonceSize)

	body := make([]byte, 0, headerSize+len(message)+1+tagSize)
	body = append(body, salt...)
	body = binary.BigEndian.AppendUint32(body, maxBody) // the size of a record
	body = append(append(body, byte(len(public))), public...)
	const last = 2 // delimits the message in the last record
	return gcm.Seal(body, nonce, append(append(make([]byte, 0, len(message)+1), message...), last), nil)
}
