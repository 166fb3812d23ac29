// Package httptool makes tools of HTTP services: of one URL with a JSON schema of its arguments, or of the operations of an OpenAPI 3
// document. A tool is safe for concurrent use. Its deadline, limits and retries are those of package tools: what did not answer is a
// *tools.BrokenError, and methods that may be repeated are idempotent. Redirects to another host are refused, and header values and the
// query of the job's URL never reach an observation or an error.
//
// It does not read web pages for a model (package tools/web does), and it does not speak MCP (package tools/mcp does).
package httptool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
)

// config is the value of the key http of an entry of agent.tools.
type config struct {
	URL         string            `json:"url"`         // of the service, {name} standing for an argument; with openapi: in place of the document's server
	Name        string            `json:"name"`        // of the one tool
	Description string            `json:"description"` // of the one tool
	Method      string            `json:"method"`      // of the one tool; default POST
	Schema      any               `json:"schema"`      // of its arguments, or the path of a file with it; default no arguments
	OpenAPI     string            `json:"openapi"`     // path or URL of a document whose operations are the tools
	Headers     map[string]string `json:"headers"`     // of every request
	Idempotent  *bool             `json:"idempotent"`  // a request may be repeated; default: as its method says
}

const (
	maxDocument     = 8 << 20          // bytes of an OpenAPI document or a schema file
	documentTimeout = 30 * time.Second // for fetching one
	retries         = 2                // of an idempotent request
)

var methods = []string{"GET", "POST", "PUT", "PATCH", "DELETE"}

// Source is the source "http" of a catalog.
func Source(ctx context.Context, r *resources.Resources, params map[string]any) ([]tools.Tool, error) {
	var entry struct {
		HTTP          config `json:"http"`
		Stateful      *bool  `json:"stateful"`
		Deterministic *bool  `json:"deterministic"`
	}
	if err := resources.Decode(params, &entry); err != nil {
		return nil, err
	}
	c := entry.HTTP
	s, err := newService(c)
	if err != nil {
		return nil, err
	}
	var made []*tool
	if c.OpenAPI != "" {
		made, err = s.document(ctx, r, c)
	} else {
		made, err = s.single(r, c)
	}
	if err != nil {
		return nil, err
	}
	r.OnClose(func() error { s.client.CloseIdleConnections(); return nil })
	r.OnBegin(func(ctx context.Context) error { return s.reach(ctx, made[0].base) }) // that of all of them
	out := make([]tools.Tool, len(made))
	for i, t := range made {
		t.service = s
		if t.spec.Idempotent = slices.Contains([]string{"GET", "PUT", "DELETE"}, t.method); c.Idempotent != nil {
			t.spec.Idempotent = *c.Idempotent
		}
		t.spec.Deterministic = t.method == "GET" // a job that says cache: true may keep it
		t.spec.Writes = t.method != "GET"        // RFC 9110, section 9.2.1: that alone is safe of those that are allowed
		t.spec.Limits.Retries = retries
		t.spec = tools.Declared{Stateful: entry.Stateful, Deterministic: entry.Deterministic}.Of(t.spec)
		out[i] = t
	}
	return out, nil
}

// service is what the tools of one entry share.
type service struct {
	client  *http.Client
	proxy   func(*http.Request) (*url.URL, error) // of the client's requests
	headers http.Header
	secrets *strings.Replacer
	longest int // bytes of a secret
}

func newService(c config) (*service, error) {
	s := &service{headers: http.Header{}}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		if s.headers.Get(name) != "" {
			return nil, fmt.Errorf("headers: %s is given twice", http.CanonicalHeaderKey(name))
		}
		s.headers.Set(name, c.Headers[name])
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	s.client, s.proxy = &http.Client{Transport: transport, CheckRedirect: sameHost}, transport.Proxy
	if _, err := s.base(c.URL); c.URL != "" && err != nil {
		return nil, err
	}
	s.hide(c)
	return s, nil
}

// base reads the part of a URL before its first {name}.
func (s *service) base(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil { // the error would show it, and it may hold a key
		return nil, errors.New("url: it cannot be read; write one such as https://example.org/v1")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("url: it must begin with http:// or https:// and a host")
	}
	u.RawQuery = notInQuery.ReplaceAllStringFunc(u.RawQuery, url.PathEscape)
	return u, nil
}

// notInQuery is what may stand in no query (RFC 3986), but % with anything behind it.
var notInQuery = regexp.MustCompile("[^!-~]+|[\"<>\\[\\\\\\]^`{|}]+")

// parameter is one of a query: its name, its value, and the value as it is sent.
type parameter struct{ name, value, sent string }

// parameters are those of a query. They hold also those with a semicolon or a bad escape, as they are written, which
// url.ParseQuery leaves out: a service gets them.
func parameters(query string) (out []parameter) {
	for part := range strings.SplitSeq(query, "&") {
		name, sent, _ := strings.Cut(part, "=")
		p := parameter{name, sent, sent}
		for _, s := range []*string{&p.name, &p.value} {
			if text, err := url.QueryUnescape(*s); err == nil {
				*s = text
			}
		}
		out = append(out, p)
	}
	return out
}

// gives tells whether a query has a parameter.
func gives(query, name string) bool {
	return slices.ContainsFunc(parameters(query), func(p parameter) bool { return p.name == name })
}

// written is the path of a URL as it was written: %2F in it is no slash.
func written(u *url.URL) string { return cmp.Or(u.RawPath, u.EscapedPath()) }

// single makes the tool of one URL.
func (s *service) single(r *resources.Resources, c config) ([]*tool, error) {
	switch {
	case c.URL == "":
		return nil, errors.New("url is missing; name the service's URL with a name and a schema, or an OpenAPI document with openapi")
	case c.Name == "":
		return nil, errors.New("name is missing; the model calls the tool by it")
	}
	method := strings.ToUpper(c.Method)
	if method == "" {
		method = "POST"
	}
	if !slices.Contains(methods, method) {
		return nil, fmt.Errorf("method: %q is not allowed; allowed: %s", c.Method, strings.Join(methods, ", "))
	}
	schema, err := readSchema(r, c.Schema)
	if err != nil {
		return nil, err
	}
	base, err := s.base(c.URL)
	if err != nil {
		return nil, err
	}
	t := &tool{spec: tools.Spec{Name: c.Name, Description: c.Description}, method: method, base: base, path: written(base), kind: "application/json"}
	t.base.Path, t.base.RawPath = "", ""
	properties, _ := schema["properties"].(map[string]any)
	names := slices.Sorted(maps.Keys(properties))
	for _, name := range placeholders(t.path) {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("url: {%s} is no property of the schema; its properties are %s", name, strings.Join(names, ", "))
		}
		t.arguments = append(t.arguments, argument{name: name, in: "path"})
	}
	if _, query, _ := strings.Cut(c.URL, "?"); strings.Contains(query, "{") || strings.Contains(t.base.Host, "{") {
		return nil, errors.New("url: a {name} may stand in its path only; other arguments go into query or body by themselves")
	}
	for _, name := range names {
		if method != "GET" && method != "DELETE" || t.takes(name) {
			continue
		}
		if gives(t.base.RawQuery, name) {
			return nil, fmt.Errorf("url: its query gives %s, which is a property of the schema too; leave one of them out", name)
		}
		t.arguments = append(t.arguments, argument{name: name, in: "query", explode: true})
	}
	t.members = method != "GET" && method != "DELETE"
	t.spec.Parameters, err = json.Marshal(schema)
	return []*tool{t}, err
}

// readSchema is the schema of a job, or of a file that it names.
func readSchema(r *resources.Resources, v any) (map[string]any, error) {
	if path, ok := v.(string); ok {
		data, err := readFile(r.Resolve(path))
		if err == nil {
			v, err = decode(data)
		}
		if err != nil {
			return nil, fmt.Errorf("schema: %s: %w", path, err)
		}
	}
	if v == nil {
		v = map[string]any{"properties": map[string]any{}, "additionalProperties": false}
	}
	schema, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("schema: it must be a JSON schema, or the path of a file with one")
	}
	if schema["type"] == nil {
		schema = maps.Clone(schema)
		schema["type"] = "object"
	}
	return schema, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f)
}

func readAll(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err == nil && len(data) > maxDocument {
		err = fmt.Errorf("it has more than %d bytes", maxDocument)
	}
	return data, err
}

// document makes the tools of an OpenAPI document.
func (s *service) document(ctx context.Context, r *resources.Resources, c config) ([]*tool, error) {
	if c.Name != "" || c.Description != "" || c.Method != "" || c.Schema != nil {
		return nil, errors.New("openapi: the document says name, description, method and schema; leave them out")
	}
	var data []byte
	var err error
	var from *url.URL // of the document, to which its server may be relative
	if strings.HasPrefix(c.OpenAPI, "http://") || strings.HasPrefix(c.OpenAPI, "https://") {
		if from, err = s.base(c.OpenAPI); err != nil {
			return nil, fmt.Errorf("openapi: %w", err)
		}
		if err := r.Run(fmt.Sprintf("the document %s://%s%s, which is not fetched", from.Scheme, from.Host, from.Path)); err != nil {
			return nil, err
		}
		data, from, err = s.fetch(ctx, c.OpenAPI)
	} else if data, err = readFile(r.Resolve(c.OpenAPI)); err != nil {
		err = fmt.Errorf("openapi: %s: %w", c.OpenAPI, err)
	}
	if err != nil {
		return nil, err
	}
	d, err := parseDocument(data)
	if err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	base, err := s.server(d, c.URL, from)
	if err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	given := func(in, name string) bool { // by the job, not by the model
		return in == "header" && s.headers.Get(name) != "" || in == "query" && gives(base.RawQuery, name)
	}
	made, err := d.tools(given)
	if err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	for _, t := range made {
		own := *base
		t.base, t.path = &own, strings.TrimSuffix(written(base), "/")+t.path
		t.base.Path, t.base.RawPath = "", ""
	}
	return made, nil
}

// fetch gets a document, without the job's headers: it may lie elsewhere.
func (s *service) fetch(ctx context.Context, from string) ([]byte, *url.URL, error) {
	ctx, cancel := context.WithTimeout(ctx, documentTimeout)
	defer cancel()
	u, err := s.base(from)
	if err != nil {
		return nil, nil, fmt.Errorf("openapi: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, nil, errors.New("openapi: the document's URL cannot be read")
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, nil, fmt.Errorf("openapi: the document cannot be fetched: %s", reason(err))
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("openapi: the document cannot be fetched: HTTP %s", response.Status)
	}
	data, err := readAll(response.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("openapi: the document cannot be read: %s", reason(err))
	}
	return data, u, nil
}

// server is where requests go: the job's URL, or the first server of the document. A server that the document alone names gets no headers
// of the job.
func (s *service) server(d *document, job string, from *url.URL) (*url.URL, error) {
	if job != "" {
		return s.base(job)
	}
	text := d.server()
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("the server %q cannot be read; give it as url", text)
	}
	if !u.IsAbs() && from != nil {
		u = from.ResolveReference(u)
	}
	if !u.IsAbs() {
		return nil, fmt.Errorf("the server %q is relative, and the document is a file; give the service's address as url", text)
	}
	base, err := s.base(u.String())
	if err != nil {
		return nil, err
	}
	if len(s.headers) > 0 && (from == nil || base.Scheme != from.Scheme || base.Host != from.Host) { // they are the job's secrets, and the document is another's
		return nil, fmt.Errorf("the document's server is %s://%s, which the job does not name, and requests there would bear the job's headers %s; give that address as url if it may have them, or leave headers out",
			base.Scheme, base.Host, strings.Join(slices.Sorted(maps.Keys(s.headers)), ", "))
	}
	return base, nil
}
