package export

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
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

// eventFile has TensorBoard's pattern. A run is always written into the same file, so that a second export does not show it twice.
func eventFile(c Curves) string {
	return fmt.Sprintf("events.out.tfevents.%d.%s", c.Began.Unix(), c.Run)
}

func writeEvents(w io.Writer, c Curves) error {
	if _, err := w.Write(record(event(c.Began, 0, bytesField(nil, 3, []byte("brain.Event:2"))))); err != nil {
		return err
	}
	steps := map[int][]byte{} // summaries
	_ = c.each(func(p point) error {
		steps[p.Step] = bytesField(steps[p.Step], 1, scalar(p.Metric, p.Value))
		return nil
	})
	order := make([]int, 0, len(steps))
	for step := range steps {
		order = append(order, step)
	}
	slices.Sort(order)
	for _, step := range order {
		at := c.Began
		if seconds := c.Metrics["seconds/elapsed"].At(step); seconds != nil {
			at = at.Add(time.Duration(*seconds * float64(time.Second)))
		}
		if _, err := w.Write(record(event(at, step, bytesField(nil, 5, steps[step])))); err != nil {
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
	b := append(bytesField(nil, 1, []byte(tag)), 2<<3|5)
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
}

// bytesField appends a field of bytes, texts or messages.
func bytesField(b []byte, number byte, value []byte) []byte {
	return append(binary.AppendUvarint(append(b, number<<3|2), uint64(len(value))), value...)
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
