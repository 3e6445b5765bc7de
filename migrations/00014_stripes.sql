-- The backlog of a campaign may lie in several lanes, its stripes, so that several daemons send it. The first of them is
-- its row in lane_pins, as before; daemons of earlier versions know and use that one only. The others are in lane_stripes.
-- pacer.lanes returns them all; pacer.lane returns one of them, a different one from call to call.

-- +goose Up
ALTER TABLE pacer.lane_pins ADD COLUMN drained_at timestamptz;
COMMENT ON COLUMN pacer.lane_pins.drained_at IS
    'when the reader of the lane last reported that almost nothing of the campaign is left in it; kept while there are other stripes';

CREATE TABLE pacer.lane_stripes (
    campaign_id text        NOT NULL,
    lane        integer     NOT NULL CONSTRAINT lane_must_not_be_negative CHECK (lane >= 0),
    pinned_at   timestamptz NOT NULL DEFAULT now(),
    drained_at  timestamptz,
    PRIMARY KEY (campaign_id, lane)
);
COMMENT ON TABLE pacer.lane_stripes IS
    'the lanes of a campaign besides that of lane_pins; no foreign key: the jobs of a deleted campaign still lie in them';

-- A report that a lane is drained is not announced.
DROP TRIGGER announce ON pacer.lane_pins;
CREATE TRIGGER announce AFTER INSERT OR UPDATE OF lane OR DELETE ON pacer.lane_pins
    FOR EACH ROW EXECUTE FUNCTION pacer.announce_pin();
CREATE TRIGGER announce AFTER INSERT OR UPDATE OF lane OR DELETE ON pacer.lane_stripes
    FOR EACH ROW EXECUTE FUNCTION pacer.announce_pin();

-- A daemon of an earlier version that finds the first lane drained removes its pin. Another stripe takes its place, so that
-- the campaign stays pinned for all of them.
-- +goose StatementBegin
CREATE FUNCTION pacer.promote_stripe() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    WITH next AS (
        DELETE FROM pacer.lane_stripes s WHERE s.campaign_id = OLD.campaign_id AND s.lane = (
            SELECT min(o.lane) FROM pacer.lane_stripes o WHERE o.campaign_id = OLD.campaign_id)
        RETURNING s.*
    )
    INSERT INTO pacer.lane_pins (campaign_id, lane, pinned_at, drained_at)
    SELECT n.campaign_id, n.lane, n.pinned_at, n.drained_at FROM next n
    ON CONFLICT (campaign_id) DO NOTHING;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER promote AFTER DELETE ON pacer.lane_pins
    FOR EACH ROW EXECUTE FUNCTION pacer.promote_stripe();

-- +goose StatementBegin
CREATE FUNCTION pacer.lanes(campaign text, lanes integer, topic text DEFAULT 'pacer.lanes') RETURNS integer[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted integer;
    base   integer;
    chosen integer;
    stripes integer[];
BEGIN
    IF $1 IS NULL OR length($1) > 256 OR $1 COLLATE "C" !~ '^[!-~]+$' THEN
        RAISE EXCEPTION 'campaign must be 1 to 256 printable ASCII characters without spaces'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF $2 IS NULL OR $2 NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'lanes must be the number of partitions of the topic of lanes, from 1 to 10000'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- As many as the rate needs: one for each 500 units a second, at most an eighth of all.
    SELECT least(greatest(ceil(floor(c.send_rate / nullif(extract(epoch FROM c.send_per), 0)) / 500), 1), greatest($2 / 8, 1))
    INTO wanted FROM pacer.campaigns c WHERE c.id = $1;
    wanted := coalesce(wanted, 1);
    FOR try IN 1..2 LOOP
        stripes := ARRAY(
            SELECT p.lane FROM pacer.lane_pins p WHERE p.campaign_id = $1 AND p.lane < $2
            UNION SELECT s.lane FROM pacer.lane_stripes s WHERE s.campaign_id = $1 AND s.lane < $2 ORDER BY 1);
        IF cardinality(stripes) >= wanted THEN
            RETURN stripes;
        END IF;
        IF try = 1 THEN
            PERFORM pg_advisory_xact_lock(8097862892351678830); -- one chooses at a time; the daemons take the same lock
        END IF;
    END LOOP;
    SELECT p.lane INTO base FROM pacer.lane_pins p WHERE p.campaign_id = $1 AND p.lane < $2;
    FOR chosen IN
        SELECT n.lane
        FROM generate_series(0, $2 - 1) AS n(lane)
        LEFT JOIN (
            SELECT p.lane, count(*) AS pins
            FROM (SELECT a.lane FROM pacer.lane_pins a UNION ALL SELECT b.lane FROM pacer.lane_stripes b) AS p GROUP BY p.lane
        ) AS pin USING (lane)
        LEFT JOIN (
            SELECT s.partition AS lane, max(s.backlog) AS jobs FROM pacer.positions s
            WHERE s.topic = $3 AND s.updated_at > now() - interval '1 minute' GROUP BY s.partition
        ) AS backlog USING (lane)
        WHERE base IS NULL AND n.lane <> ALL (stripes)
        ORDER BY coalesce(pin.pins, 0), coalesce(backlog.jobs, 0), hashtextextended($1, n.lane)
        LIMIT 1
    LOOP
        INSERT INTO pacer.lane_pins (campaign_id, lane) VALUES ($1, chosen)
        ON CONFLICT (campaign_id) DO UPDATE SET lane = excluded.lane, pinned_at = now(), drained_at = NULL;
        base := chosen;
        stripes := stripes || chosen;
    END LOOP;
    -- Further ones follow the first, if their pins and backlogs are equal: neighbours belong to different daemons.
    FOR chosen IN
        SELECT n.lane
        FROM generate_series(0, $2 - 1) AS n(lane)
        LEFT JOIN (
            SELECT p.lane, count(*) AS pins
            FROM (SELECT a.lane FROM pacer.lane_pins a UNION ALL SELECT b.lane FROM pacer.lane_stripes b) AS p GROUP BY p.lane
        ) AS pin USING (lane)
        LEFT JOIN (
            SELECT s.partition AS lane, max(s.backlog) AS jobs FROM pacer.positions s
            WHERE s.topic = $3 AND s.updated_at > now() - interval '1 minute' GROUP BY s.partition
        ) AS backlog USING (lane)
        WHERE n.lane <> ALL (stripes)
        ORDER BY coalesce(pin.pins, 0), coalesce(backlog.jobs, 0), (n.lane - base + $2) % $2
        LIMIT greatest(wanted - cardinality(stripes), 0)
    LOOP
        INSERT INTO pacer.lane_stripes (campaign_id, lane) VALUES ($1, chosen)
        ON CONFLICT (campaign_id, lane) DO UPDATE SET pinned_at = now(), drained_at = NULL;
        stripes := stripes || chosen;
    END LOOP;
    RETURN ARRAY(SELECT unnest(stripes) ORDER BY 1);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION pacer.lanes(text, integer, text) IS
    'the partitions of the topic of lanes over which jobs of the campaign are spread; pins the campaign to as many as its rate needs';
REVOKE EXECUTE ON FUNCTION pacer.lanes(text, integer, text) FROM PUBLIC;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION pacer.lane(campaign text, lanes integer, topic text DEFAULT 'pacer.lanes') RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    stripes integer[] := pacer.lanes($1, $2, $3);
BEGIN
    RETURN stripes[1 + floor(random() * cardinality(stripes))::integer];
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION pacer.lane(text, integer, text) IS
    'one of the partitions that pacer.lanes returns, chosen at random';

-- +goose Down
-- Jobs in the other lanes are still sent, since every lane is read.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION pacer.lane(campaign text, lanes integer, topic text DEFAULT 'pacer.lanes') RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    chosen integer;
BEGIN
    IF $1 IS NULL OR length($1) > 256 OR $1 COLLATE "C" !~ '^[!-~]+$' THEN
        RAISE EXCEPTION 'campaign must be 1 to 256 printable ASCII characters without spaces'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF $2 IS NULL OR $2 NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'lanes must be the number of partitions of the topic of lanes, from 1 to 10000'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT p.lane INTO chosen FROM pacer.lane_pins p WHERE p.campaign_id = $1 AND p.lane < $2;
    IF FOUND THEN
        RETURN chosen;
    END IF;
    PERFORM pg_advisory_xact_lock(8097862892351678830); -- one chooses at a time; the daemons take the same lock
    SELECT p.lane INTO chosen FROM pacer.lane_pins p WHERE p.campaign_id = $1 AND p.lane < $2;
    IF FOUND THEN
        RETURN chosen;
    END IF;
    SELECT n.lane INTO chosen
    FROM generate_series(0, $2 - 1) AS n(lane)
    LEFT JOIN (SELECT p.lane, count(*) AS pins FROM pacer.lane_pins p GROUP BY p.lane) AS pin USING (lane)
    LEFT JOIN (
        SELECT s.partition AS lane, max(s.backlog) AS jobs FROM pacer.positions s
        WHERE s.topic = $3 AND s.updated_at > now() - interval '1 minute' GROUP BY s.partition
    ) AS backlog USING (lane)
    ORDER BY coalesce(pin.pins, 0), coalesce(backlog.jobs, 0), hashtextextended($1, n.lane)
    LIMIT 1;
    INSERT INTO pacer.lane_pins (campaign_id, lane) VALUES ($1, chosen)
    ON CONFLICT (campaign_id) DO UPDATE SET lane = excluded.lane, pinned_at = now();
    RETURN chosen;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION pacer.lane(text, integer, text) IS
    'the partition of the topic of lanes into which jobs of the campaign go; pins the campaign if it is not pinned';
DROP FUNCTION pacer.lanes(text, integer, text);
DROP TRIGGER promote ON pacer.lane_pins;
DROP FUNCTION pacer.promote_stripe();
DROP TABLE pacer.lane_stripes;
DROP TRIGGER announce ON pacer.lane_pins;
ALTER TABLE pacer.lane_pins DROP COLUMN drained_at;
CREATE TRIGGER announce AFTER INSERT OR UPDATE OR DELETE ON pacer.lane_pins
    FOR EACH ROW EXECUTE FUNCTION pacer.announce_pin();
