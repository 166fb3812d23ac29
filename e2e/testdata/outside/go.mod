module example.com/outside

go 1.26.0

require github.com/agentfly/agentfly v0.0.0

replace github.com/agentfly/agentfly => ../../..
