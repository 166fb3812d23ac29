package httptool

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"
)

// reachTimeout is the time to find out whether somebody listens.
const reachTimeout = 5 * time.Second

var ports = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}

// reach says that a service cannot answer any request: nobody listens where they go, or its host has no address. Nothing is asked of the
// service, and what else may be wrong with the connection is for the calls to tell, which may be tried again.
func (s *service) reach(ctx context.Context, base *url.URL) error {
	to, what := base, ""
	if proxy, err := s.proxy(&http.Request{URL: base}); err == nil && proxy != nil {
		to, what = proxy, "the environment's proxy "
	}
	port := to.Port()
	if port == "" {
		port = ports[to.Scheme]
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(to.Hostname(), port))
	if err == nil {
		return connection.Close()
	}
	var name *net.DNSError
	if !errors.Is(err, syscall.ECONNREFUSED) && (!errors.As(err, &name) || !name.IsNotFound) {
		return nil
	}
	return fmt.Errorf("http: nobody listens at %s%s://%s: %s; start it before the job, or correct its address", what, to.Scheme, to.Host, reason(err))
}
