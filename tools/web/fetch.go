// Package web holds the tools that reach the network: web_search asks a search service with Serper's interface, fetch_page reads a
// page of allowed hosts on the public internet. Tools are safe for concurrent use.
//
// It does not reach addresses inside a private network, and it does not call services of a job's own: package tools/http
// does.
package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/net/html/charset"

	"github.com/agentfly/agentfly/internal/charsets"
	"github.com/agentfly/agentfly/internal/retry"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/tools/corpus"
)

// FetchName is the name of the tool that reads a page.
const FetchName = "fetch_page"

const (
	pageTime     = 20 * time.Second // of one call, attempts and redirects included
	pageBytes    = 2 << 20          // of a page, unpacked; the rest is not read
	maxRedirects = 5
	maxURL       = 2048
	agent        = "agentfly"
)

// FetchParams are those of fetch_page in a job.
type FetchParams struct {
	Hosts    []string `json:"hosts"`     // allowed; "*.example.org" is all below it, "*" every public host; a port only where it is written
	MaxChars *int     `json:"max_chars"` // of a page's text; 4,000
}

// Fetch makes the tool "fetch_page".
func Fetch(_ context.Context, r *resources.Resources, params map[string]any) ([]tools.Tool, error) {
	var p FetchParams
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	f, err := newFetcher(p, newGuard())
	if err != nil {
		return nil, err
	}
	r.OnClose(f.close)
	return []tools.Tool{f}, nil
}

type fetcher struct {
	hosts     []host
	chars     int
	time      time.Duration // of one call
	transport *http.Transport
	retry     *retry.Transport
	client    *http.Client
}

func newFetcher(p FetchParams, g *guard) (*fetcher, error) {
	f := &fetcher{chars: 4000, time: pageTime}
	if len(p.Hosts) == 0 {
		return nil, errors.New(`hosts is missing; name the hosts that may be fetched, such as hosts: [en.wikipedia.org], or "*" for every public host`)
	}
	for _, s := range p.Hosts {
		h, err := parseHost(s)
		if err != nil {
			return nil, err
		}
		f.hosts = append(f.hosts, h)
	}
	if p.MaxChars != nil {
		if f.chars = *p.MaxChars; f.chars < 1 {
			return nil, fmt.Errorf("max_chars is %d; allowed is 1 or more", f.chars)
		}
	}
	f.transport = &http.Transport{ // no proxy: it would look names up itself, unchecked
		DialContext: g.DialContext, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10, MaxIdleConns: 64, IdleConnTimeout: 30 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second,
	}
	f.retry = &retry.Transport{Base: f.transport}
	f.client = &http.Client{
		Transport: f.retry,
		CheckRedirect: func(q *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return refusef("the page redirects more than %d times", maxRedirects)
			}
			return check(q.URL, f.hosts)
		},
	}
	return f, nil
}

func (f *fetcher) close() error {
	f.transport.CloseIdleConnections()
	return nil
}

func (f *fetcher) Spec() tools.Spec {
	return tools.Spec{
		Name:        FetchName,
		Description: "Fetches a web page and returns its title and text. Allowed hosts: " + list(f.hosts) + ".",
		Parameters:  json.RawMessage(`{"type":"object","properties":{"url":{"type":"string","description":"address of the page, beginning with https://"}},"required":["url"],"additionalProperties":false}`),
		Limits:      tools.Limits{Timeout: pageTime + time.Second},
		Idempotent:  true,
	}
}

func (f *fetcher) Call(ctx context.Context, c tools.Call) (tools.Observation, error) {
	var a struct{ URL string }
	if err := json.Unmarshal(c.Arguments, &a); err != nil {
		return tools.Observation{}, errors.New("fetch_page: the arguments cannot be read; give a url")
	}
	if len(a.URL) > maxURL {
		return tools.Observation{}, fmt.Errorf("fetch_page: the URL has %d characters; at most %d are allowed", len(a.URL), maxURL)
	}
	u, err := url.Parse(strings.TrimSpace(a.URL))
	if err != nil {
		return tools.Observation{}, errors.New("fetch_page: the URL cannot be read; write https://HOST/…")
	}
	if err := check(u, f.hosts); err != nil {
		return tools.Observation{}, fmt.Errorf("fetch_page: %w", err)
	}
	inner, cancel := context.WithTimeout(ctx, f.time)
	defer cancel()
	o, err := f.fetch(inner, u)
	if err != nil {
		return tools.Observation{}, failure(ctx, inner, FetchName, "the page", err)
	}
	return o, nil
}

// failure is what the model reads of an error of a client: nothing of the machine, no key.
func failure(outer, inner context.Context, tool, what string, err error) error {
	var no *refusal
	var status *statusError
	switch {
	case outer.Err() != nil:
		return outer.Err()
	case errors.As(err, &no):
		return fmt.Errorf("%s: %w", tool, no)
	case errors.As(err, &status):
		text := fmt.Sprintf("%s: %s %s", tool, what, status.text)
		if status.busy {
			return &tools.BrokenError{Text: text}
		}
		return errors.New(text)
	case inner.Err() != nil:
		return &tools.BrokenError{Text: fmt.Sprintf("%s: %s did not arrive in time", tool, what)}
	}
	return &tools.BrokenError{Text: fmt.Sprintf("%s: %s cannot be reached", tool, what)}
}

// statusError is an answer that is not what was asked for.
type statusError struct {
	text string
	busy bool // the server may give another answer later
}

func (e *statusError) Error() string { return e.text }

func (f *fetcher) fetch(ctx context.Context, u *url.URL) (tools.Observation, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return tools.Observation{}, refusef("the URL cannot be read; write https://HOST/…")
	}
	q.Header.Set("User-Agent", agent)
	q.Header.Set("Accept", "text/html, text/plain;q=0.9, */*;q=0.1")
	r, err := f.client.Do(q)
	if err != nil {
		return tools.Observation{}, err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return tools.Observation{}, answered(r)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, pageBytes+1))
	if err != nil {
		return tools.Observation{}, err
	}
	cut := len(body) > pageBytes
	title, text, err := read(body[:min(len(body), pageBytes)], r.Header.Get("Content-Type"))
	if err != nil {
		return tools.Observation{}, err
	}
	if title != "" {
		text = "Title: " + title + "\n\n" + text
	}
	if strings.TrimSpace(text) == "" {
		text = "The page has no text."
	}
	clipped := corpus.Clip(text, f.chars)
	return tools.Observation{Text: clipped, Info: map[string]any{"url": r.Request.URL.String(), "whole": !cut && clipped == text}}, nil
}

func answered(r *http.Response) error {
	text := strings.TrimSpace(fmt.Sprintf("answered %d %s", r.StatusCode, http.StatusText(r.StatusCode))) // the server's own words may repeat a key
	return &statusError{text, r.StatusCode == http.StatusTooManyRequests || r.StatusCode >= 500}
}

// wholeRunes is a body without the rune at its end that pageBytes cuts.
func wholeRunes(body []byte) []byte {
	if len(body) < pageBytes {
		return body
	}
	return wording.WholeRunes(body)
}

// read turns the bytes of a page into text. A body that is UTF-8 as a whole is read as such unless something names another character set: what package
// charset says of the first 1,024 bytes would be windows-1252 where they are all ASCII. JSON is UTF-8 whatever its header names (RFC 8259).
func read(body []byte, contentType string) (title, text string, err error) {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		kind, _, _ = mime.ParseMediaType(http.DetectContentType(body)) // no header, or one that cannot be read
	}
	page := kind == "text/html" || kind == "application/xhtml+xml"
	if !page && !strings.HasPrefix(kind, "text/") && kind != "application/json" && kind != "application/xml" && !strings.HasSuffix(kind, "+json") && !strings.HasSuffix(kind, "+xml") {
		return "", "", &statusError{text: "is " + clip(kind) + ", not text; fetch another"}
	}
	set, name, certain := charset.DetermineEncoding(body[:min(len(body), 1024)], contentType)
	named := certain || page && name != "windows-1252" // by the header, or by a meta element of the page; windows-1252 is what is taken without one
	if !certain && strings.HasSuffix(kind, "xml") {
		if declared := charsets.OfXML(body); declared != nil {
			set, named = declared, true
		}
	}
	in := set.NewDecoder().Reader(bytes.NewReader(body))
	if whole := wholeRunes(body); utf8.Valid(whole) && (!named || kind == "application/json" || strings.HasSuffix(kind, "+json")) {
		in = bytes.NewReader(whole)
	}
	if page {
		if title, text, err = textOf(in); err != nil {
			return "", "", &statusError{text: "cannot be read as HTML; fetch another"}
		}
		return title, text, nil
	}
	plain, err := io.ReadAll(in)
	if err != nil {
		return "", "", &statusError{text: "has broken characters; fetch another"}
	}
	return "", strings.ToValidUTF8(string(plain), "\uFFFD"), nil
}
