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

// place is where a visitor stands in the shop: what there is to see and to click.
type place struct {
	shop  *shop
	goal  int
	now   visit
	found []int // products of now.Query, the best first
}

// product is the one that is open.
func (at place) product() product {
	return at.shop.products[at.shop.byID[strings.ToLower(at.now.Product)]]
}

// listed are the products of the page of results that is open.
func (at place) listed() []int {
	from := min((at.now.Page-1)*shown, len(at.found))
	return at.found[from:min(from+shown, len(at.found))]
}

// buttons are what can be clicked, in lower case, in the order of the page.
func (at place) buttons() []string {
	v := at.now
	var out []string
	switch {
	case v.Over || v.Page == 0:
		return nil
	case v.Product == "":
		for _, i := range at.listed() {
			out = append(out, strings.ToLower(at.shop.products[i].id))
		}
		if v.Page < pages(len(at.found)) {
			out = append(out, next)
		}
		if v.Page > 1 {
			out = append(out, prev)
		}
		return append(out, backToSearch)
	case v.Sub != "":
		return []string{prev, backToSearch}
	}
	p := at.product()
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
func (at place) option(button string) (name, value string) {
	p := at.product()
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
func (at place) isOption(button string) bool {
	if at.now.Product == "" || at.now.Sub != "" || at.now.Over {
		return false
	}
	name, _ := at.option(button)
	return name != ""
}

// page is what the agent reads: the instruction, what the page says, and in brackets what can be clicked.
func (at place) page() string {
	v := at.now
	var b strings.Builder
	fmt.Fprintf(&b, "Instruction: %s\n", at.shop.goals[at.goal].text)
	switch {
	case v.Page == 0:
		b.WriteString("Search page. Write search[words].")
	case v.Product == "":
		at.writeResults(&b)
	case v.Sub != "":
		at.writeSub(&b)
	default:
		at.writeProduct(&b)
	}
	return b.String()
}

func (at place) writeResults(b *strings.Builder) {
	if len(at.found) == 0 {
		b.WriteString("No product was found.\n")
	} else {
		fmt.Fprintf(b, "Page %d of %d, %d products\n", at.now.Page, pages(len(at.found)), len(at.found))
	}
	for _, i := range at.listed() {
		p := at.shop.products[i]
		fmt.Fprintf(b, "[%s] %s %s\n", p.id, wording.Clip(p.title, longestTitle), price(p.price))
	}
	writeLabels(b, at.buttons()[len(at.listed()):])
}

func (at place) writeProduct(b *strings.Builder) {
	p := at.product()
	fmt.Fprintf(b, "%s: %s\nPrice: %s Rating: %s\n", p.id, wording.Clip(p.title, longestTitle), price(p.price), p.rating)
	for _, o := range p.options {
		b.WriteString(o.name)
		if chosen, ok := at.now.Chosen[o.name]; ok {
			fmt.Fprintf(b, " (chosen: %s)", chosen)
		}
		b.WriteString(":")
		for _, value := range o.values {
			b.WriteString(" [" + p.button(o, value) + "]")
		}
		b.WriteString("\n")
	}
	writeLabels(b, []string{"description", "features", "reviews", buyNow, prev, backToSearch})
}

func (at place) writeSub(b *strings.Builder) {
	p := at.product()
	text := map[string]string{"description": p.description, "features": strings.Join(p.features, "\n"), "reviews": strings.Join(p.reviews, "\n")}[at.now.Sub]
	fmt.Fprintf(b, "%s of %s:\n%s\n", labels[at.now.Sub], p.id, cmp.Or(wording.Clip(strings.TrimSpace(text), longestText), "There is nothing."))
	writeLabels(b, at.buttons())
}

func writeLabels(b *strings.Builder, buttons []string) {
	for i, name := range buttons {
		if i > 0 {
			b.WriteString(" ")
		}
		b.WriteString(label(name))
	}
}

// anchor names the page that the agent sees, with what is chosen: equal for equal pages of a goal.
func (at place) anchor() string {
	v := at.now
	switch {
	case v.Page == 0:
		return at.page() // which names the start after the reset
	case v.Product == "":
		return fmt.Sprintf("%s results %d %s", v.Goal, v.Page, v.Query)
	}
	out := v.Goal + " product " + v.Product
	if v.Sub != "" {
		out += " " + v.Sub
	}
	for _, o := range at.product().options {
		if value, ok := v.Chosen[o.name]; ok {
			out += fmt.Sprintf(" %s=%s", o.name, value)
		}
	}
	return out
}
