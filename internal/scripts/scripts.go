// Package scripts knows files that an interpreter is given by their names. It does not look at files or run them.
package scripts

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var endings = []string{".py", ".js", ".mjs", ".ts", ".sh", ".rb", ".pl", ".jar"}

// Is tells by its name whether a path is a script's.
func Is(path string) bool { return slices.Contains(endings, filepath.Ext(path)) }

// takesCode are options of interpreters behind which code or the name of a module stands: bash -ec, perl -e, python3 -m.
var takesCode = regexp.MustCompile(`^-[a-z]*[cem]$`)

// MayBeCode tells of an argument of a command that is the name of no file whether it may be code or the name of a module, rather than a script that is
// missing: it stands behind such an option, or has a blank.
func MayBeCode(command []string, at int) bool {
	return strings.ContainsAny(command[at], " \t\n") || at > 0 && takesCode.MatchString(command[at-1])
}
