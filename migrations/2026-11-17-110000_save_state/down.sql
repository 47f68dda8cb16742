ALTER TABLE events
    DROP COLUMN state,
    DROP COLUMN reason;
