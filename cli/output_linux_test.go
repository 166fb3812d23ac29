package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/overview/overviewtest"
)

// What is written goes where the path leads: into a pipe as it is, and through links to the file that they name. Neither is replaced by a file.
func TestOutputGoesWhereThePathLeads(t *testing.T) {
	run, atif := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "in.json")
	overviewtest.Run{Steps: overviewtest.Steps(0.1, 0.2)}.Write(t, run)
	require.NoError(t, os.WriteFile(atif, []byte(`{"schema_version": "ATIF-v1.8", "agent": {"name": "x", "version": "1"}, "steps": [{"step_id": 1, "source": "agent", "message": "a"}]}`), 0o600))
	for name, write := range map[string]struct {
		args   []string
		begins string
	}{
		"svg":    {[]string{"plot", run, "--svg"}, "<svg "},
		"png":    {[]string{"plot", run, "--png"}, "\x89PNG"},
		"import": {[]string{"import", "atif", atif, "--output"}, `{"messages":`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			to := func(path string) {
				out, _, err := command(t, append(write.args, path)...)
				require.NoError(t, err)
				require.Empty(t, out, "it would stand in what goes to /dev/stdout")
			}
			link := func(name, to string) string {
				path := filepath.Join(dir, name)
				require.NoError(t, os.Symlink(to, path))
				return path
			}
			read := func(from io.Reader) <-chan string {
				got := make(chan string, 1)
				go func() {
					b, err := io.ReadAll(from)
					got <- fmt.Sprint(string(b), err)
				}()
				return got
			}

			named := filepath.Join(dir, "pipe")
			require.NoError(t, syscall.Mkfifo(named, 0o600))
			for _, path := range []string{named, link("to-pipe", "pipe")} {
				end, err := os.OpenFile(named, os.O_RDWR, 0) // it does not wait for a writer, and keeps a reader from its end
				require.NoError(t, err)
				got := make(chan string, 1)
				go func() {
					b := make([]byte, len(write.begins))
					_, err := io.ReadFull(end, b)
					got <- fmt.Sprint(string(b), err)
					_, _ = io.Copy(io.Discard, end)
				}()
				to(path)
				info, err := os.Stat(named)
				require.NoError(t, err)
				require.Equal(t, os.ModeNamedPipe, info.Mode().Type(), "the pipe is still one")
				require.Equal(t, write.begins+"<nil>", <-got)
				require.NoError(t, end.Close())
			}

			r, w, err := os.Pipe()
			require.NoError(t, err)
			got := read(r)
			standard := link("standard", fmt.Sprintf("/proc/self/fd/%d", w.Fd())) // as /dev/stdout is
			to(standard)
			require.NoError(t, w.Close())
			require.Contains(t, <-got, write.begins)
			_, err = os.Readlink(standard)
			require.NoError(t, err, "the link is still one")
			require.NoError(t, r.Close())

			file := filepath.Join(dir, "appended")
			require.NoError(t, os.WriteFile(file, []byte("before\n"), 0o600))
			for _, stream := range []**os.File{&os.Stdout, &os.Stderr} { // a shell's >> and 2>>
				f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
				require.NoError(t, err)
				func() {
					defer func(was *os.File) { *stream = was }(*stream)
					*stream = f
					path := link("stream", fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
					to(path)
					require.NoError(t, os.Remove(path))
				}()
				_, err = f.WriteString("\nbehind\n") // it is still the file of that name
				require.NoError(t, err)
				require.NoError(t, f.Close())
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				require.True(t, strings.HasPrefix(string(text), "before\n"+write.begins), "%.40q", text)
				require.True(t, strings.HasSuffix(string(text), "\nbehind\n"))
				require.NoError(t, os.WriteFile(file, []byte("before\n"), 0o600))
			}

			require.NoError(t, os.Mkdir(filepath.Join(dir, "files"), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "files", "old"), []byte("old"), 0o600))
			for _, target := range []string{"old", "new"} {
				path := link("to-link-to-"+target, link("link-to-"+target, "files/"+target))
				to(path)
				_, err := os.Readlink(path)
				require.NoError(t, err, "the link is still one")
				text, err := os.ReadFile(filepath.Join(dir, "files", target))
				require.NoError(t, err)
				require.True(t, strings.HasPrefix(string(text), write.begins))
			}
			left, err := os.ReadDir(filepath.Join(dir, "files"))
			require.NoError(t, err)
			require.Len(t, left, 2)
		})
	}
}
