package mcp

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/tools"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// observation is what a server's result says to the model: its texts, one below the other, its first image, and what it left out. An
// object of structured content is for rewards, and is the text where there is none.
func observation(result *sdk.CallToolResult) (tools.Observation, error) {
	var o tools.Observation
	var lines []string
	images, audio := 0, 0
	for _, part := range result.Content {
		switch part := part.(type) {
		case *sdk.TextContent:
			lines = append(lines, part.Text)
		case *sdk.ImageContent:
			if images++; images == 1 {
				o.Image = "data:" + part.MIMEType + ";base64," + base64.StdEncoding.EncodeToString(part.Data)
			}
		case *sdk.AudioContent:
			audio++
		case *sdk.ResourceLink:
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s: %s %s", part.Name, part.URI, part.Description)))
		case *sdk.EmbeddedResource:
			lines = append(lines, resourceText(part.Resource))
		}
	}
	if images > 1 {
		lines = append(lines, fmt.Sprintf("[%d more images left out]", images-1))
	}
	if audio > 0 {
		lines = append(lines, "[sound left out]")
	}
	if result.StructuredContent != nil {
		content, err := structured(result)
		if err != nil {
			return o, fmt.Errorf("the structured content cannot be read: %w", err)
		}
		var object bool
		if o.Info, object = content.(map[string]any); !object {
			o.Info = map[string]any{"result": content}
		}
		if len(result.Content) == 0 {
			data, err := wording.JSON(content)
			if err != nil {
				return o, err
			}
			lines = append(lines, string(data))
		}
	}
	o.Text = strings.Join(lines, "\n")
	if result.IsError {
		if o.Text == "" {
			o.Text = "the tool failed without saying why; try other arguments"
		}
		return tools.Observation{}, &tools.TextError{Text: o.Text}
	}
	return o, nil
}

// structured is the structured content of a result, with the digits of its numbers as the server wrote them.
func structured(result *sdk.CallToolResult) (content any, err error) {
	text, ok := result.Meta[exactKey].(string)
	if !ok {
		return result.StructuredContent, nil
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	err = d.Decode(&content)
	return content, err
}

func resourceText(r *sdk.ResourceContents) string {
	switch {
	case r == nil:
		return ""
	case r.Blob != nil:
		return fmt.Sprintf("[%s: %d bytes left out]", r.URI, len(r.Blob))
	default:
		return r.Text
	}
}
