package weights

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

// scriptedServer is the variable that makes this test binary a server that the job starts; its value says which.
const scriptedServer = "AGENTFLY_SCRIPTED_SERVER"

func TestMain(m *testing.M) {
	if kind := os.Getenv(scriptedServer); kind != "" {
		os.Exit(serveScripted(kind, os.Args))
	}
	goleak.VerifyTestMain(m)
}

// serveScripted is `vllm serve` as far as its start goes. It says who it is, and ends at once where kind is "broken", else at /end.
func serveScripted(kind string, args []string) int {
	fmt.Println("this is a server that is", kind)
	if kind == "broken" {
		return 3
	}
	http.HandleFunc("/health", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("/end", func(http.ResponseWriter, *http.Request) { os.Exit(4) })
	fmt.Println(http.ListenAndServe("127.0.0.1:"+args[slices.Index(args, "--port")+1], nil))
	return 1
}
