-- An open transaction holds the campaigns that it has changed, and no others. So far every writer of the catalog held the
-- row of pacer.revision until it committed, so that the order of the revisions is the order of the commits. Now a change
-- gets its revision when its transaction commits, and waits for that row only then.
--
-- Changes of quotas, their windows and their links still take turns for a whole transaction, since the rules about them
-- concern several rows. Their turn is the row of pacer.store, which is taken before any row of the catalog.
--
-- The record of changes has a retention.

-- +goose Up

-- provisional_revision runs after the checks, which take a revision. Below 0 it is not final; number_change, the only
-- trigger that updates such a row, makes it final.
-- +goose StatementBegin
CREATE FUNCTION pacer.provisional_revision() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF NEW.revision = OLD.revision OR OLD.revision < 0 AND pg_trigger_depth() > 1 THEN
            RETURN NEW;
        END IF;
    END IF;
    NEW.revision := -NEW.revision;
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- number_change runs when the transaction commits. Of a row that was changed several times, the last version is
-- numbered; the update takes the next revision in check_campaign or check_quota.
-- +goose StatementBegin
CREATE FUNCTION pacer.number_change() RETURNS trigger
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

-- number_removal does for a deletion what number_change does for a change, once in a transaction.
-- +goose StatementBegin
CREATE FUNCTION pacer.number_removal() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE pacer.revision SET removed = nextval('pacer.revisions') WHERE xmin <> pg_current_xact_id()::xid;
    PERFORM pg_notify('pacer_catalog', TG_TABLE_NAME);
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- Rows whose revision is not final get one anyway.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION pacer.bump_quota() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD IS NOT DISTINCT FROM NEW THEN
        RETURN NULL;
    END IF;
    UPDATE pacer.quotas SET revision = revision + 1
    WHERE (id = CASE WHEN TG_OP <> 'INSERT' THEN OLD.quota_id END OR id = CASE WHEN TG_OP <> 'DELETE' THEN NEW.quota_id END)
      AND revision >= 0;
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION pacer.bump_campaign() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD IS NOT DISTINCT FROM NEW THEN
        RETURN NULL;
    END IF;
    UPDATE pacer.campaigns SET revision = revision + 1
    WHERE (id = CASE WHEN TG_OP <> 'INSERT' THEN OLD.campaign_id END
        OR id = CASE WHEN TG_OP <> 'DELETE' THEN NEW.campaign_id END) AND revision >= 0;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- take_turn fires before the statement touches a row, so that two transactions cannot each hold a row that the other
-- wants while one of them waits here. Deleting a campaign deletes its links.
-- +goose StatementBegin
CREATE FUNCTION pacer.take_turn() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM 1 FROM pacer.store FOR UPDATE;
    RETURN NULL;
END $$;
-- +goose StatementEnd

DROP TRIGGER a_lock ON pacer.campaigns;
DROP TRIGGER a_lock ON pacer.quotas;
DROP TRIGGER a_lock ON pacer.quota_windows;
DROP TRIGGER a_lock ON pacer.campaign_quotas;
DROP TRIGGER a_lock ON pacer.store;
DROP TRIGGER e_removed ON pacer.campaigns;
DROP TRIGGER e_removed ON pacer.quotas;
DROP FUNCTION pacer.lock_revision();

CREATE TRIGGER a_turn BEFORE DELETE OR TRUNCATE ON pacer.campaigns
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.take_turn();
CREATE TRIGGER a_turn BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON pacer.quotas
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.take_turn();
CREATE TRIGGER a_turn BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON pacer.quota_windows
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.take_turn();
CREATE TRIGGER a_turn BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON pacer.campaign_quotas
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.take_turn();
CREATE TRIGGER a_turn BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON pacer.store
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.take_turn();

CREATE TRIGGER z_provisional BEFORE INSERT OR UPDATE ON pacer.campaigns
    FOR EACH ROW EXECUTE FUNCTION pacer.provisional_revision();
CREATE TRIGGER z_provisional BEFORE INSERT OR UPDATE ON pacer.quotas
    FOR EACH ROW EXECUTE FUNCTION pacer.provisional_revision();
CREATE CONSTRAINT TRIGGER z_number AFTER INSERT OR UPDATE ON pacer.campaigns DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.revision < 0) EXECUTE FUNCTION pacer.number_change();
CREATE CONSTRAINT TRIGGER z_number AFTER INSERT OR UPDATE ON pacer.quotas DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.revision < 0) EXECUTE FUNCTION pacer.number_change();
CREATE CONSTRAINT TRIGGER z_removed AFTER DELETE ON pacer.campaigns DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION pacer.number_removal();
CREATE CONSTRAINT TRIGGER z_removed AFTER DELETE ON pacer.quotas DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION pacer.number_removal();
CREATE TRIGGER e_removed AFTER TRUNCATE ON pacer.campaigns
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.note_removal();
CREATE TRIGGER e_removed AFTER TRUNCATE ON pacer.quotas
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.note_removal();

ALTER TABLE pacer.store ADD COLUMN changes_kept interval NOT NULL DEFAULT '400 days'
    CONSTRAINT changes_kept_must_be_positive CHECK (changes_kept > '0');
COMMENT ON COLUMN pacer.store.changes_kept IS 'how long rows of campaign_changes are kept';

-- prune_changes deletes the oldest rows, a few at a time and faster than they come, and none that another transaction
-- deletes just now.
-- +goose StatementBegin
CREATE FUNCTION pacer.prune_changes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM pacer.campaign_changes WHERE change IN (
        SELECT o.change
        FROM (SELECT c.change, c."when" FROM pacer.campaign_changes c ORDER BY c.change LIMIT 64 FOR UPDATE SKIP LOCKED) AS o
        WHERE o."when" < now() - (SELECT s.changes_kept FROM pacer.store s));
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER prune AFTER INSERT ON pacer.campaign_changes
    FOR EACH ROW WHEN (NEW.change % 16 = 0) EXECUTE FUNCTION pacer.prune_changes();

-- +goose Down
DROP TRIGGER prune ON pacer.campaign_changes;
DROP FUNCTION pacer.prune_changes();
ALTER TABLE pacer.store DROP COLUMN changes_kept;

DROP TRIGGER e_removed ON pacer.quotas;
DROP TRIGGER e_removed ON pacer.campaigns;
DROP TRIGGER z_removed ON pacer.quotas;
DROP TRIGGER z_removed ON pacer.campaigns;
DROP TRIGGER z_number ON pacer.quotas;
DROP TRIGGER z_number ON pacer.campaigns;
DROP TRIGGER z_provisional ON pacer.quotas;
DROP TRIGGER z_provisional ON pacer.campaigns;
DROP TRIGGER a_turn ON pacer.store;
DROP TRIGGER a_turn ON pacer.campaign_quotas;
DROP TRIGGER a_turn ON pacer.quota_windows;
DROP TRIGGER a_turn ON pacer.quotas;
DROP TRIGGER a_turn ON pacer.campaigns;
DROP FUNCTION pacer.take_turn();
DROP FUNCTION pacer.number_removal();
DROP FUNCTION pacer.number_change();
DROP FUNCTION pacer.provisional_revision();

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION pacer.bump_quota() RETURNS trigger
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
CREATE OR REPLACE FUNCTION pacer.bump_campaign() RETURNS trigger
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
-- +goose StatementBegin
CREATE FUNCTION pacer.lock_revision() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM 1 FROM pacer.revision FOR UPDATE;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER a_lock BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON pacer.campaigns
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.lock_revision();
CREATE TRIGGER a_lock BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON pacer.quotas
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.lock_revision();
CREATE TRIGGER a_lock BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON pacer.quota_windows
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.lock_revision();
CREATE TRIGGER a_lock BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON pacer.campaign_quotas
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.lock_revision();
CREATE TRIGGER a_lock BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON pacer.store
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.lock_revision();
CREATE TRIGGER e_removed AFTER DELETE OR TRUNCATE ON pacer.campaigns
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.note_removal();
CREATE TRIGGER e_removed AFTER DELETE OR TRUNCATE ON pacer.quotas
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.note_removal();
