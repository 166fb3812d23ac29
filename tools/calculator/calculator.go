// Package calculator is the tool that computes: exact integer and rational arithmetic with a parser of its own.
//
//	expression = term { ("+" | "-") term }
//	term       = unary { ("*" | "/" | "//" | "%") unary }
//	unary      = ("+" | "-") unary | power
//	power      = primary [ ("^" | "**") unary ]          right-associative; -2^2 is -4
//	primary    = number | "(" expression ")"
//	number     = digits [ "." digits ] | "." digits      a comma may separate groups of three digits: 1,234,567
//
// × x · ÷ − are read as * * * / -. // and % are floored division and its remainder, as in Python. Functions are safe for
// concurrent use.
//
// It does not limit calls or cut long results: package tools does, as for every tool.
package calculator

import (
	"context"
	"fmt"
	"math/big"

	"github.com/agentfly/agentfly/tools"
)

// Arguments of a call.
type Arguments struct {
	Expression string `json:"expression" doc:"numbers with + - * / // % ^ and parentheses, such as (12 + 5) * 3"`
}

// New returns the tool "calculator".
func New() tools.Tool {
	return tools.NewFunc("calculator", "Computes an arithmetic expression exactly.",
		func(ctx context.Context, a Arguments) (string, error) { return Evaluate(ctx, a.Expression) },
		func(s *tools.Spec) { s.Idempotent, s.Deterministic = true, true })
}

// Limits of an expression and of every number that occurs while it is computed.
const (
	maxLength   = 4096  // bytes of the expression
	maxDepth    = 100   // nested parentheses, signs and powers
	maxBits     = 16384 // of a numerator or a denominator: about 4,900 decimal digits
	maxExponent = 10000
	maxDecimals = 30 // digits after the point; a decimal with more is written as a fraction
)

// Evaluate computes an expression and formats the result: an integer as such, a terminating decimal of at most 30
// digits after the point as a decimal, any other number as a fraction p/q. The errors are for the model to read.
func Evaluate(ctx context.Context, expression string) (string, error) {
	v, err := Value(ctx, expression)
	if err != nil {
		return "", err
	}
	return Format(v), nil
}

// Value computes an expression.
func Value(ctx context.Context, expression string) (*big.Rat, error) {
	if len(expression) > maxLength {
		return nil, fmt.Errorf("the expression has %d characters; at most %d are allowed", len(expression), maxLength)
	}
	p := &parser{ctx: ctx, text: expression}
	if err := p.next(); err != nil {
		return nil, err
	}
	if p.kind == end {
		return nil, fmt.Errorf("the expression is empty; write one such as 12 + 5")
	}
	v, err := p.expression(0)
	if err != nil {
		return nil, err
	}
	if p.kind != end {
		return nil, p.unexpected("an operator")
	}
	return v, nil
}

// Format writes v as Evaluate does.
func Format(v *big.Rat) string {
	if v.IsInt() {
		return v.Num().String()
	}
	digits, exact := v.FloatPrec()
	if exact && digits <= maxDecimals {
		return v.FloatString(digits)
	}
	return v.RatString()
}
