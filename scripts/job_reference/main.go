// Job_reference prints docs/job-reference.md: go run ./scripts/job_reference >docs/job-reference.md
package main

import (
	"fmt"
	"os"

	"github.com/agentfly/agentfly/orchestrator/job"
)

func main() {
	page, err := job.Reference()
	if err != nil {
		fmt.Fprintln(os.Stderr, "job_reference:", err)
		os.Exit(1)
	}
	fmt.Print(page)
}
