-- How far each campaign has come. The daemons add to it every few seconds, so it takes no part in the revisions of the
-- catalog. These are counts for people, not a ledger: a daemon that is killed takes its last seconds with it, and a job
-- that is sent twice counts twice.

-- +goose Up
CREATE TABLE pacer.campaign_progress (
    campaign_id text        PRIMARY KEY REFERENCES pacer.campaigns (id) ON UPDATE CASCADE ON DELETE CASCADE,
    delivered   bigint      NOT NULL DEFAULT 0,
    dead        bigint      NOT NULL DEFAULT 0,
    expired     bigint      NOT NULL DEFAULT 0,
    cancelled   bigint      NOT NULL DEFAULT 0,
    backlog     bigint      NOT NULL DEFAULT 0,
    done_at     timestamptz,
    updated_at  timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50); -- rows change all the time, and no index over what changes: updates stay on their page
COMMENT ON COLUMN pacer.campaign_progress.delivered IS 'jobs delivered; dead, expired and cancelled: jobs that never will be';
COMMENT ON COLUMN pacer.campaign_progress.backlog IS 'jobs that wait, as the daemons counted them last';
COMMENT ON COLUMN pacer.campaign_progress.done_at IS 'when the backlog, and what is expected, will have been sent; null: unknown';
COMMENT ON COLUMN pacer.campaign_progress.updated_at IS 'when any of these changed last';

-- +goose Down
DROP TABLE pacer.campaign_progress;
