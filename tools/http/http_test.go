package httptool

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open makes the tools of an entry and a registry of them. What the entry opened is closed with the test.
func open(t *testing.T, entry map[string]any, ref tools.Ref) *tools.Registry {
	t.Helper()
	made, err := source(t, entry)
	require.NoError(t, err)
	r := tools.NewRegistry(tools.Options{Timeout: 20 * time.Second})
	for _, tool := range made {
		require.NoError(t, r.RegisterAs(tool, ref))
	}
	return r
}

func source(t *testing.T, entry map[string]any) ([]tools.Tool, error) {
	shared := resources.New(resources.Options{})
	t.Cleanup(func() { require.NoError(t, shared.Close()) })
	return Source(t.Context(), shared, map[string]any{"http": entry})
}

func invoke(t *testing.T, r *tools.Registry, name, arguments string) trajectory.ToolResult {
	return r.Invoke(t.Context(), "x", trajectory.ToolCall{Name: name, Arguments: json.RawMessage(arguments)})
}

// echo answers with what it was asked.
func echo(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	fmt.Fprintf(w, "%s %s body=%s type=%s", q.Method, q.URL.RequestURI(), body, q.Header.Get("Content-Type"))
}

func serve(t *testing.T, f http.HandlerFunc) string {
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

func schema(required string, properties ...string) map[string]any {
	p := map[string]any{}
	for _, name := range properties {
		p[name] = map[string]any{"type": []any{"string", "integer", "array", "null"}}
	}
	out := map[string]any{"type": "object", "properties": p, "additionalProperties": false}
	if required != "" {
		out["required"] = []any{required}
	}
	return out
}

func TestWhereArgumentsGo(t *testing.T) {
	url := serve(t, echo)
	for name, c := range map[string]struct {
		entry           map[string]any
		arguments, want string
	}{
		"POST":          {map[string]any{"url": url + "/add", "schema": schema("a", "a", "b")}, `{"a": 1, "b": "x<y"}`, `POST /add body={"a":1,"b":"x<y"} type=application/json`},
		"nothing":       {map[string]any{"url": url + "/now"}, `{}`, `POST /now body={} type=application/json`},
		"GET":           {map[string]any{"url": url + "/find?lang=en", "method": "get", "schema": schema("", "q", "n")}, `{"q": "a b&c", "n": [1, "two"]}`, `GET /find?lang=en&n=1&n=two&q=a+b%26c body= type=`},
		"own query":     {map[string]any{"url": url + "/find?fields=a;b&part=50%&a b=1&filter[x]=^", "method": "GET", "schema": schema("", "q")}, `{"q": "z"}`, `GET /find?fields=a;b&part=50%&a%20b=1&filter%5Bx%5D=%5E&q=z body= type=`},
		"null":          {map[string]any{"url": url + "/find", "method": "GET", "schema": schema("", "q")}, `{"q": null}`, `GET /find body= type=`},
		"path":          {map[string]any{"url": url + "/v1/{city}/now", "method": "GET", "schema": schema("", "city", "unit")}, `{"city": "a/b ü?", "unit": "c"}`, `GET /v1/a%2Fb%20%C3%BC%3F/now?unit=c body= type=`},
		"escaped path":  {map[string]any{"url": url + "/projects/group%2Fproject/a b/{id}", "method": "GET", "schema": schema("", "id")}, `{"id": 7}`, `GET /projects/group%2Fproject/a%20b/7 body= type=`},
		"path and body": {map[string]any{"url": url + "/v1/{id}", "method": "PUT", "schema": schema("", "id", "x")}, `{"id": 7, "x": "y"}`, `PUT /v1/7 body={"x":"y"} type=application/json`},
		"3.0 is 3":      {map[string]any{"url": url + "/v1/{id}", "method": "GET", "schema": schema("", "id", "n", "x")}, `{"id": 7.0, "n": [2e1, 0.5, 12345678901234567890], "x": -0.0}`, `GET /v1/7?n=20&n=0.5&n=12345678901234567890&x=0 body= type=`},
		"DELETE":        {map[string]any{"url": url + "/{id}", "method": "DELETE", "schema": schema("", "id")}, `{"id": 7}`, `DELETE /7 body= type=`},
	} {
		c.entry["name"] = "call"
		got := invoke(t, open(t, c.entry, tools.Ref{}), "call", c.arguments)
		require.Equal(t, c.want, got.Observation, name)
	}
	r := open(t, map[string]any{"url": url + "/v1/{city}/now", "name": "call", "schema": schema("", "city")}, tools.Ref{})
	for _, city := range []string{"..", ".", ""} { // an argument cannot climb
		require.Equal(t, `Error: call: the argument "city" stands in the URL's path and must not be empty or dots alone`, invoke(t, r, "call", fmt.Sprintf(`{"city": %q}`, city)).Observation)
	}
}

func TestAnswersOfAService(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, q *http.Request) {
		switch q.URL.Path {
		case "/missing":
			http.Error(w, "no such city;\nGET /v1/cities lists them", http.StatusNotFound)
		case "/empty":
			w.WriteHeader(http.StatusNoContent)
		case "/image":
			w.Header().Set("Content-Type", "image/png")
			w.Write([]byte("\x89PNG\r\n\x1a\n"))
		case "/bytes":
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Write([]byte{0, 1, 2})
		case "/latin1":
			w.Header().Set("Content-Type", "text/html; charset=ISO-8859-1")
			w.Write([]byte("caf\xe9"))
		case "/gbk":
			w.Header().Set("Content-Type", "application/json;charset=GBK")
			w.Write([]byte("\"\xc4\xe3\""))
		case "/xml":
			w.Header().Set("Content-Type", "application/rss+xml")
			w.Write([]byte(`<?xml version="1.0" encoding="windows-1251"?>` + "\xcc\xe8\xf0"))
		case "/xmlheader":
			w.Header().Set("Content-Type", "text/xml; charset=ISO-8859-1")
			w.Write([]byte(`<?xml version="1.0" encoding="windows-1251"?>` + "\xe9"))
		case "/unknown":
			w.Header().Set("Content-Type", "text/plain; charset=klingon")
			w.Write([]byte("plain \xe9"))
		case "/runes":
			w.Header().Set("Content-Type", "application/octet-stream")
			io.WriteString(w, "x"+strings.Repeat("€", maxBody/3+1)) // the limit falls into a rune
		case "/accents":
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			io.WriteString(w, "x"+strings.Repeat("é", maxBody))
		case "/long":
			http.Error(w, strings.Repeat("x", 10_000), http.StatusBadRequest)
		case "/flood":
			w.Header().Set("Content-Type", "text/plain")
			for range 40 {
				io.WriteString(w, strings.Repeat("0123456789abcdef", 4096))
			}
		}
	})
	for path, want := range map[string]string{
		"/missing":   "Error: call: HTTP 404 Not Found: no such city;\nGET /v1/cities lists them",
		"/empty":     "done (HTTP 204)",
		"/image":     "Error: call: the service returned image/png, which is no text",
		"/latin1":    "café",
		"/gbk":       `"你"`,
		"/xml":       `<?xml version="1.0" encoding="windows-1251"?>Мир`,
		"/xmlheader": `<?xml version="1.0" encoding="windows-1251"?>é`,
		"/unknown":   "plain \uFFFD",
		"/bytes":     "Error: call: the service returned application/octet-stream, which is no text",
		"/long":      "Error: call: HTTP 400 Bad Request: " + strings.Repeat("x", maxErrorBody) + "…",
	} {
		got := invoke(t, open(t, map[string]any{"url": url + path, "name": "call", "method": "GET"}, tools.Ref{}), "call", "{}")
		require.Equal(t, want, got.Observation)
		require.NotEqual(t, trajectory.CauseBroken, got.Cause)
	}
	for _, path := range []string{"/flood", "/runes", "/accents"} {
		got := invoke(t, open(t, map[string]any{"url": url + path, "name": "call", "method": "GET"}, tools.Ref{Limits: tools.Limits{MaxTokens: 1 << 20}}), "call", "{}")
		require.Less(t, len(got.Observation), maxBody+100)
		require.True(t, strings.HasSuffix(got.Observation, "[the rest left out]"), path)
		require.NotContains(t, got.Observation, "\uFFFD", path)
	}
}

// A service that breaks is asked again where a request may be repeated; one that refuses is not.
func TestRetriesOfRequests(t *testing.T) {
	var asked atomic.Int64
	url := serve(t, func(w http.ResponseWriter, q *http.Request) {
		n := asked.Add(1)
		switch {
		case q.URL.Path == "/bad":
			http.Error(w, "no", http.StatusBadRequest)
		case n < 3 && n%2 == 1:
			http.Error(w, "busy", http.StatusServiceUnavailable)
		case n < 3:
			w.Header().Set("Content-Length", "100") // more than comes
			io.WriteString(w, "half")
		default:
			io.WriteString(w, "at last")
		}
	})
	yes, no := true, false
	for name, c := range map[string]struct {
		path, method string
		idempotent   *bool
		want         string
		asked        int64
	}{
		"GET":              {"/", "GET", nil, "at last", 3},
		"PUT":              {"/", "PUT", nil, "at last", 3},
		"DELETE":           {"/", "DELETE", nil, "at last", 3},
		"POST":             {"/", "POST", nil, "Error: call: HTTP 503 Service Unavailable: busy", 1},
		"PATCH":            {"/", "PATCH", nil, "Error: call: HTTP 503 Service Unavailable: busy", 1},
		"POST that may":    {"/", "POST", &yes, "at last", 3},
		"GET that may not": {"/", "GET", &no, "Error: call: HTTP 503 Service Unavailable: busy", 1},
		"a refusal":        {"/bad", "GET", nil, "Error: call: HTTP 400 Bad Request: no", 1},
	} {
		asked.Store(0)
		entry := map[string]any{"url": url + c.path, "name": "call", "method": c.method}
		if c.idempotent != nil {
			entry["idempotent"] = *c.idempotent
		}
		got := invoke(t, open(t, entry, tools.Ref{}), "call", "{}")
		require.Equal(t, c.want, got.Observation, name)
		require.Equal(t, c.asked, asked.Load(), name)
		require.EqualValues(t, c.asked-1, got.Retries, name)
		require.Equal(t, strings.Contains(c.want, "503"), got.Cause == trajectory.CauseBroken, name)
	}
}

func TestAServiceThatIsNotThere(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	got := invoke(t, open(t, map[string]any{"url": s.URL + "/secret/path", "name": "call"}, tools.Ref{}), "call", "{}")
	require.Equal(t, "Error: call: the service does not answer: connection refused", got.Observation)
	require.Equal(t, trajectory.CauseBroken, got.Cause)
	got = invoke(t, open(t, map[string]any{"url": "http://nowhere.invalid/", "name": "call"}, tools.Ref{}), "call", "{}")
	require.Equal(t, trajectory.CauseBroken, got.Cause)
	require.NotContains(t, got.Observation, "nowhere")
}

func TestAServiceThatHangs(t *testing.T) {
	url := serve(t, func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }) // the deadline closes the connection: the server can close
	got := invoke(t, open(t, map[string]any{"url": url, "name": "call", "method": "GET"}, tools.Ref{Limits: tools.Limits{Timeout: 50 * time.Millisecond}}), "call", "{}")
	require.Equal(t, "Error: call took longer than 50ms; ask it for less work", got.Observation)
	require.Equal(t, trajectory.CauseBroken, got.Cause)
}

func TestRedirects(t *testing.T) {
	other := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "the other host") })
	url := serve(t, func(w http.ResponseWriter, q *http.Request) {
		switch q.URL.Path {
		case "/same":
			http.Redirect(w, q, "/end", http.StatusTemporaryRedirect)
		case "/other":
			http.Redirect(w, q, other+"/end", http.StatusFound)
		case "/circle":
			http.Redirect(w, q, "/circle", http.StatusFound)
		default:
			echo(w, q)
		}
	})
	for path, want := range map[string]string{
		"/same":   `POST /end body={"a":1} type=application/json`,
		"/other":  "Error: call: the service sends the request on to another host, which is refused",
		"/circle": "Error: call: the service does not answer: the service redirects more than 5 times",
	} {
		r := open(t, map[string]any{"url": url + path, "name": "call", "schema": schema("", "a")}, tools.Ref{})
		require.Equal(t, want, invoke(t, r, "call", `{"a": 1}`).Observation, path)
	}
}

// Whatever a service repeats, the model reads no secret.
func TestSecretsStayHidden(t *testing.T) {
	const key = `hunter2/"+key`
	url := serve(t, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/flood" { // a secret where the limit cuts
			w.Header().Set("Content-Type", "text/plain")
			io.WriteString(w, strings.Repeat(".", maxBody-5)+q.Header.Get("X-Custom"))
			return
		}
		if q.URL.Path == "/refuse" {
			w.WriteHeader(http.StatusForbidden)
		}
		out, err := json.Marshal(map[string]any{"headers": q.Header, "query": q.URL.RawQuery, "decoded": q.URL.Query()})
		if err == nil {
			w.Write(out)
		}
	})
	address := strings.Replace(url, "http://", "http://ann:hunter2-pass@", 1)
	for _, path := range []string{"/", "/refuse", "/flood"} {
		r := open(t, map[string]any{
			"url": address + path + "?token=hunter2%2Bquery&other=hunter2;key&half=hunter2%&base=hunter2+cd/key==&lower=hunter2%2bquery%2fkey&raw=hunter2 key|x&n=1", "name": "call", "method": "GET",
			"headers": map[string]any{"Authorization": "Bearer " + key, "X-Custom": "hunter2 custom", "Accept": "application/json"},
		}, tools.Ref{Limits: tools.Limits{MaxTokens: 1 << 20}})
		got := invoke(t, r, "call", "{}")
		require.NotContains(t, got.Observation, "hunter2", path)
		require.NotContains(t, got.Observation, "hunte", path)
		if path != "/flood" {
			require.Contains(t, got.Observation, "(secret)")
			require.Contains(t, got.Observation, "application/json", "what is no secret stays")
		}
	}
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	r := open(t, map[string]any{"url": s.URL + "/?token=hunter2", "name": "call", "headers": map[string]any{"X-Key": "hunter2\nx"}}, tools.Ref{})
	require.NotContains(t, invoke(t, r, "call", "{}").Observation, "hunter2")
}

// A secret that is one of several values of a header stays hidden too, where a service repeats it alone.
func TestSecretsWithinAHeaderStayHidden(t *testing.T) {
	address := serve(t, func(w http.ResponseWriter, q *http.Request) {
		cookies := map[string]string{}
		for _, c := range q.Cookies() {
			cookies[c.Name] = c.Value
			cookies[c.Name+" decoded"], _ = url.PathUnescape(c.Value)
		}
		_, token, _ := strings.Cut(q.Header.Get("Authorization"), "token=")
		out, err := json.Marshal(map[string]any{"cookies": cookies, "token": strings.Trim(token, `"`), "dark": true})
		if err == nil {
			w.Write(out)
		}
	})
	for _, authorization := range []string{"Token token=hunter2-token", `Token realm="x", token="hunter2-token"`} {
		r := open(t, map[string]any{"url": address, "name": "call", "headers": map[string]any{
			"Cookie": "theme=dark; session=hunter2%2Fsession; ok=true", "Authorization": authorization,
		}}, tools.Ref{})
		got := invoke(t, r, "call", "{}").Observation
		require.NotContains(t, got, "hunter2")
		require.Contains(t, got, `"session":"(secret)"`)
		require.Contains(t, got, `"token":"(secret)"`)
		require.Contains(t, got, `"dark":true`, "short values are words of any answer")
	}
}

// A job's headers go with each request, and nothing that the model writes changes them.
func TestHeadersOfTheJob(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, q *http.Request) {
		fmt.Fprintf(w, "%v %v %v", q.Header["Accept"], q.Header["X-Mode"], q.Host)
	})
	r := open(t, map[string]any{"url": url, "name": "call", "headers": map[string]any{"accept": "text/csv", "x-mode": "on", "Host": "virtual.example"}}, tools.Ref{})
	require.Equal(t, "[text/csv] (secret) virtual.example", strings.Replace(invoke(t, r, "call", "{}").Observation, "[on]", "(secret)", 1))
}

func TestResponsesAreKeptWhereTheJobSaysSo(t *testing.T) {
	var asked atomic.Int64
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, asked.Add(1)) })
	r := open(t, map[string]any{"url": url, "name": "call", "method": "GET", "schema": schema("", "q")}, tools.Ref{Cache: true})
	require.Equal(t, "1", invoke(t, r, "call", `{"q": "x"}`).Observation)
	require.True(t, invoke(t, r, "call", `{"q":"x"}`).Cached)
	require.Equal(t, "2", invoke(t, r, "call", `{"q": "y"}`).Observation)
	post := open(t, map[string]any{"url": url, "name": "call", "schema": schema("", "q")}, tools.Ref{Cache: true})
	require.Equal(t, "3", invoke(t, post, "call", `{"q": "x"}`).Observation)
	require.False(t, invoke(t, post, "call", `{"q": "x"}`).Cached)
}

func TestMistakesInAnEntry(t *testing.T) {
	file := filepath.Join(t.TempDir(), "schema.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"properties": {"a": {"type": "string"}}}`), 0o600))
	for want, entry := range map[string]map[string]any{
		"url is missing; name the service's URL with a name and a schema, or an OpenAPI document with openapi": {},
		"name is missing; the model calls the tool by it":                                                      {"url": "http://h"},
		"url: it must begin with http:// or https:// and a host":                                               {"url": "ftp://h/x", "name": "a"},
		"url: it cannot be read; write one such as https://example.org/v1":                                     {"url": "http://h:port/?key=hunter2", "name": "a"},
		`method: "HEAD" is not allowed; allowed: GET, POST, PUT, PATCH, DELETE`:                                {"url": "http://h", "name": "a", "method": "HEAD"},
		"url: {b} is no property of the schema; its properties are a":                                          {"url": "http://h/{b}", "name": "a", "schema": file},
		"url: a {name} may stand in its path only; other arguments go into query or body by themselves":        {"url": "http://h/?x={a}", "name": "a", "schema": file},
		"url: its query gives lang, which is a property of the schema too; leave one of them out":              {"url": "http://h/?x=1&lang=en;de", "name": "a", "method": "GET", "schema": schema("", "a", "lang")},
		"schema: it must be a JSON schema, or the path of a file with one":                                     {"url": "http://h", "name": "a", "schema": []any{}},
		"openapi: the document says name, description, method and schema; leave them out":                      {"openapi": "x.yaml", "name": "a"},
		"headers: X-A is given twice":                                                                          {"url": "http://h", "name": "a", "headers": map[string]any{"X-A": "1", "x-a": "2"}},
		`the parameters cannot be read: unknown field "operations"`:                                            {"url": "http://h", "operations": []any{}},
	} {
		_, err := source(t, entry)
		require.EqualError(t, err, want)
	}
	_, err := source(t, map[string]any{"url": "http://h", "name": "a", "schema": "nowhere.json"})
	require.ErrorContains(t, err, "schema: nowhere.json: ")
	_, err = Source(context.Background(), resources.New(resources.Options{}), map[string]any{"http": map[string]any{}, "runtime": "x"})
	require.EqualError(t, err, `the parameters cannot be read: unknown field "runtime"; allowed: http, stateful, deterministic`)
}
