-- A stored position says which topic it is of: names are used again when a topic is made anew, and by other clusters.
-- Daemons of earlier versions leave both columns as they are; a row that only they have written has neither, and is not
-- used.

-- +goose Up
ALTER TABLE pacer.positions
    ADD COLUMN cluster_id text NOT NULL DEFAULT '',
    ADD COLUMN topic_id   text NOT NULL DEFAULT '';
COMMENT ON COLUMN pacer.positions.topic_id IS 'as Kafka''s tools spell it; empty where the brokers know none';

-- +goose Down
ALTER TABLE pacer.positions DROP COLUMN cluster_id, DROP COLUMN topic_id;
