package modelfile

import (
	"encoding/binary"
	"fmt"
	"math"
)

// ggufType is one of GGUF's element types. Its rows are blocks of `block` elements in `size` bytes.
type ggufType struct {
	name  string
	block int
	size  int
	// dequantise turns one block into float32 [block]; nil where the type is known but not supported.
	dequantise func(in []byte, out []float32)
}

// ggufTypes: every type of the format, so that a file with one unsupported tensor still tells its sizes; the formulas are
// those of llama.cpp's ggml-quants.c (dequantize_row_*), bit for bit.
var ggufTypes = map[uint32]ggufType{
	0:  {"F32", 1, 4, func(in []byte, out []float32) { out[0] = math.Float32frombits(binary.LittleEndian.Uint32(in)) }},
	1:  {"F16", 1, 2, func(in []byte, out []float32) { out[0] = half(in) }},
	2:  {"Q4_0", 32, 18, dequantiseQ40},
	3:  {"Q4_1", 32, 20, dequantiseQ41},
	6:  {"Q5_0", 32, 22, dequantiseQ50},
	7:  {"Q5_1", 32, 24, dequantiseQ51},
	8:  {"Q8_0", 32, 34, dequantiseQ80},
	9:  {"Q8_1", 32, 36, nil},
	10: {"Q2_K", 256, 84, nil},
	11: {"Q3_K", 256, 110, nil},
	12: {"Q4_K", 256, 144, dequantiseQ4K},
	13: {"Q5_K", 256, 176, dequantiseQ5K},
	14: {"Q6_K", 256, 210, dequantiseQ6K},
	15: {"Q8_K", 256, 292, nil},
	16: {"IQ2_XXS", 256, 66, nil},
	17: {"IQ2_XS", 256, 74, nil},
	18: {"IQ3_XXS", 256, 98, nil},
	19: {"IQ1_S", 256, 50, nil},
	20: {"IQ4_NL", 32, 18, nil},
	21: {"IQ3_S", 256, 110, nil},
	22: {"IQ2_S", 256, 82, nil},
	23: {"IQ4_XS", 256, 136, nil},
	24: {"I8", 1, 1, nil},
	25: {"I16", 1, 2, nil},
	26: {"I32", 1, 4, nil},
	27: {"I64", 1, 8, nil},
	28: {"F64", 1, 8, nil},
	29: {"IQ1_M", 256, 56, nil},
	30: {"BF16", 1, 2, func(in []byte, out []float32) { out[0] = bfloat16(binary.LittleEndian.Uint16(in)) }},
	34: {"TQ1_0", 256, 54, nil},
	35: {"TQ2_0", 256, 66, nil},
	39: {"MXFP4", 32, 17, nil},
	40: {"NVFP4", 64, 36, nil},
	41: {"Q1_0", 128, 18, nil},
}

const supportedQuants = "F32, F16, BF16, Q8_0, Q5_0, Q5_1, Q4_0, Q4_1, Q4_K, Q5_K, Q6_K"

func half(in []byte) float32 { return float16(binary.LittleEndian.Uint16(in)) }

// dequantiseAll turns whole blocks into float32, little-endian, appending nothing: out has 4 bytes per element.
func (q ggufType) dequantiseAll(in, out []byte) error {
	if q.dequantise == nil {
		return fmt.Errorf("type %s is not supported; supported are %s", q.name, supportedQuants)
	}
	values := make([]float32, q.block)
	for len(in) > 0 {
		q.dequantise(in[:q.size], values)
		for i, v := range values {
			binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(v))
		}
		in, out = in[q.size:], out[4*q.block:]
	}
	return nil
}

// The float32() conversions around products keep Go from fusing them with the addition that follows.

// dequantiseQ40: half d, 16 bytes of two 4-bit numbers; low nibbles come first. d * (q - 8).
func dequantiseQ40(in []byte, out []float32) {
	d := half(in)
	for i, b := range in[2:18] {
		out[i] = float32(int(b&15)-8) * d
		out[i+16] = float32(int(b>>4)-8) * d
	}
}

// dequantiseQ41: half d, half m. d * q + m.
func dequantiseQ41(in []byte, out []float32) {
	d, m := half(in), half(in[2:])
	for i, b := range in[4:20] {
		out[i] = float32(float32(b&15)*d) + m
		out[i+16] = float32(float32(b>>4)*d) + m
	}
}

// dequantiseQ50: half d, 32 fifth bits, nibbles. d * (q - 16).
func dequantiseQ50(in []byte, out []float32) {
	d, high := half(in), binary.LittleEndian.Uint32(in[2:])
	for i, b := range in[6:22] {
		out[i] = float32(int(uint32(b&15)|high>>i<<4&16)-16) * d
		out[i+16] = float32(int(uint32(b>>4)|high>>(i+16)<<4&16)-16) * d
	}
}

// dequantiseQ51: half d, half m, 32 fifth bits, nibbles. d * q + m.
func dequantiseQ51(in []byte, out []float32) {
	d, m, high := half(in), half(in[2:]), binary.LittleEndian.Uint32(in[4:])
	for i, b := range in[8:24] {
		out[i] = float32(float32(uint32(b&15)|high>>i<<4&16)*d) + m
		out[i+16] = float32(float32(uint32(b>>4)|high>>(i+16)<<4&16)*d) + m
	}
}

// dequantiseQ80: half d, 32 signed bytes. d * q.
func dequantiseQ80(in []byte, out []float32) {
	d := half(in)
	for i, b := range in[2:34] {
		out[i] = float32(int8(b)) * d
	}
}

// scaleMin unpacks the 6-bit scale and minimum of sub-block j (of 8) from the 12 bytes that Q4_K and Q5_K pack them in.
func scaleMin(j int, s []byte) (scale, minimum byte) {
	if j < 4 {
		return s[j] & 63, s[j+4] & 63
	}
	return s[j+4]&15 | s[j-4]>>6<<4, s[j+4]>>4 | s[j]>>6<<4
}

// dequantiseQ4K: half d, half dmin, 12 bytes of scales, 128 of nibbles. Sub-blocks of 32: d*scale*q - dmin*minimum.
func dequantiseQ4K(in []byte, out []float32) {
	d, dmin, scales, qs := half(in), half(in[2:]), in[4:16], in[16:144]
	for j := range 8 {
		scale, minimum := scaleMin(j, scales)
		d1, m1 := d*float32(scale), dmin*float32(minimum)
		for i, b := range qs[j/2*32 : j/2*32+32] {
			out[32*j+i] = float32(d1*float32(b>>(4*(j%2))&15)) - m1
		}
	}
}

// dequantiseQ5K: as Q4_K, with 32 bytes of fifth bits (bit j of byte i belongs to sub-block j) before the nibbles.
func dequantiseQ5K(in []byte, out []float32) {
	d, dmin, scales, high, qs := half(in), half(in[2:]), in[4:16], in[16:48], in[48:176]
	for j := range 8 {
		scale, minimum := scaleMin(j, scales)
		d1, m1 := d*float32(scale), dmin*float32(minimum)
		for i, b := range qs[j/2*32 : j/2*32+32] {
			q := b>>(4*(j%2))&15 | high[i]>>j&1<<4
			out[32*j+i] = float32(d1*float32(q)) - m1
		}
	}
}

// dequantiseQ6K: 128 bytes of low nibbles, 64 of upper bit pairs, 16 signed scales, half d. d * scale * (q - 32).
func dequantiseQ6K(in []byte, out []float32) {
	low, high, scales, d := in[:128], in[128:192], in[192:208], half(in[208:])
	for n := range 2 { // halves of 128
		for i := range 32 {
			h := high[32*n+i]
			for k := range 4 { // quarters of 32
				q := low[64*n+32*(k%2)+i]>>(4*(k/2))&15 | h>>(2*k)&3<<4
				scale := float32(int8(scales[8*n+2*k+i/16]))
				out[128*n+32*k+i] = float32(d*scale) * float32(int(q)-32)
			}
		}
	}
}
