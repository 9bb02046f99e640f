package pooler

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed sql/superuser.sql
var superuserSQL string

//go:embed sql/others.sql
var othersSQL string

// SuperuserError is the error of a connection as a superuser, or as a login that may become one, to
// a database in which other roles could have their code run.
type SuperuserError struct {
	User   string // the login of the connection
	Object string // with its kind
	Role   string // that owns the object, or may do May; "PUBLIC" is every role
	May    string // for example "create triggers on"
	Login  string // one that is Role or a member of it, or ""
	Revoke string // the statement that takes the right of May away
}

func (e *SuperuserError) Error() string {
	role, does, login := "role "+e.Role, "owns", ""
	if e.Role == "PUBLIC" {
		role = "every role"
	}
	if e.May != "" {
		does = "may " + e.May
	}
	switch {
	case e.May != "":
		login = "run " + e.Revoke + ", or use a login that is not a superuser"
	case e.Login != "":
		login = "run it as its owner, with the login " + e.Login
	default:
		login = fmt.Sprintf("run it as its owner: CREATE ROLE deployer LOGIN IN ROLE %s, and use that login",
			pgx.Identifier{e.Role}.Sanitize())
	}
	return fmt.Sprintf("use the database as superuser %s: %s %s %s, and could have its code run with your rights; %s",
		e.User, role, does, e.Object, login)
}

// refuseSuperuser ends a new connection with a *SuperuserError before it plans a statement over
// anything that is not PostgreSQL's own.
func refuseSuperuser(ctx context.Context, conn *pgconn.PgConn) error {
	var row [][]byte
	for _, sql := range []string{superuserSQL, othersSQL} { // only a superuser is asked the second
		results, err := conn.Exec(ctx, sql).ReadAll()
		if err != nil {
			return fmt.Errorf("ask whether a superuser may use the database: %w", err)
		}
		rows := results[len(results)-1].Rows
		if len(rows) == 0 {
			return nil
		}
		row = rows[0]
	}
	return &SuperuserError{string(row[0]), string(row[1]), string(row[2]), string(row[3]), string(row[4]), string(row[5])}
}
