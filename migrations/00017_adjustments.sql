-- A person may correct what a window of a quota has counted. That is recorded like other changes, and what is added is entered
-- into the ledger, from which lost windows are rebuilt.

-- +goose Up

-- record_adjustment is called in the transaction in which the count is corrected in the store, in a minute of the store's
-- clock.
-- +goose StatementBegin
CREATE FUNCTION pacer.record_adjustment(quota text, span interval, before bigint, after bigint, reason text, minute bigint)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    who    text := coalesce(nullif(current_setting('role'), 'none'), session_user);
    number bigint;
BEGIN
    IF NOT has_table_privilege(who, 'pacer.quota_windows', 'UPDATE') THEN
        RAISE insufficient_privilege USING MESSAGE = 'to adjust a quota takes the right to change its windows';
    END IF;
    INSERT INTO pacer.campaign_changes (who, application, relation, operation, quota_id, old, new)
    VALUES (who, current_setting('application_name'), 'quota_windows', 'adjust', quota,
        jsonb_build_object('quota_id', quota, 'span', span, 'used', before),
        jsonb_build_object('quota_id', quota, 'span', span, 'used', after, 'reason', reason))
    RETURNING change INTO number;
    -- What the store counts from here on cannot be compared with what it had counted before. The next checkpoint begins anew.
    DELETE FROM pacer.quota_checkpoints k WHERE k.quota_id = record_adjustment.quota;
    IF after > before THEN
        INSERT INTO pacer.quota_usage (quota_id, node, minute, units)
        VALUES (quota, 'adjust-' || number, minute, after - before);
    END IF;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION pacer.record_adjustment(text, interval, bigint, bigint, text, bigint);
