package exposition

import (
	"math"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestText(t *testing.T) {
	var x Text
	x.Family("a_total", "counter", "lines \\ and\nbreaks")
	x.Sample("a_total", 3)
	x.Sample("a_total", 0.25, "run", "a \"b\"\n\\c\xff", "kind", "")
	x.Sample("a_total", math.NaN(), "run", "x")
	x.Sample("a_total", math.Inf(1))
	require.Equal(t, "# HELP a_total lines \\\\ and\\nbreaks\n# TYPE a_total counter\na_total 3\na_total{run=\"a \\\"b\\\"\\n\\\\c\uFFFD\",kind=\"\"} 0.25\na_total{run=\"x\"} NaN\na_total +Inf\n", x.String())
	w := httptest.NewRecorder()
	x.ServeHTTP(w, nil)
	require.Equal(t, x.String(), w.Body.String())
	require.Equal(t, "text/plain; version=0.0.4; charset=utf-8", w.Header().Get("Content-Type"))
	require.Equal(t, "eval_greedy_1__", Name("eval/greedy@1é "))
}
