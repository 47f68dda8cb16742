-- The newest block of places stays noted until a place of it is given out, so that a repair that fails can have it again.
ALTER TABLE events
    ADD COLUMN block_start bigint NOT NULL DEFAULT 0,
    ADD COLUMN block_end bigint NOT NULL DEFAULT 0,
    ADD COLUMN block_fetch integer NOT NULL DEFAULT 0,
    ADD COLUMN block_used boolean NOT NULL DEFAULT true,
    ADD CHECK (block_start <= block_end AND block_end <= ceiling);
COMMENT ON COLUMN events.block_start IS 'First place of the newest block handed to Redis';
COMMENT ON COLUMN events.block_end IS 'First place after that block';
COMMENT ON COLUMN events.block_fetch IS 'How often that block was fetched: only its last fetch may give out places';
COMMENT ON COLUMN events.block_used IS 'Whether a place of it may have been given out; if not, the next repair fetches it again';
