// Package sqlfile fills the names of a table into the SQL files of a store.
//
// A file is SQL with actions between double braces, written as in text/template, of which this is
// the part that our files need:
//
//	{{.Table}}  {{$.Key}}  {{$c.Name}}  {{or .DeliveredAt .WrittenAt}}  {{arg .Limit}}  a value: a text or an integer
//	{{if .Key}} … {{else if eq .State "pending"}} … {{else}} … {{end}}  a part that is there under a condition
//	{{with .F.Type}} … {{end}}   {{range $i, $c := .Columns}} … {{end}}  the same with another dot, once or for each
//	{{define "lane"}} … {{end}}   {{template "lane" .}}  a part with a name, for all files of the set
//	{{- … -}}   {{- /* … */}}  without the blanks beside it; a comment
//
// Functions are and, or, not, eq, ne and those of a Caller. Empty, zero and nil are false.
//
// What is guaranteed: everything that can be known without data is an error of Parse (an unknown
// word, a missing end, a template or variable that is not there). A field that the data lacks is an
// error of Render: nothing becomes "<no value>". What is not: quoting. The data's texts are SQL
// already.
//
// Not text/template itself, because it calls methods by their names: a linker that sees this keeps
// every exported method of the whole program. Measured on linux/amd64 with go1.26: a program that
// writes one event with pgx is 14.23 MB, and was 16.67 MB; without the event it is 13.66 MB.
package sqlfile
