package job

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReport(t *testing.T) {
	text, err := os.ReadFile("../../examples/tiny.yaml")
	require.NoError(t, err)
	load := func(report string) (*Job, error) {
		path := filepath.Join(t.TempDir(), "job.yaml")
		require.NoError(t, os.WriteFile(path, append(text, []byte("\nreport: "+report+"\n")...), 0o600))
		return Load(path)
	}
	j, err := load("[tensorboard, csv, {mlflow: 'http://user:secret@127.0.0.1:5000/x'}, {otlp: 'http://127.0.0.1:4318'}]")
	require.NoError(t, err)
	require.Equal(t, []Report{{Format: "tensorboard"}, {Format: "csv"}, {"mlflow", "http://user:secret@127.0.0.1:5000/x"}, {"otlp", "http://127.0.0.1:4318"}}, j.Report)
	require.Equal(t, "http://user:xxxxx@127.0.0.1:5000/x", j.Report[2].Shown())
	for report, want := range map[string]string{
		"[tensorbord]":                 `: report.0: there is no format "tensorbord"`,
		"[mlflow]":                     ": report.0: mlflow needs the address of its server: {mlflow: URL}",
		"[{mlflow: 'ftp://secret@x'}]": ": report.0.mlflow: this is no address of an MLflow server",
		"[otlp]":                       ": report.0: otlp needs the address of its server: {otlp: URL}",
		"[{otlp: secret}]":             ": report.0.otlp: this is no address of an OpenTelemetry collector; write one such as http://127.0.0.1:4318",
		"[{mlflow: 'http://x', otlp: 'http://y'}]": ": report.0: mlflow and otlp are two entries of the list, a mapping each",
		"[{mlflow: 'http://'}]":                    ": report.0.mlflow: this is no address",
		"[{mlflow: 'http://a:b:c'}]":               ": report.0.mlflow: this is no address",
		"[{mlflow: 'http://x', every: 3}]":         `: report.0: unknown key "every"`,
		"[{csv: {every: 3}}]":                      ": report.0: csv takes no options",
		"[{}]":                                     ": report.0: the mapping is empty",
		"[[csv]]":                                  ": report.0: a list",
		"csv":                                      ": report: ",
		"[csv, csv]":                               ": report.1: csv is given twice",
	} {
		_, err := load(report)
		require.ErrorContains(t, err, want, report)
		require.Regexp(t, `job\.yaml:\d+:\d+: report`, err.Error(), report)
		require.NotContains(t, err.Error(), "secret")
	}
}
