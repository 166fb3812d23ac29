package httptool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/net/html/charset"

	"github.com/agentfly/agentfly/internal/charsets"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/tools"
)

const (
	maxBody      = 1 << 20 // bytes of a response that are read
	maxErrorBody = 500     // runes of the body of a response that is an error
	maxRedirects = 5
)

// tool is one operation of a service.
type tool struct {
	service   *service
	spec      tools.Spec
	method    string
	base      *url.URL   // without a path; its query is that of every request
	path      string     // with {name} for arguments; the rest as it was written, where %2F is no slash
	arguments []argument // outside the body
	members   bool       // the other arguments are the members of a JSON body
	body      string     // the argument that is the JSON body; "" with members, or for no body
	kind      string     // the Content-Type of the body
	err       error      // why it cannot be called
}

// argument is one outside the body.
type argument struct {
	name, in string // in: path, query, header
	explode  bool   // a list is written as several values, not as one with commas
}

var _ tools.Tool = (*tool)(nil)

// Spec implements tools.Tool.
func (t *tool) Spec() tools.Spec { return t.spec }

// Err says why the tool cannot be registered: a job that does not choose it may ignore that.
func (t *tool) Err() error { return t.err }

func (t *tool) takes(name string) bool {
	return slices.ContainsFunc(t.arguments, func(a argument) bool { return a.name == name })
}

// Call implements tools.Tool.
func (t *tool) Call(ctx context.Context, c tools.Call) (tools.Observation, error) {
	request, err := t.request(ctx, c.Arguments)
	if err != nil {
		return tools.Observation{}, fmt.Errorf("%s: %s", t.spec.Name, t.service.secrets.Replace(err.Error()))
	}
	text, err := t.do(request)
	var broken *tools.BrokenError
	var said *tools.TextError
	switch {
	case err == nil:
		return tools.Observation{Text: text}, nil
	case ctx.Err() != nil:
		return tools.Observation{}, ctx.Err()
	case errors.As(err, &broken):
		return tools.Observation{}, &tools.BrokenError{Text: t.spec.Name + ": " + t.service.secrets.Replace(broken.Text)}
	case errors.As(err, &said):
		return tools.Observation{}, &tools.TextError{Text: t.spec.Name + ": " + t.service.secrets.Replace(said.Text)}
	}
	return tools.Observation{}, fmt.Errorf("%s: %s", t.spec.Name, t.service.secrets.Replace(err.Error()))
}

// request puts the arguments where they belong.
func (t *tool) request(ctx context.Context, arguments json.RawMessage) (*http.Request, error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(arguments, &values); err != nil {
		return nil, errors.New("the arguments must be a JSON object")
	}
	u, headers, query := *t.base, http.Header{}, url.Values{}
	path := map[string]string{}
	for _, a := range t.arguments {
		raw, ok := values[a.name]
		delete(values, a.name)
		if !ok || string(raw) == "null" {
			continue
		}
		texts, err := a.texts(raw)
		if err != nil {
			return nil, err
		}
		switch a.in {
		case "path":
			path[a.name] = texts[0]
		case "query":
			for _, v := range texts {
				query.Add(a.name, v)
			}
		case "header":
			headers.Set(a.name, texts[0])
		}
	}
	escaped, err := expand(t.path, path)
	if err != nil {
		return nil, err
	}
	if len(query) > 0 {
		u.RawQuery = strings.TrimPrefix(u.RawQuery+"&"+query.Encode(), "&")
	}
	u.RawPath = escaped
	if u.Path, err = url.PathUnescape(escaped); err != nil {
		return nil, errors.New("the URL's path cannot be made of these arguments")
	}
	content, err := t.content(values)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, t.method, u.String(), bytes.NewReader(content))
	if err != nil {
		return nil, errors.New("the request cannot be made of these arguments")
	}
	request.Header = headers
	request.Header.Set("Accept", "application/json, text/*;q=0.9, */*;q=0.5")
	request.Header.Set("User-Agent", "agentfly")
	if content != nil {
		request.Header.Set("Content-Type", t.kind)
	}
	for name, v := range t.service.headers {
		request.Header[name] = v
	}
	if host := t.service.headers.Get("Host"); host != "" {
		request.Host = host
	}
	return request, nil
}

// content is the JSON body of the arguments that go nowhere else; nil: none.
func (t *tool) content(values map[string]json.RawMessage) ([]byte, error) {
	switch {
	case t.members:
		if values == nil {
			values = map[string]json.RawMessage{}
		}
		return wording.JSON(values)
	case t.body != "":
		return values[t.body], nil
	}
	return nil, nil
}

// texts writes a value outside a body: one text, or several of a list.
func (a argument) texts(raw json.RawMessage) ([]string, error) {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		text, err := a.text(raw)
		return []string{text}, err
	}
	out := make([]string, len(list))
	for i, item := range list {
		var err error
		if out[i], err = a.text(item); err != nil {
			return nil, err
		}
	}
	if !a.explode || a.in != "query" {
		out = []string{strings.Join(out, ",")}
	}
	return out, nil
}

func (a argument) text(raw json.RawMessage) (string, error) {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		s = tools.WholeNumber(string(raw)) // a server may read 3.0 as no integer
	}
	if a.in == "header" && strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", fmt.Errorf("the argument %q must be one line without control characters", a.name)
	}
	return s, nil
}

var placeholder = regexp.MustCompile(`\{([^{}/]+)\}`)

// placeholders are the names in a path.
func placeholders(path string) (names []string) {
	for _, m := range placeholder.FindAllStringSubmatch(path, -1) {
		names = append(names, m[1])
	}
	return names
}

// expand fills in a path, escaped. An argument cannot leave its place in it.
func expand(path string, values map[string]string) (string, error) {
	var b strings.Builder
	at := 0
	for _, m := range placeholder.FindAllStringSubmatchIndex(path, -1) {
		name := path[m[2]:m[3]]
		v := values[name]
		if v == "" || v == "." || v == ".." {
			return "", fmt.Errorf("the argument %q stands in the URL's path and must not be empty or dots alone", name)
		}
		b.WriteString(escape(path[at:m[0]]) + url.PathEscape(v))
		at = m[1]
	}
	b.WriteString(escape(path[at:]))
	return b.String(), nil
}

var percent = regexp.MustCompile(`%[0-9a-fA-F]{2}`)

// escape escapes a fixed part of a path. What is escaped already stays.
func escape(part string) string {
	var b strings.Builder
	at := 0
	for _, m := range percent.FindAllStringIndex(part, -1) {
		b.WriteString((&url.URL{Path: part[at:m[0]]}).EscapedPath() + part[m[0]:m[1]])
		at = m[1]
	}
	b.WriteString((&url.URL{Path: part[at:]}).EscapedPath())
	return b.String()
}

var errOtherHost = errors.New("the service sends the request on to another host, which is refused")

func sameHost(request *http.Request, via []*http.Request) error {
	switch first := via[0].URL; {
	case request.URL.Host != first.Host || request.URL.Scheme != first.Scheme:
		return errOtherHost
	case len(via) > maxRedirects:
		return fmt.Errorf("the service redirects more than %d times", maxRedirects)
	}
	return nil
}

// do sends a request and returns the text of its response.
func (t *tool) do(request *http.Request) (string, error) {
	response, err := t.service.client.Do(request)
	if errors.Is(err, errOtherHost) {
		return "", errOtherHost
	}
	if err != nil {
		return "", &tools.BrokenError{Text: "the service does not answer: " + reason(err)}
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	if err != nil {
		return "", &tools.BrokenError{Text: "the service broke off its answer: " + reason(err)}
	}
	kind := response.Header.Get("Content-Type")
	text := ""
	if readable(kind, data) {
		text = t.hidden(kind, data)
	}
	switch code := response.StatusCode; {
	case code >= 200 && code < 300 && len(data) == 0:
		return fmt.Sprintf("done (HTTP %d)", code), nil
	case code >= 200 && code < 300 && text == "":
		return "", fmt.Errorf("the service returned %s, which is no text", kind)
	case code >= 200 && code < 300:
		return text, nil
	case code >= 500 || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout:
		return "", &tools.BrokenError{Text: refusal(code, text)}
	default:
		return "", &tools.TextError{Text: refusal(code, text)}
	}
}

// hidden is a body without the job's secrets, also where the limit cuts through one.
func (t *tool) hidden(kind string, data []byte) string {
	text := t.service.secrets.Replace(inUTF8(kind, data))
	if len(data) <= maxBody {
		return text
	}
	n := max(0, min(len(text), maxBody)-t.service.longest)
	for n > 0 && n < len(text) && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "\n[the rest left out]"
}

func refusal(code int, body string) string {
	text := strings.TrimSpace(fmt.Sprintf("HTTP %d %s", code, http.StatusText(code)))
	if body = strings.TrimSpace(body); body == "" {
		return text
	}
	if r := []rune(body); len(r) > maxErrorBody {
		body = string(r[:maxErrorBody]) + "…"
	}
	return text + ": " + body
}

// readable tells whether a body is text.
func readable(kind string, data []byte) bool {
	if len(data) > maxBody { // a rune may be cut
		for data = data[:maxBody]; len(data) > maxBody-utf8.UTFMax && !utf8.RuneStart(data[len(data)-1]); {
			data = data[:len(data)-1]
		}
		data = data[:len(data)-1]
	}
	media, _, err := mime.ParseMediaType(kind)
	if err != nil || media == "application/octet-stream" {
		return utf8.Valid(data) && !bytes.ContainsRune(data, 0)
	}
	major, minor, _ := strings.Cut(media, "/")
	return major == "text" || slices.ContainsFunc([]string{"json", "xml", "yaml", "javascript", "x-www-form-urlencoded"}, func(s string) bool { return strings.HasSuffix(minor, s) })
}

// inUTF8 is a text whose header, or else the first line of XML, names another character set, where that is known.
func inUTF8(kind string, data []byte) string {
	media, parameters, err := mime.ParseMediaType(kind)
	set, _ := charset.Lookup(parameters["charset"])
	if set == nil && strings.HasSuffix(media, "xml") {
		set = charsets.OfXML(data)
	}
	if err == nil && set != nil {
		if text, err := set.NewDecoder().Bytes(data); err == nil {
			return string(text)
		}
	}
	return string(data)
}

// reason is what went wrong with a connection, without the URL.
func reason(err error) string {
	var name *net.DNSError
	var number syscall.Errno
	var whole *url.Error
	switch {
	case errors.As(err, &name):
		return "the name of its host cannot be resolved"
	case errors.As(err, &number):
		return number.Error()
	case errors.As(err, &whole):
		return whole.Err.Error()
	}
	return err.Error()
}
