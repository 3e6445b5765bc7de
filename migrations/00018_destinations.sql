-- Destinations: where the jobs are sent that name one in pacer-destination, such as the endpoints of customers. They are rows, so that
-- one more needs no change of a configuration. They are numbered, announced and recorded as campaigns are.
--
-- No secret is in a row: a secret is a reference, file:NAME or env:NAME, that each daemon resolves.

-- +goose Up
CREATE TABLE pacer.destinations (
    id              text        PRIMARY KEY,
    sink            text,
    url             text        NOT NULL,
    headers         jsonb       NOT NULL DEFAULT '{}',
    secrets         text[]      NOT NULL DEFAULT '{}',
    max_in_flight   integer     NOT NULL DEFAULT 0,
    disabled_at     timestamptz,
    disabled_reason text,
    failing_since   timestamptz,
    revision        bigint      NOT NULL DEFAULT 0,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX destinations_revision ON pacer.destinations (revision);
COMMENT ON TABLE pacer.destinations IS 'where jobs are sent that name a destination; for sinks with destinations: true';
COMMENT ON COLUMN pacer.destinations.sink IS 'null: any sink with destinations';
COMMENT ON COLUMN pacer.destinations.headers IS 'sent with every request; a value may be a reference, file:NAME or env:NAME';
COMMENT ON COLUMN pacer.destinations.secrets IS 'references to the secrets that sign requests: file:NAME or env:NAME, the newest first';
COMMENT ON COLUMN pacer.destinations.max_in_flight IS 'calls at once per daemon; 0: as many as the sink has';
COMMENT ON COLUMN pacer.destinations.disabled_at IS 'null: enabled; the jobs of a disabled destination wait';
COMMENT ON COLUMN pacer.destinations.failing_since IS 'kept by daemons: since when nothing has been delivered; null: it works, or is not known';
COMMENT ON COLUMN pacer.destinations.revision IS 'kept by triggers';

-- check_destination refuses nonsense and stamps what is left with a revision, as check_campaign does.
-- +goose StatementBegin
CREATE FUNCTION pacer.check_destination() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    header record;
    secret text;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        NEW.updated_at := OLD.updated_at;
        IF NEW.disabled_at IS NULL AND OLD.disabled_at IS NOT NULL THEN
            NEW.disabled_reason := NULL; -- it begins anew
            NEW.failing_since := NULL;
        ELSIF NEW.url IS DISTINCT FROM OLD.url THEN
            NEW.failing_since := NULL;
        END IF;
        IF NEW IS NOT DISTINCT FROM OLD THEN
            RETURN OLD;
        END IF;
        IF NEW.id IS DISTINCT FROM OLD.id THEN
            PERFORM pacer.refuse('destinations', 'id', 'destinations.id cannot be changed: jobs name it',
                'Insert a destination with the new id.');
        END IF;
    END IF;
    PERFORM pacer.check_id('destinations', 'id', NEW.id);
    IF NEW.sink IS NOT NULL THEN
        PERFORM pacer.check_id('destinations', 'sink', NEW.sink);
    END IF;
    IF NEW.url IS NULL OR length(NEW.url) > 2048 OR NEW.url COLLATE "C" !~ '^https?://[^/?#@]+([/?][!-~]*)?$'
            OR NEW.url COLLATE "C" !~ '^[!-~]+$' OR position('#' IN NEW.url) > 0 THEN
        PERFORM pacer.refuse('destinations', 'url', 'destinations.url must be an address without a user and a fragment',
            'Use one of at most 2048 characters, such as https://hooks.example.com/orders; a user and a password belong into headers, as a reference.');
    END IF;
    IF jsonb_typeof(NEW.headers) IS DISTINCT FROM 'object' THEN
        PERFORM pacer.refuse('destinations', 'headers', 'destinations.headers must be a JSON object of names and values',
            'Use one such as {"x-tenant": "blue", "authorization": "file:shop-7"}.');
    END IF;
    IF (SELECT count(*) FROM jsonb_object_keys(NEW.headers)) > 32 THEN
        PERFORM pacer.refuse('destinations', 'headers', 'destinations.headers has more than 32 headers', 'Use fewer.');
    END IF;
    FOR header IN SELECT e.key AS name, e.value AS value, e.value #>> '{}' AS content FROM jsonb_each(NEW.headers) AS e LOOP
        IF header.name COLLATE "C" !~ '^[-!#$%&''*+.^_`|~0-9A-Za-z]{1,128}$' OR jsonb_typeof(header.value) <> 'string' THEN
            PERFORM pacer.refuse('destinations', 'headers', format('destinations.headers: %L must be the name of a header, with a text', left(header.name, 64)),
                'Use one such as {"x-tenant": "blue"}.');
        ELSIF length(header.content) > 2048 OR header.content ~ '[\x01-\x08\x0A-\x1F\x7F]' THEN
            PERFORM pacer.refuse('destinations', 'headers', format('destinations.headers: the value of %L must be one line of at most 2048 characters', header.name),
                'Use a shorter one, or a reference, file:NAME.');
        ELSIF header.name ~* '(authorization|cookie|secret|token|password|api-?key)' AND header.content !~ '^(file|env):[!-~]+$' THEN
            PERFORM pacer.refuse('destinations', 'headers', format('destinations.headers: the value of %L is a secret, and must not be in the database', header.name),
                'Use a reference: file:NAME for a file in secrets_dir, or env:DESTINATION_NAME for a variable of the daemons.');
        END IF;
    END LOOP;
    IF NEW.secrets IS NULL OR cardinality(NEW.secrets) > 4 THEN
        PERFORM pacer.refuse('destinations', 'secrets', 'destinations.secrets must be a list of at most 4 references',
            'Use ''{}'' for none; while a secret is rotated, two.');
    END IF;
    FOREACH secret IN ARRAY NEW.secrets LOOP
        IF secret IS NULL OR length(secret) > 256 OR secret COLLATE "C" !~ '^(file|env):[!-~]+$' THEN
            PERFORM pacer.refuse('destinations', 'secrets', 'destinations.secrets must be references; a secret must not be in the database',
                'Use file:NAME for a file in secrets_dir, or env:DESTINATION_NAME for a variable of the daemons.');
        END IF;
    END LOOP;
    IF NEW.max_in_flight IS NULL OR NEW.max_in_flight < 0 THEN
        PERFORM pacer.refuse('destinations', 'max_in_flight', 'destinations.max_in_flight must not be negative', 'Use 0 for as many as the sink has.');
    ELSIF NOT isfinite(NEW.disabled_at) OR NOT isfinite(NEW.failing_since) THEN
        PERFORM pacer.refuse('destinations', 'disabled_at', 'destinations.disabled_at and failing_since must not be infinite', 'Use now(), or null.');
    ELSIF length(NEW.disabled_reason) > 500 THEN
        PERFORM pacer.refuse('destinations', 'disabled_reason', 'destinations.disabled_reason has more than 500 characters', 'Use a shorter one.');
    END IF;
    NEW.revision := nextval('pacer.revisions');
    NEW.updated_at := now();
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION pacer.number_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM 1 FROM pacer.revision FOR UPDATE;
    IF TG_TABLE_NAME = 'campaigns' THEN
        UPDATE pacer.campaigns SET revision = 0 WHERE id = NEW.id AND revision = NEW.revision;
    ELSIF TG_TABLE_NAME = 'destinations' THEN
        UPDATE pacer.destinations SET revision = 0 WHERE id = NEW.id AND revision = NEW.revision;
    ELSE
        UPDATE pacer.quotas SET revision = 0 WHERE id = NEW.id AND revision = NEW.revision;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

ALTER TABLE pacer.campaign_changes ADD COLUMN destination_id text;
CREATE INDEX campaign_changes_destination ON pacer.campaign_changes (destination_id, change) WHERE destination_id IS NOT NULL;
COMMENT ON TABLE pacer.campaign_changes IS 'every change of campaigns, quotas, quota_windows, campaign_quotas and destinations';

-- record_destination does for destinations what record_change does for the others. That one fails is the business of daemons, and no
-- change that anybody made.
-- +goose StatementBegin
CREATE FUNCTION pacer.record_destination() RETURNS trigger
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

CREATE TRIGGER b_check BEFORE INSERT OR UPDATE ON pacer.destinations
    FOR EACH ROW EXECUTE FUNCTION pacer.check_destination();
CREATE TRIGGER z_provisional BEFORE INSERT OR UPDATE ON pacer.destinations
    FOR EACH ROW EXECUTE FUNCTION pacer.provisional_revision();
CREATE TRIGGER c_record AFTER INSERT OR UPDATE OR DELETE ON pacer.destinations
    FOR EACH ROW EXECUTE FUNCTION pacer.record_destination();
CREATE TRIGGER e_removed AFTER TRUNCATE ON pacer.destinations
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.note_removal();
CREATE CONSTRAINT TRIGGER z_number AFTER INSERT OR UPDATE ON pacer.destinations DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.revision < 0) EXECUTE FUNCTION pacer.number_change();
CREATE CONSTRAINT TRIGGER z_removed AFTER DELETE ON pacer.destinations DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION pacer.number_removal();

-- Daemons note what they see of destinations by these two functions, and have no right to change anything else of them.

-- destinations_fail notes since when each of the destinations has failed, null for one that works again. An earlier time stays.
-- +goose StatementBegin
CREATE FUNCTION pacer.destinations_fail(ids text[], since timestamptz[]) RETURNS void
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

-- disable_destination disables a destination as it was at a revision: whoever has changed it since knows more.
-- +goose StatementBegin
CREATE FUNCTION pacer.disable_destination(destination text, seen bigint, reason text) RETURNS boolean
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
CREATE OR REPLACE FUNCTION pacer.catch_up(seen bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    newest bigint := 0;
BEGIN
    FOR i IN 1..2 LOOP
        SELECT greatest((SELECT max(revision) FROM pacer.campaigns), (SELECT max(revision) FROM pacer.quotas),
            (SELECT max(revision) FROM pacer.destinations), (SELECT max(removed) FROM pacer.revision), 0) INTO newest;
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
    UPDATE pacer.destinations SET revision = revision + 1 WHERE revision >= 0;
    UPDATE pacer.revision SET removed = nextval('pacer.revisions'); -- the rows that are gone
    PERFORM pg_notify('pacer_catalog', 'campaigns');
    RETURN true;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION pacer.disable_destination(text, bigint, text);
DROP FUNCTION pacer.destinations_fail(text[], timestamptz[]);
DROP TABLE pacer.destinations;
DROP FUNCTION pacer.record_destination();
DROP FUNCTION pacer.check_destination();
ALTER TABLE pacer.campaign_changes DROP COLUMN destination_id;
COMMENT ON TABLE pacer.campaign_changes IS 'every change of campaigns, quotas, quota_windows and campaign_quotas';
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION pacer.number_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM 1 FROM pacer.revision FOR UPDATE;
    IF TG_TABLE_NAME = 'campaigns' THEN
        UPDATE pacer.campaigns SET revision = 0 WHERE id = NEW.id AND revision = NEW.revision;
    ELSE
        UPDATE pacer.quotas SET revision = 0 WHERE id = NEW.id AND revision = NEW.revision;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION pacer.catch_up(seen bigint) RETURNS boolean
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

