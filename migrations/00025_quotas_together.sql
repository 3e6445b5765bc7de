-- Quotas of one transaction are numbered together, as campaigns are since 00023, and their windows and links give the rows that they belong
-- to a new revision once a statement.
--
-- So far each quota of a bulk change was checked, recorded and announced once more when it was numbered, each window and each link updated
-- its quota or campaign by itself, and each link looked through all links of its quota. The guarantees stay as they were.

-- +goose Up
DROP TRIGGER b_check ON pacer.quotas;
DROP TRIGGER b_coverage ON pacer.quotas;
DROP TRIGGER c_record ON pacer.quotas;
DROP TRIGGER c_spend ON pacer.quotas;
DROP TRIGGER z_provisional ON pacer.quotas;
DROP TRIGGER z_number ON pacer.quotas;
DROP TRIGGER d_bump ON pacer.quota_windows;
DROP TRIGGER d_bump ON pacer.campaign_quotas;
DROP TRIGGER f_spread ON pacer.campaign_quotas;
DROP FUNCTION pacer.number_change();
DROP FUNCTION pacer.provisional_revision();
DROP FUNCTION pacer.bump_quota();
DROP FUNCTION pacer.bump_campaign();

-- +goose StatementBegin
CREATE FUNCTION pacer.provisional_quota() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' OR NEW.revision <> OLD.revision THEN
        NEW.revision := -NEW.revision;
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- number_quotas runs for each row when the transaction commits, and mostly there is nothing left to do. Of the rows below 0 a transaction
-- sees its own.
-- +goose StatementBegin
CREATE FUNCTION pacer.number_quotas() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM pacer.quotas q WHERE q.id = NEW.id AND q.revision = NEW.revision) THEN
        PERFORM 1 FROM pacer.revision FOR UPDATE;
        UPDATE pacer.quotas SET revision = nextval('pacer.revisions') WHERE revision < 0;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER b_check BEFORE INSERT ON pacer.quotas
    FOR EACH ROW EXECUTE FUNCTION pacer.check_quota();
CREATE TRIGGER b_coverage BEFORE INSERT ON pacer.quotas
    FOR EACH ROW EXECUTE FUNCTION pacer.check_coverage();
CREATE TRIGGER z_provisional BEFORE INSERT ON pacer.quotas
    FOR EACH ROW EXECUTE FUNCTION pacer.provisional_quota();
CREATE TRIGGER c_record AFTER INSERT OR DELETE ON pacer.quotas
    FOR EACH ROW EXECUTE FUNCTION pacer.record_change();
-- A row is numbered by an update, made by a trigger, that takes it from below 0 to above and changes nothing else.
-- +goose StatementBegin
DO $$
DECLARE
    changes text;
BEGIN
    SELECT format('(OLD.revision >= 0 OR NEW.revision < 0 OR pg_trigger_depth() = 0 OR (%s) IS DISTINCT FROM (%s))',
            string_agg('OLD.' || quote_ident(attname), ', ' ORDER BY attnum), string_agg('NEW.' || quote_ident(attname), ', ' ORDER BY attnum))
        INTO changes FROM pg_catalog.pg_attribute
        WHERE attrelid = 'pacer.quotas'::regclass AND attnum > 0 AND NOT attisdropped AND attname <> 'revision';
    EXECUTE 'CREATE TRIGGER b_check_update BEFORE UPDATE ON pacer.quotas FOR EACH ROW WHEN ' || changes
        || ' EXECUTE FUNCTION pacer.check_quota()';
    EXECUTE 'CREATE TRIGGER b_coverage_update BEFORE UPDATE ON pacer.quotas FOR EACH ROW WHEN ' || changes
        || ' EXECUTE FUNCTION pacer.check_coverage()';
    EXECUTE 'CREATE TRIGGER z_provisional_update BEFORE UPDATE ON pacer.quotas FOR EACH ROW WHEN ' || changes
        || ' EXECUTE FUNCTION pacer.provisional_quota()';
    EXECUTE 'CREATE TRIGGER c_record_update AFTER UPDATE ON pacer.quotas FOR EACH ROW WHEN ' || changes
        || ' EXECUTE FUNCTION pacer.record_change()';
END $$;
-- +goose StatementEnd
CREATE CONSTRAINT TRIGGER c_spend AFTER INSERT OR UPDATE OF spend ON pacer.quotas DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.spend = 'even') EXECUTE FUNCTION pacer.check_spend();
CREATE CONSTRAINT TRIGGER z_number AFTER INSERT OR UPDATE ON pacer.quotas DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.revision < 0) EXECUTE FUNCTION pacer.number_quotas();

-- bump_quotas gives the quotas whose windows a statement changed a new revision, and bump_campaigns the campaigns that it linked or
-- unlinked. Rows whose revision is not final get one anyway. Any other value than the old revision will do: the row's own trigger takes the
-- next one.
-- +goose StatementBegin
CREATE FUNCTION pacer.bump_quotas() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        UPDATE pacer.quotas SET revision = revision + 1 WHERE revision >= 0 AND id IN (
            SELECT d.quota_id FROM (SELECT * FROM before EXCEPT SELECT * FROM after) AS d
            UNION SELECT d.quota_id FROM (SELECT * FROM after EXCEPT SELECT * FROM before) AS d);
    ELSE
        UPDATE pacer.quotas SET revision = revision + 1 WHERE revision >= 0 AND id IN (SELECT c.quota_id FROM changed c);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION pacer.bump_campaigns() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        UPDATE pacer.campaigns SET revision = revision + 1 WHERE revision >= 0 AND id IN (
            SELECT d.campaign_id FROM (SELECT * FROM before EXCEPT SELECT * FROM after) AS d
            UNION SELECT d.campaign_id FROM (SELECT * FROM after EXCEPT SELECT * FROM before) AS d);
    ELSE
        UPDATE pacer.campaigns SET revision = revision + 1 WHERE revision >= 0 AND id IN (SELECT c.campaign_id FROM changed c);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER d_bump_insert AFTER INSERT ON pacer.quota_windows REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.bump_quotas();
CREATE TRIGGER d_bump_update AFTER UPDATE ON pacer.quota_windows REFERENCING OLD TABLE AS before NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.bump_quotas();
CREATE TRIGGER d_bump_delete AFTER DELETE ON pacer.quota_windows REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.bump_quotas();
CREATE TRIGGER d_bump_insert AFTER INSERT ON pacer.campaign_quotas REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.bump_campaigns();
CREATE TRIGGER d_bump_update AFTER UPDATE ON pacer.campaign_quotas REFERENCING OLD TABLE AS before NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.bump_campaigns();
CREATE TRIGGER d_bump_delete AFTER DELETE ON pacer.campaign_quotas REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.bump_campaigns();

-- check_links does for the links of a statement what check_spread did for each by itself, and still does for quotas: it refuses those by
-- which the quotas of a campaign would live in several shards.
-- +goose StatementBegin
CREATE FUNCTION pacer.check_links() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    divided text;
BEGIN
    SELECT l.campaign_id INTO divided
    FROM pacer.campaign_quotas l JOIN pacer.quotas q ON q.id = l.quota_id
    WHERE q.mode <> 'eventual' AND l.campaign_id IN (
        SELECT c.campaign_id FROM changed c JOIN pacer.quotas n ON n.id = c.quota_id WHERE n.mode <> 'eventual')
    GROUP BY l.campaign_id HAVING count(DISTINCT q.shard) > 1
    ORDER BY l.campaign_id COLLATE "C" LIMIT 1;
    IF FOUND THEN
        PERFORM pacer.refuse('campaign_quotas', 'quota_id',
            format('the quotas of campaign %L would live in several shards of the store: %s', divided, pacer.spread(divided)),
            pacer.spread_remedy());
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER f_spread_insert AFTER INSERT ON pacer.campaign_quotas REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.check_links();
CREATE TRIGGER f_spread_update AFTER UPDATE ON pacer.campaign_quotas REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.check_links();

-- +goose Down
DROP TRIGGER f_spread_update ON pacer.campaign_quotas;
DROP TRIGGER f_spread_insert ON pacer.campaign_quotas;
DROP TRIGGER d_bump_delete ON pacer.campaign_quotas;
DROP TRIGGER d_bump_update ON pacer.campaign_quotas;
DROP TRIGGER d_bump_insert ON pacer.campaign_quotas;
DROP TRIGGER d_bump_delete ON pacer.quota_windows;
DROP TRIGGER d_bump_update ON pacer.quota_windows;
DROP TRIGGER d_bump_insert ON pacer.quota_windows;
DROP TRIGGER z_number ON pacer.quotas;
DROP TRIGGER c_spend ON pacer.quotas;
DROP TRIGGER c_record_update ON pacer.quotas;
DROP TRIGGER c_record ON pacer.quotas;
DROP TRIGGER z_provisional_update ON pacer.quotas;
DROP TRIGGER z_provisional ON pacer.quotas;
DROP TRIGGER b_coverage_update ON pacer.quotas;
DROP TRIGGER b_coverage ON pacer.quotas;
DROP TRIGGER b_check_update ON pacer.quotas;
DROP TRIGGER b_check ON pacer.quotas;
DROP FUNCTION pacer.check_links();
DROP FUNCTION pacer.bump_campaigns();
DROP FUNCTION pacer.bump_quotas();
DROP FUNCTION pacer.number_quotas();
DROP FUNCTION pacer.provisional_quota();
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
-- +goose StatementBegin
CREATE FUNCTION pacer.number_change() RETURNS trigger
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
-- +goose StatementBegin
CREATE FUNCTION pacer.bump_quota() RETURNS trigger
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
CREATE FUNCTION pacer.bump_campaign() RETURNS trigger
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
CREATE TRIGGER b_check BEFORE INSERT OR UPDATE ON pacer.quotas
    FOR EACH ROW EXECUTE FUNCTION pacer.check_quota();
CREATE TRIGGER b_coverage BEFORE INSERT OR UPDATE ON pacer.quotas
    FOR EACH ROW EXECUTE FUNCTION pacer.check_coverage();
CREATE TRIGGER z_provisional BEFORE INSERT OR UPDATE ON pacer.quotas
    FOR EACH ROW EXECUTE FUNCTION pacer.provisional_revision();
CREATE TRIGGER c_record AFTER INSERT OR UPDATE OR DELETE ON pacer.quotas
    FOR EACH ROW EXECUTE FUNCTION pacer.record_change();
CREATE CONSTRAINT TRIGGER c_spend AFTER INSERT OR UPDATE ON pacer.quotas DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.spend = 'even') EXECUTE FUNCTION pacer.check_spend();
CREATE CONSTRAINT TRIGGER z_number AFTER INSERT OR UPDATE ON pacer.quotas DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.revision < 0) EXECUTE FUNCTION pacer.number_change();
CREATE TRIGGER d_bump AFTER INSERT OR UPDATE OR DELETE ON pacer.quota_windows
    FOR EACH ROW EXECUTE FUNCTION pacer.bump_quota();
CREATE TRIGGER d_bump AFTER INSERT OR UPDATE OR DELETE ON pacer.campaign_quotas
    FOR EACH ROW EXECUTE FUNCTION pacer.bump_campaign();
CREATE TRIGGER f_spread AFTER INSERT OR UPDATE ON pacer.campaign_quotas
    FOR EACH ROW EXECUTE FUNCTION pacer.check_spread();
