// Package grammar holds completions to a form: an expression of bytes (texts, JSON of a schema, a call of a tool) is compiled into a
// pushdown automaton, and a [Matcher] walks through it beside a completion and says which tokens may come next. A token may come next if
// and only if the text with it begins some text of the expression.
//
// It owns expressions, the automaton, the reading of JSON schemas into expressions, and the tokens' bytes in the order in which the
// automaton reads them. It does not sample: an engine excludes the other tokens before its softmax, so that the logprobs that it tells are
// those of the distribution that it sampled from.
package grammar
