package webshop

import (
	"slices"
	"strings"
)

// score is the reward of a purchase and what it consists of:
//
//	r = r_type · (attributes matched + options matched + 1[price ≤ limit]) / (attributes + options + 1)      arXiv 2207.01206, equation 1
//
// r_type is 1 where the product has the goal's query, or two of its categories, or more than a fifth of the nouns of its title; else 0.5. With less
// than a tenth of the nouns it is 0.1, and without any 0.
//
// One thing differs from the authors' code (princeton-nlp/WebShop, web_agent_site/engine/goal.py): nouns of a title are all of its words but for
// those that describe (see nouns), where the authors ask spaCy.
type score struct {
	reward        float64
	rType         float64
	queryMatch    bool
	categoryMatch bool
	titleScore    float64
	attributes    int // matched
	options       int // matched
	price         bool
}

// info is the score for rewards and the record.
func (s score) info(p product, g goal) map[string]any {
	return map[string]any{
		"product": p.id, "reward": s.reward, "success": s.reward == 1,
		"r_type": s.rType, "query_match": s.queryMatch, "category_match": s.categoryMatch, "title_score": s.titleScore,
		"attributes": s.attributes, "attributes_asked": len(g.attributes),
		"options": s.options, "options_asked": len(g.options),
		"price": s.price,
	}
}

// rate is the score of buying p with the chosen values of options, by name, where want is the product that the goal was made from.
func rate(p, want product, g goal, chosen map[string]string) score {
	s := typeOf(p, want)
	s.attributes = matchedAttributes(p, g.attributes)
	s.options = matchedOptions(g.options, chosen)
	s.price = p.price <= g.priceUpper
	n := s.attributes + s.options
	if s.price {
		n++
	}
	s.reward = s.rType * float64(n) / float64(len(g.attributes)+len(g.options)+1)
	return s
}

// typeOf says whether a product is the kind of thing that is asked for.
func typeOf(p, want product) score {
	s := score{rType: 1, queryMatch: p.query == want.query}
	common := map[string]bool{}
	for _, c := range p.path {
		if slices.Contains(want.path, c) {
			common[c] = true
		}
	}
	s.categoryMatch = len(common) >= 2
	s.titleScore = titleScore(nouns(p.title), nouns(want.title))
	if !s.queryMatch && !s.categoryMatch && s.titleScore <= 0.2 {
		s.rType = 0.5
	}
	if s.titleScore < 0.1 {
		s.rType = 0.1
	}
	if s.titleScore == 0 {
		s.rType = 0
	}
	return s
}

// titleScore is the share of the wanted title's nouns that the bought title has, each counted once; 0.2 where the wanted title has none.
func titleScore(bought, wanted []string) float64 {
	if len(wanted) == 0 {
		return 0.2
	}
	both := map[string]bool{}
	for _, w := range wanted {
		if slices.Contains(bought, w) {
			both[w] = true
		}
	}
	return float64(len(both)) / float64(len(wanted))
}

// nouns are a title's words of letters, in lower case, but for one letter, for words without a meaning of their own, and for those that describe.
func nouns(title string) []string {
	return slices.DeleteFunc(words(title), func(w string) bool {
		return len(w) < 2 || describing[w] || strings.ContainsAny(w, "0123456789")
	})
}

// matchedAttributes counts the attributes that the product has: alike one of its own, or in its texts.
func matchedAttributes(p product, asked []string) (n int) {
	for _, a := range asked {
		if slices.ContainsFunc(p.attributes, func(has string) bool { return alike(has, a) }) || p.says(a) {
			n++
		}
	}
	return n
}

// matchedOptions counts the options asked for to which a chosen value is alike, of whatever name. Of a value with the name of a colour in it, the
// colour counts alone. Sizes are texts as others are: "9 wide" is alike to "9", "x-large" to "large" and "pack of 4" to "pack of 6", so that the
// values of a generated product's option are such as are not alike.
func matchedOptions(asked []string, chosen map[string]string) (n int) {
	for _, a := range asked {
		a = colourOf(a)
		for _, value := range chosen {
			if alike(colourOf(value), a) {
				n++
				break
			}
		}
	}
	return n
}

// says tells whether a text stands in the title, the features or the description.
func (p product) says(text string) bool {
	return strings.Contains(strings.ToLower(p.title), text) ||
		strings.Contains(strings.ToLower(strings.Join(p.features, " ")), text) ||
		strings.Contains(strings.ToLower(p.description), text)
}

// colourOf is the first name of a colour, in the order of the alphabet, that stands anywhere in a text, or the text.
func colourOf(text string) string {
	for _, c := range colours {
		if strings.Contains(text, c) {
			return c
		}
	}
	return text
}
