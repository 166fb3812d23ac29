package e2e_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly"
)

// A run that trains with --view serves its page from its first event on, says where in text and in JSON, and ends it with itself.
func TestTrainServesItsPage(t *testing.T) {
	needTorch(t)
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			out, in := io.Pipe()
			var said strings.Builder
			done := make(chan int, 1)
			go func() {
				args := []string{"agentfly", "train", "examples/tiny.yaml", "--output", dir, "--view", "--log-format", format, "--set", "trainer.steps=6"}
				done <- agentfly.Run(t.Context(), args, strings.NewReader(""), in, &said)
				in.Close()
			}()
			page, asked := "", false
			lines := bufio.NewScanner(out)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				if at := regexp.MustCompile(`while it trains: (http://127\.0\.0\.1:\d+/)`).FindStringSubmatch(lines.Text()); at != nil {
					page = at[1]
				}
				if page == "" || asked {
					continue
				}
				asked = true // the run waits meanwhile: nobody reads its next line
				reply, err := http.Get(page + "api/runs")
				require.NoError(t, err)
				var list struct {
					Runs []struct{ Name, Title string }
				}
				require.NoError(t, json.NewDecoder(reply.Body).Decode(&list))
				require.NoError(t, reply.Body.Close())
				require.Len(t, list.Runs, 1)
				require.Equal(t, "run", list.Runs[0].Title)
				reply, err = http.Get(page)
				require.NoError(t, err)
				require.NoError(t, reply.Body.Close())
				require.Equal(t, http.StatusOK, reply.StatusCode)
			}
			require.NoError(t, lines.Err())
			require.Zero(t, <-done, said.String())
			require.True(t, asked)
			_, err := http.Get(page)
			require.Error(t, err, "it ends with the run")
			require.Empty(t, said.String())
		})
	}
}
