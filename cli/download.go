package cli

import (
	"fmt"
	"sync"
	"time"

	"github.com/agentfly/agentfly/internal/plot"
	"github.com/agentfly/agentfly/internal/terminal"
)

// download is what is drawn while a model is fetched. The zero value is one that has not begun. It is safe for concurrent use.
type download struct {
	mu         sync.Mutex
	file       string
	have, size int64 // bytes; size -1 is not known
	began      time.Time
	at         int64 // bytes when it began
}

// progress takes what the hub tells.
func (d *download) progress(file string, have, size int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if file != d.file {
		d.file, d.began, d.at = file, time.Now(), have
	}
	d.have, d.size = have, size
}

func (d *download) lines(columns, _ int) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.file == "" {
		return nil
	}
	speed := ""
	if s := time.Since(d.began).Seconds(); s > 0.5 {
		speed = fmt.Sprintf("%.1f MB/s", float64(d.have-d.at)/s/1e6)
	}
	if d.size <= 0 {
		return []string{terminal.Join(columns-1, terminal.Text(d.file), fmt.Sprintf("%.1f MB", float64(d.have)/1e6), speed)}
	}
	part := float64(d.have) / float64(d.size)
	return []string{terminal.Join(columns-1, terminal.Text(d.file), "["+plot.Bar(int(1000*part), 1000, 20)+"]", fmt.Sprintf("%.0f%% of %.1f MB", 100*part, float64(d.size)/1e6), speed)}
}
