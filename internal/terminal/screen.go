package terminal

import (
	"os"
	"strconv"
	"strings"
)

// Width is the number of columns of the terminal w; 0 where w is none, so that nothing is wrapped. COLUMNS goes before what the terminal says.
func Width(w any) int {
	f := file(w)
	if f == nil {
		return 0
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if n := columns(f); n > 0 {
		return n
	}
	return 80
}

// Colours tells whether text on w may be coloured: w is a terminal, and the user did not ask for none (https://no-color.org).
func Colours(w any) bool {
	return Is(w) && !NoColour()
}

// NoColour tells whether the user asked for text without colours.
func NoColour() bool { return os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" }

// UTF8 tells whether the user's locale writes UTF-8. One that is not set is taken for it: that is so in most containers.
func UTF8() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} { // the first that is set counts (POSIX, 8.2)
		if locale := strings.ToLower(os.Getenv(name)); locale != "" {
			return strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
		}
	}
	return true
}

// Wrap breaks the lines of s after at most width columns, between words where it can; width 0 breaks none.
func Wrap(s string, width int) (lines []string) {
	for line := range strings.SplitSeq(s, "\n") {
		r := []rune(line)
		for width > 0 {
			room := fitting(r, width)
			if room == len(r) {
				break
			}
			at := room
			for i := room; i > room/2; i-- {
				if r[i] == ' ' {
					at = i
					break
				}
			}
			lines = append(lines, string(r[:at]))
			r = r[at:]
			if len(r) > 0 && r[0] == ' ' {
				r = r[1:]
			}
		}
		lines = append(lines, string(r))
	}
	return lines
}

// fitting is how many characters have room in so many columns, but one at least.
func fitting(r []rune, width int) int {
	used := 0
	for i, c := range r {
		if used += Columns(c); used > width {
			return max(1, i)
		}
	}
	return len(r)
}
