ALTER TABLE events
    ADD COLUMN state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'paused', 'closed')),
    ADD COLUMN reason text NOT NULL DEFAULT '';
COMMENT ON COLUMN events.state IS 'Whether people were let in when a server last looked: open, paused or closed';
COMMENT ON COLUMN events.reason IS 'What visitors were told about a pause at that time';
