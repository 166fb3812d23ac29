package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
)

// workspace is where a sandboxed tool's files lie: no path of the host.
const workspace = "/workspace"

// hostPath is an absolute path of two parts or more that nothing of a word, a URL or another path precedes. The first part has a letter in
// front: 1 /2/3 is none.
var hostPath = regexp.MustCompile(`(^|[^\pL\pN_/.~\]}])((?:file://)?/\d*[\pL_.][^` + notInPath + `]*(?:/[^` + notInPath + `]+)+/?)`)

const notInPath = `\s/"'` + "`" + `:;,()\[\]{}<>|`

// quotedPath is such a path between quotes, where it may hold spaces.
var quotedPath = regexp.MustCompile("'/[^'\n]+'|\"/[^\"\n]+\"|`/[^`\n]+`")

// errorText is what the model reads of an error: one line without paths of the host, of which the last part is left. A path that the call's
// arguments name stays.
func errorText(err error, arguments json.RawMessage) string {
	var whole *TextError
	if errors.As(err, &whole) {
		return whole.Text
	}
	short := func(p string) string {
		if p == workspace || strings.HasPrefix(p, workspace+"/") || bytes.Contains(arguments, []byte(p)) {
			return p
		}
		return path.Base(p)
	}
	text := err.Error()
	for _, p := range errorPaths(err) {
		if path.IsAbs(p) {
			text = strings.ReplaceAll(text, p, short(p))
		}
	}
	text = quotedPath.ReplaceAllStringFunc(text, func(m string) string {
		p := m[1 : len(m)-1]
		if strings.Contains(p, " /") || hostPath.FindStringIndex(p) == nil { // a sentence, or / alone
			return m
		}
		return m[:1] + short(p) + m[:1]
	})
	text = hostPath.ReplaceAllStringFunc(text, func(m string) string {
		at := strings.IndexByte(m, '/')
		if i := strings.Index(m, "file:"); i >= 0 {
			at = i
		}
		return m[:at] + short(strings.TrimPrefix(m[at:], "file://"))
	})
	return strings.Join(strings.Fields(text), " ")
}

// errorPaths are the paths that the errors of package os carry, also those with spaces.
func errorPaths(err error) []string {
	var one *fs.PathError
	if errors.As(err, &one) {
		return []string{one.Path}
	}
	var two *os.LinkError
	if errors.As(err, &two) {
		return []string{two.Old, two.New}
	}
	return nil
}
