package web

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPublic(t *testing.T) {
	for _, s := range []string{"1.1.1.1", "8.8.8.8", "93.184.216.34", "172.15.0.1", "172.32.0.1", "100.63.0.1", "100.128.0.1", "169.253.0.1", "2606:4700:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8"} {
		require.True(t, public(netip.MustParseAddr(s)), s)
	}
	for _, s := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "127.0.0.1", "127.255.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8",
		"192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1", "fc00::1", "fd00:ec2::254",
		"fe80::1", "fec0::1", "ff02::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "2002:a00:1::", "3fff::1", "5f00::1", "2606:4700::1%eth0", "fe80::1%lo",
	} {
		require.False(t, public(netip.MustParseAddr(s)), s)
	}
	require.False(t, public(netip.Addr{}))
}

// TestGuardDialsWhatItChecked: a name is looked up once for each connection, and the address that was checked is dialled.
func TestGuardDialsWhatItChecked(t *testing.T) {
	answers := [][]netip.Addr{
		{netip.MustParseAddr("93.184.216.34")},
		{netip.MustParseAddr("127.0.0.1")}, // rebound
		{netip.MustParseAddr("93.184.216.34"), netip.MustParseAddr("::ffff:10.0.0.1")},
		{},
		{netip.MustParseAddr("2606:4700::1"), netip.MustParseAddr("::ffff:1.1.1.1")},
	}
	var dialled []string
	lookups := 0
	g := &guard{
		lookup: func(context.Context, string) ([]netip.Addr, error) { lookups++; return answers[lookups-1], nil },
		dial: func(_ context.Context, _, address string) (net.Conn, error) {
			dialled = append(dialled, address)
			return nil, errors.New("no network here")
		},
	}
	for i, want := range []string{
		"no network here", "an address that is not public", "an address that is not public", "cannot be resolved", "no network here\nno network here",
	} {
		_, err := g.DialContext(t.Context(), "tcp", "rebinding.example:443")
		require.ErrorContains(t, err, want)
		require.Equal(t, i+1, lookups)
	}
	require.Equal(t, []string{"93.184.216.34:443", "[2606:4700::1]:443", "1.1.1.1:443"}, dialled)
	for _, s := range []string{"127.0.0.1:80", "[::1]:80", "[::ffff:127.0.0.1]:80", "[fe80::1%lo]:80", "0.0.0.0:80"} {
		_, err := g.DialContext(t.Context(), "tcp", s)
		require.ErrorContains(t, err, "an address that is not public", s)
	}
	require.Equal(t, 5, lookups)
}

func hosts(t testing.TB, all ...string) []host {
	t.Helper()
	var out []host
	for _, s := range all {
		h, err := parseHost(s)
		require.NoError(t, err)
		out = append(out, h)
	}
	return out
}

func TestCheck(t *testing.T) {
	allowed := hosts(t, "en.Wikipedia.org", "*.example.org", "bücher.example", "api.example.net:8443", "93.184.216.34", "2606:4700::1")
	for in, want := range map[string]string{
		"https://en.wikipedia.org/wiki/Go_(game)?a=b#c": "https://en.wikipedia.org/wiki/Go_(game)?a=b#c",
		"HTTP://EN.WIKIPEDIA.ORG./x":                    "http://en.wikipedia.org/x",
		"https://en.wikipedia.org:443/":                 "https://en.wikipedia.org:443/",
		"https://a.b_c.example.org":                     "https://a.b_c.example.org",
		"https://Bücher.example/ü":                      "https://xn--bcher-kva.example/%C3%BC",
		"https://en。wikipedia。org/":                     "https://en.wikipedia.org/",
		"https://api.example.net:8443/":                 "https://api.example.net:8443/",
		"http://93.184.216.34/":                         "http://93.184.216.34/",
		"http://[2606:4700:0::1]/":                      "http://[2606:4700::1]/",
	} {
		u, err := url.Parse(in)
		require.NoError(t, err)
		require.NoError(t, check(u, allowed), in)
		require.Equal(t, want, u.String())
	}
	for in, want := range map[string]string{
		"ftp://en.wikipedia.org/":           "only http and https",
		"file:///etc/passwd":                "only http and https",
		"//en.wikipedia.org/":               "only http and https",
		"https://me@en.wikipedia.org/":      "a URL with a user name",
		"https://en.wikipedia.org@evil.net": "a URL with a user name",
		"https:///x":                        "no host that can be read",
		"https://a b/":                      "",
		"https://en.wikipedia.org:8080/":    "not an allowed host",
		"https://wikipedia.org/":            "not an allowed host",
		"https://xen.wikipedia.org/":        "not an allowed host",
		"https://en.wikipedia.org.evil.net": "not an allowed host",
		"https://example.org/":              "not an allowed host; allowed: en.wikipedia.org, *.example.org, xn--bcher-kva.example, api.example.net:8443, 93.184.216.34, 2606:4700::1",
		"https://badexample.org/":           "not an allowed host",
		"https://api.example.net/":          "not an allowed host",
		"http://8.8.8.8/":                   "not an allowed host",
	} {
		u, err := url.Parse(in)
		if want == "" {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err)
		require.ErrorContains(t, check(u, allowed), want, in)
	}
}

// TestAddressesInDisguise: none of them is let through even where every public host is allowed.
func TestAddressesInDisguise(t *testing.T) {
	all := hosts(t, "*", "127.0.0.1", "localhost", "0x7f.1", "::1")
	for _, in := range []string{
		"http://127.0.0.1/", "http://2130706433/", "http://0x7f000001/", "http://0x7f.1/", "http://0177.0.0.1/", "http://017700000001/", "http://127.1/", "http://127.0.1/",
		"http://127.0.0.1./", "http://0/", "http://0.0.0.0/", "http://[::1]/", "http://[::]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[0:0:0:0:0:ffff:a9fe:a9fe]/",
		"http://[::127.0.0.1]/", "http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/", "http://[fe80::1%25lo]/", "http://[fd00:ec2::254]/", "http://169.254.169.254/latest/meta-data/",
		"http://0xa9fea9fe/", "http://2852039166/", "http://①②⑦.⓪.⓪.①/", "http://１２７．０．０．１/", "http://127。0。0。1/", "http://192.168.0.1/", "http://10.0.0.1/",
		"http://1.0x7f/", "http://foo.0x/", "http://1.2.3.4.5/", "http://0X7F000001/", "http://0177.1/", "http://127.0.0.1:443/", "http://[::ffff:127.0.0.1]:443/",
		"http://[::ffff:0:7f00:1]/", "http://[64:ff9b:1::7f00:1]/", "http://[2001:0:7f00:1::]/", "http://[::ffff:0.0.0.0]/", "http://[::ffff:192.168.1.1]/",
		"http://00000000/", "http://256.256.256.256/", "http://4294967297/",
	} {
		u, err := url.Parse(in)
		require.NoError(t, err, in)
		err = check(u, all)
		require.Error(t, err, in)
		var no *refusal
		require.ErrorAs(t, err, &no)
	}
	u, err := url.Parse("http://8.8.8.8/")
	require.NoError(t, err)
	require.NoError(t, check(u, all))
}

func TestHosts(t *testing.T) {
	for _, s := range []string{"", "https://example.org", "example.org:http", "example.org:0", "example.org:70000", "example.org/x", "a@b", "a b", "*.*.org", "ex*ample.org", "*."} {
		_, err := parseHost(s)
		require.ErrorContains(t, err, "is not a host; write", s)
	}
	require.Equal(t, []host{{"*", ""}, {"*.example.org", ""}, {"::1", ""}, {"localhost", "8080"}}, hosts(t, "*", "*.EXAMPLE.org", "[::1]", "localhost:8080"))
}

func FuzzCheck(f *testing.F) {
	for _, s := range []string{"https://en.wikipedia.org/", "http://0x7f.1", "http://[::ffff:1.2.3.4]:80/x", "http://１２７．0.0.1"} {
		f.Add(s)
	}
	allowed := hosts(f, "*")
	f.Fuzz(func(t *testing.T, s string) {
		u, err := url.Parse(s)
		if err != nil || check(u, allowed) != nil {
			return
		}
		again, err := url.Parse(u.String())
		require.NoError(t, err)
		require.Equal(t, u.Host, again.Host)
		if a, err := netip.ParseAddr(u.Hostname()); err == nil {
			require.True(t, public(a))
		}
		require.NoError(t, check(again, allowed))
	})
}
