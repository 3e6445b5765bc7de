-- Daemons and the quota store use the highest revision that they have seen. A database that was brought back from a backup
-- gives revisions again that it gave before, so that changes would not act until they are above what was seen. catch_up
-- gives every campaign and every quota a revision above that.

-- +goose Up

-- catch_up compares the rows and not the sequence: the rows are what a transaction that fails leaves as it was. Changes of
-- quotas take turns, and so do calls of this. What a daemon says is believed of daemons only, and within reason.
-- +goose StatementBegin
CREATE FUNCTION pacer.catch_up(seen bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    newest bigint := 0;
BEGIN
    FOR i IN 1..2 LOOP
        SELECT greatest((SELECT max(revision) FROM pacer.campaigns), (SELECT max(revision) FROM pacer.quotas),
            (SELECT max(removed) FROM pacer.revision), 0) INTO newest;
        IF newest >= seen THEN
            RETURN false;
        END IF;
        IF i = 1 THEN
            PERFORM 1 FROM pacer.store FOR UPDATE; -- somebody else may have done it by then
        END IF;
    END LOOP;
    IF NOT has_table_privilege(session_user, 'pacer.positions', 'INSERT') THEN
        RAISE insufficient_privilege USING MESSAGE = 'pacer.catch_up is for daemons';
    END IF;
    IF seen > newest + 1000000000 THEN
        RAISE invalid_parameter_value USING MESSAGE = format('revision %s is too far ahead of %s', seen, newest);
    END IF;
    PERFORM setval('pacer.revisions', greatest(seen, (SELECT last_value FROM pacer.revisions)));
    UPDATE pacer.quotas SET revision = revision + 1 WHERE revision >= 0;
    UPDATE pacer.campaigns SET revision = revision + 1 WHERE revision >= 0;
    UPDATE pacer.revision SET removed = nextval('pacer.revisions'); -- the rows that are gone
    PERFORM pg_notify('pacer_catalog', 'campaigns');
    RETURN true;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION pacer.catch_up(bigint);
