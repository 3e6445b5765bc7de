-- Who asked for a change, and why: "who" is the role of the database, and behind a program that many people use it is always the same.
-- Whoever may change campaigns may set these, so they are what the program says; "who" cannot be forged.

-- +goose Up
-- As defaults they reach every function that records changes.
ALTER TABLE pacer.campaign_changes
    ADD COLUMN actor      text DEFAULT nullif(left(current_setting('pacer.actor', true), 256), ''),
    ADD COLUMN reason     text DEFAULT nullif(left(current_setting('pacer.reason', true), 500), ''),
    ADD COLUMN request_id text DEFAULT nullif(left(current_setting('pacer.request_id', true), 64), '');
COMMENT ON COLUMN pacer.campaign_changes.actor IS 'the setting pacer.actor of the transaction: for whom a program made the change';
COMMENT ON COLUMN pacer.campaign_changes.reason IS 'the setting pacer.reason of the transaction';
COMMENT ON COLUMN pacer.campaign_changes.request_id IS 'the setting pacer.request_id of the transaction';

-- +goose Down
ALTER TABLE pacer.campaign_changes DROP COLUMN actor, DROP COLUMN reason, DROP COLUMN request_id;
