package charsets

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOfXML(t *testing.T) {
	set := OfXML([]byte("\n<?xml version='1.0' encoding = 'CP1251' standalone='yes'?><p/>"))
	require.NotNil(t, set)
	text, err := set.NewDecoder().String("\xcc\xe8\xf0")
	require.NoError(t, err)
	require.Equal(t, "Мир", text)
	for _, body := range []string{
		"", "<p/>", `<?xml version="1.0"?><p encoding="windows-1251"/>`, `<p/><?xml version="1.0" encoding="windows-1251"?>`, `<?xml encoding="utf-8"?>`, `<?xml encoding="UTF-16LE"?>`,
		`<?xml encoding="nonsense"?>`, strings.Repeat(" ", 1024) + `<?xml encoding="windows-1251"?>`,
	} {
		require.Nil(t, OfXML([]byte(body)), body)
	}
}
