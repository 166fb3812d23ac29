// HTTP is the calculator as a service, for examples/tiny_http.yaml: GET /calculate?expression=1%2B2 answers 3.
package main

import (
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/agentfly/agentfly/tools/calculator"
)

const address = "127.0.0.1:8642"

func main() {
	http.HandleFunc("GET /calculate", func(w http.ResponseWriter, q *http.Request) {
		result, err := calculator.Evaluate(q.Context(), q.URL.Query().Get("expression"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		fmt.Fprint(w, result)
	})
	log.Printf("calculator on http://%s/calculate", address)
	server := &http.Server{Addr: address, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second}
	log.Fatal(server.ListenAndServe())
}
