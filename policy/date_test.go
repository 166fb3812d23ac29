package policy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The day that the template is told is the one that is set, else the recorded one, else 1970-01-01; what it is is recorded.
func TestTemplateDate(t *testing.T) {
	day := func(text *Text, set string) string {
		now, err := text.Now(set)
		require.NoError(t, err)
		require.Equal(t, now.Format(time.DateOnly), text.TemplateDate)
		return text.TemplateDate
	}
	require.Equal(t, "1970-01-01", day(&Text{}, ""))
	require.Equal(t, "2024-07-26", day(&Text{TemplateDate: "2024-07-26"}, ""))
	require.Equal(t, "2026-02-28", day(&Text{TemplateDate: "2024-07-26"}, "2026-02-28"))
	_, err := (&Text{}).Now("yesterday")
	require.EqualError(t, err, `policy: the template's date is "yesterday"; write YYYY-MM-DD`)
	require.True(t, (&Text{ChatTemplate: `{{ strftime_now("%d %b %Y") }}`}).TellsDate())
	require.False(t, (&Text{ChatTemplate: `{{ messages }}`}).TellsDate())
}

func TestARecordedTemplateDateIsRead(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("../examples/tiny/model")))
	path := filepath.Join(dir, "tokenizer_config.json")
	config := map[string]any{}
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &config))
	write := func(date any) {
		config[dateKey] = date
		data, err := json.Marshal(config)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, data, 0o600))
	}
	text, err := LoadText(dir)
	require.NoError(t, err)
	require.Empty(t, text.TemplateDate)
	write("2026-02-28")
	text, err = LoadText(dir)
	require.NoError(t, err)
	require.Equal(t, "2026-02-28", text.TemplateDate)
	for _, bad := range []any{"soon", 5, nil} {
		write(bad)
		_, err = LoadText(dir)
		require.ErrorContains(t, err, "template_date is ")
		require.ErrorContains(t, err, "a day YYYY-MM-DD is needed")
	}
}
