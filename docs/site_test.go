package docs

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// The site of the docs has each page, asks nobody but its own server, and its search leads to the page that has a setting. scripts/site.sh makes it.
func TestSite(t *testing.T) {
	site := os.Getenv("AGENTFLY_SITE")
	if site == "" {
		t.Skip("AGENTFLY_SITE names no folder: make site")
	}
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	for _, page := range pages {
		name := strings.TrimSuffix(page, ".md")
		if name == "README" {
			name = ""
		}
		require.FileExists(t, filepath.Join(site, name, "index.html"), "of %s", page)
	}
	chromium := ""
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil && chromium == "" {
			chromium = path
		}
	}
	if chromium == "" {
		t.Skip("chromium is missing; install it: apt-get install chromium-headless-shell")
	}
	server := httptest.NewServer(http.FileServer(http.Dir(site)))
	defer server.Close()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.WindowSize(1280, 900), chromedp.DisableGPU,
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()
	eval := func(code string) string {
		v, err := chromedp.Run(ctx, chromedp.Evaluate[string](code, chromedp.EvalAsValue, chromedp.EvalAwaitPromise))
		require.NoError(t, err, code)
		return v
	}
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(server.URL)))
	require.Equal(t, "", eval(`performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith(location.origin)).join(' ')`), "nothing comes from elsewhere")
	require.Equal(t, "", eval(`[...document.querySelectorAll('h1')].length === 1 ? '' : document.title`))
	eval(`document.querySelector('.md-search__button').click(); ''`)
	time.Sleep(500 * time.Millisecond) // the dialog takes the keyboard when it is open
	require.NoError(t, chromedp.Do(ctx, chromedp.KeyEvent("max_staleness")))
	time.Sleep(time.Second)
	require.NoError(t, chromedp.Do(ctx, chromedp.KeyEvent(kb.Enter)))
	require.Eventually(t, func() bool { return eval("location.pathname") != "/" }, 10*time.Second, 50*time.Millisecond, "the first result is opened")
	require.Eventually(t, func() bool {
		return eval(`document.querySelector('article')?.innerText.includes('max_staleness') ? 'yes' : ''`) == "yes"
	}, 10*time.Second, 50*time.Millisecond)
	t.Log("the search for max_staleness leads to " + eval("location.pathname + location.hash"))
	require.Equal(t, "", eval(`performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith(location.origin)).join(' ')`), "nothing comes from elsewhere")
}
