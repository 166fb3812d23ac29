package jinja

import (
	"math"
	"math/big"
)

// arithmetic applies an operator to two numbers as Python does.
func arithmetic(vm *machine, op string, a, b any) (any, error) {
	_, floatA := a.(float64)
	_, floatB := b.(float64)
	if !floatA && !floatB && op != "/" {
		return integers(vm, op, a, b)
	}
	if !floatA && !floatB {
		x, y := asBig(a), asBig(b)
		if y.Sign() == 0 {
			return nil, raise("ZeroDivisionError", "division by zero")
		}
		if err := vm.multiply(16*x.BitLen(), y.BitLen()); err != nil { // what the greatest common divisor takes
			return nil, err
		}
		f, _ := new(big.Rat).SetFrac(x, y).Float64()
		if math.IsInf(f, 0) {
			return nil, raise("OverflowError", "integer division result too large for a float")
		}
		return f, nil
	}
	x, err := toFloat(a)
	if err != nil {
		return nil, err
	}
	y, err := toFloat(b)
	if err != nil {
		return nil, err
	}
	switch op {
	case "+":
		return x + y, nil
	case "-":
		return x - y, nil
	case "*":
		return x * y, nil
	case "/":
		if y == 0 {
			return nil, raise("ZeroDivisionError", "float division by zero")
		}
		return x / y, nil
	case "//", "%":
		if y == 0 {
			return nil, raise("ZeroDivisionError", "float floor division by zero")
		}
		div, mod := floatDivMod(x, y)
		if op == "%" {
			return mod, nil
		}
		return div, nil
	}
	return floatPow(x, y)
}

func floatDivMod(x, y float64) (div, mod float64) {
	mod = math.Mod(x, y)
	div = (x - mod) / y
	if mod != 0 {
		if (y < 0) != (mod < 0) {
			mod += y
			div--
		}
	} else {
		mod = math.Copysign(0, y)
	}
	if div == 0 {
		return math.Copysign(0, x/y), mod
	}
	floor := math.Floor(div)
	if div-floor > 0.5 {
		floor++
	}
	return floor, mod
}

func floatPow(x, y float64) (any, error) {
	if x == 0 && y < 0 {
		return nil, raise("ZeroDivisionError", "0.0 cannot be raised to a negative power")
	}
	if x < 0 && y != math.Trunc(y) && !math.IsInf(x, 0) {
		return nil, unsupported("a complex number")
	}
	f := math.Pow(x, y)
	if math.IsInf(f, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		return nil, raise("OverflowError", "(34, 'Numerical result out of range')")
	}
	if _, frac := math.Modf(f); frac != 0 || math.Abs(f) > 1<<53 {
		return nil, unsupported("an inexact power")
	}
	return f, nil
}

func integers(vm *machine, op string, a, b any) (any, error) {
	x, okA := a.(int)
	y, okB := b.(int)
	if okA && okB && x > math.MinInt32 && x < math.MaxInt32 && y > math.MinInt32 && y < math.MaxInt32 {
		switch op {
		case "+":
			return x + y, nil
		case "-":
			return x - y, nil
		case "*":
			return x * y, nil
		}
	}
	m, n := asBig(a), asBig(b)
	if err := vm.charge((m.BitLen() + n.BitLen()) / 8); err != nil {
		return nil, err
	}
	out := new(big.Int)
	switch op {
	case "+":
		return normInt(out.Add(m, n)), nil
	case "-":
		return normInt(out.Sub(m, n)), nil
	case "*", "//", "%":
		if err := vm.multiply(m.BitLen(), n.BitLen()); err != nil {
			return nil, err
		}
	}
	switch op {
	case "*":
		return normInt(out.Mul(m, n)), nil
	case "//", "%":
		if n.Sign() == 0 {
			return nil, raise("ZeroDivisionError", "integer division or modulo by zero")
		}
		div, mod := new(big.Int).QuoRem(m, n, new(big.Int))
		if mod.Sign() != 0 && (mod.Sign() < 0) != (n.Sign() < 0) {
			mod.Add(mod, n)
			div.Sub(div, big.NewInt(1))
		}
		if op == "%" {
			return normInt(mod), nil
		}
		return normInt(div), nil
	}
	if n.Sign() < 0 {
		x, err := toFloat(a)
		if err != nil {
			return nil, err
		}
		y, err := toFloat(b)
		if err != nil {
			return nil, err
		}
		return floatPow(x, y)
	}
	if m.CmpAbs(big.NewInt(1)) > 0 {
		if !n.IsInt64() || n.Int64() > 1<<20 {
			return nil, raise("Limit", "the power is too large")
		}
		half := m.BitLen() * int(n.Int64()) / 2 // its last product is a square of these
		if err := vm.multiply(half, half); err != nil {
			return nil, err
		}
	}
	return normInt(out.Exp(m, n, nil)), nil
}

// unaryMath is +x or -x.
func unaryMath(op string, v any) (any, error) {
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	n, ok := number(v)
	if !ok {
		return nil, typeError("bad operand type for unary %s: '%s'", op, typeName(v))
	}
	if op == "+" {
		return n, nil
	}
	switch n := n.(type) {
	case float64:
		return -n, nil
	default:
		return normInt(new(big.Int).Neg(asBig(n))), nil
	}
}
