package modelfile

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentfly/agentfly/internal/filelock"
	"github.com/agentfly/agentfly/internal/retry"
)

// Hub downloads models from the Hugging Face hub, or what answers on the same routes, into huggingface_hub's cache
// layout, which transformers and vLLM read too:
//
//	CACHE/models--ORG--NAME/blobs/HASH          the content; HASH.incomplete while it is coming in
//	CACHE/models--ORG--NAME/snapshots/COMMIT/…  links into blobs
//	CACHE/models--ORG--NAME/refs/REVISION       the commit, written when the snapshot is complete
type Hub struct {
	Endpoint string // without a slash at the end
	Token    string // "" for none
	Cache    string // the folder with models--…
	Offline  bool   // refuse to use the network

	Client *http.Client
	// Retries is how many times in a row a file may break off without new bytes before the pull fails.
	Retries int
	// Stall is how long the hub may be silent before an attempt is given up.
	Stall time.Duration
	// Sleep waits between such attempts; it returns early with an error when the context ends.
	Sleep func(ctx context.Context, d time.Duration) error
	// Progress, if set, is called after each piece: bytes that the file has, and its size (-1: not known).
	Progress func(file string, have, size int64)
}

// HubFromEnv reads HF_ENDPOINT, HF_TOKEN (or the token file that `hf auth login` writes), HF_HUB_CACHE, HF_HOME and
// HF_HUB_OFFLINE, as huggingface_hub does, and their older names: HUGGING_FACE_HUB_TOKEN, HUGGINGFACE_HUB_CACHE and TRANSFORMERS_OFFLINE.
func HubFromEnv() (*Hub, error) {
	cache, err := HubCacheDir()
	if err != nil {
		return nil, err
	}
	h := &Hub{
		Endpoint: strings.TrimRight(os.Getenv("HF_ENDPOINT"), "/"), Cache: cache,
		Token: strings.TrimSpace(cmp.Or(os.Getenv("HF_TOKEN"), os.Getenv("HUGGING_FACE_HUB_TOKEN"))),
		Client: &http.Client{Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 30 * time.Second, ResponseHeaderTimeout: 60 * time.Second,
		}},
		Retries: 5, Stall: time.Minute, Sleep: retry.Sleep,
	}
	if h.Endpoint == "" {
		h.Endpoint = "https://huggingface.co"
	}
	if u, err := url.Parse(h.Endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("modelfile: HF_ENDPOINT is %q, expected something like https://huggingface.co", h.Endpoint)
	}
	switch strings.ToLower(cmp.Or(os.Getenv("HF_HUB_OFFLINE"), os.Getenv("TRANSFORMERS_OFFLINE"))) {
	case "1", "true", "yes", "on":
		h.Offline = true
	}
	if h.Token == "" {
		file := hubPath("HF_TOKEN_PATH")
		if file == "" {
			if home, err := hubHome(); err == nil { // without a home there is no file
				file = filepath.Join(home, "token")
			}
		}
		if data, err := os.ReadFile(file); err == nil { // without the file there is no token
			h.Token = strings.TrimSpace(string(data))
		}
	}
	return h, nil
}

// wanted: what a model needs; of the rest of a repository (other frameworks' weights, pictures) nothing is fetched.
var wanted = []string{
	"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
	"chat_template.jinja", "chat_template.json", "additional_chat_templates/*.jinja", "tokenizer.model", "vocab.json", "merges.txt", "LICENSE*", "README.md",
}

// Pull makes sure that the model is complete in the cache and returns its snapshot folder (or the .gguf file in it). What is there already is not
// fetched again, what broke off is resumed, and every file is checked against the hash that the hub tells. A repository
// without safetensors must hold exactly one .gguf file, or file names it ("" otherwise).
func (h *Hub) Pull(ctx context.Context, id HubID, file string) (string, error) {
	if h.Offline {
		return "", fmt.Errorf("modelfile: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set, so %s cannot be pulled; unset it", id)
	}
	repo := filepath.Join(h.Cache, "models--"+id.Org+"--"+id.Name)
	var commit string
	var files []string
	err := h.retry(ctx, func() (progress bool, err error) {
		ctx, cancel := context.WithTimeout(ctx, h.Stall)
		defer cancel()
		commit, files, err = h.list(ctx, id)
		return false, err
	})
	if err != nil {
		return "", fmt.Errorf("modelfile: %w", err)
	}
	chosen, err := choose(id, files, file)
	if err != nil {
		return "", err
	}
	locks := filepath.Join(h.Cache, ".locks", filepath.Base(repo))
	if err := os.MkdirAll(locks, 0o755); err != nil {
		return "", fmt.Errorf("modelfile: %w", err)
	}
	unlock, err := filelock.Wait(ctx, filepath.Join(locks, "agentfly.lock"), "another pull") // two pulls of one repository
	if err != nil {
		return "", fmt.Errorf("modelfile: %w", err)
	}
	defer unlock()
	dir := filepath.Join(repo, "snapshots", commit)
	model := dir
	for _, name := range chosen {
		if err := h.file(ctx, id, commit, name, repo); err != nil {
			return "", err
		}
		if strings.HasSuffix(name, ".gguf") {
			model = filepath.Join(dir, filepath.FromSlash(name))
		}
	}
	ref := filepath.Join(repo, "refs", filepath.FromSlash(id.Revision))
	if id.Revision != commit {
		if err := os.MkdirAll(filepath.Dir(ref), 0o755); err != nil {
			return "", fmt.Errorf("modelfile: %w", err)
		}
		err := WriteAtomic(ref, func(w io.Writer) error { _, err := io.WriteString(w, commit); return err })
		if err != nil {
			return "", err
		}
	}
	return model, nil
}

// list asks for the commit and the files of a revision.
func (h *Hub) list(ctx context.Context, id HubID) (commit string, files []string, err error) {
	address := h.Endpoint + "/api/models/" + id.Org + "/" + id.Name + "/revision/" + url.PathEscape(id.Revision)
	reply, err := h.get(ctx, address, 0)
	if err != nil {
		return "", nil, fmt.Errorf("asking %s for %s: %w; check the network or HF_ENDPOINT", h.Endpoint, id, &networkError{err})
	}
	defer reply.Body.Close()
	if err := h.status(reply, id.String()); err != nil {
		return "", nil, err
	}
	var answer struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Name string `json:"rfilename"`
		} `json:"siblings"`
	}
	if err := json.NewDecoder(io.LimitReader(reply.Body, 64<<20)).Decode(&answer); err != nil {
		return "", nil, fmt.Errorf("the hub's answer about %s is not JSON: %w", id, err)
	}
	if !isHex(answer.SHA, 40) {
		return "", nil, fmt.Errorf("the hub's answer about %s has the commit %q, expected 40 hexadecimal digits", id, answer.SHA)
	}
	for _, s := range answer.Siblings {
		if !filepath.IsLocal(filepath.FromSlash(s.Name)) || path.Clean(s.Name) != s.Name || strings.ContainsAny(s.Name, "\\\x00") {
			return "", nil, fmt.Errorf("the hub lists the file %q in %s, which would lie outside its folder", s.Name, id)
		}
		files = append(files, s.Name)
	}
	return answer.SHA, files, nil
}

// choose picks the files that make a model.
func choose(id HubID, files []string, file string) ([]string, error) {
	var chosen, gguf []string
	safetensors := slices.Contains(files, "model.safetensors") || slices.Contains(files, "model.safetensors.index.json")
	for _, f := range files {
		switch {
		case strings.HasSuffix(f, ".gguf"):
			gguf = append(gguf, f)
		case path.Dir(f) == "." && (strings.HasSuffix(f, ".safetensors") || strings.HasSuffix(f, ".safetensors.index.json")):
			if file == "" && strings.HasPrefix(f, "model") { // not adapters, nor a second format of the same weights
				chosen = append(chosen, f)
			}
		case slices.ContainsFunc(wanted, func(p string) bool { ok, _ := path.Match(p, f); return ok }):
			chosen = append(chosen, f)
		}
	}
	switch {
	case file != "" && !slices.Contains(files, file):
		return nil, fmt.Errorf("modelfile: %s has no file %s; its .gguf files: %s", id, file, cmp.Or(strings.Join(gguf, ", "), "none"))
	case file != "":
		return append(chosen, file), nil
	case safetensors:
		return chosen, nil
	case len(gguf) == 1:
		return append(chosen, gguf[0]), nil
	case len(gguf) > 1:
		return nil, fmt.Errorf("modelfile: %s has several .gguf files, name one with --file: %s", id, strings.Join(gguf, ", "))
	}
	return nil, fmt.Errorf("modelfile: %s has neither model.safetensors nor a .gguf file", id)
}

// get sends a request; from > 0 asks for the rest of a file.
func (h *Hub) get(ctx context.Context, address string, from int64) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", "agentfly")
	request.Header.Set("Accept-Encoding", "identity") // so that a range counts bytes of the file
	if h.Token != "" {
		request.Header.Set("Authorization", "Bearer "+h.Token)
	}
	if from > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	client := *h.Client
	client.CheckRedirect = func(next *http.Request, via []*http.Request) error {
		if len(via) > 10 {
			return errors.New("too many redirects")
		}
		if next.URL.Host != via[0].URL.Host { // net/http would let a subdomain or another port have it
			next.Header.Del("Authorization")
		}
		return nil
	}
	reply, err := client.Do(request)
	if err != nil {
		return nil, withoutAddress(err)
	}
	return reply, nil
}

// withoutAddress shortens an error of net/http: the address may be signed.
func withoutAddress(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// status turns a refusal into an error that says what to do.
func (h *Hub) status(reply *http.Response, what string) error {
	switch code := reply.StatusCode; {
	case code == http.StatusOK || code == http.StatusPartialContent:
		return nil
	case (code == http.StatusUnauthorized || code == http.StatusForbidden) && h.Token == "":
		return fmt.Errorf("the hub does not give out %s (%d): it does not exist, is private, or its licence must be accepted; check the name, or set HF_TOKEN", what, code)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return fmt.Errorf("the hub does not give out %s with this HF_TOKEN (%d): accept the model's licence on its page, or use a token that may read it", what, code)
	case code == http.StatusNotFound:
		return fmt.Errorf("the hub has no %s (404); check the name and the revision", what)
	default:
		return &httpError{what, code, code == http.StatusTooManyRequests || code >= 500}
	}
}

// httpError is a status that may pass.
type httpError struct {
	what      string
	code      int
	temporary bool
}

func (e *httpError) Error() string {
	return fmt.Sprintf("the hub answers %d for %s; try again later", e.code, e.what)
}

func isHex(s string, n int) bool {
	return len(s) == n && strings.Trim(s, "0123456789abcdef") == ""
}
