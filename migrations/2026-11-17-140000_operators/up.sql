CREATE TABLE operators (
    id integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL UNIQUE CHECK (length(name) BETWEEN 1 AND 50),
    role text NOT NULL CHECK (role IN ('viewer', 'operator', 'admin', 'door')),
    key_hash bytea NOT NULL UNIQUE CHECK (octet_length(key_hash) = 32),
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE operators IS 'People and programs who run sales';
COMMENT ON COLUMN operators.id IS 'Counted from 1';
COMMENT ON COLUMN operators.name IS 'What the audit log calls them';
COMMENT ON COLUMN operators.role IS 'viewer sees, operator also acts, admin also sets up; door checks tickets in';
COMMENT ON COLUMN operators.key_hash IS 'BLAKE3 of the key; the key itself is shown once and not kept';
COMMENT ON COLUMN operators.created_at IS 'When they were added';

CREATE TABLE controls (
    event_id integer PRIMARY KEY REFERENCES events,
    version bigint NOT NULL CHECK (version > 0),
    state text NOT NULL CHECK (state IN ('open', 'paused', 'closed')),
    reason text NOT NULL,
    settings jsonb NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE controls IS 'What operators decided about an event; without a row, nothing';
COMMENT ON COLUMN controls.event_id IS 'Which event';
COMMENT ON COLUMN controls.version IS 'Counts the decisions: Redis takes none that is older than the one it has';
COMMENT ON COLUMN controls.state IS 'open, paused: nobody is let in, closed: nobody joins either';
COMMENT ON COLUMN controls.reason IS 'What visitors read about a pause: JSON with ko and en, or nothing';
COMMENT ON COLUMN controls.settings IS 'Settings that differ from the configuration, by name';
COMMENT ON COLUMN controls.changed_at IS 'When the last decision was made';

-- Until now servers noted the state that they saw in Redis. From now on Redis gets it from here.
INSERT INTO controls (event_id, version, state, reason, settings)
SELECT id, 1, state, reason, '{}' FROM events WHERE state <> 'open';
COMMENT ON COLUMN events.state IS 'Written by servers of an earlier version only; see controls';
COMMENT ON COLUMN events.reason IS 'Written by servers of an earlier version only; see controls';

CREATE TABLE audit_log (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    at timestamptz NOT NULL DEFAULT now(),
    who text NOT NULL,
    action text NOT NULL,
    event_id integer REFERENCES events,
    before jsonb,
    after jsonb
);
COMMENT ON TABLE audit_log IS 'Every change by an operator, written with the change; rows are only ever added';
COMMENT ON COLUMN audit_log.id IS 'Order of the changes';
COMMENT ON COLUMN audit_log.at IS 'When';
COMMENT ON COLUMN audit_log.who IS 'Name of the operator at that time';
COMMENT ON COLUMN audit_log.action IS 'What was done, such as pause or policy';
COMMENT ON COLUMN audit_log.event_id IS 'Event it was done to, if one';
COMMENT ON COLUMN audit_log.before IS 'What was changed, as it was';
COMMENT ON COLUMN audit_log.after IS 'The same, as it is since';
CREATE INDEX audit_log_by_event ON audit_log (event_id, id) WHERE event_id IS NOT NULL;

CREATE TABLE figures (
    event_id integer NOT NULL REFERENCES events,
    at timestamptz NOT NULL,
    waiting bigint NOT NULL,
    inside bigint NOT NULL,
    held bigint NOT NULL,
    sold bigint NOT NULL,
    entered bigint NOT NULL,
    admitted bigint NOT NULL,
    swept bigint NOT NULL,
    PRIMARY KEY (event_id, at)
);
COMMENT ON TABLE figures IS 'Figures of awake events, a point every five seconds, kept for an hour';
COMMENT ON COLUMN figures.event_id IS 'Which event';
COMMENT ON COLUMN figures.at IS 'When, in whole steps of five seconds';
COMMENT ON COLUMN figures.waiting IS 'People waiting';
COMMENT ON COLUMN figures.inside IS 'People inside';
COMMENT ON COLUMN figures.held IS 'Seats held';
COMMENT ON COLUMN figures.sold IS 'Seats sold';
COMMENT ON COLUMN figures.entered IS 'People who joined the line since the event began';
COMMENT ON COLUMN figures.admitted IS 'People let in since the event began';
COMMENT ON COLUMN figures.swept IS 'Places dropped because nobody asked about them, since the event began';
CREATE INDEX figures_by_time ON figures (at);
