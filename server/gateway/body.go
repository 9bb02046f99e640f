package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// body is a JSON body that is taken literally: no unknown field, none twice, none in other
// capitals, no invalid UTF-8. encoding/json lets all of these pass, and of a payload with a name
// twice jsonb would silently drop one. huma's own check of bodies is off: crawl.Service makes it,
// and makes it for everybody who uses it.
type body[T any] struct {
	Value   T
	refused *problem
}

// UnmarshalJSON keeps what is wrong for Resolve: huma would put an error that is returned here into
// words of its own.
func (b *body[T]) UnmarshalJSON(data []byte) error {
	b.refused = decode(data, &b.Value, json.RejectUnknownMembers(true))
	return nil
}

// decode reads a body into v, or returns why it is refused.
func decode(data []byte, v any, options ...json.Options) *problem {
	if err := json.Unmarshal(data, v, options...); err != nil {
		return unreadable(err)
	}
	if where, found := illegible(data); found {
		return refusedBody(where, "contains U+0000, which the database does not take")
	}
	return nil
}

// unmarshal reads the bodies of all operations. An error says in our own words what is wrong.
func unmarshal(data []byte, v any) error {
	if own, ok := v.(interface{ UnmarshalJSON([]byte) error }); ok {
		return own.UnmarshalJSON(data) // a body
	}
	refused := decode(data, v)
	if refused == nil {
		return nil
	}
	e := refused.Errors[0]
	return errors.New(strings.TrimPrefix(strings.TrimPrefix(e.Location, "body")+" "+e.Message, "."))
}

// illegible returns the first text with U+0000 in a body.
func illegible(data []byte) (where jsontext.Pointer, found bool) {
	if !bytes.Contains(data, []byte(`\u0000`)) {
		return "", false
	}
	for d := jsontext.NewDecoder(bytes.NewReader(data)); ; {
		t, err := d.ReadToken()
		if err != nil || t.Kind() == '"' && strings.Contains(t.String(), "\x00") {
			return d.StackPointer(), err == nil
		}
	}
}

// Resolve fulfils huma.Resolver.
func (b *body[T]) Resolve(huma.Context) []error {
	if b.refused == nil {
		return nil
	}
	return []error{b.refused.Errors[0]}
}

// Schema fulfils huma.SchemaProvider.
func (b *body[T]) Schema(r huma.Registry) *huma.Schema {
	return r.Schema(reflect.TypeFor[T](), true, "")
}

// nothing is the body of an operation that takes none; {} is as good.
type nothing struct{}

// unreadable says where a body is not what it should be.
func unreadable(err error) *problem {
	var where jsontext.Pointer
	message := "is no JSON that can be taken"
	semantic, isSemantic := errors.AsType[*json.SemanticError](err)
	syntactic, isSyntactic := errors.AsType[*jsontext.SyntacticError](err)
	switch {
	case isSemantic:
		where = semantic.JSONPointer
		switch {
		case errors.Is(err, json.ErrUnknownName):
			message = "is no field of this request"
		case semantic.Err != nil && semantic.JSONKind == '"' && semantic.GoType != nil:
			message = "is not " + wanted(semantic.GoType)
		case semantic.GoType != nil:
			message = fmt.Sprintf("is %s, want %s", found(semantic.JSONKind), wanted(semantic.GoType))
		}
	case isSyntactic:
		where = syntactic.JSONPointer
		if errors.Is(err, jsontext.ErrDuplicateName) {
			message = "is there twice"
		} else {
			message = fmt.Sprintf("is not JSON, or not UTF-8, at byte %d", syntactic.ByteOffset)
		}
	}
	return refusedBody(where, message)
}

func refusedBody(where jsontext.Pointer, message string) *problem {
	return newProblem(http.StatusBadRequest, "", &huma.ErrorDetail{Message: message, Location: "body" + dotted(where)})
}

// dotted writes a JSON pointer as the other errors name fields: /events/3/type is .events[3].type.
func dotted(p jsontext.Pointer) string {
	var b strings.Builder
	for part := range p.Tokens() {
		if _, err := strconv.Atoi(part); err == nil {
			b.WriteString("[" + part + "]")
		} else {
			b.WriteString("." + part)
		}
	}
	return b.String()
}

func found(k jsontext.Kind) string {
	switch k {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case '0':
		return "a number"
	default:
		return k.String() // null, true, false
	}
}

func wanted(t reflect.Type) string {
	if t == reflect.TypeFor[time.Time]() {
		return "a time such as 2026-11-25T08:00:00Z"
	}
	switch t.Kind() {
	case reflect.Float64:
		return "a number"
	case reflect.String:
		return "a string"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Slice:
		return "an array"
	case reflect.Array:
		return "a UUID" // the only array of a request
	default:
		return "an object"
	}
}
