package sessionkey

import (
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/internal/httpserver"
)

// PathPrefix stands before a key in a URL's path, for agents that can set a base URL and no key.
const PathPrefix = "/s/"

// Read returns the keys that a request bears, of which a program may send one of its own beside its session's, and the route that it asks for: its path
// without a key and /v1/. A key in the path is the only one.
func Read(r *http.Request) (keys []string, route string) {
	rest := path.Clean("/" + r.URL.Path)
	if after, ok := strings.CutPrefix(rest, PathPrefix); ok {
		var key string
		key, rest, _ = strings.Cut(after, "/")
		keys, rest = append(keys, key), "/"+rest
	}
	route = strings.TrimPrefix(strings.TrimPrefix(rest, "/v1"), "/")
	if len(keys) > 0 {
		return keys, route
	}
	if given, ok := httpserver.Bearer(r); ok {
		keys = append(keys, given)
	}
	keys = append(keys, r.Header.Get("X-Api-Key"), r.Header.Get("X-Goog-Api-Key"))
	return slices.DeleteFunc(keys, func(key string) bool { return key == "" }), route
}
