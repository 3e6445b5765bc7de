-- Campaigns and quotas. People write these tables with plain SQL, so everything has a default, and nonsense is
-- refused by triggers rather than CHECK constraints: a trigger can name the column, the value and the remedy.

-- +goose Up
-- The schema pacer exists: the table of the migrations is in it.

-- Every change of a campaign or a quota takes a number from this sequence, while it holds the one row of
-- pacer.revision until it commits. So the order of the numbers is the order of the commits, and whoever has seen
-- number n has missed nothing below it: that is what lets daemons read only "revision > n". A deletion leaves no
-- row to carry its number, so it is written to "removed". (A bare sequence would hand out 7 and 8, commit 8 first,
-- and a reader that had seen 8 would never look at 7.)
CREATE SEQUENCE pacer.revisions;

CREATE TABLE pacer.revision (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    removed  bigint  NOT NULL DEFAULT 0
);
INSERT INTO pacer.revision DEFAULT VALUES;

CREATE TABLE pacer.campaigns (
    id              text        PRIMARY KEY,
    send_rate       numeric     NOT NULL DEFAULT 0,
    send_per        interval    NOT NULL DEFAULT '1 second',
    burst           integer     NOT NULL DEFAULT 0,
    status          text        NOT NULL DEFAULT 'active',
    sink            text,
    priority_weight integer     NOT NULL DEFAULT 1,
    max_in_flight   integer     NOT NULL DEFAULT 0,
    starts_at       timestamptz,
    ends_at         timestamptz,
    active_hours    jsonb,
    time_zone       text        NOT NULL DEFAULT 'UTC',
    ramp            jsonb,
    overflow        text        NOT NULL DEFAULT 'lane',
    job_ttl         interval,
    expected_total  bigint,
    revision        bigint      NOT NULL DEFAULT 0,
    updated_at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX campaigns_revision ON pacer.campaigns (revision);
COMMENT ON COLUMN pacer.campaigns.send_rate IS 'units per send_per, at most six decimals; 0 holds the campaign';
COMMENT ON COLUMN pacer.campaigns.status IS 'active, paused (jobs wait), cancelled (for good) or completed';
COMMENT ON COLUMN pacer.campaigns.sink IS 'null: the default sink';
COMMENT ON COLUMN pacer.campaigns.max_in_flight IS '0: unlimited';
COMMENT ON COLUMN pacer.campaigns.job_ttl IS 'null: jobs do not expire by age';
COMMENT ON COLUMN pacer.campaigns.revision IS 'kept by triggers';

CREATE TABLE pacer.quotas (
    id               text        PRIMARY KEY,
    on_store_failure text        NOT NULL DEFAULT 'closed',
    mode             text        NOT NULL DEFAULT 'strict',
    spend            text        NOT NULL DEFAULT 'greedy',
    shard            integer     NOT NULL DEFAULT 0,
    revision         bigint      NOT NULL DEFAULT 0,
    updated_at       timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX quotas_revision ON pacer.quotas (revision);
COMMENT ON COLUMN pacer.quotas.shard IS 'where the counts live; fixed when the quota is created';
COMMENT ON COLUMN pacer.quotas.revision IS 'kept by triggers; changes of the windows count too';

CREATE TABLE pacer.quota_windows (
    quota_id  text     NOT NULL REFERENCES pacer.quotas ON DELETE CASCADE,
    span      interval NOT NULL,
    max_units bigint   NOT NULL,
    algorithm text     NOT NULL DEFAULT 'sliding',
    anchor    text,
    PRIMARY KEY (quota_id, span)
);
COMMENT ON TABLE pacer.quota_windows IS 'at most max_units in any span; every window of a quota must allow a job';

CREATE TABLE pacer.campaign_quotas (
    campaign_id text NOT NULL REFERENCES pacer.campaigns ON DELETE CASCADE,
    quota_id    text NOT NULL REFERENCES pacer.quotas ON DELETE CASCADE,
    PRIMARY KEY (campaign_id, quota_id)
);
CREATE INDEX campaign_quotas_quota ON pacer.campaign_quotas (quota_id);

-- refuse raises the one clear line of a value that cannot be used.
-- +goose StatementBegin
CREATE FUNCTION pacer.refuse(relation text, field text, message text, remedy text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', message
        USING ERRCODE = 'check_violation', SCHEMA = 'pacer', TABLE = relation, COLUMN = field, HINT = remedy;
END $$;
-- +goose StatementEnd

-- lock_revision serialises the writers of the catalog. It fires before the statement touches a row, so that two
-- transactions cannot each hold a row that the other wants while one of them waits here. Locking, unlike updating,
-- makes no new version of the row, so a transaction of ten thousand statements stays linear.
-- +goose StatementBegin
CREATE FUNCTION pacer.lock_revision() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM 1 FROM pacer.revision FOR UPDATE;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- check_id refuses ids that could not stand in a header, a key or a metric.
-- +goose StatementBegin
CREATE FUNCTION pacer.check_id(relation text, field text, value text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF value IS NULL OR length(value) > 256 OR value COLLATE "C" !~ '^[!-~]+$' THEN
        PERFORM pacer.refuse(relation, field, format('%s.%s must be an id, not %L', relation, field, left(value, 64)),
            'Use 1 to 256 printable ASCII characters without spaces.');
    END IF;
END $$;
-- +goose StatementEnd

-- check_word refuses a value that is not one of the allowed words.
-- +goose StatementBegin
CREATE FUNCTION pacer.check_word(relation text, field text, value text, allowed text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF value IS NULL OR value <> ALL (allowed) THEN
        PERFORM pacer.refuse(relation, field, format('%s.%s must not be %L', relation, field, left(value, 64)),
            'Use one of: ' || array_to_string(allowed, ', ') || '.');
    END IF;
END $$;
-- +goose StatementEnd

-- check_span refuses lengths of time that have no fixed length or lie outside 1 ms to 366 days.
-- +goose StatementBegin
CREATE FUNCTION pacer.check_span(relation text, field text, value interval) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF value IS NULL OR value < '1 millisecond' OR value > '366 days' THEN
        PERFORM pacer.refuse(relation, field, format('%s.%s must not be %s', relation, field, coalesce(value::text, 'null')),
            'Use a length of time between 1 millisecond and 366 days, such as ''1 minute''.');
    ELSIF extract(month FROM value) <> 0 OR extract(year FROM value) <> 0 THEN
        PERFORM pacer.refuse(relation, field, format('%s.%s must not be counted in months: they differ in length', relation, field),
            'Use days, such as ''30 days''.');
    END IF;
END $$;
-- +goose StatementEnd

-- check_rate refuses rates that the timeline cannot keep exactly. The bounds keep every product of slot arithmetic
-- below 2^53 and are those of the daemon.
-- +goose StatementBegin
CREATE FUNCTION pacer.check_rate(send_rate numeric, send_per interval) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    units   numeric := send_rate * 1000000;
    per     numeric := extract(epoch FROM send_per) * 1000000 * 1000000;
    divisor numeric;
    message text;
    remedy  text;
BEGIN
    IF send_rate IS NULL OR send_rate IN ('NaN', 'Infinity', '-Infinity') THEN
        message := format('campaigns.send_rate must be a number, not %s', coalesce(send_rate::text, 'null'));
        remedy := 'Use units per send_per, such as 500; 0 holds the campaign.';
    ELSIF send_rate < 0 THEN
        message := format('campaigns.send_rate must not be negative (%s)', left(send_rate::text, 40));
        remedy := 'Use 0 to hold the campaign, or status = ''paused'' to pause it.';
    ELSIF units <> trunc(units) THEN
        message := format('campaigns.send_rate has more than six decimals (%s)', left(send_rate::text, 40));
        remedy := 'Use a longer send_per, such as send_rate = 1, send_per = ''1 hour''.';
    ELSIF units * 366 * 86400 * 1000000 < per AND units > 0 THEN
        message := format('campaigns.send_rate is below one unit in 366 days (%s per %s)', left(send_rate::text, 40), send_per);
        remedy := 'Use 0 to hold the campaign.';
    ELSIF units > per THEN
        message := format('campaigns.send_rate is above 1000000 per second (%s per %s)', left(send_rate::text, 40), send_per);
        remedy := 'Use a lower send_rate or a longer send_per.';
    ELSIF units > 0 THEN
        divisor := gcd(units, per);
        IF units / divisor > 100000000000 THEN
            message := format('campaigns.send_rate has too many digits for its size (%s per %s)', left(send_rate::text, 40), send_per);
            remedy := 'Use fewer decimals.';
        END IF;
    END IF;
    IF message IS NOT NULL THEN
        PERFORM pacer.refuse('campaigns', 'send_rate', message, remedy);
    END IF;
END $$;
-- +goose StatementEnd

-- check_campaign refuses nonsense and stamps what is left with a revision. A statement that changes nothing leaves
-- the row as it is, so that it is neither recorded nor announced.
-- +goose StatementBegin
CREATE FUNCTION pacer.check_campaign() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        NEW.updated_at := OLD.updated_at;
        IF NEW IS NOT DISTINCT FROM OLD THEN
            RETURN OLD;
        END IF;
        IF NEW.id IS DISTINCT FROM OLD.id THEN
            PERFORM pacer.refuse('campaigns', 'id', 'campaigns.id cannot be changed: jobs name it',
                'Insert a campaign with the new id and cancel the old one.');
        END IF;
    END IF;
    PERFORM pacer.check_id('campaigns', 'id', NEW.id);
    PERFORM pacer.check_span('campaigns', 'send_per', NEW.send_per);
    PERFORM pacer.check_rate(NEW.send_rate, NEW.send_per);
    PERFORM pacer.check_word('campaigns', 'status', NEW.status, '{active,paused,cancelled,completed}');
    PERFORM pacer.check_word('campaigns', 'overflow', NEW.overflow, '{lane,block}');
    IF NEW.sink IS NOT NULL THEN
        PERFORM pacer.check_id('campaigns', 'sink', NEW.sink);
    END IF;
    IF NEW.burst < 0 OR NEW.burst > 1000000 THEN
        PERFORM pacer.refuse('campaigns', 'burst', format('campaigns.burst must not be %s', NEW.burst),
            'Use 0 (none) to 1000000 units.');
    ELSIF NEW.priority_weight < 1 OR NEW.priority_weight > 1000000 THEN
        PERFORM pacer.refuse('campaigns', 'priority_weight',
            format('campaigns.priority_weight must not be %s', NEW.priority_weight), 'Use 1 to 1000000.');
    ELSIF NEW.max_in_flight < 0 THEN
        PERFORM pacer.refuse('campaigns', 'max_in_flight',
            format('campaigns.max_in_flight must not be negative (%s)', NEW.max_in_flight), 'Use 0 for no limit.');
    ELSIF NEW.expected_total < 0 THEN
        PERFORM pacer.refuse('campaigns', 'expected_total',
            format('campaigns.expected_total must not be negative (%s)', NEW.expected_total), 'Use null when it is not known.');
    ELSIF NOT isfinite(NEW.starts_at) OR NOT isfinite(NEW.ends_at) THEN
        PERFORM pacer.refuse('campaigns', CASE WHEN isfinite(NEW.ends_at) THEN 'starts_at' ELSE 'ends_at' END,
            'campaigns.starts_at and ends_at must not be infinite', 'Use null for no bound.');
    ELSIF NEW.ends_at <= NEW.starts_at THEN
        PERFORM pacer.refuse('campaigns', 'ends_at', 'campaigns.ends_at must be later than starts_at',
            'Use null for no end.');
    END IF;
    IF NEW.job_ttl IS NOT NULL THEN
        PERFORM pacer.check_span('campaigns', 'job_ttl', NEW.job_ttl);
    END IF;
    IF NEW.time_zone <> 'UTC' AND (TG_OP = 'INSERT' OR NEW.time_zone IS DISTINCT FROM OLD.time_zone) THEN
        BEGIN
            PERFORM now() AT TIME ZONE NEW.time_zone;
        EXCEPTION WHEN invalid_parameter_value THEN
            PERFORM pacer.refuse('campaigns', 'time_zone', format('campaigns.time_zone %L is not known', left(NEW.time_zone, 64)),
                'Use a name such as ''Europe/Moscow'' or ''UTC''.');
        END;
    END IF;
    NEW.revision := nextval('pacer.revisions');
    NEW.updated_at := now();
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- check_quota does for quotas what check_campaign does for campaigns.
-- +goose StatementBegin
CREATE FUNCTION pacer.check_quota() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        NEW.updated_at := OLD.updated_at;
        IF NEW IS NOT DISTINCT FROM OLD THEN
            RETURN OLD;
        END IF;
        IF NEW.id IS DISTINCT FROM OLD.id THEN
            PERFORM pacer.refuse('quotas', 'id', 'quotas.id cannot be changed: counts are kept under it',
                'Insert a quota with the new id and link the campaigns to it.');
        ELSIF NEW.shard IS DISTINCT FROM OLD.shard THEN
            PERFORM pacer.refuse('quotas', 'shard', 'quotas.shard is fixed when the quota is created: its counts live there',
                'Insert a quota with another id and link the campaigns to it.');
        END IF;
    END IF;
    PERFORM pacer.check_id('quotas', 'id', NEW.id);
    PERFORM pacer.check_word('quotas', 'on_store_failure', NEW.on_store_failure, '{closed,local-share,open}');
    PERFORM pacer.check_word('quotas', 'mode', NEW.mode, '{strict,eventual,shadow}');
    PERFORM pacer.check_word('quotas', 'spend', NEW.spend, '{greedy,even}');
    IF NEW.shard < 0 THEN
        PERFORM pacer.refuse('quotas', 'shard', format('quotas.shard must not be negative (%s)', NEW.shard), 'Use 0.');
    END IF;
    NEW.revision := nextval('pacer.revisions');
    NEW.updated_at := now();
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- check_window refuses windows that the quota engine cannot keep.
-- +goose StatementBegin
CREATE FUNCTION pacer.check_window() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pacer.check_span('quota_windows', 'span', NEW.span);
    PERFORM pacer.check_word('quota_windows', 'algorithm', NEW.algorithm, '{sliding,fixed,log}');
    IF NEW.max_units < 0 OR NEW.max_units > 1000000000000000 THEN
        PERFORM pacer.refuse('quota_windows', 'max_units', format('quota_windows.max_units must not be %s', NEW.max_units),
            'Use 0 (grants nothing) to 10^15 units.');
    END IF;
    IF length(NEW.anchor) NOT BETWEEN 1 AND 64 THEN
        PERFORM pacer.refuse('quota_windows', 'anchor', 'quota_windows.anchor must have 1 to 64 characters', 'Use null for none.');
    END IF;
    IF (SELECT count(*) FROM pacer.quota_windows w WHERE w.quota_id = NEW.quota_id AND w.span <> NEW.span) >= 16 THEN
        PERFORM pacer.refuse('quota_windows', 'quota_id', format('quota %L has 16 windows already', NEW.quota_id),
            'Delete a window that another one implies.');
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- check_link bounds how many quotas a campaign may have.
-- +goose StatementBegin
CREATE FUNCTION pacer.check_link() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (SELECT count(*) FROM pacer.campaign_quotas l WHERE l.campaign_id = NEW.campaign_id
            AND l.quota_id <> NEW.quota_id) >= 16 THEN
        PERFORM pacer.refuse('campaign_quotas', 'campaign_id', format('campaign %L has 16 quotas already', NEW.campaign_id),
            'Unlink a quota, or join several into one with more windows.');
    END IF;
    RETURN NEW;
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
CREATE TRIGGER b_check BEFORE INSERT OR UPDATE ON pacer.campaigns
    FOR EACH ROW EXECUTE FUNCTION pacer.check_campaign();
CREATE TRIGGER b_check BEFORE INSERT OR UPDATE ON pacer.quotas
    FOR EACH ROW EXECUTE FUNCTION pacer.check_quota();
CREATE TRIGGER b_check BEFORE INSERT OR UPDATE ON pacer.quota_windows
    FOR EACH ROW EXECUTE FUNCTION pacer.check_window();
CREATE TRIGGER b_check BEFORE INSERT OR UPDATE ON pacer.campaign_quotas
    FOR EACH ROW EXECUTE FUNCTION pacer.check_link();

-- +goose Down
DROP TABLE pacer.campaign_quotas;
DROP TABLE pacer.quota_windows;
DROP TABLE pacer.quotas;
DROP TABLE pacer.campaigns;
DROP TABLE pacer.revision;
DROP SEQUENCE pacer.revisions;
DROP FUNCTION pacer.check_link();
DROP FUNCTION pacer.check_window();
DROP FUNCTION pacer.check_quota();
DROP FUNCTION pacer.check_campaign();
DROP FUNCTION pacer.check_rate(numeric, interval);
DROP FUNCTION pacer.check_span(text, text, interval);
DROP FUNCTION pacer.check_word(text, text, text, text[]);
DROP FUNCTION pacer.check_id(text, text, text);
DROP FUNCTION pacer.lock_revision();
DROP FUNCTION pacer.refuse(text, text, text, text);
