// Package scripts knows files that an interpreter is given by their names. It does not look at files or run them.
package scripts

import (
	"path/filepath"
	"slices"
)

var endings = []string{".py", ".js", ".mjs", ".ts", ".sh", ".rb", ".pl", ".jar"}

// Is tells by its name whether a path is a script's.
func Is(path string) bool { return slices.Contains(endings, filepath.Ext(path)) }
