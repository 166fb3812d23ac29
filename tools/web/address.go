package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/idna"

	"github.com/agentfly/agentfly/internal/retry"
)

// reserved are the ranges within the unicast space that are not, or need not be, the public internet (IANA's special-purpose
// registries). Of IPv6 only 2000::/3 is looked at further; everything outside it is refused.
var reserved = func() []netip.Prefix {
	var out []netip.Prefix
	for _, s := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
		"192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24",
		"203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
		"2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
	} {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}()

var unicast6 = netip.MustParsePrefix("2000::/3")

// public tells whether an address is one of the public internet. An IPv4 address in IPv6's clothes (::ffff:a.b.c.d) counts as what it is;
// other ways to write one (6to4, NAT64, Teredo) are refused.
func public(a netip.Addr) bool {
	if !a.IsValid() || a.Zone() != "" {
		return false
	}
	a = a.Unmap()
	if a.Is6() && !unicast6.Contains(a) {
		return false
	}
	return !slices.ContainsFunc(reserved, func(p netip.Prefix) bool { return p.Contains(a) })
}

// refusal is an address or a URL that may not be fetched; the model reads it.
type refusal struct{ text string }

func (e *refusal) Error() string        { return e.text }
func (e *refusal) Is(target error) bool { return target == retry.ErrFinal }

func refusef(format string, args ...any) error { return &refusal{fmt.Sprintf(format, args...)} }

// guard dials public addresses only. The address that was checked is the one that is dialled: a name is not looked up again.
type guard struct {
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
}

func newGuard() *guard {
	d := &net.Dialer{}
	return &guard{
		lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		},
		dial: d.DialContext,
	}
}

// DialContext is the dialler of a transport.
func (g *guard) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, refusef("the address of %s cannot be read", address)
	}
	found := []netip.Addr{}
	if a, err := netip.ParseAddr(host); err == nil {
		found = append(found, a)
	} else if found, err = g.lookup(ctx, host); err != nil || len(found) == 0 {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("the name %s cannot be resolved", host)
	}
	for _, a := range found {
		if !public(a) {
			return nil, refusef("%s has an address that is not public; only public pages can be fetched", host)
		}
	}
	var errs []error
	for _, a := range found {
		c, err := g.dial(ctx, "tcp", net.JoinHostPort(a.Unmap().String(), port))
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// host is one allowed host: a name with all its ports 80 and 443, or with one port of its own.
type host struct {
	name string // "*": any; "*.example.org": every name below example.org
	port string // "": 80 and 443
}

func parseHost(s string) (host, error) {
	name, port := s, ""
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return host{a.String(), ""}, nil
	}
	no := fmt.Errorf("hosts: %q is not a host; write en.wikipedia.org, *.example.org (all below it), example.org:8080 or * (every public host)", s)
	if h, p, err := net.SplitHostPort(s); err == nil {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return host{}, no
		}
		name, port = h, p
	}
	if name == "*" {
		return host{name, port}, nil
	}
	below, under := strings.CutPrefix(name, "*.")
	plain, err := ascii(below)
	if err != nil {
		return host{}, no
	}
	if under {
		plain = "*." + plain
	}
	return host{plain, port}, nil
}

func (h host) allows(name, port string) bool {
	if h.port == "" && port != "80" && port != "443" || h.port != "" && h.port != port {
		return false
	}
	below, under := strings.CutPrefix(h.name, "*.")
	return h.name == "*" || h.name == name || under && strings.HasSuffix(name, "."+below)
}

// ascii is a host name in the form that is looked up: what stands for a full stop or a digit in another script becomes one first.
func ascii(name string) (string, error) {
	if a, err := netip.ParseAddr(name); err == nil {
		return a.String(), nil
	}
	profile := idna.New(idna.MapForLookup(), idna.StrictDomainName(false))
	mapped, err := profile.ToASCII(name)
	mapped = strings.TrimSuffix(mapped, ".")
	again, errAgain := profile.ToASCII(mapped) // what is no name in another script fails here
	switch {
	case err != nil, errAgain != nil, again != mapped, mapped == "", strings.HasPrefix(mapped, "."), strings.HasSuffix(mapped, "."), strings.Contains(mapped, ".."),
		strings.Trim(mapped, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "":
		return "", errors.New("not a host name")
	}
	return mapped, nil
}

// check says whether a URL may be fetched, and rewrites its host to the form that was checked.
func check(u *url.URL, allowed []host) error {
	if u.Scheme != "http" && u.Scheme != "https" {
		return refusef("only http and https can be fetched; write https://…")
	}
	if u.User != nil {
		return refusef("a URL with a user name cannot be fetched; leave it out")
	}
	name, err := ascii(u.Hostname())
	if err != nil {
		return refusef("the URL has no host that can be read; write https://HOST/…")
	}
	if a, err := netip.ParseAddr(name); err == nil {
		name = a.Unmap().String()
		if !public(a) {
			return refusef("%s is not a public address; only public pages can be fetched", clip(u.Hostname()))
		}
	} else if numeric(name) {
		return refusef("%s is not a host name; an address is written as four decimal numbers", clip(u.Hostname()))
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	if !slices.ContainsFunc(allowed, func(h host) bool { return h.allows(name, port) }) {
		return refusef("%s is not an allowed host; allowed: %s", clip(u.Host), list(allowed))
	}
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	if given := u.Port(); given != "" {
		name += ":" + given
	}
	u.Host = name
	return nil
}

// numeric tells whether some resolver could take a name for an address in octal, in hexadecimal or as one number.
func numeric(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if rest, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(rest, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

func list(allowed []host) string {
	out := make([]string, len(allowed))
	for i, h := range allowed {
		out[i] = h.name
		if h.port != "" {
			out[i] += ":" + h.port
		}
	}
	return strings.Join(out, ", ")
}

func clip(s string) string {
	if len(s) > 100 {
		return strings.ToValidUTF8(s[:100], "") + "…"
	}
	return s
}
