package tools

import (
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
var hostPath = regexp.MustCompile(`(^|[^\w/.~\]])(?:file://)?/[A-Za-z_.][^` + notInPath + `]*(?:/[^` + notInPath + `]+)+/?`)

const notInPath = `\s/"'` + "`" + `:;,()\[\]{}<>|`

// errorText is what the model reads of an error: one line without paths of the host, of which the last part is left.
func errorText(err error) string {
	var whole *TextError
	if errors.As(err, &whole) {
		return whole.Text
	}
	text := err.Error()
	for _, p := range errorPaths(err) {
		if path.IsAbs(p) {
			text = strings.ReplaceAll(text, p, base(p))
		}
	}
	text = hostPath.ReplaceAllStringFunc(text, func(m string) string {
		at := strings.IndexByte(m, '/')
		if i := strings.Index(m, "file:"); i >= 0 {
			at = i
		}
		return m[:at] + base(strings.TrimPrefix(m[at:], "file://"))
	})
	return strings.Join(strings.Fields(text), " ")
}

func base(p string) string {
	if p == workspace || strings.HasPrefix(p, workspace+"/") {
		return p
	}
	return path.Base(p)
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
