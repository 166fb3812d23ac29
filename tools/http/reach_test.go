package httptool

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/resources"
)

// nobody is an address where nobody listens.
func nobody(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// begun is what a run hears of a service before it begins.
func begun(t *testing.T, entry map[string]any) error {
	r := resources.New(resources.Options{})
	defer func() { require.NoError(t, r.Close()) }()
	_, err := Source(t.Context(), r, map[string]any{"http": entry})
	require.NoError(t, err)
	return r.Begin(t.Context())
}

func TestAServiceMustListen(t *testing.T) {
	url := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("nothing is asked") })
	require.NoError(t, begun(t, map[string]any{"url": url + "/a", "name": "a"}))

	address := nobody(t)
	for _, entry := range []map[string]any{
		{"url": "http://user:hunter2@" + address + "/a/{b}?key=hunter2", "name": "a", "schema": schema("b", "b")},
		{"url": "http://" + address, "openapi": filepath.Join("testdata", "pets.yaml")},
	} {
		require.EqualError(t, begun(t, entry), "http: nobody listens at http://"+address+": connection refused; start it before the job, or correct its address")
	}
	require.EqualError(t, begun(t, map[string]any{"url": "https://no..name/", "name": "a"}),
		"http: nobody listens at https://no..name: the name of its host cannot be resolved; start it before the job, or correct its address")
}

// Where requests go through a proxy it is the proxy that must listen.
func TestAProxyMustListen(t *testing.T) {
	s, err := newService(config{})
	require.NoError(t, err)
	through := func(proxy, to string) error {
		at, err := url.Parse(proxy)
		require.NoError(t, err)
		base, err := url.Parse(to)
		require.NoError(t, err)
		s.proxy = http.ProxyURL(at)
		return s.reach(t.Context(), base)
	}
	server := httptest.NewServer(nil)
	defer server.Close()
	address := nobody(t)
	require.NoError(t, through(server.URL, "http://"+address))
	require.EqualError(t, through("http://user:hunter2@"+address, server.URL),
		"http: nobody listens at the environment's proxy http://"+address+": connection refused; start it before the job, or correct its address")
}
