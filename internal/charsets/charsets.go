// Package charsets finds the character set that a text names itself. It does not read what the headers of a request or an answer name.
package charsets

import (
	"regexp"
	"strings"

	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding"
)

// declaration is the first line of XML, where it names the character set.
var declaration = regexp.MustCompile(`^\s*<\?xml\s[^>]*\bencoding\s*=\s*["']([^"']+)["']`)

// OfXML is the character set that the first line of XML names; nil: it names none that is known, or UTF-8. UTF-16 counts as UTF-8 too: in UTF-16 the
// declaration would not be found.
func OfXML(body []byte) encoding.Encoding {
	m := declaration.FindSubmatch(body[:min(len(body), 1024)])
	if m == nil {
		return nil
	}
	set, name := charset.Lookup(string(m[1]))
	if strings.HasPrefix(name, "utf-") {
		return nil
	}
	return set
}
