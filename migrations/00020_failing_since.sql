-- A destination with other headers, secrets or another sink begins anew, as one with another address does: since when it fails says nothing of it.

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION pacer.renew_destination() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.failing_since := NULL;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER b_renew BEFORE UPDATE ON pacer.destinations FOR EACH ROW
    WHEN ((NEW.headers, NEW.secrets, NEW.sink) IS DISTINCT FROM (OLD.headers, OLD.secrets, OLD.sink))
    EXECUTE FUNCTION pacer.renew_destination();

-- +goose Down
DROP TRIGGER b_renew ON pacer.destinations;
DROP FUNCTION pacer.renew_destination();
