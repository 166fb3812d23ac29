package httpserver

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// An address that other machines reach needs a key.
func TestCheckKey(t *testing.T) {
	for host, own := range map[string]bool{
		"127.0.0.1": true, "127.8.0.1": true, "::1": true, "localhost": true, "LocalHost": true,
		"": false, "0.0.0.0": false, "::": false, "10.0.0.1": false, "example.com": false, "localhost.example.com": false, "127.0.0.1.example.com": false,
	} {
		require.Equal(t, own, Loopback(host), host)
		require.NoError(t, CheckKey(host, host, "k"))
		if own {
			require.NoError(t, CheckKey(host+":80", host, ""))
		} else {
			require.EqualError(t, CheckKey(host+":80", host, ""), host+":80 is reachable from elsewhere: give --api-key, or the environment's AGENTFLY_API_KEY")
		}
	}
}

func TestBears(t *testing.T) {
	for header, ok := range map[string]bool{
		"Bearer secret": true, "bearer secret": true, "Bearer  secret": true,
		"": false, "secret": false, "Basic secret": false, "Bearer": false, "Bearer wrong": false, "Bearer secretly": false, "Bearer secre": false, "Bearer Secret": false,
	} {
		r := &http.Request{Header: http.Header{"Authorization": {header}}}
		require.Equal(t, ok, Bears(r, "secret"), header)
	}
	require.False(t, Bears(&http.Request{Header: http.Header{}}, "secret"))
}
