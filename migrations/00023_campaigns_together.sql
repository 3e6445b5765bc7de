-- Campaigns of one transaction are numbered together, as destinations are since 00022.
--
-- So far each row of a bulk change was checked, recorded and announced once more when it was numbered, which was more than half of
-- its cost. The guarantee stays as it was: a transaction numbers its rows when it commits, holding the row of pacer.revision until then, so that
-- the order of the revisions is the order of the commits. Quotas are few, and stay as they are.

-- +goose Up
DROP TRIGGER b_check ON pacer.campaigns;
DROP TRIGGER b_schedule ON pacer.campaigns;
DROP TRIGGER z_provisional ON pacer.campaigns;
DROP TRIGGER c_record ON pacer.campaigns;
DROP TRIGGER z_number ON pacer.campaigns;

-- +goose StatementBegin
CREATE FUNCTION pacer.provisional_campaign() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' OR NEW.revision <> OLD.revision THEN
        NEW.revision := -NEW.revision;
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- number_campaigns runs for each row when the transaction commits, and mostly there is nothing left to do. Of the rows below 0 a transaction
-- sees its own.
-- +goose StatementBegin
CREATE FUNCTION pacer.number_campaigns() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM pacer.campaigns c WHERE c.id = NEW.id AND c.revision = NEW.revision) THEN
        PERFORM 1 FROM pacer.revision FOR UPDATE;
        UPDATE pacer.campaigns SET revision = nextval('pacer.revisions') WHERE revision < 0;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER b_check BEFORE INSERT ON pacer.campaigns
    FOR EACH ROW EXECUTE FUNCTION pacer.check_campaign();
CREATE TRIGGER b_schedule BEFORE INSERT ON pacer.campaigns
    FOR EACH ROW EXECUTE FUNCTION pacer.check_schedule();
CREATE TRIGGER z_provisional BEFORE INSERT ON pacer.campaigns
    FOR EACH ROW EXECUTE FUNCTION pacer.provisional_campaign();
CREATE TRIGGER c_record AFTER INSERT OR DELETE ON pacer.campaigns
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
        WHERE attrelid = 'pacer.campaigns'::regclass AND attnum > 0 AND NOT attisdropped AND attname <> 'revision';
    EXECUTE 'CREATE TRIGGER b_check_update BEFORE UPDATE ON pacer.campaigns FOR EACH ROW WHEN ' || changes
        || ' EXECUTE FUNCTION pacer.check_campaign()';
    EXECUTE 'CREATE TRIGGER b_schedule_update BEFORE UPDATE ON pacer.campaigns FOR EACH ROW WHEN ' || changes
        || ' EXECUTE FUNCTION pacer.check_schedule()';
    EXECUTE 'CREATE TRIGGER z_provisional_update BEFORE UPDATE ON pacer.campaigns FOR EACH ROW WHEN ' || changes
        || ' EXECUTE FUNCTION pacer.provisional_campaign()';
    EXECUTE 'CREATE TRIGGER c_record_update AFTER UPDATE ON pacer.campaigns FOR EACH ROW WHEN ' || changes
        || ' EXECUTE FUNCTION pacer.record_change()';
END $$;
-- +goose StatementEnd
CREATE CONSTRAINT TRIGGER z_number AFTER INSERT OR UPDATE ON pacer.campaigns DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.revision < 0) EXECUTE FUNCTION pacer.number_campaigns();

-- +goose Down
DROP TRIGGER z_number ON pacer.campaigns;
DROP TRIGGER c_record_update ON pacer.campaigns;
DROP TRIGGER c_record ON pacer.campaigns;
DROP TRIGGER z_provisional_update ON pacer.campaigns;
DROP TRIGGER z_provisional ON pacer.campaigns;
DROP TRIGGER b_schedule_update ON pacer.campaigns;
DROP TRIGGER b_schedule ON pacer.campaigns;
DROP TRIGGER b_check_update ON pacer.campaigns;
DROP TRIGGER b_check ON pacer.campaigns;
DROP FUNCTION pacer.number_campaigns();
DROP FUNCTION pacer.provisional_campaign();
CREATE TRIGGER b_check BEFORE INSERT OR UPDATE ON pacer.campaigns
    FOR EACH ROW EXECUTE FUNCTION pacer.check_campaign();
CREATE TRIGGER b_schedule BEFORE INSERT OR UPDATE ON pacer.campaigns
    FOR EACH ROW EXECUTE FUNCTION pacer.check_schedule();
CREATE TRIGGER z_provisional BEFORE INSERT OR UPDATE ON pacer.campaigns
    FOR EACH ROW EXECUTE FUNCTION pacer.provisional_revision();
CREATE TRIGGER c_record AFTER INSERT OR UPDATE OR DELETE ON pacer.campaigns
    FOR EACH ROW EXECUTE FUNCTION pacer.record_change();
CREATE CONSTRAINT TRIGGER z_number AFTER INSERT OR UPDATE ON pacer.campaigns DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.revision < 0) EXECUTE FUNCTION pacer.number_change();
