// Package sessionkey makes the keys with which agents reach their sessions, reads them from requests, and takes them apart.
//
// It does not know which sessions there are, or who may go on with one (package gateway does).
package sessionkey

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	prefix = "sk-agentfly-"
	mark   = "." // between a session's key and the name of who was given it
)

// File is where a run's folder keeps the secret of agents that live on.
const File = "gateway.key"

// NewSecret is what keys follow from that nobody can guess.
func NewSecret() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return b
}

// Of is the key of the session with that name.
func Of(secret []byte, name string) string {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(name))
	return prefix + hex.EncodeToString(h.Sum(nil)[:24])
}

// ForHolder is the key of a session for one of those whom it is handed to: a run that was killed cannot know whether who had a task lives on, and hands
// it out again. The first that calls goes on, and the others are refused.
func ForHolder(key, holder string) string { return key + mark + holder }

// Split takes the key of a session and the name of its holder apart; the holder is "" where the key was made for none.
func Split(key string) (session, holder string) {
	if !strings.HasPrefix(key, prefix) { // a key of other services, whatever is in it
		return key, ""
	}
	session, holder, _ = strings.Cut(key, mark)
	return session, holder
}
