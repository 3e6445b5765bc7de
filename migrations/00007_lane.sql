-- Producers that write jobs into a lane themselves, in whatever language, ask here which one. The rule is that of the
-- daemons: the lane that the campaign is pinned to; else it is pinned to an empty one, or to the one with the smallest
-- backlog. Pins of the last 15 seconds, which may not show in the backlogs yet, come before those.

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION pacer.lane(campaign text, lanes integer, topic text DEFAULT 'pacer.lanes') RETURNS integer
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
COMMENT ON FUNCTION pacer.lane(text, integer, text) IS
    'the partition of the topic of lanes into which jobs of the campaign go; pins the campaign if it is not pinned';
REVOKE EXECUTE ON FUNCTION pacer.lane(text, integer, text) FROM PUBLIC;

-- +goose Down
DROP FUNCTION pacer.lane(text, integer, text);
