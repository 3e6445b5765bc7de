-- The quotas of one campaign live in one shard of the store, so that a take is one script. Quotas of mode eventual are
-- not counted in a shard and do not matter here.

-- +goose Up

-- spread names the quotas of a campaign with their shards if those are several, and is null otherwise.
-- +goose StatementBegin
CREATE FUNCTION pacer.spread(campaign text) RETURNS text
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(format('%s in shard %s', q.id, q.shard), ', ' ORDER BY q.id COLLATE "C")
    FROM pacer.campaign_quotas l JOIN pacer.quotas q ON q.id = l.quota_id
    WHERE l.campaign_id = campaign AND q.mode <> 'eventual'
    HAVING count(DISTINCT q.shard) > 1
$$;
-- +goose StatementEnd

-- spread_remedy is what to do about it.
-- +goose StatementBegin
CREATE FUNCTION pacer.spread_remedy() RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT 'Create the quotas of a campaign in one shard, by pacer quota set NEW --with QUOTA or by '
        'INSERT INTO pacer.quotas (id, shard), and link those.'
$$;
-- +goose StatementEnd

-- check_spread refuses a link, or a change of a quota's mode, by which the quotas of a campaign would live in several
-- shards. It looks after the statement, which may replace several links.
-- +goose StatementBegin
CREATE FUNCTION pacer.check_spread() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    changed text := CASE TG_TABLE_NAME WHEN 'quotas' THEN to_jsonb(NEW)->>'id' ELSE to_jsonb(NEW)->>'quota_id' END;
    linked  text := to_jsonb(NEW)->>'campaign_id'; -- null: all campaigns of the quota
    divided record;
BEGIN
    SELECT l.campaign_id, pacer.spread(l.campaign_id) AS quotas INTO divided
    FROM pacer.campaign_quotas l JOIN pacer.quotas q ON q.id = l.quota_id
    WHERE l.quota_id = changed AND l.campaign_id = coalesce(linked, l.campaign_id) AND q.mode <> 'eventual'
      AND pacer.spread(l.campaign_id) IS NOT NULL
    ORDER BY l.campaign_id COLLATE "C" LIMIT 1;
    IF FOUND THEN
        PERFORM pacer.refuse(TG_TABLE_NAME, CASE TG_TABLE_NAME WHEN 'quotas' THEN 'mode' ELSE 'quota_id' END,
            format('the quotas of campaign %L would live in several shards of the store: %s', divided.campaign_id, divided.quotas),
            pacer.spread_remedy());
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER f_spread AFTER INSERT OR UPDATE ON pacer.campaign_quotas
    FOR EACH ROW EXECUTE FUNCTION pacer.check_spread();
CREATE TRIGGER f_spread AFTER UPDATE OF mode ON pacer.quotas
    FOR EACH ROW WHEN (OLD.mode = 'eventual' AND NEW.mode <> 'eventual') EXECUTE FUNCTION pacer.check_spread();

-- What is there already stays as it is; daemons hold such campaigns, and their jobs wait.
-- +goose StatementBegin
DO $$
DECLARE
    divided record;
BEGIN
    FOR divided IN SELECT c.id, pacer.spread(c.id) AS quotas FROM pacer.campaigns c
        WHERE pacer.spread(c.id) IS NOT NULL ORDER BY c.id COLLATE "C"
    LOOP
        RAISE WARNING 'campaign % is held: its quotas live in several shards of the store: %', divided.id, divided.quotas
            USING HINT = pacer.spread_remedy();
    END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP TRIGGER f_spread ON pacer.quotas;
DROP TRIGGER f_spread ON pacer.campaign_quotas;
DROP FUNCTION pacer.check_spread();
DROP FUNCTION pacer.spread_remedy();
DROP FUNCTION pacer.spread(text);
