-- Jobs that their destination refused in the normal course of things are counted apart from dead letters. Daemons of earlier
-- versions leave the column as it is.

-- +goose Up
ALTER TABLE pacer.campaign_progress ADD COLUMN rejected bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN pacer.campaign_progress.rejected IS 'jobs that the destination refused in the normal course of things';

-- +goose Down
ALTER TABLE pacer.campaign_progress DROP COLUMN rejected;
