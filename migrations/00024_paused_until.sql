-- A pause may end by itself: at paused_until, by the clock of the database, the campaign is active again. A daemon that sees that a
-- pause is over asks for it, so nothing has to run in the database.

-- +goose Up
ALTER TABLE pacer.campaigns ADD COLUMN paused_until timestamptz;
COMMENT ON COLUMN pacer.campaigns.paused_until IS
    'when a paused campaign is active again by itself; null: when somebody resumes it';
CREATE INDEX campaigns_paused_until ON pacer.campaigns (paused_until) WHERE paused_until IS NOT NULL;

-- +goose StatementBegin
CREATE FUNCTION pacer.check_pause() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.status = 'paused' THEN
        IF NOT isfinite(NEW.paused_until) THEN
            PERFORM pacer.refuse('campaigns', 'paused_until', 'campaigns.paused_until must be a point in time',
                'Use null for a pause that lasts until somebody ends it.');
        END IF;
    ELSIF TG_OP = 'UPDATE' AND NEW.paused_until IS NOT DISTINCT FROM OLD.paused_until THEN
        NEW.paused_until := NULL; -- the pause is over
    ELSE
        PERFORM pacer.refuse('campaigns', 'paused_until', format('campaigns.paused_until does not go with status %L', NEW.status),
            'Set status to ''paused'' as well, or paused_until to null.');
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER a_pause BEFORE INSERT OR UPDATE ON pacer.campaigns
    FOR EACH ROW WHEN (NEW.paused_until IS NOT NULL) EXECUTE FUNCTION pacer.check_pause();

-- resume_due ends the pauses that are over, and returns how many. Rows that another transaction holds are left for the next call.
-- +goose StatementBegin
CREATE FUNCTION pacer.resume_due() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    resumed bigint;
BEGIN
    PERFORM set_config('pacer.actor', 'pacer', true), set_config('pacer.reason', 'its pause has ended', true);
    UPDATE pacer.campaigns SET status = 'active' WHERE id IN (
        SELECT id FROM pacer.campaigns WHERE paused_until <= clock_timestamp() AND status = 'paused' FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS resumed = ROW_COUNT;
    RETURN resumed;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION pacer.resume_due();
DROP TRIGGER a_pause ON pacer.campaigns;
DROP FUNCTION pacer.check_pause();
ALTER TABLE pacer.campaigns DROP COLUMN paused_until;
