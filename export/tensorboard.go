package export

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// An event file is a list of records, each a protocol buffer tensorflow.Event (tensorflow/core/util/event.proto) in the frame of a TFRecord:
//
//	length   uint64, little endian
//	         masked CRC-32C of the length
//	event    bytes
//	         masked CRC-32C of the event
//
// The first event names the version of the format; each of the others holds the scalars of a step.

var tensorboard = Format{Name: "tensorboard", Description: "an event file for TensorBoard", File: eventFile, Write: writeEvents}

// eventFile has TensorBoard's pattern. A run is always written into the same file, so that a second export does not show it twice.
func eventFile(r Run) string {
	return fmt.Sprintf("events.out.tfevents.%d.%s", r.Began.Unix(), r.Name)
}

func writeEvents(_ context.Context, w io.Writer, r Run) error {
	if _, err := w.Write(record(event(r.Began, 0, bytesField(nil, 3, []byte("brain.Event:2"))))); err != nil {
		return err
	}
	order, values := r.steps()
	for _, step := range order {
		var summary []byte
		for _, key := range slices.Sorted(maps.Keys(values[step])) {
			summary = bytesField(summary, 1, scalar(key, values[step][key]))
		}
		if _, err := w.Write(record(event(r.at(step), step, bytesField(nil, 5, summary)))); err != nil {
			return err
		}
	}
	return nil
}

// event is a tensorflow.Event: wall_time (1, double), step (2, int64) and what it holds.
func event(at time.Time, step int, holds []byte) []byte {
	b := append([]byte{1<<3 | 1}, binary.LittleEndian.AppendUint64(nil, math.Float64bits(float64(at.UnixNano())/1e9))...)
	b = binary.AppendUvarint(append(b, 2<<3), uint64(step))
	return append(b, holds...)
}

// scalar is a tensorflow.Summary.Value: tag (1, string), simple_value (2, float).
func scalar(tag string, v float64) []byte {
	b := append(textField(nil, 1, tag), 2<<3|5)
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
}

// bytesField appends a field of bytes or messages.
func bytesField(b []byte, number byte, value []byte) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(number)<<3|2), uint64(len(value)))
	return append(b, value...)
}

// textField appends a text, which has to be UTF-8.
func textField(b []byte, number byte, value string) []byte {
	return bytesField(b, number, []byte(strings.ToValidUTF8(value, "\uFFFD")))
}

// intField appends a number that is not negative.
func intField(b []byte, number byte, value int64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(number)<<3), uint64(value))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked is the checksum of a TFRecord.
func masked(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

func record(event []byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(event)))
	b = binary.LittleEndian.AppendUint32(b, masked(b))
	b = append(b, event...)
	return binary.LittleEndian.AppendUint32(b, masked(event))
}
