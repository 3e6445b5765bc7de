-- Schedules of campaigns: active hours and ramps, which daemons ignored so far, are checked, and a ramp knows when it
-- began.

-- +goose Up
ALTER TABLE pacer.campaigns ADD COLUMN ramp_since timestamptz;
CREATE INDEX campaigns_time_zone ON pacer.campaigns (time_zone) WHERE active_hours IS NOT NULL;
COMMENT ON COLUMN pacer.campaigns.active_hours IS
    'when jobs are sent; null: always; such as [{"days": ["mon", "fri"], "from": "09:00", "to": "21:00"}]';
COMMENT ON COLUMN pacer.campaigns.time_zone IS 'whose clocks active_hours mean';
COMMENT ON COLUMN pacer.campaigns.ramp IS
    'how the rate grows up to send_rate; null: not; such as {"start": 10, "add": 5, "every": "1 minute"}, with "factor" '
    'instead of "add" to multiply; units per send_per';
COMMENT ON COLUMN pacer.campaigns.ramp_since IS
    'when the ramp began, unless starts_at is later; set by a trigger when the ramp is set or changed; now() begins anew';

-- refuse_schedule gives an example as the remedy.
-- +goose StatementBegin
CREATE FUNCTION pacer.refuse_schedule(field text, message text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pacer.refuse('campaigns', field, format('campaigns.%s: %s', field, message), CASE field
        WHEN 'ramp' THEN 'Use {"start": 10, "add": 5, "every": "1 minute"}, or "factor": 1.5 instead of "add"; null for none.'
        ELSE 'Use [{"days": ["mon", "tue"], "from": "09:00", "to": "21:00"}]; without days, every day; null for always.' END);
END $$;
-- +goose StatementEnd

-- ramp_number reads a number of a ramp, which must be above a bound and have at most six decimals.
-- +goose StatementBegin
CREATE FUNCTION pacer.ramp_number(ramp jsonb, name text, above numeric) RETURNS numeric
LANGUAGE plpgsql AS $$
DECLARE
    value numeric;
BEGIN
    IF jsonb_typeof(ramp->name) IS DISTINCT FROM 'number' THEN
        PERFORM pacer.refuse_schedule('ramp', format('%s must be a number, not %s', name,
            coalesce(left((ramp->name)::text, 40), 'left out')));
    END IF;
    value := (ramp->>name)::numeric;
    IF value <= above OR value <> round(value, 6) OR value >= 100000000000 THEN
        PERFORM pacer.refuse_schedule('ramp', format('%s must be above %s, with at most six decimals, not %s', name, above,
            left(value::text, 40)));
    END IF;
    RETURN value;
END $$;
-- +goose StatementEnd

-- check_ramp refuses ramps that do not lead to the rate; the bounds are those of the daemon.
-- +goose StatementBegin
CREATE FUNCTION pacer.check_ramp(ramp jsonb, send_rate numeric, send_per interval) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    begin_at numeric;
    addend   numeric;
    factor   numeric;
    every    text := ramp->>'every';
    other    text;
BEGIN
    IF jsonb_typeof(ramp) <> 'object' THEN
        PERFORM pacer.refuse_schedule('ramp', format('must be an object, not %s', left(ramp::text, 40)));
    END IF;
    SELECT k INTO other FROM jsonb_object_keys(ramp) k WHERE k NOT IN ('start', 'add', 'factor', 'every') LIMIT 1;
    IF other IS NOT NULL THEN
        PERFORM pacer.refuse_schedule('ramp', format('has no %s', quote_literal(left(other, 40))));
    ELSIF ramp ? 'add' = ramp ? 'factor' THEN
        PERFORM pacer.refuse_schedule('ramp', 'needs either add or factor');
    END IF;
    begin_at := pacer.ramp_number(ramp, 'start', 0);
    IF ramp ? 'add' THEN
        addend := pacer.ramp_number(ramp, 'add', 0);
    ELSE
        factor := pacer.ramp_number(ramp, 'factor', 1);
        IF factor > 100 THEN
            PERFORM pacer.refuse_schedule('ramp', format('factor must be at most 100, not %s', factor));
        END IF;
    END IF;
    IF jsonb_typeof(ramp->'every') IS DISTINCT FROM 'string'
        OR every !~ '^[0-9]{1,8} ?(s|seconds?|m|minutes?|h|hours?|d|days?|w|weeks?)$' THEN
        PERFORM pacer.refuse_schedule('ramp',
            format('every must be a number of seconds, minutes, hours, days or weeks, not %s',
                coalesce(left((ramp->'every')::text, 40), 'left out')));
    ELSIF every::interval NOT BETWEEN '1 second' AND '366 days' THEN
        PERFORM pacer.refuse_schedule('ramp', format('every must lie between 1 second and 366 days, not %s', every));
    END IF;
    IF send_rate >= 100000000000 THEN
        PERFORM pacer.refuse('campaigns', 'ramp', 'campaigns.ramp needs a send_rate below 10^11 units per send_per',
            'Use a shorter send_per.');
    ELSIF begin_at < send_rate AND begin_at * 366 * 86400 < extract(epoch FROM send_per) THEN
        PERFORM pacer.refuse('campaigns', 'ramp',
            format('campaigns.ramp: start is below one unit in 366 days (%s per %s)', begin_at, send_per), 'Start higher.');
    ELSIF begin_at < send_rate
        AND (send_rate - begin_at > 10000 * addend OR ln(send_rate / begin_at) > 10000 * ln(factor)) THEN
        PERFORM pacer.refuse('campaigns', 'ramp',
            format('campaigns.ramp takes more than 10000 steps from %s to the send_rate, %s', begin_at, send_rate),
            'Use a larger step, and a longer every.');
    END IF;
END $$;
-- +goose StatementEnd

-- check_hours refuses active hours that are not a list of spans of the wall clock.
-- +goose StatementBegin
CREATE FUNCTION pacer.check_hours(hours jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    span  jsonb;
    other text;
BEGIN
    IF jsonb_typeof(hours) <> 'array' THEN
        PERFORM pacer.refuse_schedule('active_hours', format('must be a list, not %s', left(hours::text, 40)));
    ELSIF jsonb_array_length(hours) > 32 THEN
        PERFORM pacer.refuse_schedule('active_hours',
            format('must have at most 32 spans, not %s: join days with the same hours', jsonb_array_length(hours)));
    END IF;
    FOR span IN SELECT e FROM jsonb_array_elements(hours) e LOOP
        IF jsonb_typeof(span) <> 'object' THEN
            PERFORM pacer.refuse_schedule('active_hours', format('must hold objects, not %s', left(span::text, 40)));
        END IF;
        SELECT k INTO other FROM jsonb_object_keys(span) k WHERE k NOT IN ('days', 'from', 'to') LIMIT 1;
        IF other IS NOT NULL THEN
            PERFORM pacer.refuse_schedule('active_hours', format('a span has no %s', quote_literal(left(other, 40))));
        ELSIF jsonb_typeof(span->'from') IS DISTINCT FROM 'string' OR span->>'from' !~ '^([01][0-9]|2[0-3]):[0-5][0-9]$' THEN
            PERFORM pacer.refuse_schedule('active_hours', format('from must be a time from 00:00 to 23:59, not %s',
                coalesce(left((span->'from')::text, 40), 'left out')));
        ELSIF jsonb_typeof(span->'to') IS DISTINCT FROM 'string'
            OR span->>'to' !~ '^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$' THEN
            PERFORM pacer.refuse_schedule('active_hours', format('to must be a time from 00:00 to 24:00, not %s',
                coalesce(left((span->'to')::text, 40), 'left out')));
        ELSIF span ? 'days' AND (jsonb_typeof(span->'days') <> 'array' OR span->'days' = '[]'
            OR NOT '["mon", "tue", "wed", "thu", "fri", "sat", "sun"]' @> (span->'days')) THEN
            PERFORM pacer.refuse_schedule('active_hours',
                format('days must be a list of mon, tue, wed, thu, fri, sat and sun, not %s', left((span->'days')::text, 40)));
        END IF;
    END LOOP;
END $$;
-- +goose StatementEnd

-- check_zone refuses zones that daemons do not know: abbreviations and rules, which the server would take.
-- +goose StatementBegin
CREATE FUNCTION pacer.check_zone(zone text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF zone IS NULL OR zone !~ '^[A-Z]' OR NOT EXISTS (SELECT 1 FROM pg_timezone_names n WHERE n.name = zone) THEN
        PERFORM pacer.refuse('campaigns', 'time_zone',
            format('campaigns.time_zone %L is not the name of a time zone', left(zone, 64)),
            'Use a name such as ''Europe/Moscow'' or ''UTC''.');
    END IF;
END $$;
-- +goose StatementEnd

-- check_schedule looks at what is new in a schedule. It runs after check_campaign, which looks at the rate. To list the
-- zones takes the server tens of milliseconds, so one that another campaign uses is not looked up again.
-- +goose StatementBegin
CREATE FUNCTION pacer.check_schedule() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    before pacer.campaigns;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        before := OLD;
    END IF;
    IF NEW.ramp = 'null' THEN
        NEW.ramp := NULL;
    END IF;
    IF NEW.active_hours IN ('null', '[]') THEN
        NEW.active_hours := NULL;
    END IF;
    IF NEW.active_hours IS DISTINCT FROM before.active_hours AND NEW.active_hours IS NOT NULL THEN
        PERFORM pacer.check_hours(NEW.active_hours);
    END IF;
    IF NEW.active_hours IS NOT NULL
        AND (before.active_hours IS NULL OR NEW.time_zone IS DISTINCT FROM before.time_zone)
        AND NOT EXISTS (SELECT 1 FROM pacer.campaigns c WHERE c.time_zone = NEW.time_zone AND c.active_hours IS NOT NULL) THEN
        PERFORM pacer.check_zone(NEW.time_zone);
    END IF;
    IF NEW.ramp IS NULL THEN
        NEW.ramp_since := NULL;
        RETURN NEW;
    END IF;
    IF (NEW.ramp, NEW.send_rate, NEW.send_per) IS DISTINCT FROM (before.ramp, before.send_rate, before.send_per) THEN
        PERFORM pacer.check_ramp(NEW.ramp, NEW.send_rate, NEW.send_per);
    END IF;
    IF NEW.ramp_since IS NULL
        OR NEW.ramp IS DISTINCT FROM before.ramp AND NEW.ramp_since IS NOT DISTINCT FROM before.ramp_since THEN
        NEW.ramp_since := now();
    ELSIF NOT isfinite(NEW.ramp_since) THEN
        PERFORM pacer.refuse('campaigns', 'ramp_since', 'campaigns.ramp_since must not be infinite',
            'Use now() to begin anew, or starts_at to begin later.');
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- What was written while it had no meaning and cannot be kept is taken away; the rest acts from now on.
-- +goose StatementBegin
DO $$
DECLARE
    c pacer.campaigns;
BEGIN
    FOR c IN SELECT * FROM pacer.campaigns WHERE active_hours IS NOT NULL OR ramp IS NOT NULL LOOP
        BEGIN
            IF c.ramp IS NOT NULL THEN
                PERFORM pacer.check_ramp(c.ramp, c.send_rate, c.send_per);
                UPDATE pacer.campaigns SET ramp_since = now() WHERE id = c.id;
            END IF;
        EXCEPTION WHEN check_violation THEN
            UPDATE pacer.campaigns SET ramp = NULL WHERE id = c.id;
        END;
        BEGIN
            IF c.active_hours IS NOT NULL THEN
                PERFORM pacer.check_hours(c.active_hours);
                PERFORM pacer.check_zone(c.time_zone);
            END IF;
        EXCEPTION WHEN check_violation THEN
            UPDATE pacer.campaigns SET active_hours = NULL WHERE id = c.id;
        END;
    END LOOP;
END $$;
-- +goose StatementEnd

CREATE TRIGGER b_schedule BEFORE INSERT OR UPDATE ON pacer.campaigns
    FOR EACH ROW EXECUTE FUNCTION pacer.check_schedule();

-- +goose Down
DROP TRIGGER b_schedule ON pacer.campaigns;
DROP FUNCTION pacer.check_schedule();
DROP FUNCTION pacer.check_zone(text);
DROP FUNCTION pacer.check_hours(jsonb);
DROP FUNCTION pacer.check_ramp(jsonb, numeric, interval);
DROP FUNCTION pacer.ramp_number(jsonb, text, numeric);
DROP FUNCTION pacer.refuse_schedule(text, text);
DROP INDEX pacer.campaigns_time_zone;
ALTER TABLE pacer.campaigns DROP COLUMN ramp_since;
