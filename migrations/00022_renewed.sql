-- Destinations count how often they began anew, keep who disabled them, and are numbered together.
--
-- A daemon tells by the content of a row whether a destination was changed. One that was disabled and enabled again, or moved away and
-- back, between two reads had the same content as before, so it was not tried at once.
--
-- A daemon that disables a destination may not know yet of a success that another one is about to note, or that comes meanwhile. So a
-- success that is noted within a minute enables what a daemon has disabled.
--
-- So far each row of a bulk change was checked, recorded and announced once more when it was numbered. The guarantee stays as it was: a
-- transaction numbers its rows when it commits, holding the row of pacer.revision until then, so that the order of the revisions is the order of
-- the commits. But now the first row's trigger numbers all, and that is not a change.

-- +goose Up
ALTER TABLE pacer.destinations ADD COLUMN renewed bigint NOT NULL DEFAULT 0, ADD COLUMN ended_at timestamptz;
COMMENT ON COLUMN pacer.destinations.renewed IS 'kept by triggers: how often it began anew, by another address, other headers or secrets, or when it was enabled';
COMMENT ON COLUMN pacer.destinations.ended_at IS 'kept by daemons: when they disabled it; null: they have not, or somebody has changed that';

DROP TRIGGER b_renew ON pacer.destinations;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION pacer.renew_destination() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.renewed := OLD.renewed;
    IF (NEW.url, NEW.headers, NEW.secrets, NEW.sink) IS DISTINCT FROM (OLD.url, OLD.headers, OLD.secrets, OLD.sink)
            OR NEW.disabled_at IS NULL AND OLD.disabled_at IS NOT NULL THEN
        NEW.renewed := OLD.renewed + 1;
        NEW.failing_since := NULL;
    END IF;
    IF NEW.disabled_at IS NULL OR NEW.ended_at IS NOT DISTINCT FROM OLD.ended_at THEN
        NEW.ended_at := NULL;
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER b_renew BEFORE UPDATE ON pacer.destinations FOR EACH ROW
    WHEN ((NEW.url, NEW.headers, NEW.secrets, NEW.sink, NEW.disabled_at, NEW.disabled_reason, NEW.renewed, NEW.ended_at)
        IS DISTINCT FROM (OLD.url, OLD.headers, OLD.secrets, OLD.sink, OLD.disabled_at, OLD.disabled_reason, OLD.renewed, OLD.ended_at))
    EXECUTE FUNCTION pacer.renew_destination();

-- A row is numbered by an update, made by a trigger, that takes it from below 0 to above and changes nothing else.
DROP TRIGGER b_check ON pacer.destinations;
DROP TRIGGER z_provisional ON pacer.destinations;
DROP TRIGGER c_record ON pacer.destinations;
DROP TRIGGER z_number ON pacer.destinations;

-- +goose StatementBegin
CREATE FUNCTION pacer.provisional_destination() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' OR NEW.revision <> OLD.revision THEN
        NEW.revision := -NEW.revision;
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- number_destinations runs for each row when the transaction commits, and mostly there is nothing left to do. Of the rows below 0 a transaction
-- sees its own.
-- +goose StatementBegin
CREATE FUNCTION pacer.number_destinations() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM pacer.destinations d WHERE d.id = NEW.id AND d.revision = NEW.revision) THEN
        PERFORM 1 FROM pacer.revision FOR UPDATE;
        UPDATE pacer.destinations SET revision = nextval('pacer.revisions') WHERE revision < 0;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER b_check BEFORE INSERT ON pacer.destinations
    FOR EACH ROW EXECUTE FUNCTION pacer.check_destination();
CREATE TRIGGER z_provisional BEFORE INSERT ON pacer.destinations
    FOR EACH ROW EXECUTE FUNCTION pacer.provisional_destination();
CREATE TRIGGER c_record AFTER INSERT OR DELETE ON pacer.destinations
    FOR EACH ROW EXECUTE FUNCTION pacer.record_destination();
-- +goose StatementBegin
DO $$
DECLARE
    columns text := 'id, sink, url, headers, secrets, max_in_flight, disabled_at, disabled_reason, failing_since, created_at, updated_at, renewed, ended_at';
    changes text := format('(OLD.revision >= 0 OR NEW.revision < 0 OR pg_trigger_depth() = 0 OR (%s) IS DISTINCT FROM (%s))',
        'OLD.' || replace(columns, ', ', ', OLD.'), 'NEW.' || replace(columns, ', ', ', NEW.'));
BEGIN
    EXECUTE 'CREATE TRIGGER b_check_update BEFORE UPDATE ON pacer.destinations FOR EACH ROW WHEN ' || changes
        || ' EXECUTE FUNCTION pacer.check_destination()';
    EXECUTE 'CREATE TRIGGER z_provisional_update BEFORE UPDATE ON pacer.destinations FOR EACH ROW WHEN ' || changes
        || ' EXECUTE FUNCTION pacer.provisional_destination()';
    EXECUTE 'CREATE TRIGGER c_record_update AFTER UPDATE ON pacer.destinations FOR EACH ROW WHEN ' || changes
        || ' EXECUTE FUNCTION pacer.record_destination()';
END $$;
-- +goose StatementEnd
CREATE CONSTRAINT TRIGGER z_number AFTER INSERT OR UPDATE ON pacer.destinations DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.revision < 0) EXECUTE FUNCTION pacer.number_destinations();

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION pacer.record_destination() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    before jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) - '{revision,updated_at,failing_since,renewed,ended_at}'::text[] END;
    after  jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) - '{revision,updated_at,failing_since,renewed,ended_at}'::text[] END;
    key    text  := coalesce(after, before)->>'id';
BEGIN
    IF before IS DISTINCT FROM after THEN
        INSERT INTO pacer.campaign_changes (who, application, relation, operation, destination_id, old, new)
        VALUES (coalesce(nullif(current_setting('role'), 'none'), session_user), current_setting('application_name'),
            TG_TABLE_NAME, lower(TG_OP), key, before, after);
    END IF;
    IF OLD IS DISTINCT FROM NEW THEN
        PERFORM pg_notify('pacer_catalog', TG_TABLE_NAME || ' ' || key);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION pacer.destinations_fail(ids text[], since timestamptz[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT has_table_privilege(session_user, 'pacer.positions', 'INSERT') THEN
        RAISE insufficient_privilege USING MESSAGE = 'pacer.destinations_fail is for daemons';
    END IF;
    PERFORM 1 FROM pacer.destinations d WHERE d.id = ANY (ids) ORDER BY d.id FOR UPDATE; -- all daemons in the same order
    UPDATE pacer.destinations d SET failing_since = f.since, disabled_at = NULL
    FROM unnest(ids, since) AS f (id, since)
    WHERE d.id = f.id AND (d.disabled_at IS NULL AND (d.failing_since IS NULL) <> (f.since IS NULL)
        OR f.since IS NULL AND d.ended_at > clock_timestamp() - interval '1 minute');
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION pacer.disable_destination(destination text, seen bigint, reason text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at timestamptz := clock_timestamp();
BEGIN
    IF NOT has_table_privilege(session_user, 'pacer.positions', 'INSERT') THEN
        RAISE insufficient_privilege USING MESSAGE = 'pacer.disable_destination is for daemons';
    END IF;
    UPDATE pacer.destinations d SET disabled_at = at, disabled_reason = left(reason, 500), ended_at = at
    WHERE d.id = destination AND d.revision = seen AND d.disabled_at IS NULL;
    RETURN FOUND;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP TRIGGER z_number ON pacer.destinations;
DROP TRIGGER c_record_update ON pacer.destinations;
DROP TRIGGER c_record ON pacer.destinations;
DROP TRIGGER z_provisional_update ON pacer.destinations;
DROP TRIGGER z_provisional ON pacer.destinations;
DROP TRIGGER b_check_update ON pacer.destinations;
DROP TRIGGER b_check ON pacer.destinations;
DROP TRIGGER b_renew ON pacer.destinations;
DROP FUNCTION pacer.number_destinations();
DROP FUNCTION pacer.provisional_destination();
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION pacer.disable_destination(destination text, seen bigint, reason text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT has_table_privilege(session_user, 'pacer.positions', 'INSERT') THEN
        RAISE insufficient_privilege USING MESSAGE = 'pacer.disable_destination is for daemons';
    END IF;
    UPDATE pacer.destinations d SET disabled_at = clock_timestamp(), disabled_reason = left(reason, 500)
    WHERE d.id = destination AND d.revision = seen AND d.disabled_at IS NULL;
    RETURN FOUND;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION pacer.destinations_fail(ids text[], since timestamptz[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT has_table_privilege(session_user, 'pacer.positions', 'INSERT') THEN
        RAISE insufficient_privilege USING MESSAGE = 'pacer.destinations_fail is for daemons';
    END IF;
    PERFORM 1 FROM pacer.destinations d WHERE d.id = ANY (ids) ORDER BY d.id FOR UPDATE; -- all daemons in the same order
    UPDATE pacer.destinations d SET failing_since = f.since
    FROM unnest(ids, since) AS f (id, since)
    WHERE d.id = f.id AND d.disabled_at IS NULL AND (d.failing_since IS NULL) <> (f.since IS NULL);
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION pacer.record_destination() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    before jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) - '{revision,updated_at,failing_since}'::text[] END;
    after  jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) - '{revision,updated_at,failing_since}'::text[] END;
    key    text  := coalesce(after, before)->>'id';
BEGIN
    IF before IS DISTINCT FROM after THEN
        INSERT INTO pacer.campaign_changes (who, application, relation, operation, destination_id, old, new)
        VALUES (coalesce(nullif(current_setting('role'), 'none'), session_user), current_setting('application_name'),
            TG_TABLE_NAME, lower(TG_OP), key, before, after);
    END IF;
    IF OLD IS DISTINCT FROM NEW THEN
        PERFORM pg_notify('pacer_catalog', TG_TABLE_NAME || ' ' || key);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION pacer.renew_destination() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.failing_since := NULL;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER b_check BEFORE INSERT OR UPDATE ON pacer.destinations
    FOR EACH ROW EXECUTE FUNCTION pacer.check_destination();
CREATE TRIGGER b_renew BEFORE UPDATE ON pacer.destinations FOR EACH ROW
    WHEN ((NEW.headers, NEW.secrets, NEW.sink) IS DISTINCT FROM (OLD.headers, OLD.secrets, OLD.sink))
    EXECUTE FUNCTION pacer.renew_destination();
CREATE TRIGGER z_provisional BEFORE INSERT OR UPDATE ON pacer.destinations
    FOR EACH ROW EXECUTE FUNCTION pacer.provisional_revision();
CREATE TRIGGER c_record AFTER INSERT OR UPDATE OR DELETE ON pacer.destinations
    FOR EACH ROW EXECUTE FUNCTION pacer.record_destination();
CREATE CONSTRAINT TRIGGER z_number AFTER INSERT OR UPDATE ON pacer.destinations DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.revision < 0) EXECUTE FUNCTION pacer.number_change();
ALTER TABLE pacer.destinations DROP COLUMN ended_at, DROP COLUMN renewed;
