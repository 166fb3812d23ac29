package modelfile

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const commit1 = "0123456789abcdef0123456789abcdef01234567"

// fakeHub answers on the hub's routes: small files directly with git's hash as ETag, .safetensors and .gguf by a redirect
// to a file store on another host, with X-Linked-ETag, as the real one does.
type fakeHub struct {
	t       *testing.T
	files   map[string]string
	token   string            // required when not empty
	lie     map[string]string // file -> hash to claim
	cut     map[string][]int  // file -> byte counts after which the connections break
	stall   map[string]int    // file -> how many requests hang
	busy    int               // so many requests are answered with 503
	noRange bool              // the store ignores Range
	mu      sync.Mutex
	log     []string // requests for content: "file from"
	hub     *httptest.Server
	store   *httptest.Server
}

func newFakeHub(t *testing.T, files map[string]string) *fakeHub {
	f := &fakeHub{t: t, files: files, lie: map[string]string{}, cut: map[string][]int{}, stall: map[string]int{}}
	f.hub = httptest.NewServer(http.HandlerFunc(f.serveHub))
	f.store = httptest.NewServer(http.HandlerFunc(f.serveStore))
	t.Cleanup(func() { f.hub.Close(); f.store.Close() })
	return f
}

func (f *fakeHub) serveHub(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	busy := f.busy > 0
	if busy {
		f.busy--
	}
	f.mu.Unlock()
	if busy {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if f.token != "" && r.Header.Get("Authorization") != "Bearer "+f.token {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if r.URL.Path == "/api/models/org/name/revision/main" || r.URL.EscapedPath() == "/api/models/org/name/revision/refs%2Fpr%2F1" {
		var siblings []map[string]string
		for name := range f.files {
			siblings = append(siblings, map[string]string{"rfilename": name})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"sha": commit1, "siblings": siblings})
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/org/name/resolve/"+commit1+"/")
	content, known := f.files[name]
	if !ok || !known {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if strings.HasSuffix(name, ".safetensors") || strings.HasSuffix(name, ".gguf") {
		sum := sha256.Sum256([]byte(content))
		w.Header().Set("X-Linked-ETag", `"`+f.hash(name, hex.EncodeToString(sum[:]))+`"`)
		w.Header().Set("X-Linked-Size", strconv.Itoa(len(content)))
		http.Redirect(w, r, f.store.URL+"/"+name+"?signature=secret", http.StatusFound)
		return
	}
	sum := sha1.Sum([]byte(fmt.Sprintf("blob %d\x00%s", len(content), content)))
	w.Header().Set("ETag", `"`+f.hash(name, hex.EncodeToString(sum[:]))+`"`)
	f.content(w, r, name)
}

func (f *fakeHub) hash(name, real string) string {
	if lie, ok := f.lie[name]; ok {
		return lie
	}
	return real
}

func (f *fakeHub) serveStore(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" {
		f.t.Errorf("the token was sent to another host")
	}
	f.content(w, r, strings.TrimPrefix(r.URL.Path, "/"))
}

func (f *fakeHub) content(w http.ResponseWriter, r *http.Request, name string) {
	content := f.files[name]
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		return
	}
	from := 0
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err != nil || f.noRange {
		from = 0
	}
	f.mu.Lock()
	f.log = append(f.log, fmt.Sprintf("%s %d", name, from))
	cut, hang := -1, false
	if list := f.cut[name]; len(list) > 0 {
		cut, f.cut[name] = list[0], list[1:]
	}
	if f.stall[name] > 0 {
		f.stall[name]--
		hang = true
	}
	f.mu.Unlock()
	w.Header().Set("Content-Length", strconv.Itoa(len(content)-from))
	if from > 0 {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(content)-1, len(content)))
		w.WriteHeader(http.StatusPartialContent)
	}
	rest := content[from:]
	switch {
	case hang:
		_, _ = w.Write([]byte(rest[:1]))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case cut >= 0:
		_, _ = w.Write([]byte(rest[:cut]))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	default:
		_, _ = w.Write([]byte(rest))
	}
}

// client has its own cache folder and does not wait.
func (f *fakeHub) client() *Hub {
	return &Hub{
		Endpoint: f.hub.URL, Token: f.token, Cache: f.t.TempDir(), Client: &http.Client{}, Retries: 2, Stall: 5 * time.Second,
		Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	}
}

var (
	hubFiles = map[string]string{
		"config.json": `{"model_type": "llama"}`, "tokenizer.json": "{}", "model.safetensors": string(st(`{"w":{"dtype":"F32","shape":[64],"data_offsets":[0,256]}}`, 256)),
		"additional_chat_templates/tool_use.jinja": "tools", "pytorch_model.bin": "pickle", "onnx/model.onnx": "onnx", "README.md": "# a model",
	}
	id1 = HubID{"org", "name", "main"}
)

func TestPull(t *testing.T) {
	f := newFakeHub(t, hubFiles)
	f.token = "hf_secret"
	h := f.client()
	dir, err := h.Pull(t.Context(), id1, "")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(h.Cache, "models--org--name", "snapshots", commit1), dir)
	var got []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			require.Equal(t, os.ModeSymlink, d.Type(), path) // as huggingface_hub lays it out
			rel, _ := filepath.Rel(dir, path)
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, hubFiles[rel], string(data))
			got = append(got, rel)
		}
		return err
	}))
	require.Equal(t, []string{"README.md", "additional_chat_templates/tool_use.jinja", "config.json", "model.safetensors", "tokenizer.json"}, got)
	ref, err := os.ReadFile(filepath.Join(h.Cache, "models--org--name", "refs", "main"))
	require.NoError(t, err)
	require.Equal(t, commit1, string(ref))

	f.log = nil
	again, err := h.Pull(t.Context(), id1, "")
	require.NoError(t, err)
	require.Equal(t, dir, again)
	require.Empty(t, f.log) // nothing is fetched twice

	t.Setenv("HF_HUB_CACHE", h.Cache)
	found, err := Resolve("org/name")
	require.NoError(t, err)
	require.Equal(t, dir, found)
	m, err := Open("org/name@" + commit1)
	require.NoError(t, err)
	require.Equal(t, []string{"w"}, m.Names())
	require.NoError(t, m.Close())

	_, err = h.Pull(t.Context(), HubID{"org", "name", "refs/pr/1"}, "")
	require.NoError(t, err)
	found, err = Resolve("org/name@refs/pr/1")
	require.NoError(t, err)
	require.Equal(t, dir, found)
}

func TestPullResumesAfterCuts(t *testing.T) {
	f := newFakeHub(t, hubFiles)
	f.cut["model.safetensors"] = []int{100, 50, 0}
	h := f.client()
	var last int64
	h.Progress = func(file string, have, size int64) {
		if file == "model.safetensors" {
			require.Equal(t, int64(len(hubFiles[file])), size)
			last = have
		}
	}
	_, err := h.Pull(t.Context(), id1, "")
	require.NoError(t, err)
	require.Subset(t, f.log, []string{"model.safetensors 0", "model.safetensors 100", "model.safetensors 150"})
	require.Equal(t, int64(len(hubFiles["model.safetensors"])), last)

	// a second command goes on where the first one gave up
	f = newFakeHub(t, hubFiles)
	f.cut["model.safetensors"] = []int{100, 0, 0, 0}
	h = f.client()
	_, err = h.Pull(t.Context(), id1, "")
	require.ErrorContains(t, err, "model.safetensors of org/name@main: the connection failed:")
	require.ErrorContains(t, err, "run the command again to resume")
	_, err = os.Stat(filepath.Join(h.Cache, "models--org--name", "refs", "main"))
	require.ErrorIs(t, err, os.ErrNotExist) // an incomplete model is not found
	f.log = nil
	_, err = h.Pull(t.Context(), id1, "")
	require.NoError(t, err)
	require.Contains(t, f.log, "model.safetensors 100")
}

func TestPullWithoutRanges(t *testing.T) {
	f := newFakeHub(t, hubFiles)
	f.noRange = true
	f.cut["model.safetensors"] = []int{100}
	_, err := f.client().Pull(t.Context(), id1, "")
	require.NoError(t, err)
}

func TestPullRetriesABusyHub(t *testing.T) {
	f := newFakeHub(t, hubFiles)
	f.busy = 2
	_, err := f.client().Pull(t.Context(), id1, "")
	require.NoError(t, err)
	f.busy = 99
	_, err = f.client().Pull(t.Context(), id1, "")
	require.EqualError(t, err, "modelfile: the hub answers 503 for org/name@main; try again later")
}

func TestPullGivesUpOnSilence(t *testing.T) {
	f := newFakeHub(t, hubFiles)
	f.stall["model.safetensors"] = 1
	h := f.client()
	h.Stall = 300 * time.Millisecond
	_, err := h.Pull(t.Context(), id1, "")
	require.NoError(t, err) // the second attempt goes on
	require.Contains(t, f.log, "model.safetensors 1")
}

func TestPullRefuses(t *testing.T) {
	pull := func(change func(f *fakeHub, h *Hub)) error {
		f := newFakeHub(t, map[string]string{"config.json": "{}", "model.safetensors": "weights"})
		h := f.client()
		change(f, h)
		_, err := h.Pull(t.Context(), id1, "")
		return err
	}
	wrong := strings.Repeat("ab", 32)
	require.ErrorContains(t, pull(func(f *fakeHub, _ *Hub) { f.lie["model.safetensors"] = wrong }),
		"model.safetensors of org/name@main has the hash 9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c, but the hub says "+wrong+"; the file was removed, run the command again")
	require.ErrorContains(t, pull(func(f *fakeHub, _ *Hub) { f.lie["config.json"] = strings.Repeat("cd", 20) }), "config.json of org/name@main has the hash")
	require.ErrorContains(t, pull(func(f *fakeHub, _ *Hub) { f.lie["config.json"] = "../../evil" }), `config.json of org/name@main: the hub tells the hash "../../evil"`)
	require.ErrorContains(t, pull(func(f *fakeHub, _ *Hub) { f.token = "x" }), "(401): it does not exist, is private, or its licence must be accepted; check the name, or set HF_TOKEN")
	require.ErrorContains(t, pull(func(f *fakeHub, h *Hub) { f.token, h.Token = "x", "y" }), "with this HF_TOKEN (401): accept the model's licence on its page")
	require.ErrorContains(t, pull(func(f *fakeHub, _ *Hub) { f.files["../outside"] = "" }), `lists the file "../outside"`)
	require.ErrorContains(t, pull(func(f *fakeHub, _ *Hub) { delete(f.files, "model.safetensors") }), "has neither model.safetensors nor a .gguf file")
	require.ErrorContains(t, pull(func(_ *fakeHub, h *Hub) { h.Offline = true }), "HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set")
	require.ErrorContains(t, pull(func(f *fakeHub, _ *Hub) { f.hub.Close() }), "check the network or HF_ENDPOINT")

	f := newFakeHub(t, hubFiles)
	_, err := f.client().Pull(t.Context(), HubID{"org", "name", "v9"}, "")
	require.EqualError(t, err, "modelfile: the hub has no org/name@v9 (404); check the name and the revision")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = f.client().Pull(ctx, id1, "")
	require.ErrorIs(t, err, context.Canceled)
}

func TestPullOnAFullDisk(t *testing.T) {
	f := newFakeHub(t, hubFiles)
	h := f.client()
	blobs := filepath.Join(h.Cache, "models--org--name", "blobs")
	require.NoError(t, os.MkdirAll(blobs, 0o755))
	sum := sha256.Sum256([]byte(hubFiles["model.safetensors"]))
	full := filepath.Join(blobs, hex.EncodeToString(sum[:])+".incomplete")
	if err := os.Symlink("/dev/full", full); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("this system has no /dev/full, whose writes fail as on a full disk")
	}
	_, err := h.Pull(t.Context(), id1, "")
	require.ErrorContains(t, err, "no space left on device")
	require.NoError(t, os.Remove(full))
	_, err = h.Pull(t.Context(), id1, "")
	require.NoError(t, err)
}

func TestPullGGUF(t *testing.T) {
	files := map[string]string{"m-Q4_0.gguf": "four", "m-Q8_0.gguf": "eight", "README.md": ""}
	f := newFakeHub(t, files)
	h := f.client()
	_, err := h.Pull(t.Context(), id1, "")
	require.ErrorContains(t, err, "has several .gguf files, name one with --file: ")
	_, err = h.Pull(t.Context(), id1, "m-Q9.gguf")
	require.ErrorContains(t, err, "org/name@main has no file m-Q9.gguf")
	path, err := h.Pull(t.Context(), id1, "m-Q8_0.gguf")
	require.NoError(t, err)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "eight", string(data))
	require.NotContains(t, f.log, "m-Q4_0.gguf 0")
}

// huggingface_hub names the commit before it fetches the files, so that a download that was broken off looks like a whole one.
func TestASnapshotThatIsNotComplete(t *testing.T) {
	withoutHub(t)
	cache := t.TempDir()
	t.Setenv("HF_HUB_CACHE", cache)
	repo := filepath.Join(cache, "models--org--name")
	dir := filepath.Join(repo, "snapshots", commit1)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(repo, "refs"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(repo, "refs", "main"), []byte(commit1), 0o600))
	put := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	const remedy = "; org/name is not complete in the hub's cache: run `agentfly model pull org/name`"

	_, err := Open("org/name")
	require.EqualError(t, err, "modelfile: "+dir+" holds no config.json, no tokenizer.json and 0 .gguf files; expected a model folder or name one file"+remedy)

	put("config.json", "{}")
	unread, err := Open("org/name")
	require.NoError(t, err)
	_, err = unread.Tokenizer()
	require.EqualError(t, err, "modelfile: "+dir+" has no tokenizer.json"+remedy)
	require.NoError(t, os.Remove(filepath.Join(dir, "config.json")))

	put("tokenizer.json", "{}")
	m, err := Open("org/name") // a tokenizer alone is a whole model for who reads no more
	require.NoError(t, err)
	_, err = m.Config()
	require.EqualError(t, err, "modelfile: "+dir+" has no config.json"+remedy)
	_, err = m.Tensor("w")
	require.EqualError(t, err, "modelfile: "+dir+" holds no weights (model.safetensors, model.safetensors.index.json or a .gguf file)"+remedy)
	info, err := Describe("org/name@main")
	require.NoError(t, err)
	require.Equal(t, dir+" has no config.json; org/name@main is not complete in the hub's cache: run `agentfly model pull org/name@main`", info.Problem)

	put("model.safetensors.index.json", `{"weight_map": {"w": "model-00001-of-00001.safetensors"}}`)
	_, err = Open("org/name")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "model-00001-of-00001.safetensors: no such file or directory"+remedy)
	_, err = Open(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NotContains(t, err.Error(), "agentfly model pull", "a folder that was named as such need not be the hub's")

	put("model-00001-of-00001.safetensors", "damaged")
	_, err = Open("org/name")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "agentfly model pull", "what is there is not fetched again")
}

// withoutHub unsets what huggingface_hub reads.
func withoutHub(t *testing.T) {
	for _, key := range []string{
		"HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH",
		"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE",
	} {
		t.Setenv(key, "")
	}
}

func TestHubFromEnv(t *testing.T) {
	home := t.TempDir()
	withoutHub(t)
	t.Setenv("HF_HOME", home)
	h, err := HubFromEnv()
	require.NoError(t, err)
	require.Equal(t, "https://huggingface.co", h.Endpoint)
	require.Equal(t, filepath.Join(home, "hub"), h.Cache)
	require.Empty(t, h.Token)
	require.NoError(t, os.WriteFile(filepath.Join(home, "token"), []byte("hf_file\n"), 0o600))
	h, err = HubFromEnv()
	require.NoError(t, err)
	require.Equal(t, "hf_file", h.Token)
	elsewhere := filepath.Join(t.TempDir(), "cache")
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(elsewhere), "token"), []byte("of something else"), 0o600))
	t.Setenv("HF_HUB_CACHE", elsewhere)
	h, err = HubFromEnv()
	require.NoError(t, err)
	require.Equal(t, []string{elsewhere, "hf_file"}, []string{h.Cache, h.Token}, "the token stays in the home")
	t.Setenv("HF_TOKEN", "hf_env")
	t.Setenv("HF_ENDPOINT", "http://mirror.example/")
	t.Setenv("HF_HUB_OFFLINE", "1")
	h, err = HubFromEnv()
	require.NoError(t, err)
	require.Equal(t, []any{"hf_env", "http://mirror.example", true}, []any{h.Token, h.Endpoint, h.Offline})
	t.Setenv("HF_ENDPOINT", "huggingface.co")
	_, err = HubFromEnv()
	require.ErrorContains(t, err, `HF_ENDPOINT is "huggingface.co"`)
}

// A service's unit, a Containerfile and a .env file pass ~ and $HOME on as they are written; huggingface_hub expands them.
func TestHubPathsAreExpanded(t *testing.T) {
	home := t.TempDir()
	withoutHub(t)
	t.Setenv("HOME", home)
	t.Setenv("SCRATCH", filepath.Join(home, "scratch"))
	for written, want := range map[string]string{
		"~/models": filepath.Join(home, "models"), "~": home, "$SCRATCH/hf": filepath.Join(home, "scratch", "hf"), "${SCRATCH}/hf": filepath.Join(home, "scratch", "hf"),
		"/a/$NOBODY_SETS_THIS/~": "/a/$NOBODY_SETS_THIS/~", "/a/b": "/a/b",
	} {
		t.Setenv("HF_HUB_CACHE", written)
		dir, err := HubCacheDir()
		require.NoError(t, err)
		require.Equal(t, want, dir)
		t.Setenv("HF_HUB_CACHE", "")
		t.Setenv("HF_HOME", written)
		dir, err = HubCacheDir()
		require.NoError(t, err)
		require.Equal(t, filepath.Join(want, "hub"), dir)
	}
	require.NoError(t, os.WriteFile(filepath.Join(home, "secret"), []byte("hf_file"), 0o600))
	t.Setenv("HF_TOKEN_PATH", "~/secret")
	h, err := HubFromEnv()
	require.NoError(t, err)
	require.Equal(t, "hf_file", h.Token)
}

// huggingface_hub still reads the names of before, where the new ones are not set.
func TestHubNamesOfBefore(t *testing.T) {
	withoutHub(t)
	t.Setenv("HUGGINGFACE_HUB_CACHE", "/old")
	t.Setenv("HUGGING_FACE_HUB_TOKEN", "hf_old")
	t.Setenv("TRANSFORMERS_OFFLINE", "1")
	h, err := HubFromEnv()
	require.NoError(t, err)
	require.Equal(t, []any{"/old", "hf_old", true}, []any{h.Cache, h.Token, h.Offline})
	t.Setenv("HF_HUB_CACHE", "/new")
	t.Setenv("HF_TOKEN", "hf_new")
	t.Setenv("HF_HUB_OFFLINE", "0")
	h, err = HubFromEnv()
	require.NoError(t, err)
	require.Equal(t, []any{"/new", "hf_new", false}, []any{h.Cache, h.Token, h.Offline})
}

func TestParseHubID(t *testing.T) {
	for text, want := range map[string]HubID{
		"HuggingFaceTB/SmolLM2-135M-Instruct": {"HuggingFaceTB", "SmolLM2-135M-Instruct", "main"},
		"Qwen/Qwen2.5-0.5B@v1.0":              {"Qwen", "Qwen2.5-0.5B", "v1.0"},
		"a/b@refs/pr/1":                       {"a", "b", "refs/pr/1"},
	} {
		got, ok := ParseHubID(text)
		require.True(t, ok, text)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "name", "a/b/c", "./a/b", "/a/b", "a/b@", "a/..", "a/b@../x", "a b/c", "a--b/c", "a/b@x\n"} {
		_, ok := ParseHubID(text)
		require.False(t, ok, text)
	}
}

func TestResolve(t *testing.T) {
	cache := t.TempDir()
	withoutHub(t)
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HF_HOME", filepath.Join(cache, "hf"))
	const smollm2 = "HuggingFaceTB/SmolLM2-135M-Instruct"
	_, err := Resolve(smollm2)
	require.ErrorContains(t, err, "is not on this machine; run `agentfly model pull "+smollm2+"`", "a test is no program of a checkout, where make setup fetches it")
	file := filepath.Join(cache, "agentfly", "models", "SmolLM2-135M-Instruct", "SmolLM2-135M-Instruct.Q4_1.gguf")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	for _, name := range []string{smollm2, smollm2 + "@main", file} {
		found, err := Resolve(name)
		require.NoError(t, err)
		require.Equal(t, file, found)
	}
	_, err = Resolve(smollm2 + "@other")
	require.ErrorContains(t, err, "run `agentfly model pull "+smollm2+"@other`")
	_, err = Resolve("Qwen/Qwen3-0.6B")
	require.ErrorContains(t, err, "is neither a path nor in the hub's cache")
	_, err = Resolve("")
	require.ErrorContains(t, err, "the model's path is empty")
	_, err = Resolve("/no/such/model")
	require.EqualError(t, err, "modelfile: /no/such/model does not exist; name a folder, a .gguf file or a hub id (ORG/NAME)")
}
