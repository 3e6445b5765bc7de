-- What every process that serves the API has to know of requests: the answers to those with an Idempotency-Key, so that one that is sent
-- again, to whichever process, is not done again; and the replays of dead letters, which one process runs and all show and stop.

-- +goose Up
CREATE TABLE pacer.idempotency_keys (
    actor       text        NOT NULL CHECK (length(actor) <= 256),
    key         text        NOT NULL CHECK (length(key) BETWEEN 1 AND 128),
    claim       bigint      GENERATED ALWAYS AS IDENTITY,
    fingerprint bytea       NOT NULL CHECK (length(fingerprint) = 32),
    begun       timestamptz NOT NULL DEFAULT clock_timestamp(),
    status      integer,
    header      jsonb,
    answer      text        CHECK (octet_length(answer) <= 524288),
    PRIMARY KEY (actor, key)
);
CREATE INDEX idempotency_keys_begun ON pacer.idempotency_keys (begun);
COMMENT ON TABLE pacer.idempotency_keys IS 'requests with an Idempotency-Key, and their answers, for 24 hours';
COMMENT ON COLUMN pacer.idempotency_keys.actor IS 'who asked: the name of the token or of the user, without an address';
COMMENT ON COLUMN pacer.idempotency_keys.key IS 'the Idempotency-Key';
COMMENT ON COLUMN pacer.idempotency_keys.claim IS 'which request it is: of two processes that ask at once, one has it';
COMMENT ON COLUMN pacer.idempotency_keys.fingerprint IS 'SHA-256 of the request: another one with the key is refused';
COMMENT ON COLUMN pacer.idempotency_keys.begun IS 'when the request came';
COMMENT ON COLUMN pacer.idempotency_keys.status IS 'HTTP status of the answer; null: it is being done, or its process ended meanwhile';
COMMENT ON COLUMN pacer.idempotency_keys.header IS 'header of the answer';
COMMENT ON COLUMN pacer.idempotency_keys.answer IS 'body of the answer';

CREATE TABLE pacer.replays (
    id      text        PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 64),
    job     jsonb       NOT NULL CHECK (octet_length(job::text) <= 65536),
    running boolean     NOT NULL,
    begun   timestamptz NOT NULL DEFAULT clock_timestamp(),
    beat    timestamptz NOT NULL DEFAULT clock_timestamp(),
    stop    boolean     NOT NULL DEFAULT false
);
CREATE INDEX replays_begun ON pacer.replays (begun);
COMMENT ON TABLE pacer.replays IS 'the last 100 replays of dead letters that consoles have begun';
COMMENT ON COLUMN pacer.replays.id IS 'as the API names it';
COMMENT ON COLUMN pacer.replays.job IS 'the replay as the API shows it';
COMMENT ON COLUMN pacer.replays.running IS 'whether it goes on, as its process last said';
COMMENT ON COLUMN pacer.replays.begun IS 'when it began';
COMMENT ON COLUMN pacer.replays.beat IS 'when its process last wrote the row: of one that runs, every few seconds';
COMMENT ON COLUMN pacer.replays.stop IS 'somebody asks to stop it';

-- +goose Down
DROP TABLE pacer.replays;
DROP TABLE pacer.idempotency_keys;
