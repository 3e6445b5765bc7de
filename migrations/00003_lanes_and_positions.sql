-- What the daemons themselves keep: which lane a campaign overflows into, and how far lanes and timers have been
-- read. Neither takes part in the revisions of the catalog: positions are saved every few seconds by every daemon
-- and must not queue behind a person's transaction.

-- +goose Up
CREATE TABLE pacer.lane_pins (
    campaign_id text        PRIMARY KEY,
    lane        integer     NOT NULL CONSTRAINT lane_must_not_be_negative CHECK (lane >= 0),
    pinned_at   timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE pacer.lane_pins IS
    'no foreign key: the jobs of a deleted campaign still lie in its lane';

CREATE TABLE pacer.positions (
    group_id   text        NOT NULL,
    topic      text        NOT NULL,
    partition  integer     NOT NULL CONSTRAINT partition_must_not_be_negative CHECK (partition >= 0),
    committed  bigint      NOT NULL,
    metadata   text        NOT NULL DEFAULT '',
    backlog    bigint      NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (group_id, topic, partition)
);

-- +goose StatementBegin
CREATE FUNCTION pacer.announce_pin() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('pacer_catalog', 'lane_pins ' ||
        CASE TG_OP WHEN 'DELETE' THEN left(OLD.campaign_id, 256) ELSE left(NEW.campaign_id, 256) END);
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER announce AFTER INSERT OR UPDATE OR DELETE ON pacer.lane_pins
    FOR EACH ROW EXECUTE FUNCTION pacer.announce_pin();

-- +goose Down
DROP TABLE pacer.positions;
DROP TABLE pacer.lane_pins;
DROP FUNCTION pacer.announce_pin();
