package tree

import "math"

// EntropyBounds is the entropy of a distribution over a vocabulary, in nats, of which only the largest log-probabilities are known: it lies between low and high. The
// probability that they leave, R, is on tokens of which none is likelier than the least of them, p: low is what they add at least, R * -ln(min(R, p)),
// and high what they add if all are alike, R * -ln(R/n). Both are exact where the whole vocabulary is known.
func EntropyBounds(top []float32, vocabulary int) (low, high float64) {
	left, least, known := 1.0, math.Inf(1), 0
	for _, logprob := range top {
		known++
		p := math.Exp(float64(logprob))
		if least = min(least, p); p > 0 {
			low -= p * float64(logprob)
		}
		left -= p
	}
	rest := vocabulary - known
	if left <= 1e-7 || rest <= 0 || least <= 0 { // float32 does not tell less; -Inf is what truncation excludes, and all that follows it
		return max(0, low), max(0, low)
	}
	high = low - left*math.Log(left/float64(rest))
	low -= left * math.Log(min(left, least))
	return max(0, low), max(low, high)
}

// First is the mean of the first n values, of all where there are fewer; 0 of none.
func First(values []float64, n int) float64 {
	values = values[:min(n, len(values))]
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(1, len(values)))
}
