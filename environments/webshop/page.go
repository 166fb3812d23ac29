package webshop

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
)

// The buttons, in lower case: as buttons names them.
const (
	buyNow       = "buy now"
	backToSearch = "back to search"
	next         = "next >"
	prev         = "< prev"
)

var (
	subPages = []string{"description", "features", "reviews"}
	labels   = map[string]string{ // as a page shows them
		buyNow: "Buy Now", backToSearch: "Back to Search", next: "Next >", prev: "< Prev", "description": "Description", "features": "Features", "reviews": "Reviews",
	}
)

// longest texts of a page, in characters. Generated ones are shorter.
const (
	longestTitle = 160
	longestText  = 1200
)

// label is a button as the page shows it.
func label(button string) string { return "[" + cmp.Or(labels[button], strings.ToUpper(button)) + "]" }

// pages are those of n results.
func pages(n int) int { return (n + shown - 1) / shown }

// listed are the products of the page of results that is open.
func (e *environment) listed() []int {
	from := min((e.now.Page-1)*shown, len(e.found))
	return e.found[from:min(from+shown, len(e.found))]
}

// buttons are what can be clicked, in lower case, in the order of the page.
func (e *environment) buttons() []string {
	v := e.now
	var out []string
	switch {
	case v.Over || v.Page == 0:
		return nil
	case v.Product == "":
		for _, i := range e.listed() {
			out = append(out, strings.ToLower(e.shop.products[i].id))
		}
		if v.Page < pages(len(e.found)) {
			out = append(out, next)
		}
		if v.Page > 1 {
			out = append(out, prev)
		}
		return append(out, backToSearch)
	case v.Sub != "":
		return []string{prev, backToSearch}
	}
	p := e.product()
	for _, o := range p.options {
		for _, value := range o.values {
			out = append(out, p.button(o, value))
		}
	}
	out = append(out, subPages...)
	return append(out, buyNow, prev, backToSearch)
}

// button names the value of an option: by itself, or as "name: value" where another button has that name.
func (p product) button(o option, value string) string {
	if _, taken := labels[value]; taken {
		return o.name + ": " + value
	}
	for _, other := range p.options {
		if other.name != o.name && slices.Contains(other.values, value) {
			return o.name + ": " + value
		}
	}
	return value
}

// option is the option and the value of a button.
func (e *environment) option(button string) (name, value string) {
	p := e.product()
	for _, o := range p.options {
		for _, v := range o.values {
			if p.button(o, v) == button || o.name+": "+v == button {
				return o.name, v
			}
		}
	}
	return "", ""
}

// isOption tells whether a name is that of an option's value on this page, also with the option's name before it.
func (e *environment) isOption(button string) bool {
	if e.now.Product == "" || e.now.Sub != "" || e.now.Over {
		return false
	}
	name, _ := e.option(button)
	return name != ""
}

// page is what the agent reads: the instruction, what the page says, and in brackets what can be clicked.
func (e *environment) page() string {
	v := e.now
	var b strings.Builder
	fmt.Fprintf(&b, "Instruction: %s\n", e.shop.goals[e.goal].text)
	switch {
	case v.Page == 0:
		b.WriteString("Search page. Write search[words].")
	case v.Product == "":
		e.writeResults(&b)
	case v.Sub != "":
		e.writeSub(&b)
	default:
		e.writeProduct(&b)
	}
	return b.String()
}

func (e *environment) writeResults(b *strings.Builder) {
	if len(e.found) == 0 {
		b.WriteString("No product was found.\n")
	} else {
		fmt.Fprintf(b, "Page %d of %d, %d products\n", e.now.Page, pages(len(e.found)), len(e.found))
	}
	for _, i := range e.listed() {
		p := e.shop.products[i]
		fmt.Fprintf(b, "[%s] %s %s\n", p.id, wording.Clip(p.title, longestTitle), price(p.price))
	}
	e.writeLabels(b, e.buttons()[len(e.listed()):])
}

func (e *environment) writeProduct(b *strings.Builder) {
	p := e.product()
	fmt.Fprintf(b, "%s: %s\nPrice: %s Rating: %s\n", p.id, wording.Clip(p.title, longestTitle), price(p.price), p.rating)
	for _, o := range p.options {
		b.WriteString(o.name)
		if chosen, ok := e.now.Chosen[o.name]; ok {
			fmt.Fprintf(b, " (chosen: %s)", chosen)
		}
		b.WriteString(":")
		for _, value := range o.values {
			b.WriteString(" [" + p.button(o, value) + "]")
		}
		b.WriteString("\n")
	}
	e.writeLabels(b, []string{"description", "features", "reviews", buyNow, prev, backToSearch})
}

func (e *environment) writeSub(b *strings.Builder) {
	p := e.product()
	text := map[string]string{"description": p.description, "features": strings.Join(p.features, "\n"), "reviews": strings.Join(p.reviews, "\n")}[e.now.Sub]
	fmt.Fprintf(b, "%s of %s:\n%s\n", labels[e.now.Sub], p.id, cmp.Or(wording.Clip(strings.TrimSpace(text), longestText), "There is nothing."))
	e.writeLabels(b, e.buttons())
}

func (e *environment) writeLabels(b *strings.Builder, buttons []string) {
	for i, name := range buttons {
		if i > 0 {
			b.WriteString(" ")
		}
		b.WriteString(label(name))
	}
}

// anchor names the page that the agent sees, with what is chosen: equal for equal pages of a goal.
func (e *environment) anchor() string {
	v := e.now
	switch {
	case v.Page == 0:
		return e.page() // which names the start after the reset
	case v.Product == "":
		return fmt.Sprintf("%s results %d %s", v.Goal, v.Page, v.Query)
	}
	out := v.Goal + " product " + v.Product
	if v.Sub != "" {
		out += " " + v.Sub
	}
	for _, o := range e.product().options {
		if value, ok := v.Chosen[o.name]; ok {
			out += fmt.Sprintf(" %s=%s", o.name, value)
		}
	}
	return out
}
