package httptool

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"go.yaml.in/yaml/v3"
)

// decode reads JSON or YAML. JSON is not left to the YAML library, which refuses tabs and pairs of \u escapes; of YAML keys are texts, and
// dates, which JSON does not have.
func decode(data []byte) (v any, err error) {
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	if json.Valid(data) {
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		err = d.Decode(&v)
		return v, err
	}
	var n yaml.Node
	if err = yaml.Unmarshal(data, &n); err == nil && n.Kind != 0 { // 0: nothing stands there
		texts(&n)
		err = n.Decode(&v)
	}
	if err != nil {
		err = errors.New(strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " "))
	}
	return v, err
}

// texts makes texts of what JSON has none of.
func texts(n *yaml.Node) {
	for i, c := range n.Content {
		key := n.Kind == yaml.MappingNode && i%2 == 0 && c.ShortTag() != "!!merge"
		if c.Kind == yaml.ScalarNode && (key || c.ShortTag() == "!!timestamp") {
			c.Tag = "!!str"
		}
		texts(c)
	}
}
