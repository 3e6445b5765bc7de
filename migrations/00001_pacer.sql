-- The schema of pacer. People write campaigns, quotas, quota_windows, campaign_quotas and destinations with plain SQL. So every column has
-- a default where one makes sense, and triggers refuse nonsense: unlike a CHECK, a trigger can name the column, the value and the remedy.
--
-- The names of triggers begin with letters because triggers of one event fire in the order of their names:
-- a (turns, defaults), b (checks), c (record), d (revisions of parents), e (removals), f (rules across rows), z (numbers).

-- +goose Up
-- +goose StatementBegin
-- The schema "pacer" exists already: the table of migrations is in it.

----------------------------------------------------------------------------------------------------------------------------------
-- Revisions
--
-- Every change of a campaign, quota or destination takes a number from this sequence when its transaction commits, holding the one row of
-- pacer.revision until then. So the order of the numbers is the order of the commits, and a daemon that has seen number n has missed
-- nothing below n: it reads only "revision > n". A bare sequence would hand out 7 and 8 and commit 8 first, and a reader that had
-- seen 8 would never read 7. Until the commit a changed row has a provisional revision, below 0. A deletion leaves no row to carry its
-- number, so "removed" keeps it.
----------------------------------------------------------------------------------------------------------------------------------

CREATE SEQUENCE pacer.revisions;
-- Revisions begin at the clock, in hundredths of a second since 2026: Redis may hold revisions of a database that was here before, and the
-- highest one wins.
SELECT setval('pacer.revisions', greatest(1, (extract(epoch FROM now() - timestamptz '2026-01-01 00:00:00Z') * 100)::bigint));

CREATE TABLE pacer.revision (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    removed  bigint  NOT NULL DEFAULT 0
);
INSERT INTO pacer.revision DEFAULT VALUES;
COMMENT ON TABLE pacer.revision IS 'numbers changes that leave no row behind';
COMMENT ON COLUMN pacer.revision.only_row IS 'there is one row';
COMMENT ON COLUMN pacer.revision.removed IS 'number of the newest change that removed a row';

CREATE TABLE pacer.store (
    only_row     boolean  PRIMARY KEY DEFAULT true CHECK (only_row),
    shards       integer  NOT NULL DEFAULT 1,
    cluster_id   text     NOT NULL DEFAULT '',
    group_id     text     NOT NULL DEFAULT '',
    topic_prefix text     NOT NULL DEFAULT '',
    changes_kept interval NOT NULL DEFAULT '400 days' CONSTRAINT changes_kept_must_be_positive CHECK (changes_kept > '0')
);
INSERT INTO pacer.store DEFAULT VALUES;
COMMENT ON TABLE pacer.store IS 'settings that are the same for all daemons, in one row';
COMMENT ON COLUMN pacer.store.only_row IS 'there is one row';
COMMENT ON COLUMN pacer.store.shards IS 'among how many shards new quotas are spread';
COMMENT ON COLUMN pacer.store.cluster_id IS 'id of the only Kafka cluster that daemons use, as pacer migrate up found it; empty: not known';
COMMENT ON COLUMN pacer.store.group_id IS 'kafka.group at the last pacer migrate up; empty: not known';
COMMENT ON COLUMN pacer.store.topic_prefix IS 'kafka.topic_prefix at the last pacer migrate up';
COMMENT ON COLUMN pacer.store.changes_kept IS 'how long rows of campaign_changes are kept';

----------------------------------------------------------------------------------------------------------------------------------
-- Campaigns, quotas and destinations
----------------------------------------------------------------------------------------------------------------------------------

CREATE TABLE pacer.campaigns (
    id              text        PRIMARY KEY,
    send_rate       numeric     NOT NULL DEFAULT 0,
    send_per        interval    NOT NULL DEFAULT '1 second',
    burst           integer     NOT NULL DEFAULT 0,
    status          text        NOT NULL DEFAULT 'active',
    paused_until    timestamptz,
    sink            text,
    priority_weight integer     NOT NULL DEFAULT 1,
    max_in_flight   integer     NOT NULL DEFAULT 0,
    starts_at       timestamptz,
    ends_at         timestamptz,
    active_hours    jsonb,
    time_zone       text        NOT NULL DEFAULT 'UTC',
    time_zone_missing text,
    avoid_minutes   text,
    ramp            jsonb,
    ramp_since      timestamptz,
    overflow        text        NOT NULL DEFAULT 'lane',
    job_ttl         interval,
    expected_total  bigint,
    note            text        NOT NULL DEFAULT '',
    finish_by       timestamptz,
    finish_rate     bigint,
    set_revision    bigint,
    revision        bigint      NOT NULL DEFAULT 0,
    updated_at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX campaigns_revision ON pacer.campaigns (revision);
CREATE INDEX campaigns_time_zone ON pacer.campaigns (time_zone) WHERE time_zone <> 'UTC';
CREATE INDEX campaigns_paused_until ON pacer.campaigns (paused_until) WHERE paused_until IS NOT NULL;
COMMENT ON TABLE pacer.campaigns IS 'a row for each campaign: its rate, and when and where its jobs are sent';
COMMENT ON COLUMN pacer.campaigns.id IS 'what jobs name; cannot be changed';
COMMENT ON COLUMN pacer.campaigns.send_rate IS 'units per send_per, at most six decimals; 0 holds the campaign';
COMMENT ON COLUMN pacer.campaigns.send_per IS 'what send_rate is a number of units in, at most 366 days';
COMMENT ON COLUMN pacer.campaigns.burst IS 'units that may be sent at once after idle time';
COMMENT ON COLUMN pacer.campaigns.status IS 'active, paused (jobs wait), cancelled (for good) or completed';
COMMENT ON COLUMN pacer.campaigns.paused_until IS 'when a paused campaign is active again by itself; null: when somebody resumes it';
COMMENT ON COLUMN pacer.campaigns.sink IS 'null: the default sink';
COMMENT ON COLUMN pacer.campaigns.priority_weight IS 'share of a contended quota, beside the other campaigns under it';
COMMENT ON COLUMN pacer.campaigns.max_in_flight IS '0: unlimited';
COMMENT ON COLUMN pacer.campaigns.starts_at IS 'nothing is sent before; null: at once';
COMMENT ON COLUMN pacer.campaigns.ends_at IS 'jobs expire then; null: never';
COMMENT ON COLUMN pacer.campaigns.active_hours IS 'when jobs are sent; null: always; such as [{"days": ["mon", "fri"], "from": "09:00", "to": "21:00"}]';
COMMENT ON COLUMN pacer.campaigns.time_zone IS 'whose clocks active_hours mean; recipient: those of the zone that each job names';
COMMENT ON COLUMN pacer.campaigns.time_zone_missing IS 'with time_zone recipient, the zone of jobs that name none; hold: they wait; needed with active_hours';
COMMENT ON COLUMN pacer.campaigns.avoid_minutes IS 'minutes of each hour, such as 0,15,30,45: nothing is sent from two minutes before to two minutes after; by the clocks of time_zone, or in UTC; null: none';
COMMENT ON COLUMN pacer.campaigns.ramp IS 'how the rate grows up to send_rate; null: not; such as {"start": 10, "add": 5, "every": "1 minute"}, with "factor" instead of "add" to multiply; units per send_per';
COMMENT ON COLUMN pacer.campaigns.ramp_since IS 'when the ramp began, unless starts_at is later; set by a trigger when the ramp is set or changed; now() begins anew';
COMMENT ON COLUMN pacer.campaigns.overflow IS 'where jobs wait that do not fit in memory: lane, or block for where they were published';
COMMENT ON COLUMN pacer.campaigns.job_ttl IS 'null: jobs do not expire by age';
COMMENT ON COLUMN pacer.campaigns.expected_total IS 'how many jobs there will be, for estimates; null: unknown';
COMMENT ON COLUMN pacer.campaigns.note IS 'one line for people; shown, and used for nothing';
COMMENT ON COLUMN pacer.campaigns.finish_by IS 'until when the jobs are spread evenly, at most at send_rate; null: they are not';
COMMENT ON COLUMN pacer.campaigns.finish_rate IS 'kept by daemons: the rate in force until finish_by, in millionths of a unit per hour, at most send_rate; null: not computed yet';
COMMENT ON COLUMN pacer.campaigns.set_revision IS 'kept by triggers: the revision of the last change that was not of finish_rate alone; null: revision is';
COMMENT ON COLUMN pacer.campaigns.revision IS 'kept by triggers';
COMMENT ON COLUMN pacer.campaigns.updated_at IS 'when the row changed last';

CREATE TABLE pacer.quotas (
    id               text        PRIMARY KEY,
    on_store_failure text        NOT NULL DEFAULT 'closed',
    mode             text        NOT NULL DEFAULT 'strict',
    spend            text        NOT NULL DEFAULT 'greedy',
    rollout          integer     NOT NULL DEFAULT 100,
    unit             text        NOT NULL DEFAULT 'units',
    per              text,
    max_wait         interval,
    keyless          text        NOT NULL DEFAULT 'dead',
    count            text        NOT NULL DEFAULT 'attempts',
    shard            integer     NOT NULL,
    revision         bigint      NOT NULL DEFAULT 0,
    updated_at       timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX quotas_revision ON pacer.quotas (revision);
COMMENT ON TABLE pacer.quotas IS 'a row for each quota; quota_windows has its limits';
COMMENT ON COLUMN pacer.quotas.id IS 'what campaigns name; cannot be changed';
COMMENT ON COLUMN pacer.quotas.on_store_failure IS 'when Redis fails: closed (wait), local-share (each daemon its share) or open';
COMMENT ON COLUMN pacer.quotas.mode IS 'strict (exact), shadow (evaluated and reported, does not bind) or eventual (approximate)';
COMMENT ON COLUMN pacer.quotas.spend IS 'greedy (as fast as asked for) or even (over the span)';
COMMENT ON COLUMN pacer.quotas.rollout IS 'percent of the units that the quota counts and limits; 100: all';
COMMENT ON COLUMN pacer.quotas.unit IS 'units (weights of jobs) or bytes (of payloads; mode eventual only)';
COMMENT ON COLUMN pacer.quotas.per IS 'the key of jobs that the quota is kept by, such as recipient: each value has the windows for itself; null: all jobs of its campaigns share them';
COMMENT ON COLUMN pacer.quotas.max_wait IS 'of a keyed quota: how long a job may wait for its key since it was first read; then it is capped; null: as long as it may';
COMMENT ON COLUMN pacer.quotas.keyless IS 'of a keyed quota: what becomes of jobs without the key: dead (letters, missing_key) or pass';
COMMENT ON COLUMN pacer.quotas.count IS 'of a keyed quota: attempts, or deliveries, which gives back what was not delivered';
COMMENT ON COLUMN pacer.quotas.shard IS 'where the counts live; chosen by a trigger, fixed when the quota is created';
COMMENT ON COLUMN pacer.quotas.revision IS 'kept by triggers; changes of the windows count too';
COMMENT ON COLUMN pacer.quotas.updated_at IS 'when the row changed last';

CREATE TABLE pacer.quota_windows (
    quota_id  text     NOT NULL REFERENCES pacer.quotas ON DELETE CASCADE,
    span      interval NOT NULL,
    max_units bigint   NOT NULL,
    algorithm text     NOT NULL DEFAULT 'sliding',
    anchor    text,
    PRIMARY KEY (quota_id, span)
);
COMMENT ON TABLE pacer.quota_windows IS 'at most max_units in any span; every window of a quota must allow a job';
COMMENT ON COLUMN pacer.quota_windows.quota_id IS 'of the quota';
COMMENT ON COLUMN pacer.quota_windows.span IS 'length of the window';
COMMENT ON COLUMN pacer.quota_windows.max_units IS 'its limit';
COMMENT ON COLUMN pacer.quota_windows.algorithm IS 'sliding (a ring of buckets), fixed (begins anew) or log (exact, every grant is stored)';
COMMENT ON COLUMN pacer.quota_windows.anchor IS 'where a fixed window begins; null: at its first use, otherwise with the minute, hour, day, week or month, in UTC or in a zone, as in day@Europe/Moscow; of a keyed quota also day@recipient, in the zone of each job';

CREATE TABLE pacer.quota_keys (
    quota_id   text        NOT NULL REFERENCES pacer.quotas ON DELETE CASCADE,
    key        text        NOT NULL,
    windows    text,
    held_until timestamptz,
    PRIMARY KEY (quota_id, key)
);
COMMENT ON TABLE pacer.quota_keys IS 'what is set for single values of the key of a keyed quota';
COMMENT ON COLUMN pacer.quota_keys.quota_id IS 'of the quota';
COMMENT ON COLUMN pacer.quota_keys.key IS 'the value of the key';
COMMENT ON COLUMN pacer.quota_keys.windows IS 'its windows instead of the quota''s, such as 50/1s,1000/1d; null: as the quota';
COMMENT ON COLUMN pacer.quota_keys.held_until IS 'no job of this value is sent before; null: it is not held';

CREATE TABLE pacer.campaign_quotas (
    campaign_id text NOT NULL REFERENCES pacer.campaigns ON DELETE CASCADE,
    quota_id    text NOT NULL REFERENCES pacer.quotas ON DELETE CASCADE,
    PRIMARY KEY (campaign_id, quota_id)
);
CREATE INDEX campaign_quotas_quota ON pacer.campaign_quotas (quota_id);
COMMENT ON TABLE pacer.campaign_quotas IS 'which quotas a campaign is under, at most 16';
COMMENT ON COLUMN pacer.campaign_quotas.campaign_id IS 'of the campaign';
COMMENT ON COLUMN pacer.campaign_quotas.quota_id IS 'of the quota';

-- No secret is in a row of a destination: a secret is a reference, file:NAME or env:NAME, that each daemon resolves.
CREATE TABLE pacer.destinations (
    id              text        PRIMARY KEY,
    sink            text,
    url             text        NOT NULL,
    headers         jsonb       NOT NULL DEFAULT '{}',
    secrets         text[]      NOT NULL DEFAULT '{}',
    max_in_flight   integer     NOT NULL DEFAULT 0,
    disabled_at     timestamptz,
    disabled_reason text,
    failing_since   timestamptz,
    ended_at        timestamptz,
    renewed         bigint      NOT NULL DEFAULT 0,
    revision        bigint      NOT NULL DEFAULT 0,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX destinations_revision ON pacer.destinations (revision);
COMMENT ON TABLE pacer.destinations IS 'where jobs are sent that name a destination; for sinks with destinations: true';
COMMENT ON COLUMN pacer.destinations.id IS 'what jobs name; cannot be changed';
COMMENT ON COLUMN pacer.destinations.sink IS 'null: any sink with destinations';
COMMENT ON COLUMN pacer.destinations.url IS 'where requests go';
COMMENT ON COLUMN pacer.destinations.headers IS 'sent with every request; a value may be a reference, file:NAME or env:NAME';
COMMENT ON COLUMN pacer.destinations.secrets IS 'references to the secrets that sign requests: file:NAME or env:NAME, the newest first';
COMMENT ON COLUMN pacer.destinations.max_in_flight IS 'calls at once per daemon; 0: as many as the sink has';
COMMENT ON COLUMN pacer.destinations.disabled_at IS 'null: enabled; the jobs of a disabled destination wait';
COMMENT ON COLUMN pacer.destinations.disabled_reason IS 'why it is disabled, at most 500 characters';
COMMENT ON COLUMN pacer.destinations.failing_since IS 'kept by daemons: since when nothing has been delivered; null: it works, or is not known';
COMMENT ON COLUMN pacer.destinations.ended_at IS 'kept by daemons: when they disabled it; null: they have not, or somebody has changed that';
COMMENT ON COLUMN pacer.destinations.renewed IS 'kept by triggers: how often it began anew, by another address, other headers or secrets, or when it was enabled';
COMMENT ON COLUMN pacer.destinations.revision IS 'kept by triggers';
COMMENT ON COLUMN pacer.destinations.created_at IS 'when the row was inserted';
COMMENT ON COLUMN pacer.destinations.updated_at IS 'when the row changed last';

----------------------------------------------------------------------------------------------------------------------------------
-- The record of changes
----------------------------------------------------------------------------------------------------------------------------------

-- A program that many people use sets pacer.actor, pacer.reason and pacer.request_id in its transaction. They are what the program says.
-- "who" is the role of the database and cannot be forged.
CREATE TABLE pacer.campaign_changes (
    change         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    "when"         timestamptz NOT NULL DEFAULT clock_timestamp(),
    who            text        NOT NULL,
    application    text        NOT NULL,
    relation       text        NOT NULL,
    operation      text        NOT NULL,
    campaign_id    text,
    quota_id       text,
    destination_id text,
    old            jsonb,
    new            jsonb,
    actor          text        DEFAULT nullif(left(current_setting('pacer.actor', true), 256), ''),
    reason         text        DEFAULT nullif(left(current_setting('pacer.reason', true), 500), ''),
    request_id     text        DEFAULT nullif(left(current_setting('pacer.request_id', true), 64), '')
);
CREATE INDEX campaign_changes_campaign ON pacer.campaign_changes (campaign_id, change);
CREATE INDEX campaign_changes_quota ON pacer.campaign_changes (quota_id, change);
CREATE INDEX campaign_changes_destination ON pacer.campaign_changes (destination_id, change) WHERE destination_id IS NOT NULL;
COMMENT ON TABLE pacer.campaign_changes IS 'every change of campaigns, quotas, quota_windows, campaign_quotas and destinations';
COMMENT ON COLUMN pacer.campaign_changes.change IS 'its number; a later change has a greater one';
COMMENT ON COLUMN pacer.campaign_changes."when" IS 'when it was made; quoted in SQL, since when is a word of the language';
COMMENT ON COLUMN pacer.campaign_changes.who IS 'the role of PostgreSQL that made it';
COMMENT ON COLUMN pacer.campaign_changes.application IS 'the application_name of the connection';
COMMENT ON COLUMN pacer.campaign_changes.relation IS 'the table that changed; jobs for cancelled ones';
COMMENT ON COLUMN pacer.campaign_changes.operation IS 'insert, update, delete, or adjust and cancel for what pacer quota adjust and pacer job cancel did';
COMMENT ON COLUMN pacer.campaign_changes.campaign_id IS 'whose row, or link to a quota, changed; null: of no campaign';
COMMENT ON COLUMN pacer.campaign_changes.quota_id IS 'the same for a quota';
COMMENT ON COLUMN pacer.campaign_changes.destination_id IS 'the same for a destination';
COMMENT ON COLUMN pacer.campaign_changes.old IS 'the row before';
COMMENT ON COLUMN pacer.campaign_changes.new IS 'the row after';
COMMENT ON COLUMN pacer.campaign_changes.actor IS 'the setting pacer.actor of the transaction: for whom a program made the change';
COMMENT ON COLUMN pacer.campaign_changes.reason IS 'the setting pacer.reason of the transaction';
COMMENT ON COLUMN pacer.campaign_changes.request_id IS 'the setting pacer.request_id of the transaction';

----------------------------------------------------------------------------------------------------------------------------------
-- What daemons keep
--
-- None of these tables takes part in the revisions: every daemon writes to them every few seconds and must not queue behind the
-- transaction of a person.
----------------------------------------------------------------------------------------------------------------------------------

-- These are counts for people, not a ledger: a daemon that is killed takes its last seconds with it until they are counted in the log, and a
-- job that is sent twice counts twice. Rows change all the time, and no index covers what changes, so updates stay on their page.
CREATE TABLE pacer.campaign_progress (
    campaign_id text        PRIMARY KEY REFERENCES pacer.campaigns (id) ON UPDATE CASCADE ON DELETE CASCADE,
    delivered   bigint      NOT NULL DEFAULT 0,
    rejected    bigint      NOT NULL DEFAULT 0,
    dead        bigint      NOT NULL DEFAULT 0,
    expired     bigint      NOT NULL DEFAULT 0,
    cancelled   bigint      NOT NULL DEFAULT 0,
    capped      bigint      NOT NULL DEFAULT 0,
    backlog     bigint      NOT NULL DEFAULT 0,
    retrying    bigint      NOT NULL DEFAULT 0,
    in_flight   bigint      NOT NULL DEFAULT 0,
    done_at     timestamptz,
    updated_at  timestamptz NOT NULL DEFAULT now(),

    delivered_in_history bigint NOT NULL DEFAULT 0,
    failed_in_history    bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
COMMENT ON TABLE pacer.campaign_progress IS 'how far campaigns are, for people: about, and a few seconds old';
COMMENT ON COLUMN pacer.campaign_progress.campaign_id IS 'whose';
COMMENT ON COLUMN pacer.campaign_progress.delivered IS 'jobs delivered; dead, expired and cancelled: jobs that never will be';
COMMENT ON COLUMN pacer.campaign_progress.rejected IS 'jobs that the destination refused in the normal course of things';
COMMENT ON COLUMN pacer.campaign_progress.dead IS 'jobs given up';
COMMENT ON COLUMN pacer.campaign_progress.expired IS 'jobs that were too old, or came after the end of the campaign';
COMMENT ON COLUMN pacer.campaign_progress.cancelled IS 'jobs of a cancelled campaign';
COMMENT ON COLUMN pacer.campaign_progress.capped IS 'jobs that a keyed quota did not let wait any longer';
COMMENT ON COLUMN pacer.campaign_progress.backlog IS 'jobs that are not settled, as the daemons counted them last';
COMMENT ON COLUMN pacer.campaign_progress.retrying IS 'of these, jobs tried before or put off by their destination';
COMMENT ON COLUMN pacer.campaign_progress.in_flight IS 'of these, jobs that a sink has not answered';
COMMENT ON COLUMN pacer.campaign_progress.done_at IS 'when the backlog, and what is expected, will have been sent; null: unknown';
COMMENT ON COLUMN pacer.campaign_progress.updated_at IS 'when any of these changed last';
COMMENT ON COLUMN pacer.campaign_progress.delivered_in_history IS 'those in campaign_history';
COMMENT ON COLUMN pacer.campaign_progress.failed_in_history IS 'likewise';

CREATE TABLE pacer.destination_progress (
    destination_id text        PRIMARY KEY REFERENCES pacer.destinations (id) ON UPDATE CASCADE ON DELETE CASCADE,
    delivered      bigint      NOT NULL DEFAULT 0,
    rejected       bigint      NOT NULL DEFAULT 0,
    dead           bigint      NOT NULL DEFAULT 0,
    expired        bigint      NOT NULL DEFAULT 0,
    cancelled      bigint      NOT NULL DEFAULT 0,
    capped         bigint      NOT NULL DEFAULT 0,
    waiting        bigint      NOT NULL DEFAULT 0,
    updated_at     timestamptz NOT NULL DEFAULT now(),
    answers        jsonb       NOT NULL DEFAULT '[]'
) WITH (fillfactor = 50);
COMMENT ON TABLE pacer.destination_progress IS 'what became of the jobs of destinations, for people: about, and a few seconds old';
COMMENT ON COLUMN pacer.destination_progress.destination_id IS 'whose';
COMMENT ON COLUMN pacer.destination_progress.delivered IS 'jobs delivered; the next columns as in campaign_progress';
COMMENT ON COLUMN pacer.destination_progress.rejected IS 'likewise';
COMMENT ON COLUMN pacer.destination_progress.dead IS 'likewise';
COMMENT ON COLUMN pacer.destination_progress.expired IS 'likewise';
COMMENT ON COLUMN pacer.destination_progress.cancelled IS 'likewise';
COMMENT ON COLUMN pacer.destination_progress.capped IS 'likewise';
COMMENT ON COLUMN pacer.destination_progress.waiting IS 'jobs that wait in timers, or for the destination in memory; not those in ingress and lanes, which wait for their campaigns';
COMMENT ON COLUMN pacer.destination_progress.updated_at IS 'when any of these changed last';
COMMENT ON COLUMN pacer.destination_progress.answers IS 'the last ten answers, the newest first';

-- The leader moves what was counted since its last look from campaign_progress here, so that the rows add up to the counts.
CREATE TABLE pacer.campaign_history (
    campaign_id text             NOT NULL REFERENCES pacer.campaigns (id) ON UPDATE CASCADE ON DELETE CASCADE,
    minute      bigint           NOT NULL,
    delivered   bigint           NOT NULL,
    failed      bigint           NOT NULL,
    allowed     double precision NOT NULL,
    PRIMARY KEY (campaign_id, minute)
) WITH (fillfactor = 80);
CREATE INDEX campaign_history_minute ON pacer.campaign_history (minute);
COMMENT ON TABLE pacer.campaign_history IS 'settled jobs of each minute of a day, and each hour of eight days';
COMMENT ON COLUMN pacer.campaign_history.campaign_id IS 'whose';
COMMENT ON COLUMN pacer.campaign_history.minute IS 'as in quota_usage';
COMMENT ON COLUMN pacer.campaign_history.delivered IS 'jobs delivered';
COMMENT ON COLUMN pacer.campaign_history.failed IS 'jobs dead or rejected';
COMMENT ON COLUMN pacer.campaign_history.allowed IS 'jobs per second, at most';

-- Names of topics are used again when a topic is made anew, so a position has the id of its topic.
CREATE TABLE pacer.positions (
    group_id   text        NOT NULL,
    topic      text        NOT NULL,
    partition  integer     NOT NULL CONSTRAINT partition_must_not_be_negative CHECK (partition >= 0),
    committed  bigint      NOT NULL,
    metadata   text        NOT NULL DEFAULT '',
    updated_at timestamptz NOT NULL DEFAULT now(),
    topic_id   text        NOT NULL DEFAULT '',
    PRIMARY KEY (group_id, topic, partition)
);
COMMENT ON TABLE pacer.positions IS 'how far daemons have read lanes and timers; Kafka has the same as offsets of the group';
COMMENT ON COLUMN pacer.positions.group_id IS 'the consumer group';
COMMENT ON COLUMN pacer.positions.topic IS 'the topic';
COMMENT ON COLUMN pacer.positions.partition IS 'its partition';
COMMENT ON COLUMN pacer.positions.committed IS 'offset up to which all jobs are settled';
COMMENT ON COLUMN pacer.positions.metadata IS 'what is settled beyond it, in the form of the metadata of an offset';
COMMENT ON COLUMN pacer.positions.updated_at IS 'when a daemon saved it';
COMMENT ON COLUMN pacer.positions.topic_id IS 'as Kafka''s tools spell it; empty where the brokers know none';

-- The ledger of what was used. The counts of a shard are rebuilt from it when Redis has lost them.
CREATE TABLE pacer.quota_usage (
    quota_id    text   NOT NULL,
    minute      bigint NOT NULL,
    node        text   NOT NULL,
    units       bigint NOT NULL CONSTRAINT units_must_not_be_negative CHECK (units >= 0),
    incarnation bigint,
    PRIMARY KEY (quota_id, minute, node)
) WITH (fillfactor = 80);
CREATE INDEX quota_usage_minute ON pacer.quota_usage (minute);
COMMENT ON TABLE pacer.quota_usage IS 'units that were used of each quota per minute';
COMMENT ON COLUMN pacer.quota_usage.quota_id IS 'of the quota';
COMMENT ON COLUMN pacer.quota_usage.minute IS 'minutes since 1970 on the clock of the store; as a time: to_timestamp(minute * 60). Rows that are older than a day hold an hour, of which it is the last minute';
COMMENT ON COLUMN pacer.quota_usage.node IS 'empty for what the store counted; otherwise a daemon that reported units, or was given up, when the store had lost its data, or a correction';
COMMENT ON COLUMN pacer.quota_usage.units IS 'how many';
COMMENT ON COLUMN pacer.quota_usage.incarnation IS 'of the data that were lost; null: none were';

CREATE TABLE pacer.quota_counts (
    quota_id    text   PRIMARY KEY,
    incarnation bigint NOT NULL,
    born        bigint NOT NULL,
    units       bigint NOT NULL,
    at          bigint NOT NULL,
    added       bigint NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE pacer.quota_counts IS 'how many units the store had counted when that was last added to quota_usage. Times are microseconds since 1970 on the clock of the store';
COMMENT ON COLUMN pacer.quota_counts.quota_id IS 'of the quota';
COMMENT ON COLUMN pacer.quota_counts.incarnation IS 'of the data of the store that was counted';
COMMENT ON COLUMN pacer.quota_counts.born IS 'when the count began';
COMMENT ON COLUMN pacer.quota_counts.units IS 'units since then';
COMMENT ON COLUMN pacer.quota_counts.at IS 'the time of the count';
COMMENT ON COLUMN pacer.quota_counts.added IS 'units that were added then';

CREATE TABLE pacer.quota_anchors (
    quota_id  text        NOT NULL,
    span      interval    NOT NULL,
    resets_at timestamptz NOT NULL,
    PRIMARY KEY (quota_id, span)
);
COMMENT ON TABLE pacer.quota_anchors IS 'when fixed windows end that began at their first use';
COMMENT ON COLUMN pacer.quota_anchors.quota_id IS 'of the quota';
COMMENT ON COLUMN pacer.quota_anchors.span IS 'of the window';
COMMENT ON COLUMN pacer.quota_anchors.resets_at IS 'when the window begins anew';

-- Daemons write what is used of all quotas at once. A foreign key, or a trigger before the commit, would let them wait for everybody who
-- has begun to delete one.
CREATE FUNCTION pacer.forget_usage() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        DELETE FROM pacer.quota_usage;
        DELETE FROM pacer.quota_counts;
        DELETE FROM pacer.quota_anchors;
    ELSIF NOT EXISTS (SELECT FROM pacer.quotas WHERE id = OLD.id) THEN
        DELETE FROM pacer.quota_usage WHERE quota_id = OLD.id;
        DELETE FROM pacer.quota_counts WHERE quota_id = OLD.id;
        DELETE FROM pacer.quota_anchors WHERE quota_id = OLD.id;
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER z_usage AFTER DELETE ON pacer.quotas DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION pacer.forget_usage();
CREATE TRIGGER f_usage AFTER TRUNCATE ON pacer.quotas
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.forget_usage();

CREATE TABLE pacer.store_incarnations (
    shard       integer     PRIMARY KEY CONSTRAINT shard_must_not_be_negative CHECK (shard >= 0),
    incarnation bigint      NOT NULL CONSTRAINT incarnation_must_be_positive CHECK (incarnation > 0),
    since       timestamptz NOT NULL DEFAULT now(),
    cause       text        NOT NULL,
    ahead       bigint      NOT NULL DEFAULT 0,
    jumped_at   bigint      NOT NULL DEFAULT 0
);
COMMENT ON TABLE pacer.store_incarnations IS 'which life of a shard''s data holds the counts; another one has lost them';
COMMENT ON COLUMN pacer.store_incarnations.shard IS 'number of the shard of Redis';
COMMENT ON COLUMN pacer.store_incarnations.incarnation IS 'of its data';
COMMENT ON COLUMN pacer.store_incarnations.since IS 'when this life of the data was entered here';
COMMENT ON COLUMN pacer.store_incarnations.cause IS 'why that was: the first, or data that were lost; for people';
COMMENT ON COLUMN pacer.store_incarnations.ahead IS 'microseconds by which the clock of the store has jumped forward until jumped_at';
COMMENT ON COLUMN pacer.store_incarnations.jumped_at IS 'the time of the store after the clock jumped last, in microseconds since 1970; 0: never';

CREATE TABLE pacer.store_takers (
    shard       integer NOT NULL,
    node        text    NOT NULL,
    incarnation bigint  NOT NULL,
    since       bigint  NOT NULL,
    at          bigint  NOT NULL,
    PRIMARY KEY (shard, node)
) WITH (fillfactor = 50);
COMMENT ON TABLE pacer.store_takers IS 'daemons that take units from a shard''s data and, without a node, the ledger itself. Times are microseconds since 1970 on the clock of the store';
COMMENT ON COLUMN pacer.store_takers.shard IS 'number of the shard of Redis';
COMMENT ON COLUMN pacer.store_takers.node IS 'of the daemon';
COMMENT ON COLUMN pacer.store_takers.incarnation IS 'of the data';
COMMENT ON COLUMN pacer.store_takers.since IS 'when the daemon began to take from these data';
COMMENT ON COLUMN pacer.store_takers.at IS 'when it last said that it goes on; of the ledger: up to when quota_usage holds what was taken from these data';

----------------------------------------------------------------------------------------------------------------------------------
-- What the processes that serve the API share
----------------------------------------------------------------------------------------------------------------------------------

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

----------------------------------------------------------------------------------------------------------------------------------
-- Checks of single values
----------------------------------------------------------------------------------------------------------------------------------

-- refuse raises the one clear line of a value that cannot be used, with the remedy as its hint.
CREATE FUNCTION pacer.refuse(relation text, field text, message text, remedy text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', message
        USING ERRCODE = 'check_violation', SCHEMA = 'pacer', TABLE = relation, COLUMN = field, HINT = remedy;
END $$;

-- check_value refuses a value unless it is good, or not known to be bad.
CREATE FUNCTION pacer.check_value(good boolean, relation text, field text, value text, remedy text) RETURNS void
LANGUAGE sql AS $$
    SELECT CASE WHEN NOT good THEN
        pacer.refuse(relation, field, format('%s.%s must not be %s', relation, field, coalesce(left(value, 64), 'null')), remedy) END
$$;

-- check_id refuses ids that cannot stand in a header, a key or a metric. "(unknown)" stands for jobs without a campaign in metrics and lists.
CREATE FUNCTION pacer.check_id(relation text, field text, value text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF value IS NULL OR length(value) > 256 OR value COLLATE "C" !~ '^[!-~]+$' THEN
        PERFORM pacer.refuse(relation, field, format('%s.%s must be an id, not %L', relation, field, left(value, 64)),
            'Use 1 to 256 printable ASCII characters without spaces.');
    ELSIF relation = 'campaigns' AND field = 'id' AND value = '(unknown)' THEN
        PERFORM pacer.refuse(relation, field, format('%s.%s must not be %L, which stands for jobs without a campaign', relation, field, value),
            'Choose another id.');
    END IF;
END $$;

-- check_word refuses a value that is not one of the allowed words.
CREATE FUNCTION pacer.check_word(relation text, field text, value text, allowed text[]) RETURNS void
LANGUAGE sql AS $$
    SELECT pacer.check_value(coalesce(value = ANY (allowed), false), relation, field, quote_nullable(left(value, 62)),
        'Use one of: ' || array_to_string(allowed, ', ') || '.')
$$;

-- check_span refuses lengths of time that have no fixed length or lie outside 1 ms to 366 days.
CREATE FUNCTION pacer.check_span(relation text, field text, value interval) RETURNS void
LANGUAGE sql AS $$
    SELECT pacer.check_value(
        coalesce(value BETWEEN '1 millisecond' AND '366 days' AND extract(month FROM value) = 0 AND extract(year FROM value) = 0, false),
        relation, field, value::text, 'Use a length of time between 1 millisecond and 366 days, such as ''1 minute''; days, since months differ in length.')
$$;

-- is_zone reports whether a text is the name of a time zone. The server accepts abbreviations and rules, too, which daemons do not. To list
-- the zones takes it tens of milliseconds.
CREATE FUNCTION pacer.is_zone(zone text) RETURNS boolean
LANGUAGE sql AS $$
    SELECT zone ~ '^[A-Z]' AND EXISTS (SELECT FROM pg_timezone_names n WHERE n.name = zone)
$$;

----------------------------------------------------------------------------------------------------------------------------------
-- Checks of campaigns
----------------------------------------------------------------------------------------------------------------------------------

-- check_rate refuses rates that the timeline cannot keep exactly. The bounds are those of the daemon. They keep every
-- product of its slot arithmetic below 2^53.
CREATE FUNCTION pacer.check_rate(send_rate numeric, send_per interval) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    units numeric := send_rate * 1000000;
    per   numeric := extract(epoch FROM send_per) * 1000000 * 1000000;
    value text    := format('%s per %s', left(send_rate::text, 40), send_per);
BEGIN
    PERFORM pacer.check_value(coalesce(send_rate >= 0 AND send_rate < 'Infinity', false), 'campaigns', 'send_rate', send_rate::text,
        'Use units per send_per, such as 500; 0 holds the campaign.');
    PERFORM pacer.check_value(units = trunc(units), 'campaigns', 'send_rate', value,
        'Use at most six decimals; a longer send_per if need be, as in send_rate = 1, send_per = ''1 hour''.');
    PERFORM pacer.check_value(units <= per, 'campaigns', 'send_rate', value, 'Use at most 1000000 per second.');
    IF units > 0 THEN
        PERFORM pacer.check_value(units * 366 * 86400 * 1000000 >= per, 'campaigns', 'send_rate', value,
            'Use at least one unit in 366 days, or 0 to hold the campaign.');
        PERFORM pacer.check_value(units / gcd(units, per) <= 100000000000, 'campaigns', 'send_rate', value, 'Use fewer decimals.');
    END IF;
END $$;

-- check_campaign refuses nonsense. A statement that changes nothing leaves the row as it is,
-- so that it is neither recorded nor announced. A change of finish_rate alone, which daemons make, keeps the revision that people see.
CREATE FUNCTION pacer.check_campaign() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    spread bigint;
    ahead  boolean := true;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        NEW.updated_at := OLD.updated_at;
        IF NEW IS NOT DISTINCT FROM OLD THEN
            RETURN OLD;
        END IF;
        spread := NEW.finish_rate;
        NEW.finish_rate := OLD.finish_rate;
        IF NEW IS NOT DISTINCT FROM OLD THEN
            NEW.finish_rate := spread;
            NEW.set_revision := coalesce(OLD.set_revision, CASE WHEN OLD.revision >= 0 THEN OLD.revision END);
            RETURN NEW;
        END IF;
        NEW.finish_rate := spread;
        NEW.set_revision := NULL;
        ahead := NEW.finish_by IS DISTINCT FROM OLD.finish_by;
        IF NEW.id IS DISTINCT FROM OLD.id THEN
            PERFORM pacer.refuse('campaigns', 'id', 'campaigns.id cannot be changed: jobs name it',
                'Insert a campaign with the new id and cancel the old one.');
        END IF;
    END IF;
    PERFORM pacer.check_id('campaigns', 'id', NEW.id);
    PERFORM pacer.check_span('campaigns', 'send_per', NEW.send_per);
    PERFORM pacer.check_rate(NEW.send_rate, NEW.send_per);
    PERFORM pacer.check_word('campaigns', 'status', NEW.status, '{active,paused,cancelled,completed}');
    PERFORM pacer.check_word('campaigns', 'overflow', NEW.overflow, '{lane,block}');
    IF NEW.sink IS NOT NULL THEN
        PERFORM pacer.check_id('campaigns', 'sink', NEW.sink);
    END IF;
    IF NEW.job_ttl IS NOT NULL THEN
        PERFORM pacer.check_span('campaigns', 'job_ttl', NEW.job_ttl);
    END IF;
    PERFORM pacer.check_value(NEW.burst BETWEEN 0 AND 1000000, 'campaigns', 'burst', NEW.burst::text, 'Use 0 (none) to 1000000 units.');
    PERFORM pacer.check_value(NEW.priority_weight BETWEEN 1 AND 1000000, 'campaigns', 'priority_weight', NEW.priority_weight::text, 'Use 1 to 1000000.');
    PERFORM pacer.check_value(NEW.max_in_flight >= 0, 'campaigns', 'max_in_flight', NEW.max_in_flight::text, 'Use 0 for no limit.');
    PERFORM pacer.check_value(NEW.expected_total >= 0, 'campaigns', 'expected_total', NEW.expected_total::text, 'Use null when it is not known.');
    PERFORM pacer.check_value(isfinite(NEW.starts_at), 'campaigns', 'starts_at', NEW.starts_at::text, 'Use null for no bound.');
    PERFORM pacer.check_value(isfinite(NEW.ends_at), 'campaigns', 'ends_at', NEW.ends_at::text, 'Use null for no bound.');
    PERFORM pacer.check_value(isfinite(NEW.finish_by) AND (NEW.finish_by > now() OR NOT ahead), 'campaigns', 'finish_by', NEW.finish_by::text,
        'Use a time that is ahead, or null for none.');
    IF length(NEW.note) > 500 OR NEW.note ~ '[\x01-\x1F\x7F-\x9F]' THEN
        PERFORM pacer.refuse('campaigns', 'note', 'campaigns.note must be one line of at most 500 characters',
            'Shorten it, or put the rest where it can be linked to.');
    ELSIF NEW.ends_at <= NEW.starts_at THEN
        PERFORM pacer.refuse('campaigns', 'ends_at', 'campaigns.ends_at must be later than starts_at',
            'Use null for no end.');
    ELSIF NEW.finish_by <= NEW.starts_at OR NEW.finish_by > NEW.ends_at THEN
        PERFORM pacer.refuse('campaigns', 'finish_by', 'campaigns.finish_by must be later than starts_at, and not later than ends_at',
            'Change finish_by as well, or use null for none.');
    END IF;
    IF NEW.finish_by IS NULL THEN
        NEW.finish_rate := NULL;
    END IF;
    NEW.updated_at := now();
    RETURN NEW;
END $$;

-- check_ramp refuses ramps that do not lead to the rate. The bounds are those of the daemon.
CREATE FUNCTION pacer.check_ramp(ramp jsonb, send_rate numeric, send_per interval) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    remedy text := 'Use {"start": 10, "add": 5, "every": "1 minute"}, or "factor": 1.5 instead of "add"; at most six decimals; null for none.';
    good   boolean;
    first  numeric;
BEGIN
    PERFORM pacer.check_value(jsonb_typeof(ramp) = 'object', 'campaigns', 'ramp', ramp::text, remedy);
    SELECT count(*) = 3 AND bool_and(CASE key
        WHEN 'every' THEN jsonb_typeof(value) = 'string' AND value #>> '{}' ~ '^[0-9]{1,8} ?(s|seconds?|m|minutes?|h|hours?|d|days?|w|weeks?)$'
        ELSE key IN ('start', 'add', 'factor') AND jsonb_typeof(value) = 'number' END) AND ramp ?& '{start,every}' INTO good FROM jsonb_each(ramp);
    PERFORM pacer.check_value(good, 'campaigns', 'ramp', ramp::text, remedy);
    SELECT bool_and(CASE key WHEN 'every' THEN (value #>> '{}')::interval BETWEEN '1 second' AND '366 days'
        ELSE value::numeric > (key = 'factor')::integer AND value::numeric = round(value::numeric, 6)
            AND value::numeric <= CASE key WHEN 'factor' THEN 100 ELSE 99999999999 END END) INTO good FROM jsonb_each(ramp);
    PERFORM pacer.check_value(good, 'campaigns', 'ramp', ramp::text, remedy);
    first := (ramp->>'start')::numeric;
    IF send_rate >= 100000000000 THEN
        PERFORM pacer.refuse('campaigns', 'ramp', 'campaigns.ramp needs a send_rate below 10^11 units per send_per',
            'Use a shorter send_per.');
    ELSIF first < send_rate AND first * 366 * 86400 < extract(epoch FROM send_per) THEN
        PERFORM pacer.refuse('campaigns', 'ramp',
            format('campaigns.ramp: start is below one unit in 366 days (%s per %s)', first, send_per), 'Start higher.');
    ELSIF first < send_rate AND (send_rate - first > 10000 * (ramp->>'add')::numeric
        OR ln(send_rate / first) > 10000 * ln((ramp->>'factor')::numeric)) THEN
        PERFORM pacer.refuse('campaigns', 'ramp',
            format('campaigns.ramp takes more than 10000 steps from %s to the send_rate, %s', first, send_rate),
            'Use a larger step, and a longer every.');
    END IF;
END $$;

-- check_hours refuses active hours that are not a list of spans of the wall clock.
CREATE FUNCTION pacer.check_hours(hours jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    remedy text    := 'Use [{"days": ["mon", "tue"], "from": "09:00", "to": "21:00"}], at most 32; without days, every day; null for always.';
    good   boolean := jsonb_typeof(hours) = 'array';
BEGIN
    IF good THEN
        SELECT count(*) <= 32 AND bool_and(coalesce(CASE WHEN jsonb_typeof(span) = 'object' THEN span - '{days,from,to}'::text[] = '{}'
            AND span->>'from' ~ '^([01][0-9]|2[0-3]):[0-5][0-9]$' AND span->>'to' ~ '^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$'
            AND (NOT span ? 'days' OR jsonb_typeof(span->'days') = 'array' AND span->'days' <> '[]'
                AND '["mon", "tue", "wed", "thu", "fri", "sat", "sun"]' @> (span->'days')) END, false))
        INTO good FROM jsonb_array_elements(hours) AS span;
    END IF;
    PERFORM pacer.check_value(good, 'campaigns', 'active_hours', hours::text, remedy);
END $$;

-- check_schedule checks what changed in a schedule. It runs after check_campaign, which checks the rate. A zone that another campaign uses
-- is not looked up again.
CREATE FUNCTION pacer.check_schedule() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    before pacer.campaigns;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        before := OLD;
    END IF;
    NEW.ramp := nullif(NEW.ramp, 'null');
    NEW.active_hours := nullif(nullif(NEW.active_hours, 'null'), '[]');
    NEW.avoid_minutes := nullif(NEW.avoid_minutes, '');
    IF NEW.active_hours IS DISTINCT FROM before.active_hours THEN
        PERFORM pacer.check_hours(NEW.active_hours);
    END IF;
    PERFORM pacer.check_value(NEW.avoid_minutes ~ '^[0-5]?[0-9]( *, *[0-5]?[0-9]){0,59}$', 'campaigns', 'avoid_minutes', quote_literal(NEW.avoid_minutes),
        'Use minutes of the hour, 0 to 59, such as 0,15,30,45; null for none.');
    IF (SELECT count(DISTINCT (m::integer + d + 60) % 60) FROM unnest(string_to_array(NEW.avoid_minutes, ',')) m, generate_series(-2, 1) d) = 60 THEN
        PERFORM pacer.refuse('campaigns', 'avoid_minutes', 'campaigns.avoid_minutes leave no minute to send in', 'Avoid fewer.');
    END IF;
    IF NEW.time_zone NOT IN ('UTC', 'recipient') AND NEW.time_zone IS DISTINCT FROM before.time_zone
        AND NOT EXISTS (SELECT FROM pacer.campaigns c WHERE c.time_zone = NEW.time_zone AND c.time_zone <> 'UTC') THEN
        PERFORM pacer.check_value(pacer.is_zone(NEW.time_zone), 'campaigns', 'time_zone', quote_literal(NEW.time_zone),
            'Use a name such as ''Europe/Moscow'' or ''UTC'', or ''recipient''.');
    END IF;
    IF NEW.time_zone_missing <> 'hold' AND NEW.time_zone_missing IS DISTINCT FROM before.time_zone_missing THEN
        PERFORM pacer.check_value(pacer.is_zone(NEW.time_zone_missing), 'campaigns', 'time_zone_missing', quote_literal(NEW.time_zone_missing),
            'Use a name such as ''Europe/Moscow'' or ''UTC'', or ''hold''.');
    END IF;
    IF NEW.time_zone = 'recipient' AND NEW.active_hours IS NOT NULL AND NEW.time_zone_missing IS NULL THEN
        PERFORM pacer.refuse('campaigns', 'time_zone_missing', 'campaigns.time_zone_missing is needed: the active hours are those of recipients',
            'Use the zone of most of them, such as ''Europe/Moscow'', for jobs that name none, or ''hold'': they wait.');
    END IF;
    IF NEW.ramp IS NULL THEN
        NEW.ramp_since := NULL;
        RETURN NEW;
    END IF;
    IF (NEW.ramp, NEW.send_rate, NEW.send_per) IS DISTINCT FROM (before.ramp, before.send_rate, before.send_per) THEN
        PERFORM pacer.check_ramp(NEW.ramp, NEW.send_rate, NEW.send_per);
    END IF;
    IF NEW.ramp_since IS NULL
        OR NEW.ramp IS DISTINCT FROM before.ramp AND NEW.ramp_since IS NOT DISTINCT FROM before.ramp_since THEN
        NEW.ramp_since := now();
    END IF;
    PERFORM pacer.check_value(isfinite(NEW.ramp_since), 'campaigns', 'ramp_since', NEW.ramp_since::text,
        'Use now() to begin anew, or starts_at to begin later.');
    RETURN NEW;
END $$;

-- check_pause ends a pause whose campaign gets another status, and refuses a time that no pause goes with.
CREATE FUNCTION pacer.check_pause() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.status = 'paused' THEN
        IF NOT isfinite(NEW.paused_until) THEN
            PERFORM pacer.refuse('campaigns', 'paused_until', 'campaigns.paused_until must be a point in time',
                'Use null for a pause that lasts until somebody ends it.');
        END IF;
    ELSIF TG_OP = 'UPDATE' AND NEW.paused_until IS NOT DISTINCT FROM OLD.paused_until THEN
        NEW.paused_until := NULL; -- the pause is over
    ELSE
        PERFORM pacer.refuse('campaigns', 'paused_until', format('campaigns.paused_until does not go with status %L', NEW.status),
            'Set status to ''paused'' as well, or paused_until to null.');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_pause BEFORE INSERT OR UPDATE ON pacer.campaigns
    FOR EACH ROW WHEN (NEW.paused_until IS NOT NULL) EXECUTE FUNCTION pacer.check_pause();

-- resume_due ends the pauses that are over and returns their number. Rows that another transaction holds are left for the next call.
-- Daemons call it, so nothing has to run in the database.
CREATE FUNCTION pacer.resume_due() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    resumed bigint;
BEGIN
    PERFORM set_config('pacer.actor', 'pacer', true), set_config('pacer.reason', 'its pause has ended', true);
    UPDATE pacer.campaigns SET status = 'active' WHERE id IN (
        SELECT id FROM pacer.campaigns WHERE paused_until <= clock_timestamp() AND status = 'paused' FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS resumed = ROW_COUNT;
    RETURN resumed;
END $$;

----------------------------------------------------------------------------------------------------------------------------------
-- Checks of quotas, their windows and links
----------------------------------------------------------------------------------------------------------------------------------

-- place_quota gives a new quota a shard unless it names one.
CREATE FUNCTION pacer.place_quota() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    shards integer := coalesce((SELECT s.shards FROM pacer.store s), 1);
BEGIN
    IF NEW.shard IS NULL THEN
        NEW.shard := (hashtext(NEW.id)::bigint + 2147483648) % shards;
    ELSIF NEW.shard >= shards THEN
        PERFORM pacer.refuse('quotas', 'shard', format('quotas.shard must not be %s: the store has %s', NEW.shard,
            CASE shards WHEN 1 THEN 'one shard, 0' ELSE format('%s shards, from 0', shards) END),
            'Leave it out, and a shard is chosen.');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_place BEFORE INSERT ON pacer.quotas
    FOR EACH ROW EXECUTE FUNCTION pacer.place_quota();

-- check_store keeps every quota on a shard that exists.
CREATE FUNCTION pacer.check_store() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    highest integer := (SELECT max(q.shard) FROM pacer.quotas q);
BEGIN
    IF NEW.shards IS NULL OR NEW.shards < 1 OR NEW.shards > 1024 THEN
        PERFORM pacer.refuse('store', 'shards',
            format('store.shards must not be %s', coalesce(NEW.shards::text, 'null')), 'Use 1 to 1024.');
    ELSIF NEW.shards <= highest THEN
        PERFORM pacer.refuse('store', 'shards',
            format('store.shards must not be %s: there are quotas on shard %s', NEW.shards, highest),
            format('Use at least %s, or delete those quotas: their counts live there.', highest + 1));
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER b_check BEFORE INSERT OR UPDATE ON pacer.store
    FOR EACH ROW EXECUTE FUNCTION pacer.check_store();

-- check_quota does for quotas what check_campaign does for campaigns.
CREATE FUNCTION pacer.check_quota() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        NEW.updated_at := OLD.updated_at;
        IF NEW IS NOT DISTINCT FROM OLD THEN
            RETURN OLD;
        ELSIF NEW.id IS DISTINCT FROM OLD.id THEN
            PERFORM pacer.refuse('quotas', 'id', 'quotas.id cannot be changed: counts are kept under it',
                'Insert a quota with the new id and link the campaigns to it.');
        ELSIF NEW.shard IS DISTINCT FROM OLD.shard THEN
            PERFORM pacer.refuse('quotas', 'shard', 'quotas.shard is fixed when the quota is created: its counts live there',
                'Insert a quota with another id and link the campaigns to it.');
        ELSIF NEW.per IS DISTINCT FROM OLD.per THEN
            PERFORM pacer.refuse('quotas', 'per', 'quotas.per is fixed when the quota is created: counts are kept by it',
                'Insert a quota with another id and link the campaigns to it.');
        END IF;
    END IF;
    PERFORM pacer.check_id('quotas', 'id', NEW.id);
    PERFORM pacer.check_word('quotas', 'on_store_failure', NEW.on_store_failure, '{closed,local-share,open}');
    PERFORM pacer.check_word('quotas', 'mode', NEW.mode, '{strict,eventual,shadow}');
    PERFORM pacer.check_word('quotas', 'spend', NEW.spend, '{greedy,even}');
    PERFORM pacer.check_word('quotas', 'unit', NEW.unit, '{units,bytes}');
    PERFORM pacer.check_word('quotas', 'keyless', NEW.keyless, '{dead,pass}');
    PERFORM pacer.check_word('quotas', 'count', NEW.count, '{attempts,deliveries}');
    PERFORM pacer.check_value(coalesce(NEW.rollout BETWEEN 0 AND 100, false), 'quotas', 'rollout', NEW.rollout::text,
        'Use 0 (the quota does not bind) to 100 percent.');
    PERFORM pacer.check_value(NEW.shard >= 0, 'quotas', 'shard', NEW.shard::text, 'Use 0.');
    PERFORM pacer.check_value(NEW.per ~ '^[a-z0-9-]{1,32}$', 'quotas', 'per', quote_literal(NEW.per),
        'Use the name of a key, such as recipient: 1 to 32 lower-case letters, digits and dashes.');
    PERFORM pacer.check_value(NEW.max_wait BETWEEN '0' AND '366 days', 'quotas', 'max_wait', NEW.max_wait::text,
        'Use 0 (capped at once) to 366 days, or null.');
    IF NEW.unit = 'bytes' AND NEW.mode <> 'eventual' THEN
        PERFORM pacer.refuse('quotas', 'unit', format('quotas.unit must not be ''bytes'' in mode %L', NEW.mode), 'Use mode eventual, or unit units.');
    ELSIF NEW.per IS NULL AND (NEW.max_wait IS NOT NULL OR NEW.keyless <> 'dead' OR NEW.count <> 'attempts') THEN
        PERFORM pacer.refuse('quotas', 'per', 'quotas.max_wait, keyless and count are for keyed quotas', 'Set per, or leave them as they are.');
    ELSIF NEW.per IS NOT NULL AND (NEW.mode <> 'strict' OR NEW.spend <> 'greedy' OR NEW.unit <> 'units' OR NEW.rollout <> 100) THEN
        PERFORM pacer.refuse('quotas', 'per', 'a keyed quota has mode strict, spend greedy, unit units and rollout 100',
            'Leave these as they are.');
    ELSIF NEW.per IS NOT NULL AND NEW.on_store_failure = 'local-share' THEN
        PERFORM pacer.refuse('quotas', 'on_store_failure', 'a keyed quota must not have on_store_failure local-share: a daemon has no share of a key',
            'Use closed or open.');
    END IF;
    NEW.updated_at := now();
    RETURN NEW;
END $$;

-- check_window refuses windows that the quota engine cannot keep. A zone is looked up when its anchor is written, and not again: names of
-- zones come and go.
CREATE FUNCTION pacer.check_window() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    unit  text     := split_part(NEW.anchor, '@', 1);
    zone  text     := CASE WHEN NEW.anchor LIKE '%@%' THEN substr(NEW.anchor, length(unit) + 2) ELSE 'UTC' END;
    span  interval := CASE unit WHEN 'minute' THEN '1 minute' WHEN 'hour' THEN '1 hour' WHEN 'day' THEN '1 day'
                                WHEN 'week' THEN '7 days' WHEN 'month' THEN '31 days' END;
    keyed boolean  := EXISTS (SELECT FROM pacer.quotas q WHERE q.id = NEW.quota_id AND q.per IS NOT NULL);
BEGIN
    NEW.anchor := nullif(NEW.anchor, '');
    PERFORM pacer.check_span('quota_windows', 'span', NEW.span);
    PERFORM pacer.check_word('quota_windows', 'algorithm', NEW.algorithm, '{sliding,fixed,log}');
    PERFORM pacer.check_value(NEW.max_units BETWEEN 0 AND 1000000000000000, 'quota_windows', 'max_units', NEW.max_units::text,
        'Use 0 (grants nothing) to 10^15 units.');
    PERFORM pacer.check_value(NOT keyed OR NEW.max_units BETWEEN 1 AND 999999, 'quota_windows', 'max_units', NEW.max_units::text,
        'Use 1 to 999999 in a keyed quota; to stop single values, set held_until in pacer.quota_keys.');
    PERFORM pacer.check_value(NEW.algorithm <> 'log' OR NEW.max_units <= 1000, 'quota_windows', 'max_units', NEW.max_units::text,
        'Use algorithm sliding above 1000 units: log remembers every grant.');
    IF (SELECT count(*) FROM pacer.quota_windows w WHERE w.quota_id = NEW.quota_id AND w.span <> NEW.span) >= 16 THEN
        PERFORM pacer.refuse('quota_windows', 'quota_id', format('quota %L has 16 windows already', NEW.quota_id),
            'Delete a window that another one implies.');
    ELSIF NEW.anchor IS NULL THEN
        RETURN NEW;
    ELSIF NEW.algorithm <> 'fixed' THEN
        PERFORM pacer.refuse('quota_windows', 'anchor', format('quota_windows.anchor does not go with algorithm %L', NEW.algorithm),
            'Use algorithm fixed, or null.');
    END IF;
    PERFORM pacer.check_value(span IS NOT NULL, 'quota_windows', 'anchor', quote_literal(NEW.anchor),
        'Use minute, hour, day, week or month, with a time zone if need be, such as ''day@Europe/Moscow''.');
    PERFORM pacer.check_value(NEW.span = span, 'quota_windows', 'span', NEW.span::text,
        format('Use the length of its anchor, the %s: 1 minute, 1 hour, 1 day, 7 days, or 31 days, the longest month.', unit));
    IF TG_OP = 'UPDATE' THEN
        IF NEW.anchor IS NOT DISTINCT FROM OLD.anchor THEN
            RETURN NEW;
        END IF;
    END IF;
    PERFORM pacer.check_value(CASE zone WHEN 'recipient' THEN keyed ELSE pacer.is_zone(zone) END, 'quota_windows', 'anchor', quote_literal(NEW.anchor),
        'Use a zone such as ''Europe/Moscow'' or ''UTC''; in a quota with per also ''recipient''.');
    RETURN NEW;
END $$;
CREATE TRIGGER b_check BEFORE INSERT OR UPDATE ON pacer.quota_windows
    FOR EACH ROW EXECUTE FUNCTION pacer.check_window();

-- check_spend refuses limits too great to be spent evenly. It runs when the transaction commits, because several statements, in any order,
-- write a quota and its windows.
CREATE FUNCTION pacer.check_spend() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    of record;
BEGIN
    SELECT q.id, w.max_units INTO of FROM pacer.quotas q JOIN pacer.quota_windows w ON w.quota_id = q.id
    WHERE q.id = to_jsonb(NEW)->>CASE TG_TABLE_NAME WHEN 'quotas' THEN 'id' ELSE 'quota_id' END AND q.spend = 'even' AND w.max_units > 68719476736;
    IF FOUND THEN
        PERFORM pacer.refuse('quota_windows', 'max_units',
            format('quota_windows.max_units must not be %s: quota %L is spent evenly', of.max_units, of.id),
            'Use at most 2^36 (68719476736) units, or spend greedy.');
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER c_spend AFTER UPDATE OF spend ON pacer.quotas DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.spend = 'even') EXECUTE FUNCTION pacer.check_spend();
CREATE CONSTRAINT TRIGGER c_spend AFTER INSERT OR UPDATE ON pacer.quota_windows DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.max_units > 68719476736) EXECUTE FUNCTION pacer.check_spend();

-- check_key refuses what a keyed quota cannot have for a value of its key.
CREATE FUNCTION pacer.check_key() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF octet_length(NEW.key) NOT BETWEEN 1 AND 256 THEN
        PERFORM pacer.refuse('quota_keys', 'key', 'quota_keys.key must have 1 to 256 bytes', 'Use the value that jobs have in pacer-key-NAME.');
    ELSIF NOT EXISTS (SELECT FROM pacer.quotas q WHERE q.id = NEW.quota_id AND q.per IS NOT NULL) THEN
        PERFORM pacer.refuse('quota_keys', 'quota_id', format('quota %L is not keyed', left(NEW.quota_id, 256)), 'Name a quota with per.');
    END IF;
    PERFORM pacer.check_value(NEW.windows ~ '^[1-9][0-9]{0,5}/[0-9]+(ms|s|m|h|d)(:[a-z]+(:[^,]+)?)?(,[1-9][0-9]{0,5}/[0-9]+(ms|s|m|h|d)(:[a-z]+(:[^,]+)?)?)*$',
        'quota_keys', 'windows', quote_literal(NEW.windows), 'Use windows such as 50/1s,1000/1d, or null for those of the quota.');
    RETURN NEW;
END $$;
CREATE TRIGGER b_check BEFORE INSERT OR UPDATE ON pacer.quota_keys
    FOR EACH ROW EXECUTE FUNCTION pacer.check_key();

-- check_links bounds how many quotas a campaign may have, and refuses a link, or a change of a quota's mode, by which they would live in
-- several shards: a take is one script in one shard. Quotas of mode eventual, and keyed ones, are not counted in a shard. It runs after the
-- statement, which may replace several links.
CREATE FUNCTION pacer.check_links() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ids text[];
    of  record;
BEGIN
    IF TG_TABLE_NAME = 'quotas' THEN
        ids := ARRAY(SELECT l.campaign_id FROM pacer.campaign_quotas l WHERE l.quota_id = NEW.id);
    ELSE
        ids := ARRAY(SELECT c.campaign_id FROM changed c);
    END IF;
    SELECT l.campaign_id AS id, count(*) AS links, count(DISTINCT q.shard) FILTER (WHERE counted) AS shards,
        string_agg(format('%s in shard %s', q.id, q.shard), ', ' ORDER BY q.id COLLATE "C") FILTER (WHERE counted) AS quotas INTO of
    FROM pacer.campaign_quotas l JOIN pacer.quotas q ON q.id = l.quota_id, LATERAL (SELECT q.mode <> 'eventual' AND q.per IS NULL AS counted) AS c
    WHERE l.campaign_id = ANY (ids)
    GROUP BY l.campaign_id HAVING count(*) > 16 OR count(DISTINCT q.shard) FILTER (WHERE counted) > 1
    ORDER BY l.campaign_id COLLATE "C" LIMIT 1;
    IF of.links > 16 THEN
        PERFORM pacer.refuse('campaign_quotas', 'campaign_id', format('campaign %L has 16 quotas already', of.id),
            'Unlink a quota, or join several into one with more windows.');
    ELSIF of.shards > 1 THEN
        PERFORM pacer.refuse(TG_TABLE_NAME, CASE TG_TABLE_NAME WHEN 'quotas' THEN 'mode' ELSE 'quota_id' END,
            format('the quotas of campaign %L would live in several shards of the store: %s', of.id, of.quotas),
            'Create the quotas of a campaign in one shard, by pacer quota set NEW --with QUOTA or by INSERT INTO pacer.quotas (id, shard), and link those.');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER f_links_insert AFTER INSERT ON pacer.campaign_quotas REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.check_links();
CREATE TRIGGER f_links_update AFTER UPDATE ON pacer.campaign_quotas REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION pacer.check_links();
CREATE TRIGGER f_links AFTER UPDATE OF mode ON pacer.quotas
    FOR EACH ROW WHEN (OLD.mode = 'eventual' AND NEW.mode <> 'eventual') EXECUTE FUNCTION pacer.check_links();

----------------------------------------------------------------------------------------------------------------------------------
-- Checks of destinations, and what daemons note of them
----------------------------------------------------------------------------------------------------------------------------------

-- check_destination refuses nonsense, as check_campaign does.
CREATE FUNCTION pacer.check_destination() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    header record;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        NEW.updated_at := OLD.updated_at;
        IF NEW.disabled_at IS NULL AND OLD.disabled_at IS NOT NULL THEN
            NEW.disabled_reason := NULL;
        END IF;
        IF NEW IS NOT DISTINCT FROM OLD THEN
            RETURN OLD;
        ELSIF NEW.id IS DISTINCT FROM OLD.id THEN
            PERFORM pacer.refuse('destinations', 'id', 'destinations.id cannot be changed: jobs name it',
                'Insert a destination with the new id.');
        END IF;
    END IF;
    PERFORM pacer.check_id('destinations', 'id', NEW.id);
    IF NEW.sink IS NOT NULL THEN
        PERFORM pacer.check_id('destinations', 'sink', NEW.sink);
    END IF;
    IF NEW.url IS NULL OR length(NEW.url) > 2048 OR NEW.url COLLATE "C" !~ '^https?://[^/?#@]+([/?][!-~]*)?$'
            OR NEW.url COLLATE "C" !~ '^[!-~]+$' OR position('#' IN NEW.url) > 0 THEN
        PERFORM pacer.refuse('destinations', 'url', 'destinations.url must be an address without a user and a fragment',
            'Use one of at most 2048 characters, such as https://hooks.example.com/orders; a user and a password belong into headers, as a reference.');
    ELSIF jsonb_typeof(NEW.headers) IS DISTINCT FROM 'object' OR (SELECT count(*) FROM jsonb_object_keys(NEW.headers)) > 32 THEN
        PERFORM pacer.refuse('destinations', 'headers', 'destinations.headers must be a JSON object of at most 32 names and values',
            'Use one such as {"x-tenant": "blue", "authorization": "file:shop-7"}.');
    ELSIF NEW.secrets IS NULL OR cardinality(NEW.secrets) > 4
            OR EXISTS (SELECT FROM unnest(NEW.secrets) AS s WHERE s IS NULL OR length(s) > 256 OR s COLLATE "C" !~ '^(file|env):[!-~]+$') THEN
        PERFORM pacer.refuse('destinations', 'secrets', 'destinations.secrets must be references, at most 4; a secret must not be in the database',
            'Use file:NAME for a file in secrets_dir, or env:DESTINATION_NAME for a variable of the daemons; ''{}'' for none.');
    END IF;
    FOR header IN SELECT e.key AS name, e.value AS value, e.value #>> '{}' AS content FROM jsonb_each(NEW.headers) AS e LOOP
        IF header.name COLLATE "C" !~ '^[-!#$%&''*+.^_`|~0-9A-Za-z]{1,128}$' OR jsonb_typeof(header.value) <> 'string' THEN
            PERFORM pacer.refuse('destinations', 'headers', format('destinations.headers: %L must be the name of a header, with a text', left(header.name, 64)),
                'Use one such as {"x-tenant": "blue"}.');
        ELSIF length(header.content) > 2048 OR header.content ~ '[\x01-\x08\x0A-\x1F\x7F]' THEN
            PERFORM pacer.refuse('destinations', 'headers', format('destinations.headers: the value of %L must be one line of at most 2048 characters', header.name),
                'Use a shorter one, or a reference, file:NAME.');
        ELSIF header.name ~* '(authorization|cookie|secret|token|password|api-?key)' AND header.content !~ '^(file|env):[!-~]+$' THEN
            PERFORM pacer.refuse('destinations', 'headers', format('destinations.headers: the value of %L is a secret, and must not be in the database', header.name),
                'Use a reference: file:NAME for a file in secrets_dir, or env:DESTINATION_NAME for a variable of the daemons.');
        END IF;
    END LOOP;
    PERFORM pacer.check_value(NEW.max_in_flight >= 0, 'destinations', 'max_in_flight', NEW.max_in_flight::text, 'Use 0 for as many as the sink has.');
    PERFORM pacer.check_value(isfinite(NEW.disabled_at), 'destinations', 'disabled_at', NEW.disabled_at::text, 'Use now(), or null.');
    PERFORM pacer.check_value(isfinite(NEW.failing_since), 'destinations', 'failing_since', NEW.failing_since::text, 'Use now(), or null.');
    PERFORM pacer.check_value(length(NEW.disabled_reason) <= 500, 'destinations', 'disabled_reason', 'so long', 'Use at most 500 characters.');
    NEW.updated_at := now();
    RETURN NEW;
END $$;

-- renew_destination counts how often a destination began anew. By its count a daemon notices a destination that was disabled and enabled
-- again, or moved away and back, between two reads. A change of who disabled it empties ended_at.
CREATE FUNCTION pacer.renew_destination() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.renewed := OLD.renewed;
    IF (NEW.url, NEW.headers, NEW.secrets, NEW.sink) IS DISTINCT FROM (OLD.url, OLD.headers, OLD.secrets, OLD.sink)
            OR NEW.disabled_at IS NULL AND OLD.disabled_at IS NOT NULL THEN
        NEW.renewed := OLD.renewed + 1;
        NEW.failing_since := NULL;
    END IF;
    IF NEW.disabled_at IS NULL OR NEW.ended_at IS NOT DISTINCT FROM OLD.ended_at THEN
        NEW.ended_at := NULL;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER b_renew BEFORE UPDATE ON pacer.destinations FOR EACH ROW
    WHEN ((NEW.url, NEW.headers, NEW.secrets, NEW.sink, NEW.disabled_at, NEW.disabled_reason, NEW.renewed, NEW.ended_at)
        IS DISTINCT FROM (OLD.url, OLD.headers, OLD.secrets, OLD.sink, OLD.disabled_at, OLD.disabled_reason, OLD.renewed, OLD.ended_at))
    EXECUTE FUNCTION pacer.renew_destination();

-- spread_campaigns sets the rates that spread what is left of campaigns until their finish_by. Daemons have no right to change campaigns but
-- by this. Rows that another transaction holds are left for the next call.
CREATE FUNCTION pacer.spread_campaigns(ids text[], rates bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT has_table_privilege(session_user, 'pacer.positions', 'INSERT') THEN
        RAISE insufficient_privilege USING MESSAGE = 'pacer.spread_campaigns is for daemons';
    END IF;
    UPDATE pacer.campaigns c SET finish_rate = f.rate
    FROM unnest(ids, rates) AS f (id, rate)
    WHERE c.id = f.id AND c.id IN (
        SELECT free.id FROM pacer.campaigns free WHERE free.id = ANY (ids) AND free.finish_by > clock_timestamp() FOR UPDATE SKIP LOCKED);
END $$;

-- Daemons have no right to change destinations but by the next two functions.

-- destinations_fail notes since when each of the destinations has failed, null for one that works again. An earlier time stays. None is
-- before the last change of the row, which may say that it worked: a daemon that fails alone does not hear of the success of another. A daemon
-- that disables a destination may miss a success that another daemon is about to note, so a success that is noted within a minute enables
-- what a daemon has disabled.
CREATE FUNCTION pacer.destinations_fail(ids text[], since timestamptz[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT has_table_privilege(session_user, 'pacer.positions', 'INSERT') THEN
        RAISE insufficient_privilege USING MESSAGE = 'pacer.destinations_fail is for daemons';
    END IF;
    PERFORM 1 FROM pacer.destinations d WHERE d.id = ANY (ids) ORDER BY d.id FOR UPDATE; -- all daemons in the same order
    UPDATE pacer.destinations d SET failing_since = CASE WHEN f.since IS NOT NULL THEN greatest(f.since, d.updated_at) END, disabled_at = NULL
    FROM unnest(ids, since) AS f (id, since)
    WHERE d.id = f.id AND (d.disabled_at IS NULL AND (d.failing_since IS NULL) <> (f.since IS NULL)
        OR f.since IS NULL AND d.ended_at > clock_timestamp() - interval '1 minute');
END $$;

-- disable_destination disables a destination if its revision is still the one that the daemon has seen.
CREATE FUNCTION pacer.disable_destination(destination text, seen bigint, reason text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at timestamptz := clock_timestamp();
BEGIN
    IF NOT has_table_privilege(session_user, 'pacer.positions', 'INSERT') THEN
        RAISE insufficient_privilege USING MESSAGE = 'pacer.disable_destination is for daemons';
    END IF;
    UPDATE pacer.destinations d SET disabled_at = at, disabled_reason = left(reason, 500), ended_at = at
    WHERE d.id = destination AND d.revision = seen AND d.disabled_at IS NULL;
    RETURN FOUND;
END $$;

----------------------------------------------------------------------------------------------------------------------------------
-- Changes take turns, are recorded, numbered and announced
----------------------------------------------------------------------------------------------------------------------------------

-- take_turn serialises transactions that change quotas, windows and links, because rules about them concern several rows. It fires before
-- the statement touches a row, so that two transactions cannot each hold a row that the other wants while one of them waits here. Deleting
-- a campaign deletes its links. Changes of campaigns and destinations do not take turns, their deletions do.
CREATE FUNCTION pacer.take_turn() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM 1 FROM pacer.store FOR UPDATE;
    RETURN NULL;
END $$;

-- record_change runs with the rights of the owner, so that a role that may change a campaign can neither skip nor forge the record.
-- Inside such a function current_user is the owner. The role that the session has set, or else the session's user, made the change.
-- What triggers and daemons keep in a row is no change of a person: it is announced, not recorded.
CREATE FUNCTION pacer.record_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kept   text[] := '{revision,set_revision,updated_at,finish_rate,failing_since,renewed,ended_at}';
    before jsonb  := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) - kept END;
    after  jsonb  := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) - kept END;
    entry  jsonb  := coalesce(after, before);
BEGIN
    IF before IS DISTINCT FROM after THEN
        INSERT INTO pacer.campaign_changes (who, application, relation, operation, campaign_id, quota_id, destination_id, old, new)
        VALUES (coalesce(nullif(current_setting('role'), 'none'), session_user), current_setting('application_name'),
            TG_TABLE_NAME, lower(TG_OP),
            CASE TG_TABLE_NAME WHEN 'campaigns' THEN entry->>'id' ELSE entry->>'campaign_id' END,
            CASE TG_TABLE_NAME WHEN 'quotas' THEN entry->>'id' ELSE entry->>'quota_id' END,
            CASE TG_TABLE_NAME WHEN 'destinations' THEN entry->>'id' END,
            before, after);
    END IF;
    IF entry ? 'id' AND OLD IS DISTINCT FROM NEW THEN
        PERFORM pg_notify('pacer_catalog', TG_TABLE_NAME || ' ' || (entry->>'id'));
    END IF;
    RETURN NULL;
END $$;

-- next_revision makes the revision of a changed row provisional: below 0. When number_change updates the row again, it gives the row its number
-- and changes nothing else.
CREATE FUNCTION pacer.next_revision() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF OLD.revision < 0 AND NEW.revision >= 0 AND pg_trigger_depth() > 1 THEN
        PERFORM 1 FROM pacer.revision FOR UPDATE;
        OLD.revision := nextval('pacer.revisions');
        RETURN OLD;
    ELSIF NEW IS DISTINCT FROM OLD THEN
        NEW.revision := -nextval('pacer.revisions');
    END IF;
    RETURN NEW;
END $$;

-- number_change runs for each change when the transaction commits. The first call numbers all rows of the table: of the rows below 0, a
-- transaction sees only its own.
CREATE FUNCTION pacer.number_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (CASE TG_TABLE_NAME
        WHEN 'campaigns' THEN EXISTS (SELECT FROM pacer.campaigns c WHERE c.id = NEW.id AND c.revision = NEW.revision)
        WHEN 'destinations' THEN EXISTS (SELECT FROM pacer.destinations d WHERE d.id = NEW.id AND d.revision = NEW.revision)
        ELSE EXISTS (SELECT FROM pacer.quotas q WHERE q.id = NEW.id AND q.revision = NEW.revision) END)
    THEN
        EXECUTE format('UPDATE pacer.%I SET revision = 0 WHERE revision < 0', TG_TABLE_NAME);
    END IF;
    RETURN NULL;
END $$;

-- number_parents gives the quotas of windows and keys, and the campaigns of links, that a statement changed a new revision. Rows whose revision
-- is provisional get a final one anyway. Any other value than the old revision will do: the row's own trigger takes the next one.
CREATE FUNCTION pacer.number_parents() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('UPDATE pacer.%1$ss SET revision = revision + 1 WHERE revision >= 0 AND id IN (SELECT c.%1$s_id FROM %2$s AS c)',
        CASE TG_TABLE_NAME WHEN 'campaign_quotas' THEN 'campaign' ELSE 'quota' END,
        CASE TG_OP WHEN 'UPDATE' THEN '((TABLE before EXCEPT TABLE after) UNION (TABLE after EXCEPT TABLE before))' ELSE 'changed' END);
    RETURN NULL;
END $$;

-- number_moved gives the campaigns of a quota a new revision when the quota begins to be counted in a shard of the store, or ends to be:
-- their slots are granted in another one from then on, and daemons that do not know of that yet must be refused in the first.
CREATE FUNCTION pacer.number_moved() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE pacer.campaigns SET revision = revision + 1
    WHERE revision >= 0 AND id IN (SELECT l.campaign_id FROM pacer.campaign_quotas l WHERE l.quota_id = NEW.id)
        AND (SELECT s.shards FROM pacer.store s) > 1;
    RETURN NULL;
END $$;
CREATE TRIGGER d_moved AFTER UPDATE OF mode ON pacer.quotas
    FOR EACH ROW WHEN ((OLD.mode = 'eventual') <> (NEW.mode = 'eventual')) EXECUTE FUNCTION pacer.number_moved();

-- number_removal gives the removals of a transaction a number, once. No row is left to carry it. A daemon that sees the number move reads
-- everything again.
CREATE FUNCTION pacer.number_removal() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE pacer.revision SET removed = nextval('pacer.revisions') WHERE xmin <> pg_current_xact_id()::xid;
    PERFORM pg_notify('pacer_catalog', TG_TABLE_NAME);
    RETURN NULL;
END $$;

-- The update that gives a row its number is not checked, recorded or announced again.
DO $$
DECLARE
    t   text;
    row record;
BEGIN
    FOREACH t IN ARRAY '{campaigns,destinations,quotas,quota_windows,quota_keys,campaign_quotas,store}'::text[] LOOP
        EXECUTE format('CREATE TRIGGER a_turn BEFORE %s DELETE OR TRUNCATE ON pacer.%s FOR EACH STATEMENT EXECUTE FUNCTION pacer.take_turn()',
            CASE WHEN t NOT IN ('campaigns', 'destinations') THEN 'INSERT OR UPDATE OR' END, t);
        IF t IN ('campaigns', 'destinations', 'quotas') THEN
            EXECUTE format('CREATE TRIGGER z_revision BEFORE INSERT OR UPDATE ON pacer.%s FOR EACH ROW EXECUTE FUNCTION pacer.next_revision()', t);
            EXECUTE format('CREATE CONSTRAINT TRIGGER z_number AFTER INSERT OR UPDATE ON pacer.%s DEFERRABLE INITIALLY DEFERRED '
                'FOR EACH ROW WHEN (NEW.revision < 0) EXECUTE FUNCTION pacer.number_change()', t);
            EXECUTE format('CREATE CONSTRAINT TRIGGER z_removed AFTER DELETE ON pacer.%s DEFERRABLE INITIALLY DEFERRED '
                'FOR EACH ROW EXECUTE FUNCTION pacer.number_removal()', t);
        ELSE
            EXECUTE format('CREATE TRIGGER c_record AFTER INSERT OR UPDATE OR DELETE ON pacer.%s FOR EACH ROW EXECUTE FUNCTION pacer.record_change()', t);
            CONTINUE WHEN t = 'store';
            FOR row IN SELECT * FROM (VALUES ('insert', 'NEW TABLE AS changed'), ('update', 'OLD TABLE AS before NEW TABLE AS after'),
                ('delete', 'OLD TABLE AS changed')) AS v (operation, tables)
            LOOP
                EXECUTE format('CREATE TRIGGER d_parents_%s AFTER %1$s ON pacer.%s REFERENCING %s FOR EACH STATEMENT '
                    'EXECUTE FUNCTION pacer.number_parents()', row.operation, t, row.tables);
            END LOOP;
        END IF;
        EXECUTE format('CREATE TRIGGER e_truncated AFTER TRUNCATE ON pacer.%s FOR EACH STATEMENT EXECUTE FUNCTION pacer.number_removal()', t);
    END LOOP;
    FOR row IN SELECT * FROM (VALUES
        ('campaigns', 'b_check', 'BEFORE INSERT', 'check_campaign'), ('campaigns', 'b_schedule', 'BEFORE INSERT', 'check_schedule'),
        ('campaigns', 'c_record', 'AFTER DELETE OR INSERT', 'record_change'),
        ('destinations', 'b_check', 'BEFORE INSERT', 'check_destination'), ('destinations', 'c_record', 'AFTER DELETE OR INSERT', 'record_change'),
        ('quotas', 'b_check', 'BEFORE INSERT', 'check_quota'), ('quotas', 'c_record', 'AFTER DELETE OR INSERT', 'record_change')
    ) AS v (relation, name, moment, function) LOOP
        EXECUTE format('CREATE TRIGGER %s %s ON pacer.%s FOR EACH ROW EXECUTE FUNCTION pacer.%s()', row.name, row.moment, row.relation, row.function);
        EXECUTE format('CREATE TRIGGER %s_update %s UPDATE ON pacer.%s FOR EACH ROW WHEN (OLD.revision >= 0 OR NEW.revision < 0 OR pg_trigger_depth() = 0) '
            'EXECUTE FUNCTION pacer.%s()', row.name, split_part(row.moment, ' ', 1), row.relation, row.function);
    END LOOP;
END $$;

-- prune_changes deletes the oldest rows, a few at a time and faster than they come. It skips rows that another transaction deletes.
CREATE FUNCTION pacer.prune_changes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM pacer.campaign_changes WHERE change IN (
        SELECT o.change
        FROM (SELECT c.change, c."when" FROM pacer.campaign_changes c ORDER BY c.change LIMIT 64 FOR UPDATE SKIP LOCKED) AS o
        WHERE o."when" < now() - (SELECT s.changes_kept FROM pacer.store s));
    RETURN NULL;
END $$;
CREATE TRIGGER prune AFTER INSERT ON pacer.campaign_changes
    FOR EACH ROW WHEN (NEW.change % 16 = 0) EXECUTE FUNCTION pacer.prune_changes();

----------------------------------------------------------------------------------------------------------------------------------
-- Corrections of counts
----------------------------------------------------------------------------------------------------------------------------------

-- record_adjustment is called in the transaction in which the count of a window is corrected in the store, with the minute of the store's
-- clock. What is added enters the ledger, from which lost windows are rebuilt.
CREATE FUNCTION pacer.record_adjustment(quota text, span interval, before bigint, after bigint, reason text, minute bigint)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    who    text := coalesce(nullif(current_setting('role'), 'none'), session_user);
    number bigint;
BEGIN
    IF NOT has_table_privilege(who, 'pacer.quota_windows', 'UPDATE') THEN
        RAISE insufficient_privilege USING MESSAGE = 'to adjust a quota takes the right to change its windows';
    END IF;
    INSERT INTO pacer.campaign_changes (who, application, relation, operation, quota_id, old, new)
    VALUES (who, current_setting('application_name'), 'quota_windows', 'adjust', quota,
        jsonb_build_object('quota_id', quota, 'span', span, 'used', before),
        jsonb_build_object('quota_id', quota, 'span', span, 'used', after, 'reason', reason))
    RETURNING change INTO number;
    IF after > before THEN
        INSERT INTO pacer.quota_usage (quota_id, node, minute, units)
        VALUES (quota, 'adjust-' || number, minute, after - before);
    END IF;
END $$;

-- record_cancel is called in the transaction in which jobs of a campaign are marked as cancelled in the dedupe ledger.
CREATE FUNCTION pacer.record_cancel(campaign text, ids text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    who text := coalesce(nullif(current_setting('role'), 'none'), session_user);
BEGIN
    IF NOT has_table_privilege(who, 'pacer.campaigns', 'UPDATE') THEN
        RAISE insufficient_privilege USING MESSAGE = 'to cancel jobs takes the right to change campaigns';
    END IF;
    INSERT INTO pacer.campaign_changes (who, application, relation, operation, campaign_id, new)
    VALUES (who, current_setting('application_name'), 'jobs', 'cancel', campaign, jsonb_build_object('ids', ids));
END $$;
-- +goose StatementEnd
