package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/text/encoding/charmap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// internet is a web server that stands for every public address, with names of its own: "private.test" has a private address,
// "gone.test" none. Real connections go to the listener; what was dialled is kept.
type internet struct {
	server  *httptest.Server
	dialled []string
	guard   *guard
}

func newInternet(t *testing.T, h http.HandlerFunc) *internet {
	t.Helper()
	n := &internet{server: httptest.NewServer(h)}
	t.Cleanup(n.server.Close)
	var d net.Dialer
	n.guard = &guard{
		lookup: func(_ context.Context, name string) ([]netip.Addr, error) {
			switch name {
			case "private.test":
				return []netip.Addr{netip.MustParseAddr("10.1.2.3")}, nil
			case "gone.test":
				return nil, &net.DNSError{Err: "no such host", Name: name, Server: "192.168.0.53:53"}
			}
			return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
		},
		dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			n.dialled = append(n.dialled, address)
			return d.DialContext(ctx, network, n.server.Listener.Addr().String())
		},
	}
	return n
}

func (n *internet) fetcher(t *testing.T, p FetchParams) *fetcher {
	t.Helper()
	f, err := newFetcher(p, n.guard)
	require.NoError(t, err)
	f.retry.Sleep = func(context.Context, time.Duration) error { return nil }
	t.Cleanup(func() { require.NoError(t, f.close()) })
	return f
}

func fetch(t *testing.T, f *fetcher, address string) (string, error) {
	t.Helper()
	o, err := f.Call(t.Context(), tools.Call{Arguments: []byte(fmt.Sprintf(`{"url": %q}`, address))})
	if err != nil {
		require.NotContains(t, err.Error(), "\n")
		for _, inside := range []string{"10.1.2.3", "192.168.0.53", "127.0.0.1:"} { // where the stand-in listens, too
			require.NotContains(t, err.Error(), inside)
		}
	}
	return o.Text, err
}

func TestFetchPage(t *testing.T) {
	n := newInternet(t, func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=iso-8859-1")
		fmt.Fprintf(w, "<title>%s %s</title><p>caf\xe9 %s", q.Host, q.URL.Path, q.Header.Get("User-Agent"))
	})
	f := n.fetcher(t, FetchParams{Hosts: []string{"*.wikipedia.org"}})
	text, err := fetch(t, f, " https://en.wikipedia.org:80/wiki/Go ")
	require.ErrorContains(t, err, "fetch_page: the page cannot be reached") // TLS to a server that has none
	require.Empty(t, text)
	text, err = fetch(t, f, "http://en.wikipedia.org/wiki/Go")
	require.NoError(t, err)
	require.Equal(t, "Title: en.wikipedia.org /wiki/Go\n\ncafé agentfly", text)
	require.Equal(t, "93.184.216.34:80", n.dialled[len(n.dialled)-1])
}

func TestFetchRefuses(t *testing.T) {
	var asked atomic.Int64
	n := newInternet(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	f := n.fetcher(t, FetchParams{Hosts: []string{"*", "ok.test:8080"}})
	for in, want := range map[string]string{
		"http://private.test/":          "fetch_page: private.test has an address that is not public; only public pages can be fetched",
		"http://127.0.0.1/":             "fetch_page: 127.0.0.1 is not a public address; only public pages can be fetched",
		"http://169.254.169.254/latest": "fetch_page: 169.254.169.254 is not a public address; only public pages can be fetched",
		"http://2130706433/":            "fetch_page: 2130706433 is not a host name; an address is written as four decimal numbers",
		"http://x.test:22/":             "fetch_page: x.test:22 is not an allowed host; allowed: *, ok.test:8080",
		"http://gone.test/":             "fetch_page: the page cannot be reached",
		"http://[::1":                   "fetch_page: the URL cannot be read; write https://HOST/…",
		"javascript:alert(1)":           "fetch_page: only http and https can be fetched; write https://…",
	} {
		_, err := fetch(t, f, in)
		require.EqualError(t, err, want, in)
	}
	_, err := fetch(t, f, "http://x.test/"+strings.Repeat("a", 3000))
	require.ErrorContains(t, err, "the URL has 3014 characters; at most 2048 are allowed")
	require.Zero(t, asked.Load())
	require.Empty(t, n.dialled)
	_, err = fetch(t, f, "http://ok.test:8080/")
	require.NoError(t, err)
	require.Equal(t, []string{"93.184.216.34:8080"}, n.dialled)
}

// TestRealNetworkRefusesThisMachine: no test double is between the tool and a server on this machine.
func TestRealNetworkRefusesThisMachine(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	server.Config.ConnState = func(net.Conn, http.ConnState) { asked.Add(1) } // not even a connection
	server.Start()
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	r := resources.New(resources.Options{})
	defer func() { require.NoError(t, r.Close()) }()
	made, err := Fetch(t.Context(), r, map[string]any{"hosts": []any{"*", "localhost:" + port, "127.0.0.1:" + port, "*.localhost:" + port}})
	require.NoError(t, err)
	registry := tools.NewRegistry(tools.Options{})
	require.NoError(t, registry.Register(made...))
	for _, host := range []string{"localhost", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "LOCALHOST."} {
		got := registry.Invoke(t.Context(), "t", trajectory.ToolCall{Name: FetchName, Arguments: []byte(`{"url": "http://` + host + ":" + port + `/"}`)})
		require.True(t, got.Failed, "%s: %s", host, got.Observation)
	}
	require.Zero(t, asked.Load())
	r2, err := http.Get(server.URL) // the server does answer others
	require.NoError(t, err)
	require.NoError(t, r2.Body.Close())
	require.NotZero(t, asked.Load())
	http.DefaultClient.CloseIdleConnections()
}

func TestRedirects(t *testing.T) {
	n := newInternet(t, func(w http.ResponseWriter, q *http.Request) {
		if to := q.URL.Query().Get("to"); to != "" {
			http.Redirect(w, q, to, http.StatusFound)
			return
		}
		if q.URL.Path == "/loop" {
			http.Redirect(w, q, "/loop", http.StatusFound)
			return
		}
		fmt.Fprint(w, "arrived at "+q.Host)
	})
	f := n.fetcher(t, FetchParams{Hosts: []string{"a.test", "b.test", "private.test"}})
	to := func(address string) (string, error) {
		return fetch(t, f, "http://a.test/?to="+url.QueryEscape(address))
	}
	text, err := to("http://b.test/?to=" + url.QueryEscape("http://a.test/end"))
	require.NoError(t, err)
	require.Equal(t, "arrived at a.test", text)
	for address, want := range map[string]string{
		"http://169.254.169.254/latest/meta-data/": "169.254.169.254 is not a public address",
		"http://localhost/":                        "localhost is not an allowed host",
		"http://c.test/":                           "c.test is not an allowed host",
		"http://private.test/":                     "private.test has an address that is not public",
		"http://0x7f.1/":                           "0x7f.1 is not a host name",
		"file:///etc/passwd":                       "only http and https",
		"http://u:p@b.test/":                       "a URL with a user name",
		"http://b.test:9200/":                      "b.test:9200 is not an allowed host",
	} {
		_, err := to(address)
		require.ErrorContains(t, err, want, address)
	}
	_, err = fetch(t, f, "http://a.test/loop")
	require.EqualError(t, err, "fetch_page: the page redirects more than 5 times")
}

func TestWhatComesBack(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for range 64 {
		_, err := z.Write(bytes.Repeat([]byte("0"), 1<<20))
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	n := newInternet(t, func(w http.ResponseWriter, q *http.Request) {
		switch q.URL.Path {
		case "/missing":
			http.NotFound(w, q)
		case "/image":
			w.Header().Set("Content-Type", "image/png")
		case "/json":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"a": 1}`)
		case "/nothing":
			w.Header().Set("Content-Type", "text/html")
		case "/sniffed":
			w.Header()["Content-Type"] = nil
			fmt.Fprint(w, "<html><p>found")
		case "/bomb":
			w.Header().Set("Content-Type", "text/plain")
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(packed.Bytes())
		case "/endless":
			w.Header().Set("Content-Type", "text/plain")
			for {
				if _, err := w.Write(bytes.Repeat([]byte("endless "), 1<<10)); err != nil {
					return
				}
			}
		case "/headers":
			w.Header().Set("X", strings.Repeat("x", 1<<20))
		case "/charset":
			w.Header().Set("Content-Type", "text/plain; charset=klingon")
			fmt.Fprint(w, "plain \xff")
		}
	})
	f := n.fetcher(t, FetchParams{Hosts: []string{"x.test"}})
	for path, want := range map[string]string{
		"/json": `{"a": 1}`, "/nothing": "The page has no text.", "/sniffed": "found", "/bomb": strings.Repeat("0", 3999) + "…",
		"/endless": strings.Repeat("endless ", 500)[:3999] + "…", "/charset": "plain ÿ",
	} {
		text, err := fetch(t, f, "http://x.test"+path)
		require.NoError(t, err, path)
		require.Equal(t, want, text, path)
	}
	for path, want := range map[string]string{
		"/missing": "fetch_page: the page answered 404 Not Found", "/image": "fetch_page: the page is image/png, not text; fetch another",
		"/headers": "fetch_page: the page cannot be reached",
	} {
		_, err := fetch(t, f, "http://x.test"+path)
		require.EqualError(t, err, want)
	}
}

// A text that is UTF-8 is read as UTF-8 wherever its first letter beyond ASCII stands, unless something names another character set.
func TestCharacterSets(t *testing.T) {
	for name, c := range map[string]struct{ kind, before, after, want string }{
		"JSON":                        {"application/json", `{"pad":"`, `","city":"Zürich – 5 €"}`, `","city":"Zürich – 5 €"}`},
		"JSON that names another":     {"application/json; charset=iso-8859-1", `{"pad":"`, `","city":"Zürich"}`, `","city":"Zürich"}`},
		"plain":                       {"text/plain", "", " Zürich – 5 €", " Zürich – 5 €"},
		"plain about a page":          {"text/plain", `<meta charset="iso-2022-jp">`, " Zürich", " Zürich"},
		"HTML":                        {"text/html", "<html><body><p>", " Zürich – 5 €</p>", " Zürich – 5 €"},
		"XML":                         {"application/xml", `<?xml version="1.0" encoding="UTF-8"?><a>`, " Zürich – 5 €</a>", " Zürich – 5 €</a>"},
		"plain in Latin-1":            {"text/plain", "", " Z\xfcrich", " Zürich"},
		"HTML in Latin-1":             {"text/html", "<p>", " Z\xfcrich</p>", " Zürich"},
		"a header that names another": {"text/plain; charset=windows-1251", "", " \xcc\xee\xf1\xea\xe2\xe0", " Москва"},
		"a page that names another":   {"text/html", `<meta charset="iso-2022-jp"><p>`, " \x1b$B5~ET\x1b(B</p>", " 京都"},
	} {
		for _, pad := range []int{10, 1100} {
			_, text, err := read([]byte(c.before+strings.Repeat("a", pad)+c.after), c.kind)
			require.NoError(t, err, name)
			_, end, _ := strings.Cut(text, strings.Repeat("a", pad))
			require.Equal(t, c.want, end, "%s, behind %d letters", name, pad)
		}
	}
	_, text, err := read([]byte(strings.Repeat("é", pageBytes)[1:pageBytes+1]), "text/plain")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(text, "©Ã"), "a body with half a rune elsewhere than at the limit is none")
	_, text, err = read([]byte("a" + strings.Repeat("é", pageBytes))[:pageBytes], "text/plain")
	require.NoError(t, err)
	require.Equal(t, "a"+strings.Repeat("é", pageBytes/2-1), text, "the rune that the limit cuts is left out")
}

func TestBusyPagesAreFetchedAgain(t *testing.T) {
	var asked atomic.Int64
	status := []int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusOK}
	n := newInternet(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status[(asked.Add(1)-1)%3]) })
	f := n.fetcher(t, FetchParams{Hosts: []string{"x.test"}})
	_, err := fetch(t, f, "http://x.test/")
	require.NoError(t, err)
	require.EqualValues(t, 3, asked.Load())
	status[2] = http.StatusInternalServerError
	_, err = fetch(t, f, "http://x.test/")
	var broken *tools.BrokenError
	require.ErrorAs(t, err, &broken)
	require.EqualError(t, err, "fetch_page: the page answered 500 Internal Server Error")
	require.EqualValues(t, 6, asked.Load())
}

func TestSlowPage(t *testing.T) {
	n := newInternet(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = w.Write([]byte("begin"))
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-q.Context().Done()
	})
	f := n.fetcher(t, FetchParams{Hosts: []string{"x.test"}})
	f.time = 50 * time.Millisecond
	_, err := fetch(t, f, "http://x.test/")
	var broken *tools.BrokenError
	require.ErrorAs(t, err, &broken)
	require.EqualError(t, err, "fetch_page: the page did not arrive in time")
	f.time = time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err = f.Call(ctx, tools.Call{Arguments: []byte(`{"url": "http://x.test/"}`)})
	require.ErrorIs(t, err, context.Canceled)
}

func TestFetchParams(t *testing.T) {
	for _, c := range []struct {
		params map[string]any
		want   string
	}{
		{nil, "hosts is missing; name the hosts that may be fetched"},
		{map[string]any{"hosts": "x"}, "hosts"},
		{map[string]any{"hosts": []any{"http://x"}}, `"http://x" is not a host`},
		{map[string]any{"hosts": []any{"x"}, "max_chars": 0}, "max_chars is 0; allowed is 1 or more"},
	} {
		_, err := Fetch(t.Context(), resources.New(resources.Options{}), c.params)
		require.ErrorContains(t, err, c.want)
	}
}

// XML says its character set in its first line; the header's goes before it (RFC 7303).
func TestCharacterSetOfXML(t *testing.T) {
	feed, err := charmap.Windows1251.NewEncoder().String(`<?xml version="1.0" encoding="windows-1251"?><p>мир</p>`)
	require.NoError(t, err)
	for _, kind := range []string{"application/xml", "text/xml", "application/rss+xml", "application/xhtml+xml", "text/xml; charset=windows-1251", ""} {
		_, text, err := read([]byte(feed), kind)
		require.NoError(t, err)
		require.Contains(t, text, "мир", kind)
	}
	for _, declared := range []string{"UTF-8", "utf-16", "UTF-16LE", "nonsense"} {
		_, text, err := read([]byte(`<?xml version="1.0" encoding="`+declared+`"?><p>мир</p>`), "application/xml")
		require.NoError(t, err)
		require.Contains(t, text, "мир", declared)
	}
	_, text, err := read([]byte(`<?xml version='1.0' encoding='windows-1251'?><p>мир</p>`), "text/xml; charset=utf-8")
	require.NoError(t, err)
	require.Contains(t, text, "мир")
}
