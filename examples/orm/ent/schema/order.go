// Package schema is the input of ent's generator.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
)

// Order is a row of table orders.
type Order struct{ ent.Schema }

// Fields implements ent.Interface.
func (Order) Fields() []ent.Field {
	return []ent.Field{field.String("id"), field.Int("total")}
}
