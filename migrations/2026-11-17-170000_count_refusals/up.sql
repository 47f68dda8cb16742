CREATE TABLE refusals (
    event_id integer NOT NULL REFERENCES events,
    minute timestamptz NOT NULL,
    reason text NOT NULL,
    times bigint NOT NULL CHECK (times > 0),
    PRIMARY KEY (event_id, minute, reason)
);
COMMENT ON TABLE refusals IS 'How often all servers together refused to take in, hold or sell, kept for an hour';
COMMENT ON COLUMN refusals.event_id IS 'Which event';
COMMENT ON COLUMN refusals.minute IS 'When, in whole minutes';
COMMENT ON COLUMN refusals.reason IS 'Code of the error, such as SOLD_OUT';
COMMENT ON COLUMN refusals.times IS 'How often in this minute';
CREATE INDEX refusals_by_time ON refusals (minute);
