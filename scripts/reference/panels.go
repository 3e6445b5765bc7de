package main

var variables = []variable{
	{"job", "job", "Installation", "pacer_build_info"},
	{"campaign", "campaign", "Campaign", "pacer_campaign_send_rate"},
	{"quota", "quota", "Quota", "pacer_quota_limit"},
	{"sink", "sink", "Sink", "pacer_jobs_in_flight"},
}

var sections = []section{
	{"Overview", []panel{
		{"Daemons", "How many run, by version.", "short", 4, true, false, []query{{`count by (version) (pacer_build_info{@})`, "{{version}}"}}},
		{"Ready", "How many of them take jobs.", "short", 4, true, false, []query{{`sum(pacer_ready{@})`, "ready"}}},
		{"Redis", "1 while each shard answers every daemon.", "short", 4, true, false, []query{{`min by (shard) (pacer_store_up{@})`, "shard {{shard}}"}}},
		{"PostgreSQL", "How long ago campaigns were last read, by the daemon that is worst off.", "s", 4, true, false, []query{
			{`time() - min(pacer_catalog_loaded_timestamp_seconds{@} > 0)`, "read"}}},
		{"Late jobs", "Could have been sent in the last minute and were not. Capacity calls for daemons, destination does not.", "short", 4, true, false, []query{
			{`max by (cause) (pacer_actionable_lag{@})`, "{{cause}}"}}},
		{"Dead letters of an hour", "Jobs that were given up.", "short", 4, true, false, []query{{`sum(increase(pacer_dead_letters_total{@}[1h]))`, "dead"}}},
		{"Sent against allowed", "Delivered jobs per second, and dashed what all campaigns are allowed together.", "ops", 12, false, true, []query{
			{`sum(rate(pacer_jobs_settled_total{@,outcome="delivered"}[$__rate_interval]))`, "delivered"},
			{`sum(max by (campaign) (pacer_campaign_send_rate{@}))`, "allowed"}}},
		{"Campaigns", "What they do: sending, idle, or what holds them.", "short", 12, false, false, []query{
			{`max by (state) (pacer_campaigns{@}) > 0`, "{{state}}"}}},
	}},
	{"Campaigns", []panel{
		{"Sent against send_rate", "Delivered jobs per second, and dashed what the campaign is allowed.", "ops", 16, false, true, []query{
			{`sum by (campaign) (rate(pacer_jobs_settled_total{@campaign,outcome="delivered"}[$__rate_interval]))`, "{{campaign}}"},
			{`max by (campaign) (pacer_campaign_send_rate{@campaign})`, "{{campaign}} send_rate"}}},
		{"Backlog", "Jobs that are not settled: waiting, retrying and in flight.", "short", 8, false, false, []query{
			{`sum by (campaign) (max by (campaign, state) (pacer_campaign_backlog{@campaign}))`, "{{campaign}}"}}},
		{"Time to go", "Until what waits, and what is still expected, will have been sent.", "s", 8, false, false, []query{
			{`max by (campaign) (pacer_campaign_eta_seconds{@campaign} > 0)`, "{{campaign}}"}}},
		{"Late jobs", "The part of each campaign in the late jobs.", "short", 8, false, false, []query{
			{`max by (campaign) (pacer_campaign_late{@campaign})`, "{{campaign}}"}}},
		{"Held", "For how long campaigns with jobs have sent nothing, and why.", "s", 8, false, false, []query{
			{`time() - min by (campaign, cause) (pacer_campaign_held_since_timestamp_seconds{@campaign})`, "{{campaign}} {{cause}}"}}},
		{"Fate of jobs", "What became of jobs, per second.", "ops", 8, false, false, []query{
			{`sum by (outcome) (rate(pacer_jobs_settled_total{@campaign}[$__rate_interval]))`, "{{outcome}}"}}},
		{"Dead letters", "By what they were given up for, per second.", "ops", 8, false, false, []query{
			{`sum by (reason) (rate(pacer_dead_letters_total{@}[$__rate_interval])) > 0`, "{{reason}}"}}},
		{"Ingress", "Records published and not settled, by topic.", "short", 8, false, false, []query{
			{`sum by (topic) (pacer_ingress_lag{@})`, "{{topic}}"}}},
	}},
	{"Quotas", []panel{
		{"Left of each window", "Share of each window that could still be used.", "percentunit", 8, false, false, []query{
			{`max by (quota, window) (pacer_quota_remaining{@quota}) / (max by (quota, window) (pacer_quota_limit{@quota}) > 0)`, "{{quota}} / {{window}}"}}},
		{"Full again in", "If nothing more were sent.", "s", 8, false, false, []query{
			{`clamp_min(max by (quota, window) (pacer_quota_reset_timestamp_seconds{@quota}) - time(), 0)`, "{{quota}} / {{window}}"}}},
		{"Denied", "Which window holds campaigns back: asks per second that it reduced or denied.", "ops", 8, false, false, []query{
			{`sum by (quota, window) (rate(pacer_quota_denied_total{@quota}[$__rate_interval]))`, "{{quota}} / {{window}}"}}},
	}},
	{"Daemons", []panel{
		{"Lateness of slots", "How long after its slot a job was passed to its sink.", "s", 8, false, false, []query{
			{`histogram_quantile(0.5, sum by (le) (rate(pacer_slot_lateness_seconds_bucket{@}[$__rate_interval])))`, "p50"},
			{`histogram_quantile(0.99, sum by (le) (rate(pacer_slot_lateness_seconds_bucket{@}[$__rate_interval])))`, "p99"}}},
		{"Slots given up", "Slots that could not be used in time: too little CPU, or calls.", "ops", 8, false, false, []query{
			{`sum by (instance) (rate(pacer_slots_forfeited_total{@}[$__rate_interval]))`, "{{instance}}"}}},
		{"Quantum", "Stretch of a timeline asked for at once; above 0.025 s changes act later.", "s", 8, false, false, []query{
			{`max by (instance) (pacer_quantum_seconds{@})`, "{{instance}}"}}},
		{"Time to take slots", "Round trips to Redis, repetitions included.", "s", 8, false, false, []query{
			{`histogram_quantile(0.5, sum by (le) (rate(pacer_take_seconds_bucket{@}[$__rate_interval])))`, "p50"},
			{`histogram_quantile(0.99, sum by (le) (rate(pacer_take_seconds_bucket{@}[$__rate_interval])))`, "p99"}}},
		{"Campaigns per round trip", "How many campaigns are asked for in one take.", "short", 8, false, false, []query{
			{`sum(rate(pacer_take_items_sum{@}[$__rate_interval])) / sum(rate(pacer_take_items_count{@}[$__rate_interval]))`, "mean"}}},
		{"Partitions", "How many each daemon has.", "short", 8, false, false, []query{
			{`sum by (instance, place) (pacer_partitions{@})`, "{{instance}} {{place}}"}}},
		{"Memory for jobs", "Bytes held for jobs and for fetches in flight.", "bytes", 8, false, false, []query{
			{`max by (instance) (pacer_buffer_bytes{@})`, "{{instance}}"}}},
		{"Oldest job", "How long ago the oldest job that is read and not settled was published, or first read.", "s", 8, false, false, []query{
			{`max by (place) (pacer_oldest_job_seconds{@})`, "{{place}}"}}},
		{"Hops", "Writes of a job to lanes: above 1 are retries that came back.", "short", 8, false, false, []query{
			{`sum(rate(pacer_requeue_hops_sum{@}[$__rate_interval])) / sum(rate(pacer_requeue_hops_count{@}[$__rate_interval]))`, "mean"}}},
		{"Lane read factor", "Records read from lanes per job settled; far above 2 asks for more lanes.", "short", 8, false, false, []query{
			{`max by (instance) (pacer_lane_read_factor{@})`, "{{instance}}"}}},
		{"Catalog revision", "Equal everywhere; a daemon that lags cannot read PostgreSQL.", "none", 8, false, false, []query{
			{`max by (instance) (pacer_config_revision{@})`, "{{instance}}"}}},
		{"Timers", "Records that wait until they are due, by timer.", "short", 8, false, false, []query{
			{`sum by (topic) (pacer_timer_backlog{@})`, "{{topic}}"}}},
	}},
	{"Sinks", []panel{
		{"Answers", "Calls per second, by what was answered.", "ops", 8, false, false, []query{
			{`sum by (sink, class) (rate(pacer_sink_seconds_count{@sink}[$__rate_interval])) > 0`, "{{sink}} {{class}}"}}},
		{"Latency of sinks", "99 of 100 calls take no longer.", "s", 8, false, false, []query{
			{`histogram_quantile(0.99, sum by (sink, le) (rate(pacer_sink_seconds_bucket{@sink}[$__rate_interval])))`, "{{sink}}"}}},
		{"In flight", "Calls at once over all daemons, and dashed the most that may be.", "short", 8, false, true, []query{
			{`sum by (sink) (pacer_jobs_in_flight{@sink})`, "{{sink}}"},
			{`sum by (sink) (pacer_sink_max_in_flight{@sink})`, "{{sink}} max_in_flight"}}},
		{"Gates", "For how long a sink is closed from now on, and why; one that is probed shows a second.", "s", 12, false, false, []query{
			{`clamp_min(max by (sink, cause) (pacer_gate_closed_until_timestamp_seconds{@sink}) - time(), 0)`, "{{sink}} {{cause}}"}}},
		{"Destinations", "Rows of pacer.destinations, by state.", "short", 12, false, false, []query{
			{`max by (state) (pacer_destinations{@})`, "{{state}}"}}},
	}},
}
