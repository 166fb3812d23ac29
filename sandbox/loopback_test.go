//go:build linux

package sandbox

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// asks is a program that asks an address over HTTP and prints the reply, or why there is none.
const asks = `
import sys, urllib.request
for url in sys.argv[1:]:
    try: print(urllib.request.urlopen(url, timeout=5).read().decode())
    except Exception as e: print("refused", getattr(e, "reason", e))
`

// What is served to a program answers on its loopback from the beginning, to that program alone, and the program reaches nothing else: neither another
// program's, nor the machine's.
func TestServe(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Sandbox) {
		host, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the machine's") })}
		go func() { _ = server.Serve(host) }()
		defer server.Close()
		serves := func(text string) func(net.Listener) {
			return func(l net.Listener) {
				server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })}
				_ = server.Serve(l)
				_ = server.Close()
			}
		}
		ask := func(urls ...string) Program {
			return Program{Args: append([]string{"python3", "-I", "-c", asks}, urls...), Port: 8100, Serve: serves("one")}
		}
		if s.Kind() != Bubblewrap {
			_, err := s.Run(t.Context(), ask())
			require.ErrorContains(t, err, "only the sandbox bubblewrap has a network of its own")
			return
		}
		other := shell("sleep 1000") // on the same port, in a network of its own
		other.Port, other.Serve = 8100, serves("two")
		neighbour, err := s.Start(t.Context(), other)
		require.NoError(t, err)
		r := run(t, s, ask("http://127.0.0.1:8100/", "http://127.0.0.1:8101/", "http://"+host.Addr().String()+"/", "http://10.0.0.1:80/"))
		require.Equal(t, "one\nrefused [Errno 111] Connection refused\nrefused [Errno 111] Connection refused\nrefused [Errno 101] Network is unreachable\n", string(r.Stdout), string(r.Stderr))
		require.NoError(t, neighbour.Kill())
		p := ask("http://127.0.0.1:8100/")
		p.ReadOnly = []string{"/no/such/folder"}
		_, err = s.Run(t.Context(), p)
		require.ErrorContains(t, err, "/no/such/folder", "the tree's own words come first")
	})
}

// The end of the context of a program that is served ends its tree, its listener and who serves it.
func TestServeEndsWithTheTree(t *testing.T) {
	s := open(t)
	var inside net.Listener
	begun, ended := make(chan struct{}), make(chan bool)
	p := shell("sleep 1000 & sleep 1000")
	p.Port, p.Serve = 8100, func(l net.Listener) {
		inside = l
		close(begun)
		_, err := l.Accept()
		ended <- err != nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := s.Start(ctx, p)
	require.NoError(t, err)
	<-begun
	cancel()
	require.True(t, <-ended)
	require.NoError(t, r.Kill())
	require.Error(t, inside.Close(), "it is closed")
}
