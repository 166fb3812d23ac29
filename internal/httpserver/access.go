package httpserver

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"strings"
)

// Loopback says whether a host means this machine.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// CheckKey refuses an address whose host other machines reach, unless requests must bear a key. host is the address without its port.
func CheckKey(address, host, key string) error {
	if key == "" && !Loopback(host) {
		return fmt.Errorf("%s is reachable from elsewhere: give --api-key, or the environment's AGENTFLY_API_KEY", address)
	}
	return nil
}

// Bears says whether a request bears the key. How long it takes tells nothing of the key.
func Bears(r *http.Request, key string) bool {
	given, ok := Bearer(r)
	return Same(given, key) && ok
}

// Bearer is the key that a request bears: Authorization: Bearer KEY; false: none.
func Bearer(r *http.Request) (key string, ok bool) {
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return "", false
	}
	return strings.TrimSpace(given), true
}

// Same compares a given key with the right one. How long it takes tells nothing of the key.
func Same(given, key string) bool {
	want, got := sha256.Sum256([]byte(key)), sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1
}
