// Package fetch tests scripts/fetch.py against a server of its own.
package fetch

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// program is fetch.py's download of the package torch 1, which has this body and lies at url, into the folder cache. It prints the path.
func program(t *testing.T, cache, url string, body []byte) *exec.Cmd {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not on PATH: apt-get install python3")
	}
	c := exec.Command("python3", "-B", "-c", `import pathlib, sys
sys.path.insert(0, "..")
import fetch
fetch.CACHE = pathlib.Path(sys.argv[1])
print(fetch.download("torch", "1", sys.argv[2], lambda name, version: sys.argv[3]))
`, cache, digest(body), url)
	c.Env = append(os.Environ(), "no_proxy=127.0.0.1")
	return c
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

// A file that is not the pinned one is refused, and not fetched again for ever.
func TestADownloadOfAnotherFileIsRefused(t *testing.T) {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader([]byte("another")))
	}))
	defer server.Close()
	cache := t.TempDir()
	out, err := program(t, cache, server.URL, []byte("the file")).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "fetch: torch 1: SHA-256 is "+digest([]byte("another"))+", expected "+digest([]byte("the file"))+"; the file was removed, run the command again\n")
	require.Equal(t, 1, requests)
	left, err := filepath.Glob(filepath.Join(cache, "downloads", "torch-1-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}
