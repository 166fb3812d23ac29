package openenv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentfly/agentfly/internal/retry"
)

// host is one server.
type host struct {
	url  string // with http or https, without a slash at its end
	live int    // sessions that are open here, or are being opened

	fullUntil, deadUntil time.Time // not tried before
	full, failures       int       // refusals for want of room, and failures, in a row
	why                  string    // of the last of them
}

// socket is the address of its sessions.
func (h *host) socket() string { return "ws" + strings.TrimPrefix(h.url, "http") + "/ws" }

// readHosts reads the URLs of hosts.
func readHosts(urls []string) ([]*host, error) {
	if len(urls) == 0 {
		return nil, errors.New("hosts is missing; list the URLs of OpenEnv servers, such as http://127.0.0.1:8000")
	}
	var all []*host
	for i, text := range urls {
		shown, keyed := redacted(text)
		full := text
		if !strings.Contains(full, "://") {
			full = "http://" + full
		}
		u, err := url.Parse(full)
		if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return nil, fmt.Errorf("hosts[%d]: %q is no URL of a server; write one such as http://127.0.0.1:8000%s", i, clip(shown), keyed)
		}
		switch u.Scheme {
		case "ws", "wss":
			u.Scheme = "http" + strings.TrimPrefix(u.Scheme, "ws")
		case "http", "https":
		default:
			return nil, fmt.Errorf("hosts[%d]: %q begins with %s://; allowed: http, https, ws, wss%s", i, clip(shown), u.Scheme, keyed)
		}
		u.Path = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/ws")
		h := &host{url: u.String()}
		if slices.ContainsFunc(all, func(o *host) bool { return o.url == h.url }) {
			return nil, fmt.Errorf("hosts[%d]: %s is listed twice; a host takes as many sessions as it has room for", i, h.url)
		}
		all = append(all, h)
	}
	return all, nil
}

// redacted is a host as an error may show it: without a user, a password, a query and a fragment, which may be keys. advice says where a key goes.
func redacted(text string) (shown, advice string) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		scheme, rest = "", text
	} else {
		scheme += "://"
	}
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		rest = "…" + rest[at:]
	}
	if at := strings.IndexAny(rest, "?#"); at >= 0 {
		rest = rest[:at] + "…"
	}
	if shown = scheme + rest; shown != text {
		advice = ", and give the key as api_key"
	}
	return shown, advice
}

var (
	fullBackoff = retry.Backoff{First: 100 * time.Millisecond, Most: 5 * time.Second}
	deadBackoff = retry.Backoff{First: time.Second, Most: 15 * time.Second}
)

// hosts choose the server of a new session: the one with the fewest of ours that is neither full nor dead. A full one is asked again after a
// while, or when one of our sessions there ends; a dead one after a while.
type hosts struct {
	mu    sync.Mutex
	all   []*host
	freed chan struct{} // closed, and made anew, when a session ends
	dial  func(ctx context.Context, h *host) (*link, error)
}

// open opens a session. It waits while all hosts are full or wait for their next try, and fails when every one of them failed in this call.
func (hs *hosts) open(ctx context.Context) (*link, *host, error) {
	failed := map[*host]bool{}
	for {
		if ctx.Err() != nil {
			return nil, nil, hs.none(ctx.Err())
		}
		h, wait, freed := hs.pick(failed)
		if h == nil && len(failed) == len(hs.all) {
			return nil, nil, hs.none(nil)
		}
		if h == nil {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-freed:
			case <-ctx.Done():
			}
			timer.Stop()
			continue
		}
		l, err := hs.dial(ctx, h)
		if hs.tried(h, err); err == nil {
			return l, h, nil
		}
		if codeOf(err) != codeCapacity {
			failed[h] = true
		}
	}
}

// pick takes a place at a host, or says how long there is none.
func (hs *hosts) pick(failed map[*host]bool) (best *host, wait time.Duration, freed <-chan struct{}) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	now := time.Now()
	var ready []*host
	wait = deadBackoff.Most
	for _, h := range hs.all {
		if failed[h] {
			continue
		}
		until := h.fullUntil
		if h.deadUntil.After(until) {
			until = h.deadUntil
		}
		if until.After(now) {
			wait = min(wait, until.Sub(now))
			continue
		}
		ready = append(ready, h)
	}
	if len(ready) > 0 {
		best = slices.MinFunc(ready, func(a, b *host) int { return cmp.Compare(a.live, b.live) })
		best.live++
	}
	return best, wait, hs.freed
}

// tried notes how a try of a host went.
func (hs *hosts) tried(h *host, err error) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if err == nil {
		h.full, h.failures, h.why = 0, 0, ""
		return
	}
	h.live--
	h.why = err.Error()
	switch {
	case codeOf(err) == codeCapacity:
		h.full++
		h.fullUntil = time.Now().Add(fullBackoff.Wait(h.full))
		var e *serverError
		if errors.As(err, &e) && e.Max != nil && e.Active != nil {
			h.why = fmt.Sprintf("it is full, with %d of %d sessions", *e.Active, *e.Max)
		}
	case !errors.Is(err, context.Canceled):
		h.failures++
		h.deadUntil = time.Now().Add(deadBackoff.Wait(h.failures))
	}
}

// left notes that a session ended, so that there is room where there was none.
func (hs *hosts) left(h *host) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.live--
	h.fullUntil = time.Time{}
	close(hs.freed)
	hs.freed = make(chan struct{})
}

// none names every host and why there is no session there. ended is why the wait did; nil: they all failed.
func (hs *hosts) none(ended error) error {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	var lines []string
	for _, h := range hs.all {
		why := h.why
		if why == "" {
			why = "it was not tried"
		}
		lines = append(lines, h.url+": "+why)
	}
	text := strings.Join(lines, "; ")
	if ended != nil {
		return fmt.Errorf("no session within the time for it: %s: %w", text, ended)
	}
	return errors.New("no session: " + text)
}

// note remembers why a host did not answer a question beside its sessions.
func (hs *hosts) note(h *host, err error) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.why = err.Error()
}
