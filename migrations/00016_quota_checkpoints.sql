-- What the quota store has counted takes the place of what daemons have reserved. Daemons of the version before go on
-- with quota_usage as they know it: the sum of a quota's rows is never less than what was used.

-- +goose Up
ALTER TABLE pacer.quota_usage ADD COLUMN incarnation bigint;
COMMENT ON TABLE pacer.quota_usage IS
    'units of each quota per minute: reserved for use by a daemon, or, without a node, as counted by the store';
COMMENT ON COLUMN pacer.quota_usage.incarnation IS
    'of the data of the store that the units are taken from; null: not known';
COMMENT ON COLUMN pacer.quota_usage.minute IS
    'minutes since 1970 on the clock of the store; as a time: to_timestamp(minute * 60). Rows without a node that are '
    'older than a day hold an hour, of which it is the last minute';

CREATE TABLE pacer.quota_checkpoints (
    quota_id    text   PRIMARY KEY REFERENCES pacer.quotas ON DELETE CASCADE,
    incarnation bigint NOT NULL,
    since       bigint NOT NULL,
    at          bigint NOT NULL,
    counted_in  text   NOT NULL,
    born        bigint NOT NULL,
    counted     bigint NOT NULL,
    begun       bigint NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE pacer.quota_checkpoints IS
    'up to when quota_usage holds what the store has counted. Times are microseconds since 1970 on the clock of the store';
COMMENT ON COLUMN pacer.quota_checkpoints.incarnation IS 'of the data of the store that was counted';
COMMENT ON COLUMN pacer.quota_checkpoints.since IS 'the time of the checkpoint before';
COMMENT ON COLUMN pacer.quota_checkpoints.at IS 'its time';
COMMENT ON COLUMN pacer.quota_checkpoints.counted_in IS 'the window whose counts are compared';
COMMENT ON COLUMN pacer.quota_checkpoints.born IS 'when the oldest units were counted that the window holds';
COMMENT ON COLUMN pacer.quota_checkpoints.counted IS 'units in the newest part of the window at the time';
COMMENT ON COLUMN pacer.quota_checkpoints.begun IS
    'the first minute of which reservations taken from this incarnation are replaced by what was counted';

-- +goose Down
-- What was counted is a row of a node without a name, which earlier versions add up as any other.
DROP TABLE pacer.quota_checkpoints;
ALTER TABLE pacer.quota_usage DROP COLUMN incarnation;
COMMENT ON TABLE pacer.quota_usage IS 'units that each daemon used, or reserved for use, per minute';
COMMENT ON COLUMN pacer.quota_usage.minute IS
    'minutes since 1970 on the clock of the store; as a time: to_timestamp(minute * 60)';
