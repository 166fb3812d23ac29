package export

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"

	"github.com/agentfly/agentfly/orchestrator/overview"
)

// An offline run of W&B is a log of protocol buffers (wandb/proto/wandb_internal.proto, Record) in the frame of LevelDB's logs, with zlib's CRC-32 in place
// of the masked CRC-32C: blocks of 32 KiB, the first of which begins with a header of 7 bytes; in them chunks of
//
//	checksum uint32 of kind and data
//	length   uint16
//	kind     1 whole, 2 first, 3 middle, 4 last
//	data
//
// Fewer bytes than a chunk's head at the end of a block are zeros.

var wandb = Format{Name: "wandb", Description: "curves as an offline run of W&B, for `wandb sync`", File: wandbFile, Write: writeWandb}

// wandbID is the run's id, the same for the same run, so that W&B takes a second export for the same one.
func wandbID(r Run) string {
	known := fmt.Sprintf("%d %s", r.Began.Unix(), r.Name)
	if r.ID != "" {
		known += " " + r.ID
	}
	return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(known)))
}

// wandbFile is a path as W&B has it.
func wandbFile(r Run) string {
	id := wandbID(r)
	return fmt.Sprintf("offline-run-%s-%s/run-%s.wandb", r.Began.UTC().Format("20060102_150405"), id, id)
}

func writeWandb(_ context.Context, w io.Writer, r Run) error {
	l := wandbLog{w: w}
	if _, err := l.write([]byte(":W&B\xe1\xbe\x00")); err != nil {
		return err
	}
	var config []byte
	for _, setting := range []struct{ name, value string }{{"algorithm", r.Algorithm}, {"model", r.Model}} {
		config = bytesField(config, 1, wandbItem(setting.name, setting.value))
	}
	run := textField(textField(nil, 1, wandbID(r)), 3, "agentfly")
	run = bytesField(textField(bytesField(run, 4, config), 8, r.Name), 17, intField(nil, 1, r.Began.Unix()))
	version := textField(textField(nil, 1, "0.31.0"), 2, "0.70.0") // that it is written like, and the oldest that reads it
	records := []wandbRecord{{21, bytesField(nil, 1, version)}, {17, run}}
	order, values := r.steps()
	for _, step := range order {
		at := r.at(step)
		var all []byte
		for _, key := range slices.Sorted(maps.Keys(values[step])) {
			all = bytesField(all, 1, wandbItem(key, values[step][key]))
		}
		all = bytesField(all, 1, wandbItem("_step", step))
		all = bytesField(all, 1, wandbItem("_timestamp", float64(at.UnixNano())/1e9))
		all = bytesField(all, 1, wandbItem("_runtime", at.Sub(r.Began).Seconds()))
		history := bytesField(slices.Clone(all), 2, intField(nil, 1, int64(step)))
		records = append(records, wandbRecord{2, history}, wandbRecord{3, all}) // history, summary
	}
	switch r.State {
	case overview.Running: // it has not ended
	case overview.Failed:
		records = append(records, wandbRecord{18, intField(nil, 1, 1)}) // exit
	case overview.Interrupted:
		records = append(records, wandbRecord{18, intField(nil, 1, 255)}) // as wandb ends a run at Ctrl-C
	default:
		records = append(records, wandbRecord{18, intField(nil, 1, 0)})
	}
	for i, record := range records {
		if err := l.add(bytesField(intField(nil, 1, int64(i+1)), record.field, record.body)); err != nil {
			return err
		}
	}
	return nil
}

type wandbRecord struct {
	field byte
	body  []byte
}

// wandbItem is a HistoryItem, SummaryItem or ConfigItem: key (1), value_json (16).
func wandbItem(key string, v any) []byte {
	text, _ := json.Marshal(v) // a finite number or a text
	return textField(textField(nil, 1, key), 16, string(text))
}

// wandbLog writes chunks into blocks.
type wandbLog struct {
	w io.Writer
	n int // bytes written
}

func (l *wandbLog) write(b []byte) (int, error) {
	n, err := l.w.Write(b)
	l.n += n
	return n, err
}

func (l *wandbLog) add(data []byte) error {
	const block, head = 32 << 10, 7
	for first := true; first || len(data) > 0; first = false {
		room := block - l.n%block
		if room < head {
			if _, err := l.write(make([]byte, room)); err != nil {
				return err
			}
			room = block
		}
		n := min(len(data), room-head)
		kind := byte(3)
		switch last := n == len(data); {
		case first && last:
			kind = 1
		case first:
			kind = 2
		case last:
			kind = 4
		}
		chunk := binary.LittleEndian.AppendUint32(nil, crc32.Update(crc32.ChecksumIEEE([]byte{kind}), crc32.IEEETable, data[:n]))
		chunk = append(binary.LittleEndian.AppendUint16(chunk, uint16(n)), kind)
		if _, err := l.write(append(chunk, data[:n]...)); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}
