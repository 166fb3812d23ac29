// Command agentfly trains language-model agents; see agentfly --help.
package main

import "github.com/agentfly/agentfly"

func main() { agentfly.Main() }
