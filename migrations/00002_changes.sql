-- What happens after a change of the catalog: it is recorded, what it belongs to gets a new revision, and the
-- daemons are told.

-- +goose Up
CREATE TABLE pacer.campaign_changes (
    change      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    "when"      timestamptz NOT NULL DEFAULT clock_timestamp(),
    who         text        NOT NULL,
    application text        NOT NULL,
    relation    text        NOT NULL,
    operation   text        NOT NULL,
    campaign_id text,
    quota_id    text,
    old         jsonb,
    new         jsonb
);
CREATE INDEX campaign_changes_campaign ON pacer.campaign_changes (campaign_id, change);
CREATE INDEX campaign_changes_quota ON pacer.campaign_changes (quota_id, change);
COMMENT ON TABLE pacer.campaign_changes IS 'every change of campaigns, quotas, quota_windows and campaign_quotas';

-- record_change runs with the rights of the owner, so that whoever may change a campaign can neither skip nor forge
-- the record. Inside such a function current_user is the owner; the role that the session had set, or else the
-- session's user, is who did it.
-- +goose StatementBegin
CREATE FUNCTION pacer.record_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    before jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) - '{revision,updated_at}'::text[] END;
    after  jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) - '{revision,updated_at}'::text[] END;
    kept   jsonb := coalesce(after, before);
    key    text  := CASE TG_TABLE_NAME WHEN 'campaigns' THEN kept->>'id' WHEN 'quotas' THEN kept->>'id'
                         WHEN 'quota_windows' THEN kept->>'quota_id' ELSE kept->>'campaign_id' END;
BEGIN
    IF before IS DISTINCT FROM after THEN
        INSERT INTO pacer.campaign_changes (who, application, relation, operation, campaign_id, quota_id, old, new)
        VALUES (coalesce(nullif(current_setting('role'), 'none'), session_user), current_setting('application_name'),
            TG_TABLE_NAME, lower(TG_OP),
            CASE TG_TABLE_NAME WHEN 'campaigns' THEN key WHEN 'campaign_quotas' THEN key END,
            CASE TG_TABLE_NAME WHEN 'quotas' THEN key WHEN 'quota_windows' THEN key
                               WHEN 'campaign_quotas' THEN kept->>'quota_id' END,
            before, after);
    END IF;
    IF TG_TABLE_NAME IN ('campaigns', 'quotas') AND OLD IS DISTINCT FROM NEW THEN
        PERFORM pg_notify('pacer_catalog', TG_TABLE_NAME || ' ' || key);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- bump_quota gives a quota a new revision when one of its windows changed; bump_campaign a campaign when it was
-- linked or unlinked. Any other value than the old revision will do: the quota's own trigger takes the next one.
-- +goose StatementBegin
CREATE FUNCTION pacer.bump_quota() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD IS NOT DISTINCT FROM NEW THEN
        RETURN NULL;
    END IF;
    UPDATE pacer.quotas SET revision = revision + 1
    WHERE id = CASE WHEN TG_OP <> 'INSERT' THEN OLD.quota_id END OR id = CASE WHEN TG_OP <> 'DELETE' THEN NEW.quota_id END;
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION pacer.bump_campaign() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD IS NOT DISTINCT FROM NEW THEN
        RETURN NULL;
    END IF;
    UPDATE pacer.campaigns SET revision = revision + 1
    WHERE id = CASE WHEN TG_OP <> 'INSERT' THEN OLD.campaign_id END
       OR id = CASE WHEN TG_OP <> 'DELETE' THEN NEW.campaign_id END;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- note_removal keeps the number of the latest deletion, which no row is left to carry; seeing it move, daemons read
-- everything anew.
-- +goose StatementBegin
CREATE FUNCTION pacer.note_removal() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE pacer.revision SET removed = nextval('pacer.revisions');
    PERFORM pg_notify('pacer_catalog', TG_TABLE_NAME);
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER c_record AFTER INSERT OR UPDATE OR DELETE ON pacer.campaigns
    FOR EACH ROW EXECUTE FUNCTION pacer.record_change();
CREATE TRIGGER c_record AFTER INSERT OR UPDATE OR DELETE ON pacer.quotas
    FOR EACH ROW EXECUTE FUNCTION pacer.record_change();
CREATE TRIGGER c_record AFTER INSERT OR UPDATE OR DELETE ON pacer.quota_windows
    FOR EACH ROW EXECUTE FUNCTION pacer.record_change();
CREATE TRIGGER c_record AFTER INSERT OR UPDATE OR DELETE ON pacer.campaign_quotas
    FOR EACH ROW EXECUTE FUNCTION pacer.record_change();
CREATE TRIGGER d_bump AFTER INSERT OR UPDATE OR DELETE ON pacer.quota_windows
    FOR EACH ROW EXECUTE FUNCTION pacer.bump_quota();
CREATE TRIGGER d_bump AFTER INSERT OR UPDATE OR DELETE ON pacer.campaign_quotas
    FOR EACH ROW EXECUTE FUNCTION pacer.bump_campaign();
CREATE TRIGGER e_removed AFTER DELETE OR TRUNCATE ON pacer.campaigns
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.note_removal();
CREATE TRIGGER e_removed AFTER DELETE OR TRUNCATE ON pacer.quotas
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.note_removal();
CREATE TRIGGER e_removed AFTER TRUNCATE ON pacer.quota_windows
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.note_removal();
CREATE TRIGGER e_removed AFTER TRUNCATE ON pacer.campaign_quotas
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.note_removal();

-- +goose Down
DROP TRIGGER e_removed ON pacer.campaign_quotas;
DROP TRIGGER e_removed ON pacer.quota_windows;
DROP TRIGGER e_removed ON pacer.quotas;
DROP TRIGGER e_removed ON pacer.campaigns;
DROP TRIGGER d_bump ON pacer.campaign_quotas;
DROP TRIGGER d_bump ON pacer.quota_windows;
DROP TRIGGER c_record ON pacer.campaign_quotas;
DROP TRIGGER c_record ON pacer.quota_windows;
DROP TRIGGER c_record ON pacer.quotas;
DROP TRIGGER c_record ON pacer.campaigns;
DROP FUNCTION pacer.note_removal();
DROP FUNCTION pacer.bump_campaign();
DROP FUNCTION pacer.bump_quota();
DROP FUNCTION pacer.record_change();
DROP TABLE pacer.campaign_changes;
