package httptool

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// harmless are the headers whose values are no secret.
var harmless = []string{"Accept", "Accept-Encoding", "Accept-Language", "Cache-Control", "Content-Type", "Host", "User-Agent"}

// composed are the headers whose values hold several, each of which may be a secret.
var composed = []string{"Authorization", "Cookie", "Proxy-Authorization"}

const (
	shortestSecret = 4 // bytes; shorter ones would be found in anything
	shortestPart   = 8 // of one of several values of a header, which may be a word such as dark or true
)

// hide finds what a service must not repeat to the model: header values, and what the job's URL holds beside host and path.
func (s *service) hide(c config) {
	var found []string
	add := func(v string) {
		if len(v) >= shortestSecret && !slices.Contains(found, v) {
			found = append(found, v)
		}
	}
	all := func(v string) { // as a service may repeat it
		add(v)
		add(url.QueryEscape(v))
		add(url.PathEscape(v))
		if quoted, err := json.Marshal(v); err == nil {
			add(strings.Trim(string(quoted), `"`))
		}
	}
	for name, v := range c.Headers {
		if slices.Contains(harmless, http.CanonicalHeaderKey(name)) {
			continue
		}
		all(v)
		if slices.Contains(composed, http.CanonicalHeaderKey(name)) {
			for _, part := range parts(v) {
				all(part)
			}
		}
		scheme, rest, _ := strings.Cut(v, " ") // Bearer, Basic
		all(rest)
		if plain, err := base64.StdEncoding.DecodeString(rest); err == nil && strings.EqualFold(scheme, "basic") {
			_, password, _ := strings.Cut(string(plain), ":")
			all(string(plain))
			all(password)
		}
	}
	if u, err := s.base(c.URL); err == nil {
		for _, p := range parameters(u.RawQuery) {
			all(p.value)
			all(p.sent) // a service may repeat it as it came
		}
		if password, ok := u.User.Password(); ok {
			all(password)
			all(base64.StdEncoding.EncodeToString([]byte(u.User.Username() + ":" + password)))
		}
	}
	slices.SortFunc(found, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	var pairs []string
	for _, v := range found {
		pairs = append(pairs, v, "(secret)")
		s.longest = max(s.longest, len(v))
	}
	s.secrets = strings.NewReplacer(pairs...)
}

// parts are the values of a header's NAME=VALUE, as in cookies and with some schemes of Authorization, as they stand and decoded.
func parts(header string) (out []string) {
	for _, part := range strings.FieldsFunc(header, func(r rune) bool { return strings.ContainsRune("; ,\t", r) }) {
		_, value, _ := strings.Cut(part, "=")
		value = strings.Trim(value, `"`)
		if len(value) < shortestPart {
			continue
		}
		out = append(out, value)
		if plain, err := url.PathUnescape(value); err == nil {
			out = append(out, plain)
		}
	}
	return out
}
