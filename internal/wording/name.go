package wording

import "regexp"

// NameRule says what a name of a tool, a reward, an engine or the like has: messages have it behind "a name has".
const NameRule = "1 to 64 letters, digits, _ or -"

var (
	namePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	notInName   = regexp.MustCompile(`[^a-zA-Z0-9_-]`)
)

// ValidName tells whether a name keeps [NameRule].
func ValidName(name string) bool { return namePattern.MatchString(name) }

// AsName makes a name valid: _ stands for each character that is not allowed, and what is too long is cut. Of "" nothing can be made.
func AsName(name string) string {
	name = notInName.ReplaceAllString(name, "_")
	return name[:min(len(name), 64)]
}
