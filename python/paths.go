package python

import (
	"bytes"
	"encoding/json"
	"os"
	"path"
	"regexp"
	"strings"
)

// pathPattern is an absolute path that no URL, fraction or relative path contains.
var pathPattern = regexp.MustCompile(`(^|[\s'"(\[=,:<` + "`" + `])(/[^\s'":,;)(\]\[<>` + "`" + `]+)`)

// withoutHostPaths cuts absolute paths of this machine to their last element. A path that stands in the arguments stays: whoever wrote
// them knows it.
func withoutHostPaths(text string, arguments json.RawMessage) string {
	return pathPattern.ReplaceAllStringFunc(text, func(found string) string {
		at := strings.IndexByte(found, '/')
		before, p := found[:at], found[at:]
		top, _, deep := strings.Cut(p[1:], "/")
		if !deep || bytes.Contains(arguments, []byte(p)) {
			return found
		}
		if _, err := os.Lstat("/" + top); err != nil || top == "" {
			return found
		}
		return before + path.Base(p)
	})
}
