package view

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"

	"github.com/agentfly/agentfly/internal/httpserver"
)

// access is who may look at runs and who may control them.
type access struct {
	page    string // the key that both take; "": looking takes none
	control string // the key that controlling takes where page is ""; "": nobody can
}

const cookie = "agentfly_view"

// cookieOf is the name of the cookie at an address: a browser has one jar for all ports of a machine.
func cookieOf(r *http.Request) string {
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		return cookie + "_" + port
	}
	return cookie
}

// key is what a browser gives once; "": there is none.
func (a access) key() string {
	if a.page != "" {
		return a.page
	}
	return a.control
}

// token is what the cookie holds: it does not tell the key.
func (a access) token() string {
	m := hmac.New(sha256.New, []byte(a.key()))
	m.Write([]byte(cookie))
	return hex.EncodeToString(m.Sum(nil))
}

func (a access) bears(r *http.Request) bool {
	if c, err := r.Cookie(cookieOf(r)); err == nil && httpserver.Same(c.Value, a.token()) {
		return true
	}
	return httpserver.Bears(r, a.key())
}

// controls tells whether who asks may control runs: that takes the key, also where looking takes none.
func (a access) controls(r *http.Request) bool { return a.key() != "" && a.bears(r) }

// welcome gives a browser that came with the key a cookie for it.
func (a access) welcome(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path != "/" || a.key() == "" || !httpserver.Same(r.URL.Query().Get("key"), a.key()) {
		return false
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieOf(r), Value: a.token(), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: 30 * 24 * 3600,
	})
	http.Redirect(w, r, "/", http.StatusSeeOther) // the address without the key
	return true
}
