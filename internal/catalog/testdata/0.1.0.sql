-- Rows as people and daemons of 0.1.0 wrote them, for TestRowsOfEachReleaseAreRead. This file is never edited.
UPDATE pacer.store SET shards = 2;

INSERT INTO pacer.quotas (id, on_store_failure, mode, spend, rollout, unit, shard) VALUES
    ('provider', 'closed', 'strict', 'even', 50, 'units', 1),
    ('traffic', 'open', 'eventual', 'greedy', 100, 'bytes', 0);
INSERT INTO pacer.quota_windows (quota_id, span, max_units, algorithm, anchor) VALUES
    ('provider', '1 minute', 300, 'sliding', NULL),
    ('provider', '1 hour', 900, 'log', NULL),
    ('provider', '1 day', 100000, 'fixed', 'day@Europe/Moscow'),
    ('traffic', '1 second', 1000000, 'sliding', NULL);

INSERT INTO pacer.campaigns (id, send_rate) VALUES ('plain', 2.5);
INSERT INTO pacer.campaigns (id, send_rate, send_per, burst, status, paused_until, sink, priority_weight, max_in_flight, starts_at, ends_at,
    active_hours, time_zone, ramp, ramp_since, overflow, job_ttl, expected_total)
VALUES ('full', 150, '1 minute', 10, 'paused', '2100-01-01 00:00Z', 'receiver', 3, 64, '2026-01-01 00:00Z', '2100-01-02 00:00Z',
    '[{"days": ["mon", "fri"], "from": "09:00", "to": "21:00"}]', 'Europe/Moscow', '{"start": 10, "add": 5, "every": "1 minute"}',
    '2026-02-01 00:00Z', 'block', '2 days', 1000);
INSERT INTO pacer.campaign_quotas VALUES ('full', 'provider'), ('full', 'traffic'), ('plain', 'provider');

INSERT INTO pacer.destinations (id, sink, url, headers, secrets, max_in_flight, disabled_at, disabled_reason) VALUES
    ('shop-7', 'customers', 'https://hooks.example.com/orders', '{"x-tenant": "blue", "authorization": "file:shop-7"}', '{file:new,env:DESTINATION_OLD}', 4,
        '2026-03-01 00:00Z', 'the customer asked for it');

INSERT INTO pacer.campaign_progress (campaign_id, delivered, rejected, dead, expired, cancelled, backlog, done_at)
VALUES ('full', 7, 1, 2, 3, 4, 5, '2026-12-01 00:00Z');
INSERT INTO pacer.positions (group_id, topic, partition, committed, metadata, topic_id)
VALUES ('pacer', 'pacer.lanes', 3, 42, 'AQ', 'AAAAAAAAAAAAAAAAAAAAAQ');
INSERT INTO pacer.quota_usage (quota_id, minute, node, units, incarnation) VALUES ('provider', 29000000, '', 12, 5), ('provider', 29000001, 'one', 30, NULL);
INSERT INTO pacer.quota_anchors VALUES ('provider', '1 day', '2026-12-01 21:00Z');
INSERT INTO pacer.store_incarnations (shard, incarnation, cause) VALUES (1, 5, 'the first');
INSERT INTO pacer.replays (id, job, running) VALUES ('r1', '{"id": "r1"}', false);
