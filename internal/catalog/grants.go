package catalog

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A right is what a role needs on some tables of the schema besides reading all of them.
type right struct {
	operations []string
	tables     []string
}

// The rights of the roles that docs/operations/deploy.md describes.
var (
	daemonRights = []right{
		{[]string{"INSERT", "UPDATE", "DELETE"}, []string{"positions", "quota_usage", "quota_counts", "quota_anchors", "store_incarnations", "store_takers", "replays", "campaign_history"}},
		{[]string{"INSERT", "UPDATE"}, []string{"campaign_progress", "destination_progress"}},
	}
	opsRights = []right{
		{[]string{"INSERT", "UPDATE", "DELETE"}, []string{"campaigns", "quotas", "quota_windows", "campaign_quotas", "quota_keys", "destinations", "replays"}},
		{[]string{"INSERT", "UPDATE"}, []string{"campaign_progress", "destination_progress"}},
	}
)

// roles names the roles that may do an operation on a table, except its owner.
func roles(operation, table string) string {
	return fmt.Sprintf(`SELECT DISTINCT a.grantee::regrole::text FROM pg_class c, aclexplode(c.relacl) a
WHERE c.oid = 'pacer.%s'::regclass AND a.privilege_type = '%s' AND a.grantee NOT IN (0, c.relowner)`, table, operation)
}

// extendGrants gives the roles of daemons and operators their rights on what migrations have added. A role that may write
// positions is a daemon's; one that may change campaigns is an operator's.
func extendGrants(ctx context.Context, db *sql.DB) error {
	statement := fmt.Sprintf(`DO $$
DECLARE
    role text;
BEGIN
    PERFORM pg_advisory_xact_lock(%d); -- two that grant at once fail
%s%sEND $$`, migrationLock+1, grants(roles("INSERT", "positions"), daemonRights), grants(roles("UPDATE", "campaigns"), opsRights))
	_, err := db.ExecContext(ctx, statement)
	return err
}

// grants returns the loop that gives each role the rights.
func grants(roles string, rights []right) string {
	loop := "    FOR role IN " + roles + " LOOP\n" +
		"        EXECUTE 'GRANT USAGE ON SCHEMA pacer TO ' || role;\n" +
		"        EXECUTE 'GRANT SELECT ON ALL TABLES IN SCHEMA pacer TO ' || role;\n"
	for _, r := range rights {
		loop += fmt.Sprintf("        EXECUTE 'GRANT %s ON pacer.%s TO ' || role;\n",
			strings.Join(r.operations, ", "), strings.Join(r.tables, ", pacer."))
	}
	return loop + "    END LOOP;\n"
}

// missingRights returns what the user of the connection lacks of a daemon's rights, as one GRANT statement; "" if it has
// them all.
func missingRights(ctx context.Context, tx pgx.Tx) (string, error) {
	var user string
	var tables []string
	err := tx.QueryRow(ctx, `SELECT current_user::regrole::text, ARRAY(
    SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'pacer'::regnamespace AND c.relkind = 'r' AND c.relname <> 'migrations'
        AND NOT has_table_privilege(c.oid, 'SELECT') ORDER BY 1)`).Scan(&user, &tables)
	if err != nil {
		return "", err
	}
	var missing []string
	if len(tables) > 0 {
		missing = append(missing, "GRANT SELECT ON pacer."+strings.Join(tables, ", pacer.")+" TO "+user)
	}
	for _, r := range daemonRights {
		for _, operation := range r.operations {
			var without []string
			err := tx.QueryRow(ctx, `SELECT ARRAY(SELECT t FROM unnest($1::text[]) AS t WHERE NOT has_table_privilege('pacer.' || t, $2))`,
				r.tables, operation).Scan(&without)
			if err != nil {
				return "", err
			}
			if len(without) > 0 {
				missing = append(missing, "GRANT "+operation+" ON pacer."+strings.Join(slices.Sorted(slices.Values(without)), ", pacer.")+" TO "+user)
			}
		}
	}
	return strings.Join(missing, "; "), nil
}
