-- A new pin goes to the lane with the fewest pins and, among those, the smallest backlog. Before, backlogs came first, and
-- small campaigns that overflowed one after the other all chose the lane with the smallest. A backlog that was stored
-- more than a minute ago belongs to a group that has retired, and does not count. The daemons go by the same rule.

-- +goose Up
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

-- +goose Down
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
    LEFT JOIN (
        SELECT p.lane, count(*) AS pins, count(*) FILTER (WHERE p.pinned_at > now() - interval '15 seconds') AS fresh
        FROM pacer.lane_pins p GROUP BY p.lane
    ) AS pin USING (lane)
    LEFT JOIN (
        SELECT s.partition AS lane, max(s.backlog) AS jobs FROM pacer.positions s WHERE s.topic = $3 GROUP BY s.partition
    ) AS backlog USING (lane)
    ORDER BY coalesce(pin.pins, 0) + coalesce(backlog.jobs, 0) > 0, coalesce(pin.fresh, 0), coalesce(backlog.jobs, 0),
        coalesce(pin.pins, 0), hashtextextended($1, n.lane)
    LIMIT 1;
    INSERT INTO pacer.lane_pins (campaign_id, lane) VALUES ($1, chosen)
    ON CONFLICT (campaign_id) DO UPDATE SET lane = excluded.lane, pinned_at = now();
    RETURN chosen;
END $$;
-- +goose StatementEnd
