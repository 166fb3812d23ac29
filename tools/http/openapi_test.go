package httptool

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/tools"
)

func testdata(t *testing.T, name string) string {
	data, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return string(data)
}

// ofDocument makes the tools of a document that lies in a file.
func ofDocument(t *testing.T, text string, entry map[string]any) ([]tools.Tool, error) {
	file := filepath.Join(t.TempDir(), "api.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	entry["openapi"] = file
	return source(t, entry)
}

// registered are the tools that can be, and the errors of the others.
func registered(t *testing.T, made []tools.Tool) (*tools.Registry, map[string]string) {
	r, refused := tools.NewRegistry(tools.Options{}), map[string]string{}
	for _, tool := range made {
		if err := r.Register(tool); err != nil {
			refused[tool.Spec().Name] = strings.TrimPrefix(err.Error(), fmt.Sprintf("tools: register %q: ", tool.Spec().Name))
		}
	}
	return r, refused
}

func TestOperationsAreTools(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		fmt.Fprintf(w, "%s %s body=%s trace=%s", q.Method, q.URL.RequestURI(), body, q.Header.Get("X-Trace"))
	})
	made, err := ofDocument(t, testdata(t, "pets.yaml"), map[string]any{"url": url + "/v1?key=given-by-the-job"})
	require.NoError(t, err)
	r, refused := registered(t, made)
	require.Empty(t, refused)
	schemas := map[string]string{}
	for _, s := range r.Specs() {
		schemas[s.Name] = string(s.Parameters)
	}
	require.Len(t, schemas, 5)
	require.JSONEq(t, `{
		"type": "object", "additionalProperties": false,
		"properties": {
			"limit": {"type": "integer", "maximum": 100, "description": "How many."},
			"tags": {"type": "array", "items": {"type": "string"}},
			"ids": {"type": "array", "items": {"type": "integer"}}
		}
	}`, schemas["listPets"])
	require.JSONEq(t, `{
		"type": "object", "additionalProperties": false, "required": ["kind", "name"],
		"properties": {
			"name": {"type": "string", "description": "What it is called."},
			"kind": {"type": "string", "enum": ["cat", "dog"]},
			"born": {"type": ["string", "null"], "format": "date"},
			"owner": {"type": "object", "properties": {"email": {"type": "string"}}, "required": ["email"]}
		}
	}`, schemas["createPet"])
	require.JSONEq(t, `{
		"type": "object", "additionalProperties": false, "required": ["body", "petId"],
		"properties": {
			"petId": {"type": "string"},
			"body": {"type": "object", "properties": {"petId": {"type": "string"}, "note": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}}
		}
	}`, schemas["put_pets_petId"])
	require.Equal(t, "Lists pets. The newest first.", r.Specs()[3].Description)

	for name, c := range map[string]struct{ tool, arguments, want string }{
		"query":      {"listPets", `{"limit": 3, "tags": ["a", "b"], "ids": [1, 2]}`, "GET /v1/pets?key=given-by-the-job&ids=1%2C2&limit=3&tags=a&tags=b body= trace="},
		"body":       {"createPet", `{"name": "Rex", "kind": "dog", "owner": {"email": "a@b"}}`, `POST /v1/pets?key=given-by-the-job body={"kind":"dog","name":"Rex","owner":{"email":"a@b"}} trace=`},
		"header":     {"getPet", `{"petId": "a b", "X-Trace": "t1"}`, "GET /v1/pets/a%20b?key=given-by-the-job body= trace=t1"},
		"whole body": {"put_pets_petId", `{"petId": "7", "body": {"petId": "7", "note": 3}}`, `PUT /v1/pets/7?key=given-by-the-job body={"petId": "7", "note": 3} trace=`},
		"no body":    {"delete_pet", `{"petId": "7"}`, "DELETE /v1/pets/7?key=given-by-the-job body= trace="},
	} {
		got := invoke(t, r, c.tool, c.arguments).Observation
		require.Equal(t, strings.ReplaceAll(c.want, "given-by-the-job", "(secret)"), got, name)
	}
	require.Equal(t, `Error: getPet: the argument "X-Trace" must be one line without control characters`, invoke(t, r, "getPet", `{"petId": "a", "X-Trace": "a\r\nHost: evil"}`).Observation)
	require.Contains(t, invoke(t, r, "createPet", `{"name": "Rex", "kind": "cow"}`).Observation, `the argument "kind" must be one of "cat", "dog", got the string "cow"`)
	for name, idempotent := range map[string]bool{"listPets": true, "createPet": false, "delete_pet": true} {
		tool, err := r.Lookup(name)
		require.NoError(t, err)
		require.Equal(t, idempotent, tool.Spec().Idempotent)
	}
}

// An escaped slash of the job's URL, or of a path in the document, is no slash.
func TestEscapedPathsOfADocument(t *testing.T) {
	url := serve(t, echo)
	made, err := ofDocument(t, `{"openapi": "3.0.0", "paths": {"/all%2Fopen/{iid}": {"get": {"operationId": "one", "parameters": [{"name": "iid", "in": "path", "schema": {"type": "integer"}}]}}}}`,
		map[string]any{"url": url + "/projects/group%2Fproject"})
	require.NoError(t, err)
	r, refused := registered(t, made)
	require.Empty(t, refused)
	require.Equal(t, "GET /projects/group%2Fproject/all%2Fopen/7 body= type=", invoke(t, r, "one", `{"iid": 7}`).Observation)
}

// A body is sent as the type that the document names; of several JSON types application/json is taken.
func TestTypesOfBodies(t *testing.T) {
	url := serve(t, echo)
	made, err := ofDocument(t, `
openapi: 3.0.0
paths:
  /pods:
    patch:
      operationId: patch
      requestBody: {required: true, content: {application/merge-patch+json: {schema: {type: object, properties: {n: {type: integer}}}}}}
    post:
      operationId: make
      requestBody:
        required: true
        content:
          application/hal+json: {schema: {type: object, properties: {links: {type: string}}}}
          application/json; charset=utf-8: {schema: {type: object, properties: {n: {type: integer}}}}
    put:
      operationId: put
      requestBody: {content: {application/vnd.api+json: {schema: {type: object, properties: {n: {type: integer}}}}}}
  /range:
    post:
      operationId: range
      requestBody: {required: true, content: {application/*+json: {schema: {type: object, properties: {n: {type: integer}}}}}}
`, map[string]any{"url": url})
	require.NoError(t, err)
	r, refused := registered(t, made)
	require.Empty(t, refused)
	require.Equal(t, `POST /range body={"n":3} type=application/json`, invoke(t, r, "range", `{"n": 3}`).Observation)
	require.Equal(t, `PATCH /pods body={"n":3} type=application/merge-patch+json`, invoke(t, r, "patch", `{"n": 3}`).Observation)
	require.Equal(t, `POST /pods body={"n":3} type=application/json; charset=utf-8`, invoke(t, r, "make", `{"n": 3}`).Observation)
	require.Equal(t, `PUT /pods body={"n": 3} type=application/vnd.api+json`, invoke(t, r, "put", `{"body": {"n": 3}}`).Observation)
	require.Equal(t, `PUT /pods body= type=`, invoke(t, r, "put", `{}`).Observation)
}

// A document may come from its service, and its server may be relative to it.
func TestADocumentFromItsService(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/docs/api.json" {
			require.Empty(t, q.Header.Get("Authorization"), "the job's headers are for its requests")
			io.WriteString(w, `{"openapi": "3.1.0", "servers": [{"url": "../{version}", "variables": {"version": {"default": "v2"}}}], "paths": {"/now": {"get": {"responses": {"200": {}}}}}}`)
			return
		}
		fmt.Fprint(w, q.URL.Path, " ", q.Header.Get("Authorization"))
	})
	made, err := source(t, map[string]any{"openapi": url + "/docs/api.json", "headers": map[string]any{"Authorization": "Bearer hunter2"}})
	require.NoError(t, err)
	r, refused := registered(t, made)
	require.Empty(t, refused)
	require.Equal(t, "/v2/now (secret)", invoke(t, r, "get_now", "{}").Observation)
	_, err = source(t, map[string]any{"openapi": url + "/docs/none.json"})
	require.ErrorContains(t, err, "openapi: the document is neither JSON nor YAML: what stands there is no object")
}

// The job's headers go to hosts that the job names, and to no other that a document names.
func TestHeadersGoWhereTheJobSays(t *testing.T) {
	asked := false
	thief := serve(t, func(http.ResponseWriter, *http.Request) { asked = true })
	document := fmt.Sprintf(`{"openapi": "3.1.0", "servers": [{"url": %q}], "paths": {"/now": {"get": {"responses": {"200": {}}}}}}`, thief+"/v1")
	own := serve(t, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/api.json" {
			io.WriteString(w, document)
			return
		}
		fmt.Fprint(w, q.URL.Path, " ", q.Header.Get("X-Key"))
	})
	headers := map[string]any{"X-Key": "hunter2", "Accept": "text/plain"}
	want := `openapi: the document's server is ` + thief + `, which the job does not name, and requests there would bear the job's headers Accept, X-Key; give that address as url if it may have them, or leave headers out`
	_, err := source(t, map[string]any{"openapi": own + "/api.json", "headers": headers})
	require.EqualError(t, err, want)
	require.NotContains(t, err.Error(), "hunter2")
	_, err = ofDocument(t, document, map[string]any{"headers": headers})
	require.EqualError(t, err, want)
	_, err = source(t, map[string]any{"openapi": own + "/api.json", "headers": headers, "url": own + "/v2"}) // the job's own
	require.NoError(t, err)
	_, err = ofDocument(t, document, map[string]any{"headers": headers, "url": thief + "/v3"})
	require.NoError(t, err)
	_, err = ofDocument(t, document, map[string]any{})
	require.NoError(t, err, "there is nothing to steal")
	for _, other := range []string{"https" + strings.TrimPrefix(own, "http"), strings.Replace(own, "127.0.0.1", "localhost", 1)} {
		document = fmt.Sprintf(`{"openapi": "3.1.0", "servers": [{"url": %q}], "paths": {"/now": {"get": {"responses": {"200": {}}}}}}`, other)
		_, err = source(t, map[string]any{"openapi": own + "/api.json", "headers": headers})
		require.ErrorContains(t, err, "which the job does not name", other)
	}
	require.False(t, asked)
}

// What is not supported is refused by its name, and only where a job takes it.
func TestUnsupportedOperations(t *testing.T) {
	made, err := ofDocument(t, testdata(t, "unsupported.yaml"), map[string]any{})
	require.NoError(t, err)
	r, refused := registered(t, made)
	require.Equal(t, []string{"fine"}, r.Names())
	require.Equal(t, map[string]string{
		"deep":      `openapi: GET /deep: parameter "filter": style deepObject in query is not supported; form is`,
		"cookie":    `openapi: GET /cookie: parameter "session": its place "cookie" is not supported; path, query and header are`,
		"content":   `openapi: GET /content: parameter "filter": content in a parameter is not supported; schema is`,
		"object":    `openapi: GET /object: parameter "filter": an object outside the body is not supported`,
		"upload":    `openapi: POST /upload: a body of type multipart/form-data is not supported; application/json is`,
		"tree":      `openapi: POST /tree: body: the schema "#/components/schemas/Tree" contains itself, which is not supported`,
		"outside":   `openapi: POST /outside: body: the reference "other.yaml#/Pet" leaves the document, which is not supported`,
		"nothing":   `openapi: POST /nothing: body: the reference "#/components/schemas/None" names nothing`,
		"twice":     `openapi: GET /twice/{id}: two parameters are named "id", which is not supported`,
		"forgotten": `openapi: GET /forgotten/{id}: the path has {id}, and no parameter of this name`,
		"elsewhere": `openapi: GET /elsewhere: servers of its own are not supported`,
		"huge":      `openapi: POST /huge: body: a schema with more than 2000 parts is not supported`,
	}, refused)
}

func TestDocumentsThatCannotBeRead(t *testing.T) {
	for text, want := range map[string]string{
		"{":              "openapi: the document is neither JSON nor YAML: ",
		"swagger: '2.0'": `openapi: the document's key openapi is "<nil>"; versions 3.0 and 3.1 can be read`,
		"openapi: 3.0.0\nservers: [{url: http://h}]": "openapi: the document has no operations",
		"openapi: 3.0.0\npaths: {/a: {get: {}}}":     `openapi: the server "/" is relative, and the document is a file; give the service's address as url`,
		"openapi: 3.0.0\nservers: [{url: http://h}]\npaths: {/a: {get: {operationId: x}}, /b: {get: {operationId: x}}}": `openapi: two operations are named "x"; give one another operationId`,
	} {
		_, err := ofDocument(t, text, map[string]any{})
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "\n")
	}
}

// FuzzDocument: no document panics, and a schema that is made can be read.
func FuzzDocument(f *testing.F) {
	for _, name := range []string{"pets.yaml", "unsupported.yaml"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := parseDocument(data)
		if err != nil {
			return
		}
		d.server()
		made, err := d.tools(func(string, string) bool { return false })
		if err != nil {
			return
		}
		for _, tool := range made {
			if tool.err == nil {
				require.True(t, json.Valid(tool.spec.Parameters))
			}
		}
	})
}

// What documents of the world hold: JSON with tabs and with emoji in ASCII, dates and numbers as keys in YAML, numbers that no float holds.
func TestDocumentsOfTheWorld(t *testing.T) {
	parameters := func(text string) map[string]string {
		made, err := ofDocument(t, text, map[string]any{"url": "http://127.0.0.1:9"})
		require.NoError(t, err)
		out := map[string]string{}
		for _, tool := range made {
			require.NoError(t, tool.(interface{ Err() error }).Err())
			out[tool.Spec().Name] = string(tool.Spec().Parameters)
		}
		return out
	}
	require.Equal(t, map[string]string{
		"wave": `{"additionalProperties":false,"properties":{"n":{"description":"👋","maximum":9223372036854775807,"type":"integer"}},"type":"object"}`,
	}, parameters("{\n\t\"openapi\": \"3.1.0\",\n\t\"paths\": {\"/wave\": {\"get\": {\"operationId\": \"wave\", \"parameters\": [\n"+
		"\t\t{\"name\": \"n\", \"in\": \"query\", \"description\": \"\\ud83d\\udc4b\", \"schema\": {\"type\": \"integer\", \"maximum\": 9223372036854775807}}\n\t]}}}\n}\n"))
	require.Equal(t, map[string]string{
		"get_days": `{"additionalProperties":false,"properties":{"version":{"default":"2022-11-28","enum":["2022-11-28"],"type":"string"}},"type":"object"}`,
		"make": `{"additionalProperties":false,"properties":{"7":{"type":"string"},"name":{"type":"string"},"true":{"type":"string"}},` +
			`"required":["name"],"type":"object"}`,
	}, parameters(`
openapi: 3.0.3
paths:
  /days:
    get:
      operationId: 日
      parameters: [{name: version, in: query, schema: {type: string, enum: [2022-11-28], default: 2022-11-28}}]
    post:
      operationId: make
      requestBody:
        required: true
        content: {application/json: {schema: {$ref: '#/components/schemas/Day'}}}
components:
  schemas:
    Named: {type: object, required: [name], properties: {name: {type: string}}}
    Day:
      required: [id, name]
      allOf:
        - $ref: '#/components/schemas/Named'
        - {properties: {id: {type: integer, readOnly: true}, 7: {type: string}, true: {type: string}}}
`))
}
