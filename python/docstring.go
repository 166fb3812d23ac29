package python

import (
	"regexp"
	"strings"
)

// docstring is what a docstring in Google's style says.
type docstring struct {
	text      string            // before the first section
	arguments map[string]argDoc // of Args, Arguments, Parameters or Attributes
}

type argDoc struct{ kind, text string }

var (
	sectionPattern  = regexp.MustCompile(`^(Args|Arguments|Parameters|Keyword Args|Keyword Arguments|Other Parameters|Attributes|Returns?|Raises?|Yields?|Examples?|Notes?|Warnings?|Warns|See Also|References|Todo):\s*$`)
	argumentPattern = regexp.MustCompile(`^\*{0,2}(\w+)\s*(?:\((.*?)\))?\s*:(?:\s+(.*))?$`)
	argumentSection = map[string]bool{
		"Args": true, "Arguments": true, "Parameters": true, "Keyword Args": true, "Keyword Arguments": true, "Other Parameters": true, "Attributes": true,
	}
)

// parseDocstring reads a docstring: the description is everything before the first section, arguments are those of its section. Lines of
// an argument that are indented more belong to it.
func parseDocstring(raw string) docstring {
	lines := clean(raw)
	out := docstring{arguments: map[string]argDoc{}}
	section, indent, current := "", -1, ""
	var text []string
	for _, line := range lines {
		trimmed := strings.TrimSpace(line)
		depth := len(line) - len(strings.TrimLeft(line, " "))
		if m := sectionPattern.FindStringSubmatch(trimmed); m != nil && depth == 0 {
			section, indent, current = m[1], -1, ""
			continue
		}
		switch {
		case section == "":
			text = append(text, line)
		case !argumentSection[section] || trimmed == "":
		default:
			if indent < 0 {
				indent = depth
			}
			m := argumentPattern.FindStringSubmatch(trimmed)
			switch {
			case depth < indent, depth == 0 && m == nil: // the section is over and what follows has no name
				section, current = "none", ""
			case m != nil && depth <= indent:
				current = m[1]
				out.arguments[current] = argDoc{kind: strings.TrimSpace(m[2]), text: m[3]}
			case current != "":
				d := out.arguments[current]
				d.text = strings.TrimSpace(d.text + " " + trimmed)
				out.arguments[current] = d
			}
		}
	}
	out.text = strings.TrimSpace(strings.Join(text, "\n"))
	return out
}

// clean is inspect.cleandoc: tabs are spaces, the indentation that all lines but the first share goes.
func clean(raw string) []string {
	lines := strings.Split(strings.ReplaceAll(strings.ReplaceAll(raw, "\r\n", "\n"), "\t", "        "), "\n")
	margin := -1
	for _, line := range lines[1:] {
		if content := strings.TrimLeft(line, " "); content != "" && (margin < 0 || len(line)-len(content) < margin) {
			margin = len(line) - len(content)
		}
	}
	for i, line := range lines {
		switch {
		case i == 0:
			line = strings.TrimLeft(line, " ")
		case margin > 0:
			line = line[min(margin, len(line)):]
		}
		lines[i] = strings.TrimRight(line, " ")
	}
	return lines
}
