package modelfile

import (
	"encoding/binary"
	"fmt"
	"math"
)

// DType is the element type of a tensor, in the names of safetensors.
type DType string

// The element types that a weight may have. Quantised GGUF tensors are dequantised to F32 when they are read.
const (
	F32  DType = "F32"
	F16  DType = "F16"
	BF16 DType = "BF16"
	F64  DType = "F64"
)

// dtypeSizes: bytes per element of every whole-byte type that safetensors files hold.
var dtypeSizes = map[DType]int{
	F64: 8, F32: 4, F16: 2, BF16: 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1,
	"BOOL": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1, "C64": 8,
}

// Size is the number of bytes of one element.
func (d DType) Size() int { return dtypeSizes[d] }

// TensorInfo says what a tensor is, without its data.
type TensorInfo struct {
	Name  string // as transformers names it
	DType DType  // what Tensor.Data holds
	Shape []int  // row-major; empty for a scalar
	Type  string // as stored: a DType, or a GGUF type such as Q4_1
	File  string // base name of the file that holds it
}

// Elements is the product of the shape.
func (t TensorInfo) Elements() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Tensor is a tensor with its data.
type Tensor struct {
	TensorInfo
	// Data is little-endian, row-major, [Elements * DType.Size]. It is borrowed from the file's mapping and valid until the
	// model is closed, or new memory where the tensor was dequantised or reordered. It must not be written to.
	Data []byte
}

// Float32 converts the data: [Elements]. F64 is rounded; other types are refused by name.
func (t Tensor) Float32() ([]float32, error) {
	out := make([]float32, t.Elements())
	switch t.DType {
	case F32:
		for i := range out {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
		}
	case BF16:
		for i := range out {
			out[i] = bfloat16(binary.LittleEndian.Uint16(t.Data[2*i:]))
		}
	case F16:
		for i := range out {
			out[i] = float16(binary.LittleEndian.Uint16(t.Data[2*i:]))
		}
	case F64:
		for i := range out {
			out[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(t.Data[8*i:])))
		}
	default:
		return nil, fmt.Errorf("modelfile: %s: %s has type %s; weights must be F32, F16, BF16 or F64", t.File, t.Name, t.DType)
	}
	return out, nil
}

func bfloat16(v uint16) float32 { return math.Float32frombits(uint32(v) << 16) }

// float16 widens an IEEE half; every half is exact in float32, NaN payloads included.
func float16(v uint16) float32 {
	sign, exponent, fraction := uint32(v&0x8000)<<16, uint32(v>>10)&31, uint32(v)&0x3ff
	switch exponent {
	case 31: // infinity, NaN
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	case 0: // zero, subnormal: fraction * 2^-24
		f := float32(fraction) * (1.0 / (1 << 24))
		return math.Float32frombits(sign | math.Float32bits(f))
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}

// toBFloat16 rounds to nearest, ties to even; a NaN stays one.
func toBFloat16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// toFloat16 rounds to nearest, ties to even; what is too large becomes infinite.
func toFloat16(f float32) uint16 {
	b := math.Float32bits(f)
	sign, b := uint16(b>>16)&0x8000, b&0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00 | uint16(b>>13)&0x3ff
	case b >= 0x477ff000: // rounds to 65536 or more
		return sign | 0x7c00
	case b < 0x38800000: // below 2^-14: a multiple of 2^-24, rounded by the float adder
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-math.Float32bits(0.5))
	}
	return sign | uint16((b-0x38000000+0xfff+b>>13&1)>>13)
}

// Encode converts float32 values to little-endian dtype (F32, F16 or BF16), appending to dst.
func Encode(dst []byte, values []float32, dtype DType) ([]byte, error) {
	switch dtype {
	case F32:
		for _, v := range values {
			dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(v))
		}
	case F16:
		for _, v := range values {
			dst = binary.LittleEndian.AppendUint16(dst, toFloat16(v))
		}
	case BF16:
		for _, v := range values {
			dst = binary.LittleEndian.AppendUint16(dst, toBFloat16(v))
		}
	default:
		return dst, fmt.Errorf("modelfile: cannot write weights as %q; use F32, F16 or BF16", dtype)
	}
	return dst, nil
}
