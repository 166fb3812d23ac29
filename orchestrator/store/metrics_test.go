package store

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMetricsOfTheStoreAreReadWithoutJSON(t *testing.T) {
	body, err := json.Marshal(map[string]float64{"reward/mean": 0.5, "update/kl": -1.25e-9, "seconds/elapsed": 1e21, "groups/flat": 0, "eval/greedy@1": 3})
	require.NoError(t, err)
	names := metricNames{}
	got, ok := names.plain(body)
	require.True(t, ok)
	require.Len(t, got, 5)
	require.Equal(t, -1.25e-9, got["update/kl"])
}

func FuzzMetrics(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"a":1}`, `{"a":1,"b":-2.5e-3}`, `{"a":01}`, `{"a":+1}`, `{"a":1,}`, `{"a":1}}`, `{"a\\n":1}`, `{"a":null}`, `{"a":1e999}`, `{"a":0x1}`, `{"a":1,"a":2}`, `{"a" :1}`, `{"a":.5}`,
		`{"a":1.}`, `{"a":Inf}`, `{"a":{"b":1}}`, `{"a":1`, `{"`, `{"a"`, `{"a":`, `{"ä":1}`, `{"a":-0}`, `{"a,b}":1}`, `{"a":1,"b"}`, ``,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		want := map[string]float64{}
		failed := json.Unmarshal(body, &want)
		got, err := metricNames{}.decode(body)
		require.Equal(t, failed == nil, err == nil)
		if err == nil {
			require.Equal(t, want, got)
		}
	})
}
