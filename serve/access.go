package serve

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/internal/httpserver"
)

// admit checks who asks. Without a key, only this machine's own programs may: a web page that a browser on it shows must
// not reach the server by a name of its own that resolves to a loopback address, nor by a plain form.
func admit(r *http.Request, apiKey string) error {
	if r.URL.Path == "/health" || r.URL.Path == "/ping" {
		return nil
	}
	if apiKey == "" {
		if !httpserver.Loopback(hostOf(r.Host)) {
			return &dialects.Error{Status: http.StatusForbidden, Message: fmt.Sprintf("the host %q is not this machine; start the server with --api-key to serve others", r.Host)}
		}
		if origin := r.Header.Get("Origin"); origin != "" {
			if u, err := url.Parse(origin); err != nil || !httpserver.Loopback(u.Hostname()) {
				return &dialects.Error{Status: http.StatusForbidden, Message: fmt.Sprintf("pages of %q may not use this server", origin)}
			}
		}
		return nil
	}
	if !httpserver.Bears(r, apiKey) && !httpserver.Same(r.Header.Get("x-api-key"), apiKey) { // the second is Anthropic's clients'
		return &dialects.Error{Status: http.StatusUnauthorized, Message: "the API key is missing or wrong; send it as Authorization: Bearer KEY"}
	}
	return nil
}

func hostOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.Trim(hostport, "[]")
}
