-- What a quota covers (rollout, unit), where a fixed window begins, which shard of the store keeps a quota's counts,
-- and the ledger of what was used, from which the counts are rebuilt when the store has lost them.

-- +goose Up

-- An anchor had no meaning beside other algorithms than fixed; now it is refused there.
UPDATE pacer.quota_windows SET anchor = NULL WHERE algorithm <> 'fixed' AND anchor IS NOT NULL;

ALTER TABLE pacer.quotas
    ADD COLUMN rollout integer NOT NULL DEFAULT 100,
    ADD COLUMN unit    text    NOT NULL DEFAULT 'units',
    ALTER COLUMN shard DROP DEFAULT;
COMMENT ON COLUMN pacer.quotas.rollout IS 'percent of the units that the quota counts and limits; 100: all';
COMMENT ON COLUMN pacer.quotas.unit IS 'units (weights of jobs) or bytes (of payloads; mode eventual only)';
COMMENT ON COLUMN pacer.quotas.shard IS 'where the counts live; chosen by a trigger, fixed when the quota is created';
COMMENT ON COLUMN pacer.quota_windows.anchor IS
    'where a fixed window begins; null: at its first use, otherwise with the minute, hour, day, week or month, in UTC '
    'or in a zone, as in day@Europe/Moscow';

CREATE TABLE pacer.store (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    shards   integer NOT NULL DEFAULT 1
);
COMMENT ON COLUMN pacer.store.shards IS 'among how many shards new quotas are spread';
INSERT INTO pacer.store DEFAULT VALUES;

-- The ledger is written by the daemons every few seconds. It takes no part in the revisions of the catalog.
CREATE TABLE pacer.quota_usage (
    quota_id text   NOT NULL REFERENCES pacer.quotas ON DELETE CASCADE,
    minute   bigint NOT NULL,
    node     text   NOT NULL,
    units    bigint NOT NULL CONSTRAINT units_must_not_be_negative CHECK (units >= 0),
    PRIMARY KEY (quota_id, minute, node)
) WITH (fillfactor = 80);
CREATE INDEX quota_usage_minute ON pacer.quota_usage (minute);
COMMENT ON TABLE pacer.quota_usage IS 'units that each daemon used, or reserved for use, per minute';
COMMENT ON COLUMN pacer.quota_usage.minute IS
    'minutes since 1970 on the clock of the store; as a time: to_timestamp(minute * 60)';

CREATE TABLE pacer.quota_anchors (
    quota_id  text        NOT NULL REFERENCES pacer.quotas ON DELETE CASCADE,
    span      interval    NOT NULL,
    resets_at timestamptz NOT NULL,
    PRIMARY KEY (quota_id, span)
);
COMMENT ON TABLE pacer.quota_anchors IS 'when fixed windows end that began at their first use';

CREATE TABLE pacer.store_incarnations (
    shard       integer     PRIMARY KEY CONSTRAINT shard_must_not_be_negative CHECK (shard >= 0),
    incarnation bigint      NOT NULL CONSTRAINT incarnation_must_be_positive CHECK (incarnation > 0),
    since       timestamptz NOT NULL DEFAULT now(),
    cause       text        NOT NULL
);
COMMENT ON TABLE pacer.store_incarnations IS
    'which life of a shard''s data holds the counts; another one has lost them';

-- place_quota gives a new quota a shard unless it names one.
-- +goose StatementBegin
CREATE FUNCTION pacer.place_quota() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    shards integer := coalesce((SELECT s.shards FROM pacer.store s), 1);
BEGIN
    IF NEW.shard IS NULL THEN
        NEW.shard := (hashtext(NEW.id)::bigint + 2147483648) % shards;
    ELSIF NEW.shard >= shards THEN
        PERFORM pacer.refuse('quotas', 'shard', format('quotas.shard must not be %s: the store has %s', NEW.shard,
            CASE shards WHEN 1 THEN 'one shard, 0' ELSE format('%s shards, from 0', shards) END),
            'Leave it out, and a shard is chosen.');
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- check_store keeps every quota on a shard that exists.
-- +goose StatementBegin
CREATE FUNCTION pacer.check_store() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    highest integer := (SELECT max(q.shard) FROM pacer.quotas q);
BEGIN
    IF NEW.shards IS NULL OR NEW.shards < 1 OR NEW.shards > 1024 THEN
        PERFORM pacer.refuse('store', 'shards',
            format('store.shards must not be %s', coalesce(NEW.shards::text, 'null')), 'Use 1 to 1024.');
    ELSIF NEW.shards <= highest THEN
        PERFORM pacer.refuse('store', 'shards',
            format('store.shards must not be %s: there are quotas on shard %s', NEW.shards, highest),
            format('Use at least %s, or delete those quotas: their counts live there.', highest + 1));
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- check_coverage refuses what a quota cannot cover.
-- +goose StatementBegin
CREATE FUNCTION pacer.check_coverage() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.rollout IS NULL OR NEW.rollout < 0 OR NEW.rollout > 100 THEN
        PERFORM pacer.refuse('quotas', 'rollout',
            format('quotas.rollout must not be %s', coalesce(NEW.rollout::text, 'null')),
            'Use 0 (the quota does not bind) to 100 percent.');
    END IF;
    PERFORM pacer.check_word('quotas', 'unit', NEW.unit, '{units,bytes}');
    IF NEW.unit = 'bytes' AND NEW.mode <> 'eventual' THEN
        PERFORM pacer.refuse('quotas', 'unit',
            format('quotas.unit must not be ''bytes'' in mode %L', left(NEW.mode, 64)),
            'Use mode eventual, or unit units.');
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- check_algorithm refuses windows that their algorithm cannot keep. It runs before check_window, which looks at what
-- all windows have in common. Zones are looked up when an anchor is written, and not again: names come and go.
-- +goose StatementBegin
CREATE FUNCTION pacer.check_algorithm() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    unit text := split_part(NEW.anchor, '@', 1);
    zone text := CASE WHEN NEW.anchor LIKE '%@%' THEN substr(NEW.anchor, length(unit) + 2) ELSE 'UTC' END;
    span interval := CASE unit WHEN 'minute' THEN '1 minute' WHEN 'hour' THEN '1 hour' WHEN 'day' THEN '1 day'
                               WHEN 'week' THEN '7 days' WHEN 'month' THEN '31 days' END;
BEGIN
    NEW.anchor := nullif(NEW.anchor, '');
    IF NEW.algorithm = 'log' AND NEW.max_units > 10000 THEN
        PERFORM pacer.refuse('quota_windows', 'max_units',
            format('quota_windows.max_units of a log window must not be %s: every grant is remembered', NEW.max_units),
            'Use algorithm sliding above 10000 units.');
    END IF;
    IF NEW.anchor IS NULL THEN
        RETURN NEW;
    ELSIF NEW.algorithm <> 'fixed' THEN
        PERFORM pacer.refuse('quota_windows', 'anchor',
            format('quota_windows.anchor does not go with algorithm %L', left(NEW.algorithm, 64)),
            'Use algorithm fixed, or null.');
    ELSIF span IS NULL THEN
        PERFORM pacer.refuse('quota_windows', 'anchor',
            format('quota_windows.anchor must not be %L', left(NEW.anchor, 64)),
            'Use minute, hour, day, week or month, with a time zone if need be, such as ''day@Europe/Moscow''.');
    ELSIF NEW.span <> span THEN
        PERFORM pacer.refuse('quota_windows', 'span',
            format('quota_windows.span of a window that begins with the %s must be %s, not %s', unit, span, NEW.span),
            'Use the length of the unit: 1 minute, 1 hour, 1 day, 7 days, or 31 days, the longest month.');
    END IF;
    IF TG_OP = 'UPDATE' THEN
        IF NEW.anchor IS NOT DISTINCT FROM OLD.anchor THEN
            RETURN NEW;
        END IF;
    END IF;
    IF zone !~ '^[A-Z]' OR NOT EXISTS (SELECT 1 FROM pg_timezone_names n WHERE n.name = zone) THEN
        PERFORM pacer.refuse('quota_windows', 'anchor',
            format('quota_windows.anchor names an unknown time zone, %L', left(zone, 64)),
            'Use a name such as ''Europe/Moscow'' or ''UTC''.');
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- check_spend refuses limits too great to be spent evenly. The words and the windows of a quota are written by
-- several statements, in any order, so it looks when the transaction commits.
-- +goose StatementBegin
CREATE FUNCTION pacer.check_spend() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    quota   text;
    highest bigint;
BEGIN
    IF TG_TABLE_NAME = 'quotas' THEN
        quota := NEW.id;
    ELSE
        quota := NEW.quota_id;
    END IF;
    SELECT max(w.max_units) INTO highest FROM pacer.quotas q JOIN pacer.quota_windows w ON w.quota_id = q.id
    WHERE q.id = quota AND q.spend = 'even';
    IF highest > 68719476736 THEN
        PERFORM pacer.refuse('quota_windows', 'max_units',
            format('quota_windows.max_units must not be %s: quota %L is spent evenly', highest, quota),
            'Use at most 2^36 (68719476736) units, or spend greedy.');
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER a_lock BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON pacer.store
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.lock_revision();
CREATE TRIGGER b_check BEFORE INSERT OR UPDATE ON pacer.store
    FOR EACH ROW EXECUTE FUNCTION pacer.check_store();
CREATE TRIGGER c_record AFTER INSERT OR UPDATE OR DELETE ON pacer.store
    FOR EACH ROW EXECUTE FUNCTION pacer.record_change();
CREATE TRIGGER a_place BEFORE INSERT ON pacer.quotas
    FOR EACH ROW EXECUTE FUNCTION pacer.place_quota();
CREATE TRIGGER b_coverage BEFORE INSERT OR UPDATE ON pacer.quotas
    FOR EACH ROW EXECUTE FUNCTION pacer.check_coverage();
CREATE TRIGGER a_algorithm BEFORE INSERT OR UPDATE ON pacer.quota_windows
    FOR EACH ROW EXECUTE FUNCTION pacer.check_algorithm();
CREATE CONSTRAINT TRIGGER c_spend AFTER INSERT OR UPDATE ON pacer.quotas DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.spend = 'even') EXECUTE FUNCTION pacer.check_spend();
CREATE CONSTRAINT TRIGGER c_spend AFTER INSERT OR UPDATE ON pacer.quota_windows DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.max_units > 68719476736) EXECUTE FUNCTION pacer.check_spend();

-- +goose Down
DROP TRIGGER c_spend ON pacer.quota_windows;
DROP TRIGGER c_spend ON pacer.quotas;
DROP TRIGGER a_algorithm ON pacer.quota_windows;
DROP TRIGGER b_coverage ON pacer.quotas;
DROP TRIGGER a_place ON pacer.quotas;
DROP TABLE pacer.store_incarnations;
DROP TABLE pacer.quota_anchors;
DROP TABLE pacer.quota_usage;
DROP TABLE pacer.store;
DROP FUNCTION pacer.check_spend();
DROP FUNCTION pacer.check_algorithm();
DROP FUNCTION pacer.check_coverage();
DROP FUNCTION pacer.check_store();
DROP FUNCTION pacer.place_quota();
COMMENT ON COLUMN pacer.quota_windows.anchor IS NULL;
COMMENT ON COLUMN pacer.quotas.shard IS 'where the counts live; fixed when the quota is created';
ALTER TABLE pacer.quotas DROP COLUMN unit, DROP COLUMN rollout, ALTER COLUMN shard SET DEFAULT 0;
